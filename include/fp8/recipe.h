/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Recipes: format x granularity x coverage. */
#ifndef FP8_RECIPE_H
#define FP8_RECIPE_H
#include "context.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_recipe fp8_recipe;
enum fp8_preset {
  FP8_PRESET_NONE = 1, FP8_PRESET_TENSOR = 2, FP8_PRESET_TENSOR_DELAYED = 3, FP8_PRESET_ROW = 4,
  FP8_PRESET_BLOCK = 5, FP8_PRESET_MX = 6, FP8_PRESET_MX_W2D = 7
};
enum fp8_scale_rule { FP8_SCALE_FP32 = 1, FP8_SCALE_POW2 = 2, FP8_SCALE_E8M0 = 3, FP8_SCALE_E8M0_FLOOR = 4 };
enum fp8_gemm_kind { FP8_FPROP = 1, FP8_DGRAD = 2, FP8_WGRAD = 4, FP8_NO_GEMM = 8 /* a real zero: none of the three */ };
enum fp8_master_rounding { FP8_MASTER_BF16 = 1 /* FP32 weights are rounded to BF16 first: default, as Megatron */, FP8_MASTER_DIRECT = 2 };
typedef struct fp8_recipe_config {
  size_t struct_size;
  int32_t preset;
  int32_t activation_dtype, weight_dtype, gradient_dtype;          /* 0 = the preset's */
  int32_t activation_scaling, weight_scaling, gradient_scaling;    /* pairs outside the closed list are refused at create */
  int32_t scale_rule;
  uint32_t coverage;                /* fp8_gemm_kind bits that run in FP8; 0 = all three */
  uint32_t fast_accumulation;       /* fp8_gemm_kind bits with fast accumulation; 0 = the preset's */
  float amax_floor;
  int32_t history, margin;          /* delayed scaling */
  int32_t master_rounding;          /* of FP32 weights, here and in fp8_param_* */
} fp8_recipe_config;
FP8_API fp8_status fp8_recipe_config_preset(int32_t preset, fp8_recipe_config *config);         /* [pure] */
FP8_API fp8_status fp8_recipe_create(const fp8_recipe_config *config, fp8_recipe **recipe);     /* [pure] immutable, context-free */
FP8_API fp8_status fp8_recipe_query(const fp8_recipe *recipe, fp8_recipe_config *resolved);     /* every field resolved */
FP8_API fp8_status fp8_recipe_to_string(const fp8_recipe *recipe, char *text, uint64_t bytes, uint64_t *needed); /* canonical, versioned, round trips */
FP8_API fp8_status fp8_recipe_from_string(const char *text, fp8_recipe **recipe);               /* also Megatron / TE names: tensorwise, delayed, blockwise, mxfp8 */
/* kinds, dtypes, shapes and native strides of each side, data NULL; unquantized roles and uncovered GEMMs give UNQUANTIZED (or COPY) sides in BF16 */
FP8_API fp8_status fp8_recipe_describe(const fp8_recipe *recipe, const fp8_context *context /* NULL = portable */, int32_t role, int64_t rows, int64_t cols, uint32_t sides, fp8_qtensor *q);
FP8_API void fp8_recipe_destroy(fp8_recipe *recipe);

#ifdef __cplusplus
}
#endif
#endif
