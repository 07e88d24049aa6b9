/* SPDX-License-Identifier: Apache-2.0 */
/* The golden family `linear` through the C API: forward and backward of a linear in reference order, bit for bit. */
#include "golden.h"

typedef struct recipe_case {
  const char *name;
  int32_t preset, rule, gradient_dtype;
} recipe_case;

static const recipe_case kRecipes[] = {
    {"tensor_hybrid", FP8_PRESET_TENSOR, 0, 0},
    {"row_e4m3", FP8_PRESET_ROW, FP8_SCALE_FP32, 0},
    {"block_fp32", FP8_PRESET_BLOCK, FP8_SCALE_FP32, 0},
    {"block_pow2", FP8_PRESET_BLOCK, 0, 0},
    {"mx", FP8_PRESET_MX, 0, 0},
    {"mx_w2d", FP8_PRESET_MX_W2D, 0, 0},
    {"mx_hybrid", FP8_PRESET_MX, 0, FP8_DTYPE_E5M2},
};

static fp8_recipe *recipe_for(const recipe_case *rc) {
  fp8_recipe_config config;
  fp8_recipe *r = NULL;
  FP8_INIT(&config);
  config.preset = rc->preset;
  config.scale_rule = rc->rule;
  config.gradient_dtype = rc->gradient_dtype;
  config.fast_accumulation = FP8_NO_GEMM;
  OK(fp8_recipe_create(&config, &r));
  return r;
}

static void compare(const char *set, const char *recipe, const char *gemm, const fp8_tensor *got) {
  char name[128];
  golden want, y64;
  float *values = get(got);
  const float *ref;
  int64_t i;
  double error;
  snprintf(name, sizeof name, "linear__%s_%s_%s__ref_f32", set, recipe, gemm);
  want = golden_load(name);
  snprintf(name, sizeof name, "linear__%s_%s_%s__y64", set, recipe, gemm);
  y64 = golden_load(name);
  assert_int_equal(want.count, count_of(got));
  error = relative(values, y64.data, want.count);
  if (test_backend() == FP8_BACKEND_CPU) { /* S7 exactly */
    ref = want.data;
    for (i = 0; i < want.count; ++i)
      if (memcmp(&values[i], &ref[i], 4) != 0) {
        print_error("%s: element %lld is %a, expected %a\n", name, (long long)i, values[i], ref[i]);
        fail();
      }
    assert_true(error <= 2e-6);
  } else {
    assert_true(error <= 2e-4);
  }
  free(values);
  free(want.data);
  free(y64.data);
}

static void run_case(const fp8_context *c, const char *set, const recipe_case *rc) {
  char name[64];
  fp8_tensor x, w, dy, y, dx, dw;
  fp8_linear_config config;
  fp8_linear *l = NULL;
  fp8_linear_forward_args fa;
  fp8_linear_backward_args ba;
  fp8_qtensor qw, saved;
  fp8_quantize_args qa;
  fp8_recipe *r = recipe_for(rc);
  int64_t m, k, n;
  snprintf(name, sizeof name, "linear__%s_in__x", set);
  x = golden_tensor(name, FP8_DTYPE_BF16);
  snprintf(name, sizeof name, "linear__%s_in__w", set);
  w = golden_tensor(name, FP8_DTYPE_BF16);
  snprintf(name, sizeof name, "linear__%s_in__dy", set);
  dy = golden_tensor(name, FP8_DTYPE_BF16);
  m = x.shape[0], k = x.shape[1], n = w.shape[0];
  FP8_INIT(&config);
  config.in_features = k;
  config.out_features = n;
  config.recipe = r;
  config.output_dtype = FP8_DTYPE_F32;
  OK(fp8_linear_create(c, &config, &l));

  FP8_INIT(&qw);
  OK(fp8_linear_describe(l, FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH, &qw));
  place(&qw, FP8_SIDE_BOTH);
  FP8_INIT(&qa);
  qa.x = &w;
  qa.q = &qw;
  qa.role = FP8_ROLE_WEIGHT;
  OK(fp8_quantize(c, r, &qa, NULL));
  FP8_INIT(&saved);
  OK(fp8_linear_describe(l, FP8_ROLE_ACTIVATION, m, FP8_SIDE_COL, &saved));
  place(&saved, FP8_SIDE_COL);

  y = tensor2(FP8_DTYPE_F32, m, n);
  FP8_INIT(&fa);
  fa.x = &x;
  fa.w = &qw;
  fa.y = &y;
  fa.saved_x = &saved;
  OK(fp8_linear_forward(l, &fa, NULL));
  compare(set, rc->name, "fprop", &y);
  fp8_linear_destroy(l);

  config.output_dtype = FP8_DTYPE_BF16; /* dy is BF16 */
  OK(fp8_linear_create(c, &config, &l));
  dx = tensor2(FP8_DTYPE_F32, m, k);
  dw = tensor2(FP8_DTYPE_F32, n, k);
  FP8_INIT(&ba);
  ba.dy = &dy;
  ba.w = &qw;
  ba.saved_x = &saved;
  ba.dx = &dx;
  ba.dw = &dw;
  OK(fp8_linear_backward(l, &ba, NULL));
  compare(set, rc->name, "dgrad", &dx);
  compare(set, rc->name, "wgrad", &dw);
  fp8_linear_destroy(l);
  fp8_recipe_destroy(r);
}

static fp8_context *reference_context(void) { /* the CPU's; CUDA has no such product */
  return new_context(test_backend() == FP8_BACKEND_CUDA ? 0 : FP8_CONTEXT_REFERENCE);
}

static void test_square(void **state) {
  fp8_context *c = reference_context();
  size_t i;
  (void)state;
  for (i = 0; i < sizeof kRecipes / sizeof *kRecipes; ++i) run_case(c, "a", &kRecipes[i]);
  fp8_context_destroy(c);
}

static void test_ragged(void **state) { /* 33 x 129 x 150: the family has the first four recipes */
  fp8_context *c = reference_context();
  size_t i;
  (void)state;
  for (i = 0; i < 4; ++i) run_case(c, "ragged", &kRecipes[i]);
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_square, free_all),
      cmocka_unit_test_teardown(test_ragged, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
