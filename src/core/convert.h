// SPDX-License-Identifier: Apache-2.0
// From quantized to plain and between plain tensors: dequantize, measure, transpose, cast; and requantize.
#pragma once
#include "core/quantize.h"

namespace fp8 {

void dequantize(const fp8_context &c, const fp8_qtensor &q, uint32_t side, const fp8_tensor &x, fp8_stream stream);
void transpose(const fp8_context &c, const fp8_tensor &src, const fp8_tensor &dst, fp8_stream stream);
void cast(const fp8_context &c, const fp8_tensor &src, const fp8_tensor *scale, int32_t saturate, const fp8_tensor &dst,
          fp8_stream stream);
uint64_t measure_workspace(const fp8_context &c, const fp8_tensor &x, const fp8_qtensor &q, uint32_t side);
void measure(const fp8_context &c, const fp8_tensor &x, const fp8_qtensor &q, uint32_t side, const fp8_tensor &sums,
             const fp8_buffer *workspace, fp8_stream stream);

// Source and target: the side that q alone has, else the side that `other` lacks, else row to col.
struct RequantizePlan {
  int32_t from = 0, to = 0;
  ops::Transpose codes{}, scale{};  // exact transpose
  uint64_t zero_bytes = 0;          // of the target's scales, whose padding stays zero
  ops::Cast cast{};                 // into a COPY
  ops::Dequantize dequantize{};     // into a COPY, from codes
  ops::Quantize op{};               // double quantization
  enum Way { kView, kCast, kDequantize, kTranspose, kQuantize } way = kView;
  bool view = false;    // `other` is to be written back
  fp8_qtensor other{};  // `other` with an UNQUANTIZED target viewing the source
  uint64_t workspace = 0;
};
RequantizePlan plan_requantize(const fp8_context &c, const fp8_recipe &r, const fp8_qtensor &q,
                               const fp8_qtensor &other, const fp8_buffer *workspace, Mode mode);
void run_requantize(const fp8_context &c, RequantizePlan &plan, void *workspace, fp8_stream stream);

}  // namespace fp8
