/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Quantize, amax, dequantize, requantize, transpose, cast, measure. */
#ifndef FP8_QUANTIZE_H
#define FP8_QUANTIZE_H
#include "recipe.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup quantize Quantize
 *  From 16- and 32-bit tensors to FP8 and back, by the formulas S0 to S6 of @ref numerics, whatever the caller's
 * floating-point control word; where bits are the same: @ref determinism.
 *  @{ */

/** Bits of fp8_quantize_args.flags. */
enum fp8_quantize_flags {
  FP8_AMAX_GIVEN = 1,      /**< amax (and amax_col) are inputs, e.g. reduced over a group */
  FP8_ACCUMULATE_DBIAS = 2 /**< dbias is added to */
};

/** Arguments of fp8_quantize() and fp8_amax(). Read during the call only; what they point to must live until the stream
 * has passed it. */
typedef struct fp8_quantize_args {
  size_t struct_size;   /**< set by FP8_INIT */
  const fp8_tensor *x;  /**< the source, F32, BF16 or F16, [rows, cols] of q, any strides without zeros */
  fp8_qtensor *q;       /**< described for this role, else refused. Its quantized and COPY sides are placed; its
                             UNQUANTIZED sides are set to view x. Its sides say what is computed */
  fp8_tensor *amax;     /**< F32, shape of row_scale; out, or in with FP8_AMAX_GIVEN (TENSOR and ROW kinds; one left
                             NULL is taken from x). Optional */
  fp8_tensor *amax_col; /**< F32, shape of col_scale, likewise; NULL where both sides have the same scales (TENSOR and
                             2D kinds), amax then serves both */
  fp8_tensor *stats;    /**< optional U64[8], added to: count, nan, inf, nonzero, underflow, saturated, 0, 0; of the
                             row side, else of the column side. U64[2, 8] = row and column. A side that is not
                             quantized (UNQUANTIZED, COPY) adds nothing: U64[8] is then of the other one */
  fp8_tensor *state;    /**< delayed scaling: the caller's history and scale */
  fp8_tensor *dbias;    /**< optional F32[cols]: column sums of x in FP32, in a fixed order */
  const fp8_buffer *workspace; /**< fp8_quantize_workspace() bytes; NULL = from the context's allocator, counted */
  uint32_t flags;              /**< bits of enum fp8_quantize_flags */
  int32_t role;                /**< enum fp8_role */
  int32_t max_sms;             /**< multiprocessors to take; 0 = the context's */
  int32_t reserved;            /**< 0 */
} fp8_quantize_args;

/** Workspace of fp8_quantize() and fp8_amax(). Reads shapes, strides and kinds only: pointers may be NULL. [pure]
 *  @param c the context
 *  @param r the recipe
 *  @param args as for the call
 *  @param[out] bytes enough for every legal alignment
 *  @return FP8_OK, or what the call would refuse */
FP8_API fp8_status fp8_quantize_workspace(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args,
                                          uint64_t *bytes);

/** Quantizes x into the sides of q: scale from the amax of each block (S1 to S4), code = sat(x * multiplier) (S5). NaN
 *  becomes 0x7F, infinities the largest value; the statistics count them. Both sides are made in one call, the column
 * side from x itself, never from the row side's codes, save where it is their exact transpose (TENSOR, 2D). [shared]
 * [stream]
 *  @param c the context
 *  @param r the recipe that described q
 *  @param args the arguments
 *  @param stream the stream
 *  @return FP8_OK; FP8_ERR_ARGUMENT with tensor, dimension, value and rule; FP8_ERR_UNSUPPORTED; FP8_ERR_NO_ALLOC */
FP8_API fp8_status fp8_quantize(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args,
                                fp8_stream stream);

/** x to amax and amax_col only, so that a group can reduce them before fp8_quantize() with FP8_AMAX_GIVEN. NaN is
 * ignored. [shared] [stream]
 *  @param c the context
 *  @param r the recipe
 *  @param args as for fp8_quantize(); kinds come from q, whose data may be NULL; the same workspace
 *  @param stream the stream
 *  @return as fp8_quantize() */
FP8_API fp8_status fp8_amax(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args,
                            fp8_stream stream);

/** Values of one side: code * scale in FP32, then rounded to x's dtype (S6). [shared] [stream]
 *  @param c the context
 *  @param q the quantized matrix
 *  @param side FP8_SIDE_ROW or FP8_SIDE_COL
 *  @param[out] x F32, BF16 or F16, [rows, cols] from either side
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_UNSUPPORTED */
FP8_API fp8_status fp8_dequantize(const fp8_context *c, const fp8_qtensor *q, uint32_t side, fp8_tensor *x,
                                  fp8_stream stream);

/** Makes the side that is missing from the values of the side that is there: the exact transpose where one exists
 * (TENSOR, 2D), else a double quantization, which with power-of-two scales is exact for every element that is normal in
 * both grids
 *  (@ref numerics). [shared] [stream]
 *  @param c the context
 *  @param r the recipe
 *  @param q has the source side: the one that q alone has, else the one that other_side lacks, else row
 *  @param[in,out] other_side described and placed; may be q
 *  @param workspace fp8_requantize_workspace() bytes; NULL = from the context's allocator, counted
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED or FP8_ERR_NO_ALLOC */
FP8_API fp8_status fp8_requantize(const fp8_context *c, const fp8_recipe *r, const fp8_qtensor *q,
                                  fp8_qtensor *other_side, const fp8_buffer *workspace, fp8_stream stream);

/** Workspace of fp8_requantize(). [pure]
 *  @param c the context
 *  @param r the recipe
 *  @param q as for the call; pointers are not read
 *  @param other_side as for the call; pointers are not read
 *  @param[out] bytes enough for every legal alignment
 *  @return FP8_OK, or what the call would refuse */
FP8_API fp8_status fp8_requantize_workspace(const fp8_context *c, const fp8_recipe *r, const fp8_qtensor *q,
                                            const fp8_qtensor *other_side, uint64_t *bytes);

/** dst[j, i] = src[i, j], elements of 1, 2, 4 or 8 bytes, any strides without zeros. [shared] [stream]
 *  @param c the context
 *  @param src a matrix
 *  @param[out] dst a matrix of the same dtype and swapped shape; must not overlap src
 *  @param stream the stream
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_transpose(const fp8_context *c, const fp8_tensor *src, fp8_tensor *dst, fp8_stream stream);

/** dst = round(src * scale), to nearest even, one multiplication in FP32. Any of F32, BF16, F16, E4M3, E5M2 to any.
 * [shared] [stream]
 *  @param c the context
 *  @param src the source
 *  @param scale F32[1], a multiplier in device memory; NULL = 1
 *  @param saturate not 0: beyond the range of an FP8 dst gives its largest value; 0: NaN for E4M3, infinity for E5M2
 *  @param[out] dst of the same shape
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_UNSUPPORTED */
FP8_API fp8_status fp8_cast(const fp8_context *c, const fp8_tensor *src, const fp8_tensor *scale, int32_t saturate,
                            fp8_tensor *dst, fp8_stream stream);

/** Workspace of fp8_measure(). [pure]
 *  @param c the context
 *  @param x as for the call; pointers are not read
 *  @param q as for the call; pointers are not read
 *  @param side as for the call
 *  @param[out] bytes enough for every legal alignment
 *  @return FP8_OK, or what the call would refuse */
FP8_API fp8_status fp8_measure_workspace(const fp8_context *c, const fp8_tensor *x, const fp8_qtensor *q, uint32_t side,
                                         uint64_t *bytes);

/** Measures what quantization lost: with x' the dequantized values and e = x - x', the sums x.x, e.e, x.x' and max|e|
 * in FP64. SQNR in dB is 10 log10(x.x / e.e). [shared] [stream]
 *  @param c the context
 *  @param x the source of q, [rows, cols]
 *  @param q the quantized matrix
 *  @param side FP8_SIDE_ROW or FP8_SIDE_COL
 *  @param[out] sums F64[4]: x.x, e.e, x.x', max|e|
 *  @param workspace fp8_measure_workspace() bytes; NULL = from the context's allocator, counted
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_NO_ALLOC */
FP8_API fp8_status fp8_measure(const fp8_context *c, const fp8_tensor *x, const fp8_qtensor *q, uint32_t side,
                               fp8_tensor *sums, const fp8_buffer *workspace, fp8_stream stream);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
