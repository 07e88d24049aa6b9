/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  A linear layer: forward and backward. */
#ifndef FP8_LINEAR_H
#define FP8_LINEAR_H
#include "recipe.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup linear Linear
 *  y = x . w^T + bias and its two gradients, under a recipe. x is [tokens, in], w [out, in], y and dy [tokens, out];
 * leading dimensions are flattened to tokens; zero tokens are fine. What to save for backward is the caller's choice:
 * @ref memory.
 *  @{ */

/** A linear layer: configuration and plans only. Every tensor, the weight included, belongs to the caller, so a linear
 * is const in use and shared between threads. */
typedef struct fp8_linear fp8_linear;

/** How a linear is made. */
typedef struct fp8_linear_config {
  size_t struct_size;       /**< set by FP8_INIT */
  int64_t in_features;      /**< columns of x and w */
  int64_t out_features;     /**< rows of w, columns of y */
  const fp8_recipe *recipe; /**< a reference is kept */
  int32_t input_dtype;      /**< dtype of x and dx: F32, BF16 or F16; 0 = BF16 */
  int32_t output_dtype;     /**< dtype of y and dy; 0 = BF16 */
  uint32_t flags;           /**< none yet: 0 */
  int32_t reserved;         /**< 0 */
} fp8_linear_config;

/** Arguments of fp8_linear_forward(). Read during the call only; what they point to must live until the stream has
 * passed it. */
typedef struct fp8_linear_forward_args {
  size_t struct_size;     /**< set by FP8_INIT */
  const fp8_tensor *x;    /**< the input, [tokens, in]; or qx */
  const fp8_qtensor *qx;  /**< the input already quantized: shared by q, k and v, or received in FP8 */
  const fp8_qtensor *w;   /**< row side; from fp8_quantize() (role weight) once per optimizer step, or from
                               fp8_param_gather() */
  const fp8_tensor *bias; /**< optional [out], output_dtype or F32 */
  fp8_tensor *y;          /**< [tokens, out] of output_dtype */
  fp8_qtensor *saved_x;   /**< out: the column side of x for wgrad, described and placed. NULL = inference, or backward
                               is given x. With qx: NULL, backward is given qx. Unquantized wgrad: views x */
  fp8_tensor *amax_x;     /**< as in fp8_quantize_args, with x only; TENSOR only, F32[1] */
  fp8_tensor *stats_x;    /**< as in fp8_quantize_args, with x only (with qx they belong to its fp8_quantize()) */
  fp8_tensor *state_x;    /**< as in fp8_quantize_args, with x only */
  const fp8_buffer *workspace; /**< fp8_linear_workspace() bytes; NULL = from the context's allocator, counted */
  uint32_t flags;              /**< FP8_LINEAR_AMAX_GIVEN or 0 */
  int32_t max_sms;             /**< multiprocessors to take; 0 = the context's */
} fp8_linear_forward_args;

/** Bits of the flags of forward and backward. Accumulating adds in FP32 and rounds once. */
enum fp8_linear_flags {
  FP8_LINEAR_ACCUMULATE_DW = 1,   /**< dw is added to: micro-batches */
  FP8_LINEAR_AMAX_GIVEN = 2,      /**< the amax of x in forward, of dy in backward, is an input */
  FP8_LINEAR_ACCUMULATE_DX = 4,   /**< dx is added to: q, k and v sum into one */
  FP8_LINEAR_ACCUMULATE_DBIAS = 8 /**< dbias is added to */
};

/** Arguments of fp8_linear_backward(). Read during the call only; what they point to must live until the stream has
 * passed it. */
typedef struct fp8_linear_backward_args {
  size_t struct_size;   /**< set by FP8_INIT */
  const fp8_tensor *dy; /**< the gradient of y, [tokens, out] of output_dtype; or qdy */
  const fp8_qtensor
      *qdy; /**< already quantized: row for dx, column for dw; or an earlier call's saved_dy, for dw alone */
  const fp8_qtensor *w;       /**< column side; NULL without dx */
  const fp8_qtensor *saved_x; /**< column side: forward's, that of a shared qx, or a gathered one; or x */
  const fp8_tensor *x;      /**< the high-precision input, where somebody keeps it anyway (attention's output before the
                                 projection), quantized here; neither this nor saved_x without dw */
  const fp8_tensor *amax_x; /**< with x, TENSOR only: forward's (reduced) amax; NULL = taken from x */
  fp8_tensor *dx;           /**< optional [tokens, in], input_dtype or F32 */
  fp8_tensor *dw;           /**< optional [out, in], F32 or BF16 */
  fp8_tensor *dbias;        /**< optional F32[out], with dy only */
  fp8_qtensor *saved_dy; /**< out, optional, with dy only: its column side, for a later call with dw alone. Unquantized
                              wgrad: views dy */
  fp8_tensor *amax_dy;   /**< as in fp8_quantize_args, of dy; TENSOR only, F32[1] */
  fp8_tensor *stats_dy;  /**< as in fp8_quantize_args, of dy */
  fp8_tensor *state_dy;  /**< as in fp8_quantize_args, of dy */
  const fp8_buffer *workspace; /**< fp8_linear_workspace() bytes; NULL = from the context's allocator, counted */
  uint32_t flags;              /**< bits of enum fp8_linear_flags */
  int32_t max_sms;             /**< multiprocessors to take; 0 = the context's */
} fp8_linear_backward_args;

/** Makes a linear. [shared]
 *  @param context a reference is kept
 *  @param config the configuration
 *  @param[out] linear to be destroyed by fp8_linear_destroy()
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_UNSUPPORTED */
FP8_API fp8_status fp8_linear_create(const fp8_context *context, const fp8_linear_config *config, fp8_linear **linear);

/** Describes one of the linear's matrices, as fp8_recipe_describe(). saved_x and saved_dy: FP8_SIDE_COL. [pure]
 *  @param linear the linear
 *  @param role enum fp8_role: weight [out, in], activation [rows, in], gradient [rows, out]
 *  @param rows tokens; ignored for the weight
 *  @param sides bits of enum fp8_side
 *  @param[out] q started with FP8_INIT
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_linear_describe(const fp8_linear *linear, int32_t role, int64_t rows, uint32_t sides,
                                       fp8_qtensor *q);

/** Workspace that is enough for every legal call with up to `rows` tokens (0 too), and for fp8_quantize() of its x, dy
 * and w; one call at a time. It plans hundreds of calls, which takes up to some milliseconds; the linear keeps its last
 * 16 answers. [pure]
 *  @param linear the linear
 *  @param rows the most tokens of a call
 *  @param gemms bits of enum fp8_gemm_kind; 0 = all
 *  @param[out] bytes enough for every legal alignment
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_linear_workspace(const fp8_linear *linear, int64_t rows, uint32_t gemms, uint64_t *bytes);

/** Builds plans, loads lazy modules and sets kernel attributes, so that capture into a graph and NO_ALLOC start warm.
 *  [shared] [waits]
 *  @param linear the linear
 *  @param rows tokens of the calls to come
 *  @param gemms bits of enum fp8_gemm_kind; 0 = all
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_BACKEND */
FP8_API fp8_status fp8_linear_prepare(const fp8_linear *linear, int64_t rows, uint32_t gemms);

/** y = x . w^T + bias. [shared] [stream]
 *  A GEMM outside the recipe's coverage reads 16-bit operands in place. An x that is not of its partner's dtype is
 * rounded once into the workspace (F32, F16 beside BF16); saved_x is then an FP8_SIDE_COPY, since a view needs 16 bits.
 * In place also means that the leading dimensions of x flatten to one stride; a quantizer takes any.
 *  @param linear the linear
 *  @param args the arguments
 *  @param stream the stream
 *  @return FP8_OK; FP8_ERR_ARGUMENT with tensor, dimension, value and rule; FP8_ERR_UNSUPPORTED; FP8_ERR_NO_ALLOC;
 *  FP8_ERR_BACKEND */
FP8_API fp8_status fp8_linear_forward(const fp8_linear *linear, const fp8_linear_forward_args *args, fp8_stream stream);

/** dx = dy . w, dw = dy^T . x, dbias = column sums of dy: those that are asked for. [shared] [stream]
 *  Outside the coverage as in forward. dgrad in BF16 needs w in BF16: an FP8-only weight is refused.
 *  @param linear the linear
 *  @param args the arguments
 *  @param stream the stream
 *  @return as fp8_linear_forward() */
FP8_API fp8_status fp8_linear_backward(const fp8_linear *linear, const fp8_linear_backward_args *args,
                                       fp8_stream stream);

/** Drops the caller's reference; never waits. Work on a stream is not touched: it needs the tensors, not the linear.
 *  [shared]
 *  @param linear NULL is ignored */
FP8_API void fp8_linear_destroy(fp8_linear *linear);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
