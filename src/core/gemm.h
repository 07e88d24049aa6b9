// SPDX-License-Identifier: Apache-2.0
// Products of two sides: checks first, then one backend call. linear uses the same.
#pragma once
#include "core/context.h"
#include "core/overlap.h"
#include "fp8/gemm.h"
#include "ops/gemm.h"

namespace fp8 {

struct GemmNames {
  const char *a = "a", *b = "b", *bias = "bias", *d = "d";
};

// Refuses pairs outside the closed list, mismatched contraction, dtypes of d and bias. `optional` data that a query
// does not have counts as given.
ops::Gemm plan_gemm(const fp8_context &c, const ops::Side &a, const ops::Side &b, const fp8_tensor *bias,
                    const fp8_tensor &d, uint32_t flags, int32_t max_sms, const GemmNames &names, bool query);
uint64_t gemm_backend_bytes(const fp8_context &c, const ops::Gemm &op);
void run_gemm(const fp8_context &c, ops::Gemm &op, void *workspace, uint64_t bytes, fp8_stream stream);

uint64_t gemm_workspace(const fp8_context &c, const fp8_gemm_args &args);
void gemm(const fp8_context &c, const fp8_gemm_args &args, fp8_stream stream);

}  // namespace fp8
