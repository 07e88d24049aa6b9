/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  FP8 and BF16 matrix products. */
#ifndef FP8_GEMM_H
#define FP8_GEMM_H
#include "context.h"
#ifdef __cplusplus
extern "C" {
#endif

enum fp8_gemm_flags { FP8_GEMM_ACCUMULATE = 1, FP8_GEMM_FAST_ACCUMULATION = 2 };
typedef struct fp8_gemm_args {      /* d[m,n] (+)= A . B^T (+ bias[n]); sides replace transpose flags */
  size_t struct_size;
  const fp8_qtensor *a, *b;         /* both quantized (a legal pair) or both unquantized */
  const fp8_tensor *bias;
  fp8_tensor *d;
  const fp8_buffer *workspace;
  uint32_t a_side, b_side, flags;
  int32_t max_sms;
} fp8_gemm_args;
FP8_API fp8_status fp8_gemm_workspace(const fp8_context *c, const fp8_gemm_args *args, uint64_t *bytes);                             /* [pure] */
FP8_API fp8_status fp8_gemm(const fp8_context *c, const fp8_gemm_args *args, fp8_stream stream);                                        /* [shared][stream] */

#ifdef __cplusplus
}
#endif
#endif
