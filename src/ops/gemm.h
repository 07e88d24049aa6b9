// SPDX-License-Identifier: Apache-2.0
// d[m,n] (+)= A[m,k] . B[n,k]^T (+ bias[n]), as backends take it.
#pragma once
#include "ops/view.h"

namespace fp8::ops {

struct Gemm {
  Side a, b;    // both quantized (a legal pair) or both unquantized (F32/F16/BF16 strided matrices)
  Matrix d;     // F32/BF16/F16
  Vector bias;  // F32/BF16/F16 [n]; data NULL = none
  int32_t accumulate, fast_accumulation;
  int32_t max_sms, reserved;
  void *workspace;
  uint64_t workspace_bytes;
};

}  // namespace fp8::ops
