// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/backend.h"
#include "core/error.h"
#include "fp8/recipe.h"
#include "numerics/block.h"

namespace fp8::cpu {

// kernels/numerics includes nothing, so it has the enums' values for itself
static_assert(num::kF32 == FP8_DTYPE_F32 && num::kF16 == FP8_DTYPE_F16 && num::kBF16 == FP8_DTYPE_BF16 &&
                  num::kE4M3 == FP8_DTYPE_E4M3 && num::kE5M2 == FP8_DTYPE_E5M2 && num::kE8M0 == FP8_DTYPE_E8M0,
              "dtypes");
static_assert(num::kTensor == FP8_SCALING_TENSOR && num::kRow == FP8_SCALING_ROW && num::k1x128 == FP8_SCALING_1X128 &&
                  num::k128x128 == FP8_SCALING_128X128 && num::k1x32 == FP8_SCALING_1X32 &&
                  num::k32x32 == FP8_SCALING_32X32,
              "scalings");
static_assert(num::kRuleFp32 == FP8_SCALE_FP32 && num::kRulePow2 == FP8_SCALE_POW2 &&
                  num::kRuleE8m0 == FP8_SCALE_E8M0 && num::kRuleE8m0Floor == FP8_SCALE_E8M0_FLOOR,
              "rules");

namespace {

template <class Op, uint64_t (*bytes_of)(const Op &), void (*launch)(const Op &, const Parallel &)>
int32_t run_within(void *self, const Op *op, fp8_stream stream, const char *what) {
  return entry(self, [&](Backend &b) -> int32_t {
    const uint64_t got = op->workspace_bytes, need = bytes_of(*op);
    if (got >= need) return run<Op, launch>(self, op, stream);
    return b.fail(FP8_ERR_ARGUMENT,
                  format("workspace.bytes is %llu, %s needs %llu", static_cast<unsigned long long>(got), what,
                         static_cast<unsigned long long>(need))
                      .c_str());
  });
}

}  // namespace

void fill_quantize(ops::BackendApi &t) {
  t.quantize_workspace = workspace<ops::Quantize, quantize_workspace>;
  t.quantize = [](void *self, const ops::Quantize *q, fp8_stream stream) {
    return run_within<ops::Quantize, quantize_workspace, quantize>(self, q, stream, "quantizing");
  };
  t.dequantize = run<ops::Dequantize, dequantize>;
  t.measure_workspace = workspace<ops::Measure, measure_workspace>;
  t.measure = [](void *self, const ops::Measure *m, fp8_stream stream) {
    return run_within<ops::Measure, measure_workspace, measure>(self, m, stream, "measuring");
  };
  t.transpose = run<ops::Transpose, transpose>;
  t.cast = run<ops::Cast, cast>;
}

}  // namespace fp8::cpu
