/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Recipes: format x granularity x coverage. */
#ifndef FP8_RECIPE_H
#define FP8_RECIPE_H
#include "context.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup recipe Recipe
 *  What is quantized, to which dtype, along which axis, with which scale, and which GEMMs read it. A recipe has three
 * axes: *format* (dtype per role), *granularity* (scaling per role and the scale rule) and *coverage* (which GEMMs run
 * in FP8; the others run in BF16). Presets and their names elsewhere: @ref recipes.
 *  @{ */

/** An immutable recipe, bound to no context; shared freely between threads. */
typedef struct fp8_recipe fp8_recipe;

/** Ready-made recipes; single fields of fp8_recipe_config change them. */
enum fp8_preset {
  FP8_PRESET_NONE = 1,           /**< BF16 through the same calls: the baseline */
  FP8_PRESET_TENSOR = 2,         /**< one FP32 scale a tensor, from its own amax; x and w E4M3, dy E5M2 */
  FP8_PRESET_TENSOR_DELAYED = 3, /**< the same with scales from an amax history: FP8_ERR_UNSUPPORTED for now */
  FP8_PRESET_ROW = 4,            /**< one power-of-two scale a row of the contraction, all E4M3 */
  FP8_PRESET_BLOCK = 5,          /**< x and dy 1x128, w 128x128, power-of-two scales, all E4M3 */
  FP8_PRESET_MX = 6,             /**< 1x32 with E8M0 scales, all E4M3 */
  FP8_PRESET_MX_W2D = 7          /**< MX with 32x32 weights: one copy serves both directions */
};

/** How a scale comes from an amax. The formulas, with the treatment of zero, tiny, infinite and NaN blocks, are S1 to
 * S4 of
 *  @ref numerics. */
enum fp8_scale_rule {
  FP8_SCALE_FP32 = 1,      /**< multiplier max / amax in FP32 (S1) */
  FP8_SCALE_POW2 = 2,      /**< the same, rounded down to a power of two (S2) */
  FP8_SCALE_E8M0 = 3,      /**< the smallest power of two that keeps amax in range, as an E8M0 code (S3) */
  FP8_SCALE_E8M0_FLOOR = 4 /**< OCP MX: from floor(log2 amax); the largest elements may saturate (S4) */
};

/** The three GEMMs of a linear layer, as bits. */
enum fp8_gemm_kind {
  FP8_FPROP = 1,  /**< y = x . w^T */
  FP8_DGRAD = 2,  /**< dx = dy . w */
  FP8_WGRAD = 4,  /**< dw = dy^T . x */
  FP8_NO_GEMM = 8 /**< none of the three: a real zero, where 0 means the default */
};

/** What happens to an FP32 weight before it is quantized. */
enum fp8_master_rounding {
  FP8_MASTER_BF16 =
      1, /**< rounded to BF16 first (the default), so that it equals quantizing BF16 weights bit for bit */
  FP8_MASTER_DIRECT = 2 /**< quantized as it is */
};

/** A recipe's fields. Zero is every field's default: the preset's value. */
typedef struct fp8_recipe_config {
  size_t struct_size;         /**< set by FP8_INIT */
  int32_t preset;             /**< enum fp8_preset; required */
  int32_t activation_dtype;   /**< enum fp8_dtype of x: E4M3, E5M2, or BF16 with UNQUANTIZED scaling */
  int32_t weight_dtype;       /**< of w */
  int32_t gradient_dtype;     /**< of dy */
  int32_t activation_scaling; /**< enum fp8_scaling of x; pairs outside the closed list are refused at create */
  int32_t weight_scaling;     /**< of w */
  int32_t gradient_scaling;   /**< of dy */
  int32_t scale_rule;         /**< enum fp8_scale_rule */
  uint32_t coverage;          /**< enum fp8_gemm_kind bits that run in FP8; 0 = all three; FP8_NO_GEMM = none */
  uint32_t fast_accumulation; /**< enum fp8_gemm_kind bits with fast accumulation on tensor cores; 0 = the preset's */
  float amax_floor;           /**< an amax below this is raised to it (eps of S0); 0 = none */
  int32_t history;            /**< delayed scaling: steps of amax history */
  int32_t margin;             /**< delayed scaling: binades of head room */
  int32_t master_rounding;    /**< enum fp8_master_rounding of FP32 weights, here and in fp8_param_*; 0 = BF16 first */
} fp8_recipe_config;

/** Fills a config with a preset's resolved fields. [pure]
 *  @param preset enum fp8_preset
 *  @param[in,out] config started with FP8_INIT
 *  @return FP8_OK, or FP8_ERR_ARGUMENT for an unknown preset */
FP8_API fp8_status fp8_recipe_config_preset(int32_t preset, fp8_recipe_config *config);

/** Makes a recipe. Pairs of operands that no GEMM multiplies are refused here, not later. [pure]
 *  @param config preset, and fields that differ from it
 *  @param[out] recipe to be destroyed by fp8_recipe_destroy()
 *  @return FP8_OK; FP8_ERR_ARGUMENT for values out of range; FP8_ERR_UNSUPPORTED for legal values that are not offered,
 *  with the reason */
FP8_API fp8_status fp8_recipe_create(const fp8_recipe_config *config, fp8_recipe **recipe);

/** Reads a recipe back, every field resolved. [pure]
 *  @param recipe the recipe
 *  @param[out] resolved started with FP8_INIT
 *  @return FP8_OK, or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_recipe_query(const fp8_recipe *recipe, fp8_recipe_config *resolved);

/** Writes the canonical, versioned text of a recipe; fp8_recipe_from_string() reads it back to the same recipe. [pure]
 *  @param recipe the recipe
 *  @param[out] text receives the text; NULL asks for `needed` only
 *  @param bytes room in text
 *  @param[out] needed bytes of the text with its final 0; may be NULL
 *  @return FP8_OK, or FP8_ERR_ARGUMENT if the room is too small */
FP8_API fp8_status fp8_recipe_to_string(const fp8_recipe *recipe, char *text, uint64_t bytes, uint64_t *needed);

/** Makes a recipe from its text: the canonical form, or a preset's name and fields that change it, as
 * "block;scale=fp32" (all fields: @ref recipes; each at most once). Names, in any case: none, tensor, tensor_delayed,
 * row, block, mx, mx_w2d; bf16 for none; and what users of Megatron-Core, Transformer Engine and torchao know:
 * tensorwise, current, Float8CurrentScaling, delayed, DelayedScaling, rowwise, blockwise, Float8BlockScaling, mxfp8,
 * MXFP8BlockScaling. [pure]
 *  @param text the text
 *  @param[out] recipe to be destroyed by fp8_recipe_destroy()
 *  @return FP8_OK; FP8_ERR_ARGUMENT with the place in the text; FP8_ERR_UNSUPPORTED as fp8_recipe_create() */
FP8_API fp8_status fp8_recipe_from_string(const char *text, fp8_recipe **recipe);

/** Describes a matrix under a recipe: kinds, dtypes, shapes and native strides of each side, data NULL. Unquantized
 * roles and GEMMs outside the coverage give UNQUANTIZED (or COPY) sides in BF16. [pure]
 *  @param recipe the recipe
 *  @param context what suits this device; NULL = portable
 *  @param role enum fp8_role
 *  @param rows rows of the matrix, 0 or more
 *  @param cols columns of the matrix, 0 or more
 *  @param sides bits of enum fp8_side; FP8_SIDE_COPY gives unquantized sides memory of their own
 *  @param[out] q started with FP8_INIT; place it with fp8_qtensor_place()
 *  @return FP8_OK, or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_recipe_describe(const fp8_recipe *recipe, const fp8_context *context, int32_t role, int64_t rows,
                                       int64_t cols, uint32_t sides, fp8_qtensor *q);

/** Drops the caller's reference; linears and params that use the recipe keep theirs. [pure]
 *  @param recipe NULL is ignored */
FP8_API void fp8_recipe_destroy(fp8_recipe *recipe);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
