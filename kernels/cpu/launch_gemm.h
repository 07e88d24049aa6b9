// SPDX-License-Identifier: Apache-2.0
// CPU GEMM kernels as the backend calls them: plain parameters, scratch carved by the caller, no allocation.
#pragma once
#include <cstdint>

#include "ops/gemm.h"

namespace fp8::cpu {

// How a kernel spreads independent parts over threads. run may be called from many threads.
struct GemmPool {
  void *owner;
  void (*run)(void *owner, int64_t n, void (*body)(void *arg, int64_t begin, int64_t end), void *arg);
  int32_t threads;
};

// S7: exact sums per K block, one rounding, then FP32 in increasing k. Unquantized operands: products and sums in FP64
// in increasing k, one rounding to FP32 at the end. The same bits on every CPU, SIMD target and thread count.
uint64_t gemm_ref_scratch(const ops::Gemm &g, int32_t threads);
void gemm_ref(const ops::Gemm &g, const GemmPool &pool, void *scratch);

// Operands decoded to FP32 tiles (block scales multiplied in, tensor and row scales at the end), FP32 multiply-adds in
// increasing k. The same bits for every thread count on one SIMD target.
uint64_t gemm_portable_scratch(const ops::Gemm &g, int32_t threads);
void gemm_portable(const ops::Gemm &g, const GemmPool &pool, void *scratch);

// Where an operand's values go, for a GEMM of other makers. Plain: element (row, k) at row * row_stride + k.
// Blocked: blocks of block_rows x block_k, whose neighbours lie row_stride (next rows) and k_stride (next k) elements
// apart; inside, 32-bit words of one row (one F32, two BF16 of consecutive k), block_rows of them for each next k. What
// lies beyond the operand in the last blocks is zero.
struct DecodeTo {
  void *data;
  int32_t dtype;                // F32 or BF16
  int32_t block_rows, block_k;  // 0 = plain
  int32_t fold;                 // multiply the scales in; else codes alone
  int64_t row_stride, k_stride;
};

constexpr int64_t kDecodeK = 256;  // block_k divides this

// Values of a side. False: a folded scale is no power of two, or takes a nonzero value outside BF16's normal range, so
// that BF16 would not be exact; `to` is then unspecified. F32 is always true.
bool decode_operand(const ops::Side &side, const DecodeTo &to, const GemmPool &pool);

// d (+)= s (FP32, rows `stride` apart) * the sides' scales if these wait for the end, + bias: for rows [i0, i0 + rows)
// and columns [j0, j0 + cols).
void finish_part(const ops::Gemm &g, const float *s, int64_t stride, bool scale, int64_t i0, int64_t rows, int64_t j0,
                 int64_t cols);

}  // namespace fp8::cpu
