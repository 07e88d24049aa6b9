/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  A linear layer: forward and backward. */
#ifndef FP8_LINEAR_H
#define FP8_LINEAR_H
#include "recipe.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_linear fp8_linear;   /* configuration and plans only: every tensor, the weight included, belongs to the caller */
typedef struct fp8_linear_config {
  size_t struct_size;
  int64_t in_features, out_features;
  const fp8_recipe *recipe;
  int32_t input_dtype, output_dtype;    /* dtype of x, dx and of y, dy; 0 = BF16 */
  uint32_t flags;                       /* none yet */
  int32_t reserved;
} fp8_linear_config;
typedef struct fp8_linear_forward_args {
  size_t struct_size;
  const fp8_tensor *x;              /* or */
  const fp8_qtensor *qx;            /* already quantized: shared by q, k and v, or received in FP8 */
  const fp8_qtensor *w;             /* from fp8_quantize (role weight) once per optimizer step, or from fp8_param_gather */
  const fp8_tensor *bias;           /* output_dtype or F32 */
  fp8_tensor *y;
  fp8_qtensor *saved_x;             /* out, column side; described and placed. NULL = inference, or backward is given x. With qx: NULL, backward is given qx. Unquantized wgrad: views x */
  fp8_tensor *amax_x, *stats_x, *state_x;  /* as in quantize, with x only (with qx they belong to its quantize); amax_x: TENSOR only, F32[1] */
  const fp8_buffer *workspace;
  uint32_t flags;
  int32_t max_sms;
} fp8_linear_forward_args;
enum fp8_linear_flags {             /* AMAX_GIVEN: of x in forward, of dy in backward. ACCUMULATE_DX: q, k and v sum into one dx */
  FP8_LINEAR_ACCUMULATE_DW = 1, FP8_LINEAR_AMAX_GIVEN = 2, FP8_LINEAR_ACCUMULATE_DX = 4, FP8_LINEAR_ACCUMULATE_DBIAS = 8
};
typedef struct fp8_linear_backward_args {
  size_t struct_size;
  const fp8_tensor *dy;             /* or */
  const fp8_qtensor *qdy;           /* already quantized: row for dx, col for dw; or an earlier call's saved_dy, for dw alone */
  const fp8_qtensor *w;             /* column side; NULL without dx */
  const fp8_qtensor *saved_x;       /* column side, also of a shared qx or of a gathered one; or */
  const fp8_tensor *x;              /* the high-precision input, where somebody keeps it anyway (SDPA's output before the projection); neither without dw */
  const fp8_tensor *amax_x;         /* with x, TENSOR only: forward's (reduced) amax; NULL = taken from x */
  fp8_tensor *dx, *dw, *dbias;      /* each may be NULL; dx input_dtype or F32, dw F32 or BF16, dbias F32 and with dy only; accumulating adds in FP32 and rounds once */
  fp8_qtensor *saved_dy;            /* out, optional, with dy only: its column side, for a later dw. Unquantized wgrad: views dy */
  fp8_tensor *amax_dy, *stats_dy, *state_dy;
  const fp8_buffer *workspace;
  uint32_t flags;
  int32_t max_sms;
} fp8_linear_backward_args;
FP8_API fp8_status fp8_linear_create(const fp8_context *context, const fp8_linear_config *config, fp8_linear **linear);
FP8_API fp8_status fp8_linear_describe(const fp8_linear *linear, int32_t role, int64_t rows, uint32_t sides, fp8_qtensor *q);    /* [pure] weight (rows ignored): out x in; activation: rows x in; gradient: rows x out. saved_x, saved_dy: FP8_SIDE_COL */
FP8_API fp8_status fp8_linear_workspace(const fp8_linear *linear, int64_t rows, uint32_t gemms, uint64_t *bytes);                  /* [pure] gemms: fp8_gemm_kind bits, 0 = all; enough for every legal call with up to these rows (0 too), and for fp8_quantize of its x, dy and w; one call at a time */
FP8_API fp8_status fp8_linear_prepare(const fp8_linear *linear, int64_t rows, uint32_t gemms);                                     /* [waits] builds plans, loads kernels: before capture or NO_ALLOC */
FP8_API fp8_status fp8_linear_forward(const fp8_linear *linear, const fp8_linear_forward_args *args, fp8_stream stream);           /* [shared][stream] */
FP8_API fp8_status fp8_linear_backward(const fp8_linear *linear, const fp8_linear_backward_args *args, fp8_stream stream);         /* [shared][stream] */
FP8_API void fp8_linear_destroy(fp8_linear *linear);

#ifdef __cplusplus
}
#endif
#endif
