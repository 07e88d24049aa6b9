/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  FP8 and BF16 matrix products. */
#ifndef FP8_GEMM_H
#define FP8_GEMM_H
#include "context.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup gemm Matrix product
 *  d[m, n] (+)= A . B^T (+ bias[n]). An operand is a quantized matrix and one of its sides: sides replace transpose
 * flags. Which pairs are legal: @ref recipes. Which implementation ran, and why a faster one declined:
 * fp8_context_explain(), or FP8_VERBOSE=1 in the environment.
 *  @{ */

/** Bits of fp8_gemm_args.flags. */
enum fp8_gemm_flags {
  FP8_GEMM_ACCUMULATE = 1, /**< d is added to: in FP32, rounded once */
  FP8_GEMM_FAST_ACCUMULATION =
      2 /**< tensor cores may keep partial sums in their own, shorter registers over all of K */
};

/** Arguments of fp8_gemm(). Read during the call only; what they point to must live until the stream has passed it. */
typedef struct fp8_gemm_args {
  size_t struct_size;     /**< set by FP8_INIT */
  const fp8_qtensor *a;   /**< A, [m, k] on a_side; a and b are both quantized (a legal pair) or both unquantized */
  const fp8_qtensor *b;   /**< B, [n, k] on b_side */
  const fp8_tensor *bias; /**< optional [n], F32 or d's dtype; added before the output is rounded */
  fp8_tensor *d;          /**< [m, n], F32, BF16 or F16; must not overlap an operand */
  const fp8_buffer *workspace; /**< fp8_gemm_workspace() bytes; NULL = from the context's allocator, counted */
  uint32_t a_side;             /**< FP8_SIDE_ROW or FP8_SIDE_COL */
  uint32_t b_side;             /**< FP8_SIDE_ROW or FP8_SIDE_COL */
  uint32_t flags;              /**< bits of enum fp8_gemm_flags */
  int32_t max_sms;             /**< multiprocessors to take; 0 = the context's */
} fp8_gemm_args;

/** Workspace of fp8_gemm(). Reads shapes, strides and kinds only: pointers may be NULL. [pure]
 *  @param c the context
 *  @param args as for the call
 *  @param[out] bytes enough for every legal alignment
 *  @return FP8_OK, or what the call would refuse */
FP8_API fp8_status fp8_gemm_workspace(const fp8_context *c, const fp8_gemm_args *args, uint64_t *bytes);

/** Multiplies. The reference implementation sums each block of K exactly and rounds once a block (S7 of @ref numerics);
 *  every other one meets an error bound against FP64 of the dequantized operands. The same bits for the same library
 *  version, device model, thread count and shapes. [shared] [stream]
 *  @param c the context
 *  @param args the arguments
 *  @param stream the stream
 *  @return FP8_OK; FP8_ERR_ARGUMENT with tensor, dimension, value and rule; FP8_ERR_UNSUPPORTED with every
 * implementation's reason; FP8_ERR_NO_ALLOC; FP8_ERR_BACKEND */
FP8_API fp8_status fp8_gemm(const fp8_context *c, const fp8_gemm_args *args, fp8_stream stream);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
