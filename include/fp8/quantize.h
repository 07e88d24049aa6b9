/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Quantize, amax, dequantize, requantize, transpose, cast, measure. */
#ifndef FP8_QUANTIZE_H
#define FP8_QUANTIZE_H
#include "recipe.h"
#ifdef __cplusplus
extern "C" {
#endif

enum fp8_quantize_flags { FP8_AMAX_GIVEN = 1, FP8_ACCUMULATE_DBIAS = 2 };
typedef struct fp8_quantize_args {
  size_t struct_size;
  const fp8_tensor *x;
  fp8_qtensor *q;                   /* described for this role, else refused; its quantized and COPY sides placed, UNQUANTIZED sides are set to view x */
  fp8_tensor *amax, *amax_col;      /* F32, shape of row_scale and of col_scale (one serves both where the scales are the same: TENSOR, 2D); out, or in with FP8_AMAX_GIVEN (TENSOR and ROW kinds; one left NULL is taken from x) */
  fp8_tensor *stats;                /* optional U64[8], accumulated into: count, nan, inf, nonzero, underflow, saturated, 0, 0; of the row side, else of col; U64[2, 8] = row and col */
  fp8_tensor *state;                /* delayed scaling: the caller's history and scale */
  fp8_tensor *dbias;                /* optional F32[cols]: column sums of x, fixed order */
  const fp8_buffer *workspace;
  uint32_t flags;
  int32_t role, max_sms, reserved;
} fp8_quantize_args;
FP8_API fp8_status fp8_quantize_workspace(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args, uint64_t *bytes);  /* [pure] reads shapes only */
FP8_API fp8_status fp8_quantize(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args, fp8_stream stream);            /* [shared][stream] */
FP8_API fp8_status fp8_amax(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args, fp8_stream stream);                /* x -> amax, amax_col only; kinds from q, whose data may be NULL; same workspace */
FP8_API fp8_status fp8_dequantize(const fp8_context *c, const fp8_qtensor *q, uint32_t side, fp8_tensor *x /* [rows, cols] from either side */, fp8_stream stream);
FP8_API fp8_status fp8_requantize(const fp8_context *c, const fp8_recipe *r, const fp8_qtensor *q, fp8_qtensor *other_side, const fp8_buffer *workspace, fp8_stream stream); /* the other side from this side's values: exact transpose or double quantization; other_side may be q */
FP8_API fp8_status fp8_requantize_workspace(const fp8_context *c, const fp8_recipe *r, const fp8_qtensor *q, const fp8_qtensor *other_side, uint64_t *bytes);  /* [pure] */
FP8_API fp8_status fp8_transpose(const fp8_context *c, const fp8_tensor *src, fp8_tensor *dst, fp8_stream stream);
FP8_API fp8_status fp8_cast(const fp8_context *c, const fp8_tensor *src, const fp8_tensor *scale /* F32[1], a multiplier; NULL = 1 */, int32_t saturate, fp8_tensor *dst, fp8_stream stream);

FP8_API fp8_status fp8_measure_workspace(const fp8_context *c, const fp8_tensor *x, const fp8_qtensor *q, uint32_t side, uint64_t *bytes);                      /* [pure] */
FP8_API fp8_status fp8_measure(const fp8_context *c, const fp8_tensor *x, const fp8_qtensor *q, uint32_t side, fp8_tensor *sums /* F64[4]: x.x, e.e, x.x', max|e|; e = x - x' */, const fp8_buffer *workspace, fp8_stream stream);

#ifdef __cplusplus
}
#endif
#endif
