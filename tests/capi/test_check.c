/* SPDX-License-Identifier: Apache-2.0 */
/* FP8_CONTEXT_CHECK looks at scales and given amaxes; without it they are taken as they are. */
#include "linear_case.h"

static void spoil(const fp8_tensor *t, int64_t element, float value) {
  upload((char *)t->data + element * 4, &value, 4);
}

static void test_scales(void **state) {
  fp8_context *c = new_context(FP8_CONTEXT_CHECK);
  linear_case k;
  fp8_recipe_config config;
  fp8_linear_forward_args f;
  fp8_linear_backward_args b;
  fp8_gemm_args g;
  fp8_tensor d, amax, wide;
  fp8_qtensor other;
  uint8_t nan_code = 0xff;
  (void)state;
  FP8_INIT(&config);
  config.preset = FP8_PRESET_TENSOR;
  case_with(&k, c, &config, 32, 64, 48, FP8_DTYPE_BF16, FP8_DTYPE_BF16);
  amax = tensor1(FP8_DTYPE_F32, 1);
  f = forward_args(&k), b = backward_args(&k);
  OK(fp8_linear_forward(k.l, &f, NULL));
  OK(fp8_linear_backward(k.l, &b, NULL));
  spoil(&amax, 0, -1.0f);
  f.amax_x = &amax, f.flags = FP8_LINEAR_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_forward|amax_x[0, 0] is -1", fp8_linear_forward(k.l, &f, NULL));
  b.amax_dy = &amax, b.flags = FP8_LINEAR_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "amax_dy[0, 0] is -1", fp8_linear_backward(k.l, &b, NULL));
  f.amax_x = NULL, f.flags = 0, b.amax_dy = NULL, b.flags = 0;
  spoil(&k.qw.row_scale, 0, NAN);
  REFUSED(FP8_ERR_ARGUMENT, "w.row_scale[0, 0] is|nan", fp8_linear_forward(k.l, &f, NULL));
  OK(fp8_linear_backward(k.l, &b, NULL)); /* the other side is not read */
  spoil(&k.saved.col_scale, 0, 0.0f);
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.col_scale[0, 0] is 0", fp8_linear_backward(k.l, &b, NULL));
  d = tensor2(FP8_DTYPE_F32, 64, 64);
  FP8_INIT(&g);
  g.a = &k.saved, g.b = &k.saved, g.a_side = g.b_side = FP8_SIDE_COL, g.d = &d;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_gemm|a.col_scale[0, 0] is 0", fp8_gemm(c, &g, NULL));
  OK(fp8_gemm(g_context, &g, NULL)); /* a context without the flag */
  wide = tensor2(FP8_DTYPE_F32, 32, 64);
  REFUSED(FP8_ERR_ARGUMENT, "fp8_dequantize|q.col_scale", fp8_dequantize(c, &k.saved, FP8_SIDE_COL, &wide, NULL));
  other = describe(k.r, FP8_ROLE_ACTIVATION, 32, 64, FP8_SIDE_ROW), place(&other, FP8_SIDE_ROW);
  REFUSED(FP8_ERR_ARGUMENT, "fp8_requantize|q.col_scale", fp8_requantize(c, k.r, &k.saved, &other, NULL, NULL));
  case_free(&k);

  config.preset = FP8_PRESET_MX;
  case_with(&k, c, &config, 32, 64, 48, FP8_DTYPE_BF16, FP8_DTYPE_BF16);
  f = forward_args(&k);
  OK(fp8_linear_forward(k.l, &f, NULL));
  upload((char *)k.qw.row_scale.data + 5, &nan_code, 1);
  REFUSED(FP8_ERR_ARGUMENT, "w.row_scale[2, 1] is|nan", fp8_linear_forward(k.l, &f, NULL));
  case_free(&k);
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_scales, free_all)};
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
