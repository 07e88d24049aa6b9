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

int32_t short_workspace(const Backend &b, const char *what, uint64_t got, uint64_t need) {
  return b.fail(FP8_ERR_ARGUMENT, format("workspace.bytes is %llu, %s needs %llu", static_cast<unsigned long long>(got),
                                         what, static_cast<unsigned long long>(need))
                                      .c_str());
}

}  // namespace

int32_t entry_quantize_workspace(void *self, const ops::Quantize *q, uint64_t *bytes) {
  return entry(self, [&](Backend &) {
    *bytes = quantize_workspace(*q);
    return FP8_OK;
  });
}

int32_t entry_quantize(void *self, const ops::Quantize *q, fp8_stream) {
  return entry(self, [&](Backend &b) {
    const uint64_t need = quantize_workspace(*q);
    if (q->workspace_bytes < need) return short_workspace(b, "quantizing", q->workspace_bytes, need);
    quantize(*q, b.parallel());
    b.host.count(b.config.owner, ops::Counters::kLaunches, 1);
    return static_cast<int32_t>(FP8_OK);
  });
}

int32_t entry_dequantize(void *self, const ops::Dequantize *d, fp8_stream) {
  return entry(self, [&](Backend &b) {
    dequantize(*d, b.parallel());
    b.host.count(b.config.owner, ops::Counters::kLaunches, 1);
    return FP8_OK;
  });
}

int32_t entry_measure_workspace(void *self, const ops::Measure *m, uint64_t *bytes) {
  return entry(self, [&](Backend &) {
    *bytes = measure_workspace(*m);
    return FP8_OK;
  });
}

int32_t entry_measure(void *self, const ops::Measure *m, fp8_stream) {
  return entry(self, [&](Backend &b) {
    const uint64_t need = measure_workspace(*m);
    if (m->workspace_bytes < need) return short_workspace(b, "measuring", m->workspace_bytes, need);
    measure(*m, b.parallel());
    b.host.count(b.config.owner, ops::Counters::kLaunches, 1);
    return static_cast<int32_t>(FP8_OK);
  });
}

}  // namespace fp8::cpu
