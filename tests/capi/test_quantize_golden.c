/* SPDX-License-Identifier: Apache-2.0 */
/* The golden family `quant` through the C API: codes and scales of both sides, bit for bit. */
#include "golden.h"

typedef struct kind {
  const char *name;
  int32_t preset, role, rule, dtype;
  int transposes; /* the family has no column arrays where they are the exact transpose */
} kind;

static const kind kKinds[] = {
    {"tensor_fp32_e4m3", FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION, FP8_SCALE_FP32, FP8_DTYPE_E4M3, 1},
    {"tensor_fp32_e5m2", FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION, FP8_SCALE_FP32, FP8_DTYPE_E5M2, 1},
    {"tensor_pow2_e4m3", FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION, FP8_SCALE_POW2, FP8_DTYPE_E4M3, 1},
    {"row_fp32_e4m3", FP8_PRESET_ROW, FP8_ROLE_ACTIVATION, FP8_SCALE_FP32, FP8_DTYPE_E4M3, 0},
    {"row_pow2_e4m3", FP8_PRESET_ROW, FP8_ROLE_ACTIVATION, FP8_SCALE_POW2, FP8_DTYPE_E4M3, 0},
    {"b1x128_fp32_e4m3", FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, FP8_SCALE_FP32, FP8_DTYPE_E4M3, 0},
    {"b1x128_pow2_e4m3", FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, FP8_SCALE_POW2, FP8_DTYPE_E4M3, 0},
    {"b1x128_pow2_e5m2", FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, FP8_SCALE_POW2, FP8_DTYPE_E5M2, 0},
    {"b128x128_fp32_e4m3", FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT, FP8_SCALE_FP32, FP8_DTYPE_E4M3, 1},
    {"b128x128_pow2_e4m3", FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT, FP8_SCALE_POW2, FP8_DTYPE_E4M3, 1},
    {"mx1x32_rceil_e4m3", FP8_PRESET_MX, FP8_ROLE_ACTIVATION, FP8_SCALE_E8M0, FP8_DTYPE_E4M3, 0},
    {"mx1x32_rceil_e5m2", FP8_PRESET_MX, FP8_ROLE_ACTIVATION, FP8_SCALE_E8M0, FP8_DTYPE_E5M2, 0},
    {"mx1x32_floor_e4m3", FP8_PRESET_MX, FP8_ROLE_ACTIVATION, FP8_SCALE_E8M0_FLOOR, FP8_DTYPE_E4M3, 0},
    {"mx32x32_rceil_e4m3", FP8_PRESET_MX_W2D, FP8_ROLE_WEIGHT, FP8_SCALE_E8M0, FP8_DTYPE_E4M3, 1},
};

static fp8_recipe *recipe_for(const kind *k) {
  fp8_recipe_config config;
  fp8_recipe *r = NULL;
  FP8_INIT(&config);
  config.preset = k->preset;
  config.scale_rule = k->rule;
  config.master_rounding = FP8_MASTER_DIRECT;
  config.gradient_dtype = FP8_DTYPE_E4M3;
  if (k->role == FP8_ROLE_ACTIVATION) config.activation_dtype = k->dtype;
  OK(fp8_recipe_create(&config, &r));
  return r;
}

static int64_t g_mismatches;

/* a rows x cols array of `size` bytes an element against a strided tensor, or its transpose */
static void compare(const char *name, const golden *want, const fp8_tensor *got, int transposed) {
  const int64_t size = size_of(got->dtype), r = want->shape[0], c = want->ndim > 1 ? want->shape[1] : 1;
  const int64_t s0 = got->stride[0], s1 = got->ndim > 1 ? got->stride[1] : 1;
  const int64_t span = (transposed ? (c - 1) * s0 + (r - 1) * s1 : (r - 1) * s0 + (c - 1) * s1) + 1;
  char *bytes = malloc((size_t)(span * size));
  int64_t i, j, bad = 0;
  assert_int_equal(want->bytes, want->count * size);
  assert_int_equal(count_of(got), want->count);
  download(bytes, got->data, (uint64_t)(span * size));
  for (i = 0; i < r; ++i)
    for (j = 0; j < c; ++j)
      bad += memcmp(bytes + (transposed ? j * s0 + i * s1 : i * s0 + j * s1) * size,
                    (const char *)want->data + (i * c + j) * size, (size_t)size) != 0;
  if (bad) print_error("%s: %lld of %lld differ\n", name, (long long)bad, (long long)want->count);
  g_mismatches += bad;
  free(bytes);
}

static void run_case(const char *input, int32_t dtype, const kind *k) {
  char name[128];
  fp8_recipe *r = recipe_for(k);
  fp8_tensor x;
  fp8_qtensor q;
  golden codes, scale;
  snprintf(name, sizeof name, "qinput__%s__x", input);
  x = golden_tensor(name, dtype);
  q = quantized(r, k->role, &x, FP8_SIDE_BOTH);
  snprintf(name, sizeof name, "quant__%s__%s__q", input, k->name), codes = golden_load(name);
  compare(name, &codes, &q.row, 0);
  if (k->transposes) compare(name, &codes, &q.col, 1);
  snprintf(name, sizeof name, "quant__%s__%s__s", input, k->name), scale = golden_load(name);
  compare(name, &scale, &q.row_scale, 0);
  if (k->transposes) compare(name, &scale, &q.col_scale, 1);
  free(codes.data), free(scale.data);
  if (!k->transposes) {
    snprintf(name, sizeof name, "quant__%s__%s__qT", input, k->name), codes = golden_load(name);
    compare(name, &codes, &q.col, 0);
    snprintf(name, sizeof name, "quant__%s__%s__sT", input, k->name), scale = golden_load(name);
    compare(name, &scale, &q.col_scale, 0);
    free(codes.data), free(scale.data);
  }
  fp8_recipe_destroy(r);
  free_all(NULL);
}

static void test_all(void **state) {
  static const struct {
    const char *name;
    int32_t dtype;
  } inputs[] = {{"gauss_bf16", FP8_DTYPE_BF16},  {"gauss_f16", FP8_DTYPE_F16}, {"gauss_f32", FP8_DTYPE_F32},
                {"ragged_bf16", FP8_DTYPE_BF16}, {"adv_bf16", FP8_DTYPE_BF16}, {"advfinite_bf16", FP8_DTYPE_BF16}};
  size_t i, j;
  (void)state;
  for (i = 0; i < sizeof inputs / sizeof *inputs; ++i)
    for (j = 0; j < sizeof kKinds / sizeof *kKinds; ++j) run_case(inputs[i].name, inputs[i].dtype, &kKinds[j]);
  assert_int_equal(g_mismatches, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_all, free_all)};
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
