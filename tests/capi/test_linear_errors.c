/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear refuses, and that it names function, tensor, dimension, value and rule; nothing is written. */
#include "linear_case.h"

static void test_create(void **state) {
  fp8_recipe *r = recipe_of(FP8_PRESET_BLOCK);
  fp8_linear_config good, bad;
  fp8_linear *l = (fp8_linear *)&good;
  fp8_qtensor q;
  (void)state;
  FP8_INIT(&good);
  good.in_features = 64, good.out_features = 32, good.recipe = r;
#define CREATE fp8_linear_create(g_context, &bad, &l)
  REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_create|context is NULL", fp8_linear_create(NULL, &good, &l));
  REFUSED(FP8_ERR_ARGUMENT, "config", fp8_linear_create(g_context, NULL, &l));
  assert_null(l);
  REFUSED(FP8_ERR_ARGUMENT, "linear is NULL", fp8_linear_create(g_context, &good, NULL));
  bad = good, bad.in_features = 0;
  REFUSED(FP8_ERR_ARGUMENT, "config.in_features is 0", CREATE);
  bad = good, bad.out_features = -3;
  REFUSED(FP8_ERR_ARGUMENT, "config.out_features is -3", CREATE);
  bad = good, bad.in_features = bad.out_features = INT64_MAX / 2;
  REFUSED(FP8_ERR_ARGUMENT, "too large", CREATE);
  bad = good, bad.recipe = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "config.recipe is NULL", CREATE);
  bad = good, bad.input_dtype = FP8_DTYPE_E4M3;
  REFUSED(FP8_ERR_ARGUMENT, "config.input_dtype is E4M3", CREATE);
  bad = good, bad.output_dtype = 77;
  REFUSED(FP8_ERR_ARGUMENT, "config.output_dtype|77", CREATE);
  bad = good, bad.flags = 1;
  REFUSED(FP8_ERR_UNSUPPORTED, "config.flags", CREATE);
  bad = good, bad.reserved = 1;
  REFUSED(FP8_ERR_UNSUPPORTED, "config.reserved", CREATE);
  bad = good, bad.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "config|struct_size", CREATE);
  assert_null(l);
  OK(fp8_linear_create(g_context, &good, &l));
  FP8_INIT(&q);
  REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_describe|linear", fp8_linear_describe(NULL, 1, 1, 1, &q));
  REFUSED(FP8_ERR_ARGUMENT, "role is 0", fp8_linear_describe(l, 0, 1, FP8_SIDE_ROW, &q));
  REFUSED(FP8_ERR_ARGUMENT, "rows is -1", fp8_linear_describe(l, FP8_ROLE_ACTIVATION, -1, FP8_SIDE_ROW, &q));
  REFUSED(FP8_ERR_ARGUMENT, "sides is 0x0", fp8_linear_describe(l, FP8_ROLE_ACTIVATION, 1, 0, &q));
  REFUSED(FP8_ERR_ARGUMENT, "q is NULL", fp8_linear_describe(l, FP8_ROLE_ACTIVATION, 1, FP8_SIDE_ROW, NULL));
  fp8_linear_destroy(l);
  fp8_recipe_destroy(r);
}

#define FORWARD fp8_linear_forward(k.l, &a, NULL)
static void test_forward(void **state) {
  linear_case k;
  fp8_linear_forward_args good, a;
  fp8_tensor t, amax = tensor1(FP8_DTYPE_F32, 1), stats = tensor1(FP8_DTYPE_U64, 8);
  fp8_qtensor q, qx, seven;
  fp8_recipe *other = recipe_of(FP8_PRESET_MX);
  fp8_buffer ws;
  void *y_data;
  char *saved_before, *saved_after;
  float *before, *after, seed[4] = {1, 2, 3, 4};
  (void)state;
  case_new(&k, FP8_PRESET_TENSOR, 32, 64, 48);
  amax = tensor1(FP8_DTYPE_F32, 1), stats = tensor1(FP8_DTYPE_U64, 8);
  upload(k.y.data, seed, sizeof seed);
  before = get(&k.y);
  saved_before = malloc(32 * 64), saved_after = malloc(32 * 64);
  download(saved_before, k.saved.col.data, 32 * 64);
  qx = quantized(k.r, FP8_ROLE_ACTIVATION, &k.x, FP8_SIDE_BOTH);
  good = forward_args(&k);

  REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_forward|linear is NULL", fp8_linear_forward(NULL, &good, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "args", fp8_linear_forward(k.l, NULL, NULL));
  a = good, a.x = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "x and qx are both NULL", FORWARD);
  a = good, a.qx = &qx;
  REFUSED(FP8_ERR_ARGUMENT, "x and qx are both given, only one of them may be", FORWARD);
  a = good, a.w = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "w is NULL", FORWARD);
  a = good, a.y = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "y is NULL", FORWARD);
  a = good, a.flags = 64;
  REFUSED(FP8_ERR_UNSUPPORTED, "flags|0x40", FORWARD);
  a = good, a.flags = FP8_LINEAR_ACCUMULATE_DW;
  REFUSED(FP8_ERR_ARGUMENT, "flags|backward", FORWARD);
  a = good, a.max_sms = -2;
  REFUSED(FP8_ERR_ARGUMENT, "max_sms is -2", FORWARD);

  t = k.x, t.shape[1] = 63;
  a = good, a.x = &t;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_forward: x.shape[1] is 63|in_features 64", FORWARD);
  t = k.x, t.dtype = FP8_DTYPE_F32;
  REFUSED(FP8_ERR_ARGUMENT, "x.dtype is F32|BF16", FORWARD);
  t = k.x, t.shape[0] = -1;
  REFUSED(FP8_ERR_ARGUMENT, "x.shape[0] is -1", FORWARD);
  t = k.x, t.shape[0] = 31;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.rows is 32|31", FORWARD);
  t = k.x, t.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "x.data is NULL", FORWARD);
  t = k.x, t.data = (char *)t.data + 2;
  REFUSED(FP8_ERR_ARGUMENT, "x.data|aligned to 16", FORWARD);
  t = k.x, t.stride[0] = 0;
  REFUSED(FP8_ERR_ARGUMENT, "x.stride[0] is 0", FORWARD);
  t = k.x, t.ndim = 0;
  REFUSED(FP8_ERR_ARGUMENT, "x.ndim is 0", FORWARD);

  t = k.y, t.shape[1] = 47;
  a = good, a.y = &t;
  REFUSED(FP8_ERR_ARGUMENT, "y.shape[1] is 47|out_features 48", FORWARD);
  t = k.y, t.shape[0] = 30;
  REFUSED(FP8_ERR_ARGUMENT, "y has 30 rows, x has 32", FORWARD);
  t = k.y, t.dtype = FP8_DTYPE_F32;
  REFUSED(FP8_ERR_ARGUMENT, "y.dtype is F32|BF16", FORWARD);
  y_data = k.y.data;
  t = k.y, t.data = k.x.data;
  REFUSED(FP8_ERR_ARGUMENT, "y shares memory with x", FORWARD);
  t.data = k.saved.col.data;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.col shares memory with y", FORWARD);
  t.data = y_data;

  a = good, a.w = &q;
  q = k.qw, q.rows = 47;
  REFUSED(FP8_ERR_ARGUMENT, "w.rows is 47|48|out_features", FORWARD);
  q = k.qw, q.cols = 65;
  REFUSED(FP8_ERR_ARGUMENT, "w.cols is 65|64|in_features", FORWARD);
  q = k.qw, q.row_kind = 0;
  REFUSED(FP8_ERR_ARGUMENT, "w has no row side", FORWARD);
  q = k.qw, q.row.dtype = FP8_DTYPE_E5M2;
  REFUSED(FP8_ERR_ARGUMENT, "w.row.dtype is E5M2|E4M3", FORWARD);
  seven = quantized(other, FP8_ROLE_WEIGHT, &k.w, FP8_SIDE_ROW);
  q = seven;
  REFUSED(FP8_ERR_ARGUMENT, "w.row_kind is 1x32|tensor", FORWARD);
  q = k.qw, q.row_scale.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "w.row_scale.data is NULL", FORWARD);
  q = k.qw, q.col_kind = 0, q.col.data = (void *)1; /* the side that is not read may dangle */
  OK(FORWARD);
  upload(k.y.data, before, 4), OK(fp8_buffer_zero(g_context, k.saved.col.data, 32 * 64, NULL));
  put(&k.y, before);

  t = k.bias, t.shape[1] = 49;
  a = good, a.bias = &t;
  REFUSED(FP8_ERR_ARGUMENT, "bias|49|48", FORWARD);
  t = k.bias, t.dtype = FP8_DTYPE_F16;
  REFUSED(FP8_ERR_ARGUMENT, "bias.dtype is F16", FORWARD);

  a = good, a.saved_x = &q;
  q = k.saved, q.col_kind = 0;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x has no column side", FORWARD);
  q = k.saved, q.cols = 63;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.cols is 63", FORWARD);
  q = k.saved, q.col.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.col.data is NULL", FORWARD);
  q = k.saved, q.col_kind = FP8_SCALING_COPY;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.col_kind is copy|tensor", FORWARD);
  q = k.saved, q.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x|struct_size", FORWARD);

  a = good, a.x = NULL, a.qx = &qx;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x is given with qx", FORWARD);
  a.saved_x = NULL, a.amax_x = &amax;
  REFUSED(FP8_ERR_ARGUMENT, "amax_x is given with qx", FORWARD);
  a.amax_x = NULL, a.stats_x = &stats;
  REFUSED(FP8_ERR_ARGUMENT, "stats_x is given with qx", FORWARD);
  a.stats_x = NULL, a.flags = FP8_LINEAR_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "AMAX_GIVEN|qx", FORWARD);
  a.flags = 0, q = qx, q.cols = 65, a.qx = &q;
  REFUSED(FP8_ERR_ARGUMENT, "qx.cols is 65", FORWARD);

  a = good, a.state_x = &amax;
  REFUSED(FP8_ERR_UNSUPPORTED, "state_x|delayed", FORWARD);
  a = good, a.flags = FP8_LINEAR_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "AMAX_GIVEN|amax_x|NULL", FORWARD);
  t = amax, t.shape[0] = 2, a = good, a.amax_x = &t;
  REFUSED(FP8_ERR_ARGUMENT, "amax_x|2", FORWARD);
  t = stats, t.shape[0] = 7, a = good, a.stats_x = &t;
  REFUSED(FP8_ERR_ARGUMENT, "stats_x|7", FORWARD);

  a = good, ws.data = dev_alloc(1 << 20), ws.bytes = 10, a.workspace = &ws;
  REFUSED(FP8_ERR_ARGUMENT, "workspace.bytes is 10", FORWARD);
  ws.data = k.x.data, ws.bytes = 1 << 26; /* of any backend enough */
  REFUSED(FP8_ERR_ARGUMENT, "workspace shares memory", FORWARD);
  if (test_backend() == FP8_BACKEND_CPU)
    REFUSED(FP8_ERR_ARGUMENT, "stream", fp8_linear_forward(k.l, &good, (fp8_stream)&k));
  a = good, a.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "args|struct_size", FORWARD);

  after = get(&k.y);
  assert_memory_equal(before, after, 32 * 48 * 4);
  OK(fp8_buffer_copy(g_context, saved_after, k.saved.col.data, 32 * 64, NULL));
  assert_memory_equal(saved_before, saved_after, 32 * 64);
  free(before), free(after), free(saved_before), free(saved_after);
  fp8_recipe_destroy(other);
  case_free(&k);

  case_new(&k, FP8_PRESET_MX, 32, 64, 48); /* amax is TENSOR's */
  amax = tensor1(FP8_DTYPE_F32, 1);
  a = forward_args(&k), a.amax_x = &amax;
  REFUSED(FP8_ERR_UNSUPPORTED, "amax_x|1x32|TENSOR", FORWARD);
  case_free(&k);
}

#define BACKWARD fp8_linear_backward(k.l, &a, NULL)
static void test_backward(void **state) {
  linear_case k;
  fp8_linear_backward_args good, a;
  fp8_tensor t, amax, stats;
  fp8_qtensor q, qdy, saved_dy;
  float *before_dx, *before_dw, *after_dx, *after_dw;
  (void)state;
  case_new(&k, FP8_PRESET_TENSOR, 32, 64, 48);
  amax = tensor1(FP8_DTYPE_F32, 1), stats = tensor1(FP8_DTYPE_U64, 8);
  qdy = quantized(k.r, FP8_ROLE_GRADIENT, &k.dy, FP8_SIDE_BOTH);
  saved_dy = describe(k.r, FP8_ROLE_GRADIENT, 32, 48, FP8_SIDE_COL), place(&saved_dy, FP8_SIDE_COL);
  before_dx = get(&k.dx), before_dw = get(&k.dw);
  good = backward_args(&k);

  REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_backward|linear is NULL", fp8_linear_backward(NULL, &good, NULL));
  a = good, a.dy = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "dy and qdy are both NULL", BACKWARD);
  a = good, a.qdy = &qdy;
  REFUSED(FP8_ERR_ARGUMENT, "dy and qdy are both given, only one of them may be", BACKWARD);
  a = good, a.dx = NULL, a.dw = NULL, a.w = NULL, a.saved_x = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "nothing to compute", BACKWARD);
  a = good, a.w = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "w is NULL and dx is given", BACKWARD);
  a = good, a.dx = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "w is given and dx is NULL", BACKWARD);
  a = good, a.saved_x = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x and x are both NULL", BACKWARD);
  a = good, a.x = &k.x;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x and x are both given", BACKWARD);
  a = good, a.dw = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x is given and dw is NULL", BACKWARD);
  a = good, a.amax_x = &amax;
  REFUSED(FP8_ERR_ARGUMENT, "amax_x is given without x", BACKWARD);
  a = good, a.flags = 1u << 31;
  REFUSED(FP8_ERR_UNSUPPORTED, "flags", BACKWARD);

  a = good, a.dy = NULL, a.qdy = &qdy, a.dbias = &k.dbias;
  REFUSED(FP8_ERR_ARGUMENT, "dbias is given with qdy", BACKWARD);
  a.dbias = NULL, a.saved_dy = &saved_dy;
  REFUSED(FP8_ERR_ARGUMENT, "saved_dy is given with qdy", BACKWARD);
  a.saved_dy = NULL, a.amax_dy = &amax;
  REFUSED(FP8_ERR_ARGUMENT, "amax_dy is given with qdy", BACKWARD);
  a.amax_dy = NULL, a.stats_dy = &stats;
  REFUSED(FP8_ERR_ARGUMENT, "stats_dy is given with qdy", BACKWARD);
  a.stats_dy = NULL, a.flags = FP8_LINEAR_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "AMAX_GIVEN|qdy", BACKWARD);
  a.flags = 0, a.qdy = &q;
  q = qdy, q.row_kind = 0;
  REFUSED(FP8_ERR_ARGUMENT, "qdy has no row side", BACKWARD);
  q = qdy, q.col.dtype = FP8_DTYPE_E4M3;
  REFUSED(FP8_ERR_ARGUMENT, "qdy.col.dtype is E4M3|E5M2", BACKWARD);
  q = qdy, q.cols = 47;
  REFUSED(FP8_ERR_ARGUMENT, "qdy.cols is 47|out_features", BACKWARD);

  t = k.dy, t.shape[1] = 40, a = good, a.dy = &t;
  REFUSED(FP8_ERR_ARGUMENT, "dy.shape[1] is 40|out_features 48", BACKWARD);
  t = k.dy, t.dtype = FP8_DTYPE_F32;
  REFUSED(FP8_ERR_ARGUMENT, "dy.dtype is F32", BACKWARD);
  t = k.dy, t.shape[0] = 31;
  REFUSED(FP8_ERR_ARGUMENT, "dx is 32 x 64, must be 31 x 64", BACKWARD);
  t = k.dx, t.dtype = FP8_DTYPE_F16, a = good, a.dx = &t;
  REFUSED(FP8_ERR_ARGUMENT, "dx.dtype is F16|BF16|F32", BACKWARD);
  t = k.dx, t.shape[1] = 63;
  REFUSED(FP8_ERR_ARGUMENT, "dx is 32 x 63|32 x 64", BACKWARD);
  t = k.dx, t.data = k.dy.data;
  REFUSED(FP8_ERR_ARGUMENT, "dx shares memory with dy", BACKWARD);
  t = k.dw, t.dtype = FP8_DTYPE_F16, a = good, a.dw = &t;
  REFUSED(FP8_ERR_ARGUMENT, "dw.dtype is F16|F32 or BF16", BACKWARD);
  t = k.dw, t.shape[0] = 64, t.shape[1] = 48;
  REFUSED(FP8_ERR_ARGUMENT, "dw is 64 x 48|48 x 64", BACKWARD);
  t = k.dw, t.data = k.saved.col.data;
  REFUSED(FP8_ERR_ARGUMENT, "dw shares memory", BACKWARD);
  t = k.dbias, t.dtype = FP8_DTYPE_BF16, a = good, a.dbias = &t;
  REFUSED(FP8_ERR_ARGUMENT, "dbias.dtype is BF16|F32", BACKWARD);
  t = k.dbias, t.shape[0] = 47;
  REFUSED(FP8_ERR_ARGUMENT, "dbias|47|48", BACKWARD);

  q = k.saved, q.rows = 31, a = good, a.saved_x = &q;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.rows is 31|32", BACKWARD);
  q = k.saved, q.col_kind = 0;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x has no col side", BACKWARD);
  q = saved_dy, q.col_kind = 0, a = good, a.saved_dy = &q;
  REFUSED(FP8_ERR_ARGUMENT, "saved_dy has no column side", BACKWARD);
  q = saved_dy, q.rows = 5;
  REFUSED(FP8_ERR_ARGUMENT, "saved_dy.rows is 5", BACKWARD);
  t = k.x, t.shape[0] = 31, a = good, a.saved_x = NULL, a.x = &t;
  REFUSED(FP8_ERR_ARGUMENT, "x has 31 rows, dy has 32", BACKWARD);
  a = good, a.state_dy = &amax;
  REFUSED(FP8_ERR_UNSUPPORTED, "state_dy|delayed", BACKWARD);

  after_dx = get(&k.dx), after_dw = get(&k.dw);
  assert_memory_equal(before_dx, after_dx, 32 * 64 * 4);
  assert_memory_equal(before_dw, after_dw, 48 * 64 * 4);
  free(before_dx), free(before_dw), free(after_dx), free(after_dw);
  case_free(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_create, free_all),
      cmocka_unit_test_teardown(test_forward, free_all),
      cmocka_unit_test_teardown(test_backward, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
