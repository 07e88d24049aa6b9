/* SPDX-License-Identifier: Apache-2.0 */
/* amax, statistics, coverage, dtypes without a GEMM of their own, zero rows. */
#include "linear_case.h"

static float one(const fp8_tensor *t) {
  float v;
  download(&v, t->data, 4);
  return v;
}

/* TENSOR: forward's amax of x comes out, a reduced one goes in, backward's x takes forward's; dy likewise. */
static void test_amax(void **state) {
  linear_case k;
  fp8_linear_forward_args f;
  fp8_linear_backward_args b;
  fp8_tensor amax = tensor1(FP8_DTYPE_F32, 1), amax_dy, y, dw;
  float *hx, *hdy, x_max = 0, dy_max = 0, bigger;
  int64_t i;
  (void)state;
  case_new(&k, FP8_PRESET_TENSOR, 40, 64, 32);
  amax_dy = tensor1(FP8_DTYPE_F32, 1), y = like(&k.y), dw = like(&k.dw);
  hx = get(&k.x), hdy = get(&k.dy);
  for (i = 0; i < 40 * 64; ++i) x_max = fmaxf(x_max, fabsf(hx[i]));
  for (i = 0; i < 40 * 32; ++i) dy_max = fmaxf(dy_max, fabsf(hdy[i]));
  f = forward_args(&k), b = backward_args(&k);
  f.amax_x = &amax;
  OK(fp8_linear_forward(k.l, &f, NULL));
  assert_true(one(&amax) == x_max);
  f.flags = FP8_LINEAR_AMAX_GIVEN, f.y = &y; /* the same amax: the same bits */
  OK(fp8_linear_forward(k.l, &f, NULL));
  assert_true(equal(&y, &k.y));
  bigger = 37.0f; /* of a group whose other members are larger */
  upload(amax.data, &bigger, 4);
  OK(fp8_linear_forward(k.l, &f, NULL));
  assert_false(equal(&y, &k.y));
  b.amax_dy = &amax_dy;
  OK(fp8_linear_backward(k.l, &b, NULL));
  assert_true(one(&amax_dy) == dy_max);
  b.flags = FP8_LINEAR_AMAX_GIVEN; /* amax_dy is in now */
  b.saved_x = NULL, b.x = &k.x, b.amax_x = &amax, b.dw = &dw;
  OK(fp8_linear_backward(k.l, &b, NULL));
  assert_true(equal(&dw, &k.dw)); /* x quantized with forward's amax is saved_x */
  assert_true(one(&amax) == bigger);
  b.amax_x = NULL;
  OK(fp8_linear_backward(k.l, &b, NULL));
  assert_false(equal(&dw, &k.dw)); /* taken from x instead */
  b.amax_x = &amax, b.amax_dy = &amax;
  OK(fp8_linear_backward(k.l, &b, NULL));
  assert_false(equal(&dw, &k.dw)); /* another scale of dy */
  free(hx), free(hdy);
  case_free(&k);
}

static void test_stats(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    fp8_tensor sx, sdy;
    uint64_t h[16];
    const int quantizes = kPresets[p] != FP8_PRESET_NONE;
    case_new(&k, kPresets[p], 40, 64, 32);
    sx = tensor1(FP8_DTYPE_U64, 8), sdy = tensor2(FP8_DTYPE_U64, 2, 8);
    f = forward_args(&k), b = backward_args(&k);
    f.stats_x = &sx, b.stats_dy = &sdy;
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    download(h, sx.data, 64);
    assert_int_equal(h[0], quantizes ? 2 * 40 * 64 : 0);
    download(h, sdy.data, 128);
    assert_int_equal(h[0], quantizes ? 40 * 32 : 0);
    assert_int_equal(h[8], quantizes ? 40 * 32 : 0);
    case_free(&k);
  }
}

/* GEMMs outside the coverage run in BF16, through the same calls. */
static void test_coverage(void **state) {
  int p;
  uint32_t coverage;
  (void)state;
  for (p = 1; p < PRESETS; ++p)
    for (coverage = 1; coverage < 8; ++coverage) {
      linear_case k;
      fp8_recipe_config config;
      fp8_linear_forward_args f;
      fp8_linear_backward_args b;
      fp8_qtensor w8;
      fp8_counters before, after;
      const int fp8_gemms = (coverage & 1) + (coverage >> 1 & 1) + (coverage >> 2 & 1);
      FP8_INIT(&config);
      config.preset = kPresets[p];
      config.coverage = coverage;
      config.fast_accumulation = FP8_NO_GEMM;
      case_with(&k, g_context, &config, 34, 70, 48, FP8_DTYPE_BF16, FP8_DTYPE_BF16);
      f = forward_args(&k), b = backward_args(&k);
      FP8_INIT(&before);
      FP8_INIT(&after);
      OK(fp8_context_counters(g_context, &before));
      OK(fp8_linear_forward(k.l, &f, NULL));
      OK(fp8_linear_backward(k.l, &b, NULL));
      OK(fp8_context_counters(g_context, &after));
      assert_int_equal(after.gemms - before.gemms, 3);
      if (test_backend() == FP8_BACKEND_CPU) assert_int_equal(after.emulated_gemms - before.emulated_gemms, fp8_gemms);
      assert_true((k.saved.col_kind == FP8_SCALING_UNQUANTIZED) == !(coverage & FP8_WGRAD));
      if (!(coverage & FP8_WGRAD)) assert_true(k.saved.col.data == k.x.data);
      CLOSE(&k.y, want_y(&k));
      CLOSE(&k.dx, want_dx(&k));
      CLOSE(&k.dw, want_dw(&k));
      if (!(coverage & FP8_DGRAD)) { /* a weight that is FP8 only */
        fp8_recipe *whole = recipe_of(kPresets[p]);
        w8 = quantized(whole, FP8_ROLE_WEIGHT, &k.w, FP8_SIDE_BOTH);
        b.w = &w8;
        REFUSED(FP8_ERR_ARGUMENT, "w.col_kind|dgrad in BF16|FP8 only", fp8_linear_backward(k.l, &b, NULL));
        w8.col_kind = 0;
        REFUSED(FP8_ERR_ARGUMENT, "w.col_kind is absent|dgrad in BF16", fp8_linear_backward(k.l, &b, NULL));
        fp8_recipe_destroy(whole);
      }
      case_free(&k);
    }
}

/* FP32 x and dy with GEMMs that are not covered: rounded once to BF16, in the workspace or in a COPY. */
static void test_f32_uncovered(void **state) {
  int p;
  (void)state;
  for (p = 0; p < 2; ++p) { /* nothing covered; fprop alone */
    linear_case k;
    fp8_recipe_config config;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    fp8_qtensor viewing;
    fp8_tensor lead, dw;
    FP8_INIT(&config);
    config.preset = p ? FP8_PRESET_TENSOR : FP8_PRESET_NONE;
    if (p) config.coverage = FP8_FPROP, config.fast_accumulation = FP8_NO_GEMM;
    case_with(&k, g_context, &config, 30, 70, 48, FP8_DTYPE_F32, FP8_DTYPE_F32);
    dw = like(&k.dw);
    assert_int_equal(k.saved.col_kind, FP8_SCALING_COPY);
    f = forward_args(&k), b = backward_args(&k);
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    CLOSE(&k.y, want_y(&k));
    CLOSE(&k.dx, want_dx(&k));
    CLOSE(&k.dw, want_dw(&k));
    b.saved_x = NULL, b.x = &k.x, b.dw = &dw; /* copied in backward */
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dw, &k.dw));
    FP8_INIT(&viewing); /* an FP32 x cannot be viewed as BF16 */
    OK(fp8_linear_describe(k.l, FP8_ROLE_ACTIVATION, 30, FP8_SIDE_COL, &viewing));
    f.saved_x = &viewing;
    REFUSED(FP8_ERR_UNSUPPORTED, "x is F32|saved_x|FP8_SIDE_COPY", fp8_linear_forward(k.l, &f, NULL));
    f.saved_x = &k.saved; /* leading dimensions that do not flatten: a copy takes them */
    lead = view(FP8_DTYPE_F32, 3, 2, 15, 70);
    lead.data = dev_alloc(2 * 20 * 70 * 4);
    lead.stride[0] = 20 * 70;
    f.x = &lead;
    OK(fp8_linear_forward(k.l, &f, NULL));
    case_free(&k);
  }
}

/* Views need one stride: said by name. */
static void test_views(void **state) {
  linear_case k;
  fp8_linear_forward_args f;
  fp8_tensor lead;
  (void)state;
  case_new(&k, FP8_PRESET_NONE, 30, 64, 32);
  lead = view(FP8_DTYPE_BF16, 3, 2, 15, 64);
  lead.data = dev_alloc(2 * 20 * 64 * 2);
  lead.stride[0] = 20 * 64;
  f = forward_args(&k);
  f.x = &lead;
  REFUSED(FP8_ERR_UNSUPPORTED, "x has leading dimensions|one stride", fp8_linear_forward(k.l, &f, NULL));
  case_free(&k);
  case_new(&k, FP8_PRESET_BLOCK, 30, 64, 32); /* a quantizer takes any */
  lead.data = dev_alloc(2 * 20 * 64 * 2);
  f = forward_args(&k);
  f.x = &lead;
  OK(fp8_linear_forward(k.l, &f, NULL));
  case_free(&k);
}

static void test_zero_rows(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    float *h, before[6], *after;
    int i;
    uint64_t bytes;
    case_new(&k, kPresets[p], 0, 3, 2);
    f = forward_args(&k), b = backward_args(&k);
    k.x.data = k.y.data = k.dy.data = k.dx.data = NULL;
    for (i = 0; i < 6; ++i) before[i] = (float)i + 1;
    put(&k.dw, before);
    b.dbias = &k.dbias;
    put(&k.dbias, before);
    b.flags = FP8_LINEAR_ACCUMULATE_DW | FP8_LINEAR_ACCUMULATE_DBIAS;
    OK(fp8_linear_workspace(k.l, 0, 0, &bytes));
    OK(fp8_linear_prepare(k.l, 0, 0));
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    after = get(&k.dw), h = get(&k.dbias);
    assert_memory_equal(after, before, sizeof before); /* nothing to add */
    assert_memory_equal(h, before, 8);
    free(after), free(h);
    b.flags = 0;
    OK(fp8_linear_backward(k.l, &b, NULL));
    after = get(&k.dw), h = get(&k.dbias);
    for (i = 0; i < 6; ++i) assert_true(after[i] == 0); /* the sum over no rows */
    assert_true(h[0] == 0 && h[1] == 0);
    free(after), free(h);
    case_free(&k);
  }
}

/* dbias alone, and saved_dy alone */
static void test_dbias_alone(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    fp8_linear_backward_args b;
    fp8_qtensor saved_dy, want;
    fp8_tensor together;
    case_new(&k, kPresets[p], 70, 32, 48);
    together = tensor1(FP8_DTYPE_F32, 48);
    b = backward_args(&k);
    b.w = NULL, b.saved_x = NULL, b.dx = NULL, b.dw = NULL, b.dbias = &k.dbias;
    OK(fp8_linear_backward(k.l, &b, NULL));
    FP8_INIT(&saved_dy);
    OK(fp8_linear_describe(k.l, FP8_ROLE_GRADIENT, 70, FP8_SIDE_COL, &saved_dy));
    place(&saved_dy, FP8_SIDE_COL);
    b.saved_dy = &saved_dy, b.dbias = &together;
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&together, &k.dbias));
    want = quantized(k.r, FP8_ROLE_GRADIENT, &k.dy, FP8_SIDE_COL);
    if (kPresets[p] != FP8_PRESET_NONE) assert_true(equal(&saved_dy.col, &want.col));
    case_free(&k);
  }
}

/* Callers built against an older or a newer header; a limit on multiprocessors. */
static void test_sized_structs(void **state) {
  linear_case k;
  struct {
    fp8_linear_forward_args args;
    uint64_t later;
  } newer;
  struct {
    fp8_linear_backward_args args;
    uint64_t later;
  } newer_back;
  fp8_linear_forward_args f;
  fp8_linear_backward_args b;
  fp8_tensor y, dw;
  fp8_qtensor older;
  (void)state;
  case_new(&k, FP8_PRESET_BLOCK, 40, 64, 32);
  y = like(&k.y), dw = like(&k.dw);
  f = forward_args(&k), b = backward_args(&k);
  OK(fp8_linear_forward(k.l, &f, NULL));
  OK(fp8_linear_backward(k.l, &b, NULL));
  f.struct_size = offsetof(fp8_linear_forward_args, amax_x); /* older: what it lacks is zero */
  f.flags = 0xffff, f.max_sms = -1, f.y = &y;
  OK(fp8_linear_forward(k.l, &f, NULL));
  assert_true(equal(&y, &k.y));
  memset(&newer, 0, sizeof newer);
  memset(&newer_back, 0, sizeof newer_back);
  newer.args = forward_args(&k), newer.args.struct_size = sizeof newer;
  newer_back.args = b, newer_back.args.struct_size = sizeof newer_back;
  OK(fp8_linear_forward(k.l, &newer.args, NULL));
  OK(fp8_linear_backward(k.l, &newer_back.args, NULL));
  newer.later = newer_back.later = 1; /* asks for what this library does not know */
  REFUSED(FP8_ERR_UNSUPPORTED, "fp8_linear_forward|args|byte", fp8_linear_forward(k.l, &newer.args, NULL));
  REFUSED(FP8_ERR_UNSUPPORTED, "fp8_linear_backward|args|byte", fp8_linear_backward(k.l, &newer_back.args, NULL));
  b.max_sms = 1, b.dw = &dw;
  OK(fp8_linear_backward(k.l, &b, NULL));
  CLOSE(&dw, want_dw(&k));
  case_free(&k);

  case_new(&k, FP8_PRESET_NONE, 40, 64, 32); /* a view has nowhere to go in a qtensor that ends before `col` */
  older = k.saved, older.struct_size = offsetof(fp8_qtensor, col);
  f = forward_args(&k), f.saved_x = &older;
  REFUSED(FP8_ERR_ARGUMENT, "saved_x.col.dtype is NONE", fp8_linear_forward(k.l, &f, NULL));
  older.struct_size = offsetof(fp8_qtensor, col_scale); /* unquantized sides have no scale */
  OK(fp8_linear_forward(k.l, &f, NULL));
  assert_true(older.col.data == k.x.data);
  case_free(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_amax, free_all),        cmocka_unit_test_teardown(test_stats, free_all),
      cmocka_unit_test_teardown(test_coverage, free_all),    cmocka_unit_test_teardown(test_f32_uncovered, free_all),
      cmocka_unit_test_teardown(test_views, free_all),       cmocka_unit_test_teardown(test_zero_rows, free_all),
      cmocka_unit_test_teardown(test_dbias_alone, free_all), cmocka_unit_test_teardown(test_sized_structs, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
