// SPDX-License-Identifier: Apache-2.0
// Data movement without quantization, as backends take it.
#pragma once
#include "ops/view.h"

namespace fp8::ops {

struct Transpose {  // dst[c, r] = src[r, c]; same dtype, any element size
  Matrix src, dst;
};

struct Cast {  // dst = convert(src * scale): any of F32/F16/BF16/E4M3/E5M2 to any
  Matrix src, dst;
  const float *scale;  // device, one element; NULL = 1
  int32_t saturate;
  int32_t max_sms;  // 0 = the context's, as in every call that has none
};

}  // namespace fp8::ops
