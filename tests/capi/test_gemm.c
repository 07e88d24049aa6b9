/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_gemm against FP64 of the dequantized operands: every legal pair, side, dtype and flag. */
#include "support.h"

typedef struct operand {
  int32_t preset, role, dtype; /* dtype of the codes, 0 = the preset's */
  uint32_t side;
} operand;

/* d = A . B^T from dequantized sides */
static double *product(const fp8_qtensor *a, uint32_t a_side, const fp8_qtensor *b, uint32_t b_side) {
  const int64_t m = a_side == FP8_SIDE_ROW ? a->rows : a->cols, k = a_side == FP8_SIDE_ROW ? a->cols : a->rows;
  const int64_t n = b_side == FP8_SIDE_ROW ? b->rows : b->cols;
  double *va = values_of(a, a_side), *vb = values_of(b, b_side), *d = calloc((size_t)(m * n) + 1, 8);
  int64_t i, j, l;
  for (i = 0; i < m; ++i)
    for (j = 0; j < n; ++j) {
      double sum = 0;
      for (l = 0; l < k; ++l)
        sum += (a_side == FP8_SIDE_ROW ? va[i * k + l] : va[l * m + i]) *
               (b_side == FP8_SIDE_ROW ? vb[j * k + l] : vb[l * n + j]);
      d[i * n + j] = sum;
    }
  free(va);
  free(vb);
  return d;
}

static double gate(int32_t d_dtype, int quantized, int64_t n) { /* few elements: half a unit in the last place */
  if (d_dtype == FP8_DTYPE_F16) return n < 16 ? 5e-4 : 3e-4;
  if (d_dtype == FP8_DTYPE_BF16) return n < 16 ? 4e-3 : 1.8e-3;
  return test_backend() == FP8_BACKEND_CUDA && quantized ? 2e-4 : 1e-5;
}

static fp8_recipe *recipe_with(int32_t preset, int32_t activation, int32_t gradient) {
  fp8_recipe_config config;
  fp8_recipe *r = NULL;
  FP8_INIT(&config);
  config.preset = preset;
  config.activation_dtype = activation;
  config.gradient_dtype = gradient;
  OK(fp8_recipe_create(&config, &r));
  return r;
}

/* an operand of `lines` vectors along the contraction of k */
static fp8_qtensor make(const fp8_recipe *r, const operand *o, int64_t lines, int64_t k) {
  const int row = o->side == FP8_SIDE_ROW;
  fp8_tensor x = random2(FP8_DTYPE_BF16, row ? lines : k, row ? k : lines, 1.0f);
  return quantized(r, o->role, &x, o->side);
}

static void check_pair(const operand *oa, const operand *ob, int64_t m, int64_t n, int64_t k) {
  static const int32_t dtypes[] = {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16};
  fp8_recipe *ra = recipe_with(oa->preset, oa->role == FP8_ROLE_ACTIVATION ? oa->dtype : 0,
                               oa->role == FP8_ROLE_GRADIENT ? oa->dtype : 0);
  fp8_recipe *rb = recipe_with(ob->preset, ob->role == FP8_ROLE_ACTIVATION ? ob->dtype : 0,
                               ob->role == FP8_ROLE_GRADIENT ? ob->dtype : 0);
  fp8_qtensor a = make(ra, oa, m, k), b = make(rb, ob, n, k);
  double *want = product(&a, oa->side, &b, ob->side);
  fp8_gemm_args args;
  int i;
  FP8_INIT(&args);
  args.a = &a;
  args.b = &b;
  args.a_side = oa->side;
  args.b_side = ob->side;
  for (i = 0; i < 3; ++i) {
    fp8_tensor d = tensor2(dtypes[i], m, n), bias = tensor1(dtypes[i], n), bias32 = tensor1(FP8_DTYPE_F32, n);
    float *hb = malloc((size_t)n * 4 + 4), *got;
    double *sum = malloc((size_t)(m * n) * 8 + 8);
    int64_t j;
    int pass;
    double error, bound;
    for (j = 0; j < n; ++j) hb[j] = (float)(j % 7) - 3;
    put(&bias, hb);
    put(&bias32, hb);
    for (pass = 0; pass < 4; ++pass) { /* alone; bias in d's dtype; bias in F32; bias and accumulate */
      args.d = &d;
      args.bias = pass == 0 ? NULL : pass == 1 ? &bias : &bias32;
      args.flags = pass == 3 ? FP8_GEMM_ACCUMULATE : 0;
      OK(fp8_gemm(g_context, &args, NULL));
      got = get(&d);
      for (j = 0; j < m * n; ++j) sum[j] = (pass == 3 ? sum[j] : 0) + want[j] + (pass ? hb[j % n] : 0);
      error = relative(got, sum, m * n);
      bound = (pass == 3 ? 2 : 1) * gate(dtypes[i], a.row_kind != 1 && a.col_kind != 1, m * n);
      if (error > bound)
        fail_msg("presets %d x %d, [%d, %d, %d], d dtype %d, pass %d: error %g, bound %g", oa->preset, ob->preset,
                 (int)m, (int)n, (int)k, dtypes[i], pass, error, bound);
      free(got);
    }
    free(hb);
    free(sum);
  }
  free(want);
  fp8_recipe_destroy(ra);
  fp8_recipe_destroy(rb);
  free_all(NULL);
}

static void test_legal_pairs(void **state) {
  static const operand pairs[][2] = {
      {{FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW},
       {FP8_PRESET_TENSOR, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_TENSOR, FP8_ROLE_GRADIENT, 0, FP8_SIDE_COL},
       {FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_COL}},
      {{FP8_PRESET_TENSOR, FP8_ROLE_WEIGHT, 0, FP8_SIDE_COL}, {FP8_PRESET_TENSOR, FP8_ROLE_GRADIENT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_ROW, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW}, {FP8_PRESET_ROW, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_ROW, FP8_ROLE_GRADIENT, FP8_DTYPE_E5M2, FP8_SIDE_COL},
       {FP8_PRESET_ROW, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_COL}},
      {{FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW}, {FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}, {FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_BLOCK, FP8_ROLE_GRADIENT, 0, FP8_SIDE_ROW}, {FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT, 0, FP8_SIDE_COL}},
      {{FP8_PRESET_BLOCK, FP8_ROLE_GRADIENT, FP8_DTYPE_E5M2, FP8_SIDE_COL},
       {FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_COL}},
      {{FP8_PRESET_MX, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW}, {FP8_PRESET_MX, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_MX, FP8_ROLE_GRADIENT, FP8_DTYPE_E5M2, FP8_SIDE_COL},
       {FP8_PRESET_MX, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_COL}},
      {{FP8_PRESET_MX_W2D, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW},
       {FP8_PRESET_MX_W2D, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_MX_W2D, FP8_ROLE_GRADIENT, 0, FP8_SIDE_ROW}, {FP8_PRESET_MX_W2D, FP8_ROLE_WEIGHT, 0, FP8_SIDE_COL}},
      {{FP8_PRESET_NONE, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW}, {FP8_PRESET_NONE, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW}},
      {{FP8_PRESET_NONE, FP8_ROLE_GRADIENT, 0, FP8_SIDE_COL}, {FP8_PRESET_NONE, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_COL}},
  };
  size_t i;
  (void)state;
  for (i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
    check_pair(&pairs[i][0], &pairs[i][1], 48, 64, 160);
    check_pair(&pairs[i][0], &pairs[i][1], 33, 20, 131);
    check_pair(&pairs[i][0], &pairs[i][1], 1, 1, 1);
  }
}

/* d may have any strides and leading dimensions; what lies between its elements stays. */
static void test_strided_output(void **state) {
  static const operand oa = {FP8_PRESET_MX, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW},
                       ob = {FP8_PRESET_MX, FP8_ROLE_WEIGHT, 0, FP8_SIDE_ROW};
  fp8_recipe *r = recipe_of(FP8_PRESET_MX);
  fp8_qtensor a = make(r, &oa, 6, 64), b = make(r, &ob, 5, 64);
  double *want = product(&a, FP8_SIDE_ROW, &b, FP8_SIDE_ROW);
  fp8_tensor d = view(FP8_DTYPE_F32, 3, 2, 3, 5);
  float whole[2 * 100], *h = whole;
  fp8_gemm_args args;
  int64_t i, j, k;
  int touched = 0;
  (void)state;
  for (i = 0; i < 200; ++i) h[i] = -77;
  d.data = dev_alloc(sizeof whole);
  upload(d.data, whole, sizeof whole);
  d.stride[0] = 100, d.stride[1] = 20, d.stride[2] = 2;
  FP8_INIT(&args);
  args.a = &a, args.b = &b, args.d = &d;
  args.a_side = args.b_side = FP8_SIDE_ROW;
  OK(fp8_gemm(g_context, &args, NULL));
  download(whole, d.data, sizeof whole);
  for (i = 0; i < 2; ++i)
    for (j = 0; j < 3; ++j)
      for (k = 0; k < 5; ++k) {
        float *v = &h[i * 100 + j * 20 + k * 2];
        assert_true(fabs(*v - want[(i * 3 + j) * 5 + k]) < 1e-3);
        *v = -77;
      }
  for (i = 0; i < 200; ++i) touched += h[i] != -77;
  assert_int_equal(touched, 0);
  free(want);
  fp8_recipe_destroy(r);
}

/* No contraction: the bias, or zero, or what was there. No rows or columns: nothing. */
static void test_empty(void **state) {
  static const int32_t presets[] = {FP8_PRESET_NONE, FP8_PRESET_TENSOR, FP8_PRESET_ROW, FP8_PRESET_BLOCK,
                                    FP8_PRESET_MX};
  int p;
  (void)state;
  for (p = 0; p < 5; ++p) {
    fp8_recipe *r = recipe_of(presets[p]);
    fp8_tensor xa = tensor2(FP8_DTYPE_BF16, 3, 0), xb = tensor2(FP8_DTYPE_BF16, 4, 0),
               none = tensor2(FP8_DTYPE_BF16, 0, 8);
    fp8_tensor d = random2(FP8_DTYPE_F32, 3, 4, 1.0f), bias = random2(FP8_DTYPE_F32, 1, 4, 1.0f), nothing;
    fp8_qtensor a = quantized(r, FP8_ROLE_ACTIVATION, &xa, FP8_SIDE_ROW),
                b = quantized(r, FP8_ROLE_WEIGHT, &xb, FP8_SIDE_ROW);
    fp8_qtensor empty = quantized(r, FP8_ROLE_ACTIVATION, &none, FP8_SIDE_ROW), w;
    fp8_tensor xw = random2(FP8_DTYPE_BF16, 4, 8, 1.0f);
    fp8_gemm_args args;
    float *before = get(&d), *hb = get(&bias), *after;
    int i;
    FP8_INIT(&args);
    args.a = &a, args.b = &b, args.d = &d, args.bias = &bias;
    args.a_side = args.b_side = FP8_SIDE_ROW;
    args.flags = FP8_GEMM_ACCUMULATE;
    OK(fp8_gemm(g_context, &args, NULL));
    after = get(&d);
    for (i = 0; i < 12; ++i) assert_true(after[i] == before[i] + hb[i % 4]);
    free(after);
    args.flags = 0;
    OK(fp8_gemm(g_context, &args, NULL));
    after = get(&d);
    for (i = 0; i < 12; ++i) assert_true(after[i] == hb[i % 4]);
    free(after);
    args.bias = NULL;
    OK(fp8_gemm(g_context, &args, NULL));
    after = get(&d);
    for (i = 0; i < 12; ++i) assert_true(after[i] == 0);
    free(after);
    w = quantized(r, FP8_ROLE_WEIGHT, &xw, FP8_SIDE_ROW);
    nothing = view(FP8_DTYPE_F32, 2, 0, 4, 0);
    args.a = &empty, args.b = &w, args.d = &nothing;
    OK(fp8_gemm(g_context, &args, NULL));
    free(before);
    free(hb);
    fp8_recipe_destroy(r);
    free_all(NULL);
  }
}

/* Foreign scale strides and U8 scales give the same product; fast accumulation is of tensor and row kinds. */
static void test_scales_and_fast(void **state) {
  static const operand oa = {FP8_PRESET_MX, FP8_ROLE_ACTIVATION, 0, FP8_SIDE_ROW};
  fp8_recipe *r = recipe_of(FP8_PRESET_MX), *t = recipe_of(FP8_PRESET_TENSOR);
  fp8_qtensor a = make(r, &oa, 40, 96), b = make(r, &oa, 24, 96), a8 = a, ta, tb;
  fp8_tensor d = tensor2(FP8_DTYPE_F32, 40, 24), e = tensor2(FP8_DTYPE_F32, 40, 24);
  uint8_t codes[40 * 3], moved[40 * 3];
  float *hd, *he;
  double *want;
  fp8_gemm_args args;
  int i, j;
  (void)state;
  FP8_INIT(&args);
  args.a = &a, args.b = &b, args.d = &d;
  args.a_side = args.b_side = FP8_SIDE_ROW;
  OK(fp8_gemm(g_context, &args, NULL));
  download(codes, a.row_scale.data, sizeof codes);
  for (i = 0; i < 40; ++i)
    for (j = 0; j < 3; ++j) moved[j * 40 + i] = codes[i * 3 + j];
  a8.row_scale.data = dev_alloc(sizeof moved);
  upload(a8.row_scale.data, moved, sizeof moved);
  a8.row_scale.dtype = FP8_DTYPE_U8;
  a8.row_scale.stride[0] = 1, a8.row_scale.stride[1] = 40;
  args.a = &a8, args.d = &e;
  OK(fp8_gemm(g_context, &args, NULL));
  hd = get(&d), he = get(&e);
  assert_memory_equal(hd, he, 40 * 24 * 4);
  free(hd), free(he);
  args.flags = FP8_GEMM_FAST_ACCUMULATION;
  REFUSED(FP8_ERR_UNSUPPORTED, "FAST_ACCUMULATION|1x32", fp8_gemm(g_context, &args, NULL));
  ta = make(t, &oa, 40, 96), tb = make(t, &oa, 24, 96);
  args.a = &ta, args.b = &tb;
  OK(fp8_gemm(g_context, &args, NULL));
  want = product(&ta, FP8_SIDE_ROW, &tb, FP8_SIDE_ROW);
  he = get(&e);
  assert_true(relative(he, want, 40 * 24) < 5e-3);
  free(he), free(want);
  fp8_recipe_destroy(r);
  fp8_recipe_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_legal_pairs, free_all),
      cmocka_unit_test_teardown(test_strided_output, free_all),
      cmocka_unit_test_teardown(test_empty, free_all),
      cmocka_unit_test_teardown(test_scales_and_fast, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
