/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: presets, the closed list of pairs, text form, descriptions. */
#include <locale.h>
#include <string.h>

#include "support.h"

static fp8_status make(const fp8_recipe_config *config, fp8_recipe_config *resolved) {
  fp8_recipe *recipe = NULL;
  const fp8_status status = fp8_recipe_create(config, &recipe);
  if (status == FP8_OK && resolved) {
    FP8_INIT(resolved);
    assert_int_equal(fp8_recipe_query(recipe, resolved), FP8_OK);
  }
  fp8_recipe_destroy(recipe);
  return status;
}

static fp8_recipe_config preset(int32_t p) {
  fp8_recipe_config c;
  FP8_INIT(&c);
  c.preset = p;
  return c;
}

static void presets_resolve(void **state) {
  (void)state;
  const struct {
    int32_t preset, x, w, dy, xs, ws, dys, rule;
    uint32_t coverage, fast;
  } rows[] = {
      {FP8_PRESET_NONE, FP8_DTYPE_BF16, FP8_DTYPE_BF16, FP8_DTYPE_BF16, FP8_SCALING_UNQUANTIZED,
       FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, 0, FP8_NO_GEMM, FP8_NO_GEMM},
      {FP8_PRESET_TENSOR, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_DTYPE_E5M2, FP8_SCALING_TENSOR, FP8_SCALING_TENSOR,
       FP8_SCALING_TENSOR, FP8_SCALE_FP32, 7, FP8_FPROP},
      {FP8_PRESET_ROW, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_SCALING_ROW, FP8_SCALING_ROW,
       FP8_SCALING_ROW, FP8_SCALE_POW2, 7, FP8_FPROP},
      {FP8_PRESET_BLOCK, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_SCALING_1X128, FP8_SCALING_128X128,
       FP8_SCALING_1X128, FP8_SCALE_POW2, 7, FP8_NO_GEMM},
      {FP8_PRESET_MX, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_SCALING_1X32, FP8_SCALING_1X32,
       FP8_SCALING_1X32, FP8_SCALE_E8M0, 7, FP8_NO_GEMM},
      {FP8_PRESET_MX_W2D, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_DTYPE_E4M3, FP8_SCALING_1X32, FP8_SCALING_32X32,
       FP8_SCALING_1X32, FP8_SCALE_E8M0, 7, FP8_NO_GEMM},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    fp8_recipe_config c = preset(rows[i].preset), r;
    assert_int_equal(make(&c, &r), FP8_OK);
    assert_int_equal(r.activation_dtype, rows[i].x);
    assert_int_equal(r.weight_dtype, rows[i].w);
    assert_int_equal(r.gradient_dtype, rows[i].dy);
    assert_int_equal(r.activation_scaling, rows[i].xs);
    assert_int_equal(r.weight_scaling, rows[i].ws);
    assert_int_equal(r.gradient_scaling, rows[i].dys);
    assert_int_equal(r.scale_rule, rows[i].rule);
    assert_int_equal(r.coverage, rows[i].coverage);
    assert_int_equal(r.fast_accumulation, rows[i].fast);
    assert_int_equal(r.master_rounding, FP8_MASTER_BF16);
    fp8_recipe_config again;
    FP8_INIT(&again);
    assert_int_equal(fp8_recipe_config_preset(rows[i].preset, &again), FP8_OK);
    assert_memory_equal(&again, &r, sizeof r);
    assert_int_equal(make(&again, NULL), FP8_OK); /* a resolved config is a config */
  }
}

static void refusals(void **state) {
  (void)state;
  fp8_recipe_config c = preset(FP8_PRESET_TENSOR_DELAYED);
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c = preset(FP8_PRESET_BLOCK);
  c.activation_scaling = FP8_SCALING_128X128; /* 2D x 2D */
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c = preset(FP8_PRESET_TENSOR);
  c.activation_dtype = FP8_DTYPE_E5M2; /* wgrad would be E5M2 x E5M2 */
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c.coverage = FP8_FPROP | FP8_DGRAD; /* without wgrad it is legal */
  assert_int_equal(make(&c, NULL), FP8_OK);
  c = preset(FP8_PRESET_MX);
  c.scale_rule = FP8_SCALE_POW2;
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c = preset(FP8_PRESET_BLOCK);
  c.fast_accumulation = FP8_FPROP;
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c = preset(FP8_PRESET_ROW);
  c.weight_scaling = FP8_SCALING_TENSOR; /* row x tensor */
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c = preset(FP8_PRESET_TENSOR);
  c.activation_dtype = FP8_DTYPE_BF16;
  assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
  c = preset(FP8_PRESET_TENSOR);
  c.coverage = 16;
  assert_int_equal(make(&c, NULL), FP8_ERR_ARGUMENT);
  c.coverage = FP8_NO_GEMM | FP8_FPROP;
  assert_int_equal(make(&c, NULL), FP8_ERR_ARGUMENT);
  c = preset(FP8_PRESET_TENSOR);
  c.amax_floor = -1.0f;
  assert_int_equal(make(&c, NULL), FP8_ERR_ARGUMENT);
  c = preset(FP8_PRESET_TENSOR);
  c.history = 16;
  assert_int_equal(make(&c, NULL), FP8_ERR_ARGUMENT);
  c = preset(FP8_PRESET_TENSOR);
  c.master_rounding = 3;
  assert_int_equal(make(&c, NULL), FP8_ERR_ARGUMENT);
}

static void text_of(const fp8_recipe *recipe, char *text, size_t bytes) {
  uint64_t needed = 0;
  assert_int_equal(fp8_recipe_to_string(recipe, NULL, 0, &needed), FP8_OK);
  assert_true(needed <= bytes);
  assert_int_equal(fp8_recipe_to_string(recipe, text, needed - 1, NULL), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_to_string(recipe, text, bytes, &needed), FP8_OK);
  assert_int_equal(strlen(text) + 1, needed);
}

static void text_round_trips(void **state) {
  (void)state;
  for (int32_t p = FP8_PRESET_NONE; p <= FP8_PRESET_MX_W2D; ++p) {
    if (p == FP8_PRESET_TENSOR_DELAYED) continue;
    fp8_recipe_config c = preset(p), a, b;
    if (p == FP8_PRESET_BLOCK) c.scale_rule = FP8_SCALE_FP32;
    if (p == FP8_PRESET_TENSOR) c.coverage = FP8_FPROP | FP8_WGRAD;
    if (p != FP8_PRESET_NONE) c.amax_floor = 1e-4f;
    c.master_rounding = FP8_MASTER_DIRECT;
    fp8_recipe *first = NULL, *second = NULL;
    char text[512], again[512];
    assert_int_equal(fp8_recipe_create(&c, &first), FP8_OK);
    text_of(first, text, sizeof text);
    assert_int_equal(fp8_recipe_from_string(text, &second), FP8_OK);
    text_of(second, again, sizeof again);
    assert_string_equal(text, again);
    FP8_INIT(&a);
    FP8_INIT(&b);
    assert_int_equal(fp8_recipe_query(first, &a), FP8_OK);
    assert_int_equal(fp8_recipe_query(second, &b), FP8_OK);
    assert_memory_equal(&a, &b, sizeof a);
    fp8_recipe_destroy(first);
    fp8_recipe_destroy(second);
  }
}

/* The text is the same in a process whose numbers have a decimal comma, and is read in it. */
static void text_ignores_the_locale(void **state) {
  static const char *const locales[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "pt_BR.UTF-8"};
  static const char *const wrong[] = {"block;amax_floor=",   "block;amax_floor=0x",    "block;amax_floor=0x-1p-1",
                                      "block;amax_floor= 1", "block;amax_floor=1,5",   "block;amax_floor=1e99",
                                      "block;amax_floor=-1", "block;amax_floor=1.5e2x"};
  int i, round;
  (void)state;
  for (round = 0; round < 2; ++round) {
    fp8_recipe *recipe = NULL;
    fp8_recipe_config c;
    char text[512];
    assert_int_equal(fp8_recipe_from_string("block;amax_floor=0x1.8p-3", &recipe), FP8_OK);
    FP8_INIT(&c);
    assert_int_equal(fp8_recipe_query(recipe, &c), FP8_OK);
    assert_true(c.amax_floor == 0.1875f);
    text_of(recipe, text, sizeof text);
    assert_non_null(strstr(text, "amax_floor=0x1.8p-3;"));
    fp8_recipe_destroy(recipe);
    assert_int_equal(fp8_recipe_from_string("block;amax_floor=1.5e-2", &recipe), FP8_OK);
    fp8_recipe_destroy(recipe);
    for (i = 0; i < 8; ++i) assert_int_equal(fp8_recipe_from_string(wrong[i], &recipe), FP8_ERR_ARGUMENT);
    for (i = 0; i < 4 && !setlocale(LC_NUMERIC, locales[i]); ++i) continue;
    if (i == 4) break; /* none here */
  }
  setlocale(LC_NUMERIC, "C");
}

static void names_of_other_projects(void **state) {
  (void)state;
  const struct {
    const char *text;
    int32_t preset, status;
  } rows[] = {
      {"tensorwise", FP8_PRESET_TENSOR, FP8_OK},
      {"Float8CurrentScaling", FP8_PRESET_TENSOR, FP8_OK},
      {"rowwise", FP8_PRESET_ROW, FP8_OK},
      {"blockwise", FP8_PRESET_BLOCK, FP8_OK},
      {"Float8BlockScaling", FP8_PRESET_BLOCK, FP8_OK},
      {"mxfp8", FP8_PRESET_MX, FP8_OK},
      {"MXFP8BlockScaling", FP8_PRESET_MX, FP8_OK},
      {"delayed", 0, FP8_ERR_UNSUPPORTED},
      {"DelayedScaling", 0, FP8_ERR_UNSUPPORTED},
      {"bf16", FP8_PRESET_NONE, FP8_OK},
      {"none;scale=none", FP8_PRESET_NONE, FP8_OK},
      {"current", FP8_PRESET_TENSOR, FP8_OK},
      {"blockwise;scale=fp32", FP8_PRESET_BLOCK, FP8_OK},
      {"tensorwise;format=e4m3", FP8_PRESET_TENSOR, FP8_OK},
      {"fp8-2;preset=block", 0, FP8_ERR_UNSUPPORTED},
      {"", 0, FP8_ERR_ARGUMENT},
      {"scale=fp32", 0, FP8_ERR_ARGUMENT},
      {"block;colour=red", 0, FP8_ERR_ARGUMENT},
      {"block;scale", 0, FP8_ERR_ARGUMENT},
      {"nvfp4", 0, FP8_ERR_ARGUMENT},
      {"preset=block;scale=fp32", FP8_PRESET_BLOCK, FP8_OK},
      {"FP8-1;PRESET=MX;Scale=E8M0;Coverage=FPROP+dgrad", FP8_PRESET_MX, FP8_OK},
      {"block;scale=fp32;scale=fp32", 0, FP8_ERR_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    fp8_recipe *recipe = NULL;
    assert_int_equal(fp8_recipe_from_string(rows[i].text, &recipe), rows[i].status);
    if (rows[i].status != FP8_OK) {
      assert_null(recipe);
      continue;
    }
    fp8_recipe_config r;
    FP8_INIT(&r);
    assert_int_equal(fp8_recipe_query(recipe, &r), FP8_OK);
    assert_int_equal(r.preset, rows[i].preset);
    if (strstr(rows[i].text, "scale=fp32")) assert_int_equal(r.scale_rule, FP8_SCALE_FP32);
    if (strstr(rows[i].text, "format=e4m3")) assert_int_equal(r.gradient_dtype, FP8_DTYPE_E4M3);
    fp8_recipe_destroy(recipe);
  }
}

/* What x, w and dy say prevails over format, which says all three, wherever it stands. */
static void order_does_not_matter(void **state) {
  static const char *const texts[] = {"tensor;format=e4m3;dy=e5m2", "tensor;dy=e5m2;format=e4m3"};
  (void)state;
  for (size_t i = 0; i < 2; ++i) {
    fp8_recipe *recipe = NULL;
    fp8_recipe_config r;
    assert_int_equal(fp8_recipe_from_string(texts[i], &recipe), FP8_OK);
    FP8_INIT(&r);
    assert_int_equal(fp8_recipe_query(recipe, &r), FP8_OK);
    assert_int_equal(r.activation_dtype, FP8_DTYPE_E4M3);
    assert_int_equal(r.gradient_dtype, FP8_DTYPE_E5M2);
    fp8_recipe_destroy(recipe);
  }
}

/* Refusals speak the text's names, and the fields' beside them. */
static void refusals_say_what_a_text_says(void **state) {
  (void)state;
  const struct {
    const char *text, *says;
  } rows[] = {
      {"block;scale=e8m0", "x=e4m3/1x128 with scale=e8m0 (config.activation_scaling, scale_rule)"},
      {"mx;scale=pow2", "1x32 and 32x32 take scale=e8m0 or e8m0_floor"},
      {"block;w=bf16", "w=bf16/128x128 (config.weight_dtype, _scaling)"},
      {"block;w=bf16", "is w=bf16/unquantized"},
      {"block;dy=e4m3/unquantized", "dy=e4m3/unquantized (config.gradient_dtype, _scaling)"},
      {"block;w=bf16/unquantized", "fprop would multiply x (1x128) by w (unquantized)"},
      {"block;x=e4m3/128x128", "x (128x128) by w (128x128), which is not a legal pair"},
      {"block;w=f16/unquantized;coverage=wgrad", "fprop is outside the coverage and would multiply BF16 by F16"},
      {"block;w=f16/unquantized;coverage=wgrad", "x=e4m3/1x128 by w=f16/unquantized; config.activation_dtype, weight_"},
      {"none;w=f16/unquantized", "(x=bf16/unquantized by w=f16/unquantized;"},
      {"none;dy=f16/unquantized", "dgrad is outside the coverage and would multiply F16 by BF16 (dy=f16/unquantized"},
      {"none;x=f16/unquantized;w=f16/unquantized", "dgrad is outside the coverage and would multiply BF16 by F16"},
      {"block;dy=f16/unquantized;coverage=fprop", "dgrad is outside the coverage and would multiply F16 by BF16"},
      {"tensor;x=e5m2", "wgrad would multiply E5M2 by E5M2 (dy by x)"},
      {"mx;fast=dgrad", "fast=dgrad (config.fast_accumulation)"},
      {"tensor;amax_floor=-1", "amax_floor=-1 (config.amax_floor)"},
      {"delayed", "preset tensor_delayed (FP8_PRESET_TENSOR_DELAYED)"},
      {"block;Colour=Red", "unknown field \"Colour\", known are preset, x, w, dy, format"},
      {"block;preset=mx", "text has preset twice, \"block\" and \"mx\""},
      {"fp8-1;preset=Block;preset=mx", "text has preset twice, \"Block\" and \"mx\""},
      {"block;scale=fp32;Scale=pow2", "text has scale twice, \"fp32\" and \"pow2\""},
      {"NVFP4", "text has preset \"NVFP4\", known are none,"},
      {"block;scale=FP64", "text has scale \"FP64\", known are"},
      {"block;amax_floor=0X", "text has amax_floor \"0X\""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    fp8_recipe *recipe = NULL;
    fp8_error error;
    assert_int_not_equal(fp8_recipe_from_string(rows[i].text, &recipe), FP8_OK);
    FP8_INIT(&error);
    fp8_last_error(&error);
    if (!strstr(error.message, rows[i].says)) fail_msg("%s: %s", rows[i].text, error.message);
  }
  /* dtypes that a text cannot name are named all the same */
  static const int32_t dtypes[] = {FP8_DTYPE_F32, 77, -3};
  static const char *const says[] = {"w=F32 (1)/128x128 (config.weight_dtype", "w=unknown (77)/128x128",
                                     "w=unknown (-3)/128x128"};
  for (size_t i = 0; i < 3; ++i) {
    fp8_recipe_config c = preset(FP8_PRESET_BLOCK);
    fp8_error error;
    c.weight_dtype = dtypes[i];
    assert_int_equal(make(&c, NULL), FP8_ERR_UNSUPPORTED);
    FP8_INIT(&error);
    fp8_last_error(&error);
    if (!strstr(error.message, says[i])) fail_msg("%s", error.message);
  }
  /* what the hint and docs/recipes.md offer; and F16 everywhere */
  static const char *const legal[] = {"block;w=bf16/unquantized;coverage=wgrad",
                                      "none;x=f16/unquantized;w=f16/unquantized;dy=f16/unquantized"};
  for (size_t i = 0; i < 2; ++i) {
    fp8_recipe *recipe = NULL;
    assert_int_equal(fp8_recipe_from_string(legal[i], &recipe), FP8_OK);
    fp8_recipe_destroy(recipe);
  }
}

static void is_matrix(const fp8_tensor *t, int32_t dtype, int64_t r, int64_t c, int64_t rs, int64_t cs) {
  assert_int_equal(t->dtype, dtype);
  assert_int_equal(t->ndim, 2);
  assert_int_equal(t->shape[0], r);
  assert_int_equal(t->shape[1], c);
  assert_int_equal(t->stride[0], rs);
  assert_int_equal(t->stride[1], cs);
  assert_null(t->data);
}

static void describes_the_normative_table(void **state) {
  (void)state;
  fp8_qtensor q = described("block", FP8_ROLE_ACTIVATION, 130, 200, FP8_SIDE_BOTH);
  assert_int_equal(q.row_kind, FP8_SCALING_1X128);
  is_matrix(&q.row, FP8_DTYPE_E4M3, 130, 200, 200, 1);
  is_matrix(&q.row_scale, FP8_DTYPE_F32, 130, 2, 1, 132);
  is_matrix(&q.col, FP8_DTYPE_E4M3, 200, 130, 130, 1);
  is_matrix(&q.col_scale, FP8_DTYPE_F32, 200, 2, 1, 200);
  q = described("block", FP8_ROLE_WEIGHT, 130, 700, FP8_SIDE_BOTH);
  is_matrix(&q.row_scale, FP8_DTYPE_F32, 2, 6, 8, 1);
  is_matrix(&q.col_scale, FP8_DTYPE_F32, 6, 2, 4, 1);
  q = described("mx", FP8_ROLE_GRADIENT, 70, 40, FP8_SIDE_BOTH);
  is_matrix(&q.row_scale, FP8_DTYPE_E8M0, 70, 2, 2, 1);
  is_matrix(&q.col_scale, FP8_DTYPE_E8M0, 40, 3, 3, 1);
  q = described("mx_w2d", FP8_ROLE_WEIGHT, 70, 40, FP8_SIDE_BOTH);
  is_matrix(&q.row_scale, FP8_DTYPE_E8M0, 3, 2, 2, 1);
  is_matrix(&q.col_scale, FP8_DTYPE_E8M0, 2, 3, 3, 1);
  q = described("tensor", FP8_ROLE_GRADIENT, 5, 7, FP8_SIDE_BOTH);
  is_matrix(&q.row, FP8_DTYPE_E5M2, 5, 7, 7, 1);
  assert_int_equal(q.row_scale.ndim, 1);
  assert_int_equal(q.row_scale.shape[0], 1);
  q = described("row", FP8_ROLE_ACTIVATION, 5, 7, FP8_SIDE_BOTH);
  assert_int_equal(q.row_scale.shape[0], 5);
  assert_int_equal(q.col_scale.shape[0], 7);
  /* uncovered GEMMs show as unquantized sides, col being row with swapped strides */
  q = described("block;coverage=fprop+dgrad", FP8_ROLE_ACTIVATION, 5, 7, FP8_SIDE_BOTH);
  assert_int_equal(q.row_kind, FP8_SCALING_1X128);
  assert_int_equal(q.col_kind, FP8_SCALING_UNQUANTIZED);
  is_matrix(&q.col, FP8_DTYPE_BF16, 7, 5, 1, 7);
  q = described("none", FP8_ROLE_WEIGHT, 5, 7, FP8_SIDE_ROW | FP8_SIDE_COPY);
  assert_int_equal(q.row_kind, FP8_SCALING_COPY);
  assert_int_equal(q.col_kind, 0);
  is_matrix(&q.row, FP8_DTYPE_BF16, 5, 7, 7, 1);
}

static void describe_refuses(void **state) {
  (void)state;
  fp8_recipe *recipe = NULL;
  fp8_qtensor q;
  FP8_INIT(&q);
  assert_int_equal(fp8_recipe_from_string("block", &recipe), FP8_OK);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, 0, 1, 1, FP8_SIDE_ROW, &q), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, -1, 1, FP8_SIDE_ROW, &q), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, 1, -1, FP8_SIDE_ROW, &q), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, 1, 1, 0, &q), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, 1, 1, 8, &q), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, INT64_MAX / 2, 4, FP8_SIDE_ROW, &q),
                   FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(NULL, NULL, FP8_ROLE_WEIGHT, 1, 1, FP8_SIDE_ROW, &q), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, 1, 1, FP8_SIDE_ROW, NULL), FP8_ERR_ARGUMENT);
  assert_int_equal(q.rows, 0); /* nothing was written */
  assert_int_equal(fp8_recipe_describe(recipe, NULL, FP8_ROLE_WEIGHT, 0, 0, FP8_SIDE_BOTH, &q), FP8_OK);
  fp8_recipe_destroy(recipe);
  fp8_recipe_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(presets_resolve),         cmocka_unit_test(refusals),
      cmocka_unit_test(text_round_trips),        cmocka_unit_test(text_ignores_the_locale),
      cmocka_unit_test(names_of_other_projects), cmocka_unit_test(describes_the_normative_table),
      cmocka_unit_test(describe_refuses),        cmocka_unit_test(refusals_say_what_a_text_says),
      cmocka_unit_test(order_does_not_matter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
