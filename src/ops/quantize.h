// SPDX-License-Identifier: Apache-2.0
// Quantize and what belongs to it, as backends take it. Numbers: kernels/numerics.
#pragma once
#include "ops/view.h"

namespace fp8::ops {

struct QuantizeSide {
  Side side;     // codes and scales are written; padding of native scale strides is zeroed by the backend
  Scale amax;    // F32, shape of side.scale; data NULL = not wanted. In when amax_given, else out
  Vector stats;  // U64[8], accumulated into; data NULL = none
  int32_t amax_given;
  int32_t reserved;
};

struct Quantize {
  Matrix x;               // [rows, cols], F32/F16/BF16; or codes when source.scaling != 0
  Side source;            // requantize: x' = codes * scale; its codes replace x (x.dtype NONE). scaling 0 = not used
  int32_t source_is_col;  // source is the col side of the rows x cols matrix
  int32_t amax_only;      // fp8_amax: write amax, no codes, no scales, no stats, no dbias
  QuantizeSide row, col;  // side.scaling 0 = absent. TENSOR and 2D kinds on both sides share one amax and one scale
  float amax_floor;
  int32_t round_bf16;  // round F32 input to BF16 first (FP8_MASTER_BF16 of a weight)
  Vector dbias;        // F32[cols], column sums of x in a fixed order; data NULL = none
  int32_t dbias_accumulate;
  int32_t max_sms;
  void *workspace;
  uint64_t workspace_bytes;
};

struct Dequantize {
  Side side;
  int32_t is_col;  // side is the col side: x = transpose
  int32_t reserved;
  Matrix x;  // [rows, cols] F32/F16/BF16, written: RN of RN32(f32(q) * s_inv)
};

struct Measure {
  Side side;
  int32_t is_col;
  int32_t reserved;
  Matrix x;
  Vector sums;  // F64[4]: x.x, e.e, x.x', max|e|, fixed order of summation
  void *workspace;
  uint64_t workspace_bytes;
};

}  // namespace fp8::ops
