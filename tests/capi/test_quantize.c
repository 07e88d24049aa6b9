/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_quantize and fp8_amax: what each field of the arguments does. */
#include "support.h"

static const int32_t kPresets[] = {FP8_PRESET_NONE,  FP8_PRESET_TENSOR, FP8_PRESET_ROW,
                                   FP8_PRESET_BLOCK, FP8_PRESET_MX,     FP8_PRESET_MX_W2D};
#define PRESETS (int)(sizeof kPresets / sizeof *kPresets)

static void run(const fp8_recipe *r, int32_t role, const fp8_tensor *x, fp8_qtensor *q, fp8_tensor *amax,
                fp8_tensor *amax_col, uint32_t flags) {
  fp8_quantize_args a;
  FP8_INIT(&a);
  a.x = x;
  a.q = q;
  a.role = role;
  a.amax = amax;
  a.amax_col = amax_col;
  a.flags = flags;
  OK(fp8_quantize(g_context, r, &a, NULL));
}

static void same_bytes(const void *a, const void *b, uint64_t bytes) {
  char *ha = malloc(bytes + 1), *hb = malloc(bytes + 1);
  download(ha, a, bytes);
  download(hb, b, bytes);
  assert_memory_equal(ha, hb, bytes);
  free(ha);
  free(hb);
}

static void same_side(const fp8_qtensor *a, const fp8_qtensor *b, uint32_t side) { /* compact codes, equal layouts */
  const fp8_tensor *ca = side == FP8_SIDE_ROW ? &a->row : &a->col, *cb = side == FP8_SIDE_ROW ? &b->row : &b->col;
  const fp8_tensor *sa = side == FP8_SIDE_ROW ? &a->row_scale : &a->col_scale;
  const fp8_tensor *sb = side == FP8_SIDE_ROW ? &b->row_scale : &b->col_scale;
  const int64_t last = (sa->shape[0] - 1) * sa->stride[0] + (sa->ndim > 1 ? (sa->shape[1] - 1) * sa->stride[1] : 0);
  same_bytes(ca->data, cb->data, (uint64_t)count_of(ca));
  if (count_of(sa)) same_bytes(sa->data, sb->data, (uint64_t)(last + 1) * (uint64_t)size_of(sa->dtype));
}

/* Both sides stay within the format's error of x, whatever its dtype and role, ragged shapes included. */
static void test_values(void **state) {
  static const int32_t dtypes[] = {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16};
  static const int64_t shapes[][2] = {{1, 1}, {3, 5}, {33, 150}, {128, 128}, {130, 257}};
  int p, d, s;
  int32_t role;
  (void)state;
  for (p = 1; p < PRESETS; ++p) {
    fp8_recipe *r = recipe_of(kPresets[p]);
    for (d = 0; d < 3; ++d)
      for (s = 0; s < 5; ++s)
        for (role = FP8_ROLE_ACTIVATION; role <= FP8_ROLE_GRADIENT; ++role) {
          const int64_t n = shapes[s][0] * shapes[s][1];
          fp8_tensor x = random2(dtypes[d], shapes[s][0], shapes[s][1], 3.0f);
          fp8_qtensor q = quantized(r, role, &x, FP8_SIDE_BOTH);
          float *want = get(&x);
          double *row = values_of(&q, FP8_SIDE_ROW), *col = values_of(&q, FP8_SIDE_COL);
          const double limit = q.row.dtype == FP8_DTYPE_E5M2 ? 0.125 : 0.0625;
          assert_true(relative(want, row, n) <= limit);
          assert_true(relative(want, col, n) <= limit);
          free(want);
          free(row);
          free(col);
          free_all(NULL);
        }
    fp8_recipe_destroy(r);
  }
}

/* Any strides of x, leading dimensions, and any strides of the scales give the same bits. */
static void test_strides(void **state) {
  const int64_t rows = 60, cols = 70;
  int p;
  (void)state;
  for (p = 1; p < PRESETS; ++p) {
    fp8_recipe *r = recipe_of(kPresets[p]);
    fp8_tensor x = random2(FP8_DTYPE_BF16, rows, cols, 1.0f), wide = tensor2(FP8_DTYPE_BF16, 200, 200), lead = x, t;
    fp8_qtensor want = quantized(r, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_BOTH), q;
    uint16_t *hx = malloc(rows * cols * 2), *hw = calloc(200 * 200, 2);
    int64_t i, j;
    download(hx, x.data, rows * cols * 2);
    /* x inside a wider matrix, its rows as [3, 20] with a gap, and transposed */
    for (i = 0; i < rows; ++i)
      for (j = 0; j < cols; ++j) hw[(i / 20 * 25 + i % 20) * 200 + j * 2] = hx[i * cols + j];
    upload(wide.data, hw, 200 * 200 * 2);
    lead.data = wide.data;
    lead.ndim = 3;
    lead.shape[0] = 3, lead.shape[1] = 20, lead.shape[2] = cols;
    lead.stride[0] = 25 * 200, lead.stride[1] = 200, lead.stride[2] = 2;
    q = describe(r, FP8_ROLE_ACTIVATION, rows, cols, FP8_SIDE_BOTH);
    place(&q, FP8_SIDE_BOTH);
    run(r, FP8_ROLE_ACTIVATION, &lead, &q, NULL, NULL, 0);
    same_side(&q, &want, FP8_SIDE_ROW);
    same_side(&q, &want, FP8_SIDE_COL);
    for (i = 0; i < rows; ++i)
      for (j = 0; j < cols; ++j) hw[j * rows + i] = hx[i * cols + j];
    upload(wide.data, hw, (uint64_t)(rows * cols) * 2);
    t = x;
    t.data = wide.data;
    t.stride[0] = 1, t.stride[1] = rows;
    run(r, FP8_ROLE_ACTIVATION, &t, &q, NULL, NULL, 0);
    same_side(&q, &want, FP8_SIDE_ROW);
    same_side(&q, &want, FP8_SIDE_COL);
    /* scales in the other order, with gaps; codes with a longer row */
    if (q.row_scale.ndim == 2) {
      double *a, *b;
      q.row_scale.data = dev_alloc(1 << 16);
      q.row_scale.stride[0] = 3, q.row_scale.stride[1] = 3 * q.row_scale.shape[0] + 7;
      q.col_scale.data = dev_alloc(1 << 16);
      q.col_scale.stride[0] = 2 * q.col_scale.shape[1] + 5, q.col_scale.stride[1] = 2;
      q.row.data = dev_alloc(1 << 16);
      q.row.stride[0] = cols + 9;
      run(r, FP8_ROLE_ACTIVATION, &x, &q, NULL, NULL, 0);
      a = values_of(&q, FP8_SIDE_ROW), b = values_of(&want, FP8_SIDE_ROW);
      assert_memory_equal(a, b, rows * cols * 8);
      free(a), free(b);
      a = values_of(&q, FP8_SIDE_COL), b = values_of(&want, FP8_SIDE_COL);
      assert_memory_equal(a, b, rows * cols * 8);
      free(a), free(b);
    }
    free(hx);
    free(hw);
    fp8_recipe_destroy(r);
    free_all(NULL);
  }
}

/* amax comes out per tile; fp8_amax gives the same; given back it gives the same codes; a larger one another scale. */
static void test_amax(void **state) {
  const int64_t rows = 130, cols = 96;
  int p;
  (void)state;
  for (p = 1; p < PRESETS; ++p) {
    fp8_recipe *r = recipe_of(kPresets[p]);
    fp8_tensor x = random2(FP8_DTYPE_F32, rows, cols, 1.0f);
    fp8_qtensor want = describe(r, FP8_ROLE_ACTIVATION, rows, cols, FP8_SIDE_BOTH), q = want;
    fp8_tensor amax = view(FP8_DTYPE_F32, want.row_scale.ndim, want.row_scale.shape[0], want.row_scale.shape[1], 0);
    fp8_tensor amax_col = view(FP8_DTYPE_F32, want.col_scale.ndim, want.col_scale.shape[0], want.col_scale.shape[1], 0);
    fp8_tensor alone = amax, alone_col = amax_col;
    fp8_quantize_args a;
    float *hx = get(&x), *ha, *hc, whole = 0, first_row = 0, first_col = 0;
    int64_t i;
    amax.data = dev_alloc((uint64_t)count_of(&amax) * 4), amax_col.data = dev_alloc((uint64_t)count_of(&amax_col) * 4);
    alone.data = dev_alloc((uint64_t)count_of(&amax) * 4),
    alone_col.data = dev_alloc((uint64_t)count_of(&amax_col) * 4);
    place(&want, FP8_SIDE_BOTH);
    place(&q, FP8_SIDE_BOTH);
    run(r, FP8_ROLE_ACTIVATION, &x, &want, &amax, &amax_col, 0);
    ha = get(&amax), hc = get(&amax_col);
    for (i = 0; i < rows * cols; ++i) whole = fmaxf(whole, fabsf(hx[i]));
    for (i = 0; i < (kPresets[p] == FP8_PRESET_ROW ? cols : kPresets[p] == FP8_PRESET_BLOCK ? cols : 32); ++i)
      first_row = fmaxf(first_row, fabsf(hx[i]));
    for (i = 0; i < (kPresets[p] == FP8_PRESET_ROW ? rows : kPresets[p] == FP8_PRESET_BLOCK ? 128 : 32); ++i)
      first_col = fmaxf(first_col, fabsf(hx[i * cols]));
    if (kPresets[p] == FP8_PRESET_TENSOR) first_row = first_col = whole;
    assert_true(ha[0] == first_row && hc[0] == first_col);
    free(ha), free(hc), free(hx);

    FP8_INIT(&a); /* fp8_amax: q's data may be NULL */
    a.x = &x;
    a.q = &q;
    a.role = FP8_ROLE_ACTIVATION;
    a.amax = &alone, a.amax_col = &alone_col;
    {
      fp8_qtensor bare = describe(r, FP8_ROLE_ACTIVATION, rows, cols, FP8_SIDE_BOTH);
      a.q = &bare;
      OK(fp8_amax(g_context, r, &a, NULL));
      same_bytes(amax.data, alone.data, (uint64_t)count_of(&amax) * 4);
      same_bytes(amax_col.data, alone_col.data, (uint64_t)count_of(&amax_col) * 4);
      a.amax_col = NULL; /* one of the two */
      OK(fp8_buffer_zero(g_context, alone.data, (uint64_t)count_of(&amax) * 4, NULL));
      OK(fp8_amax(g_context, r, &a, NULL));
      same_bytes(amax.data, alone.data, (uint64_t)count_of(&amax) * 4);
    }
    if (kPresets[p] == FP8_PRESET_TENSOR || kPresets[p] == FP8_PRESET_ROW) {
      float big = 1e4f, *s, *t;
      run(r, FP8_ROLE_ACTIVATION, &x, &q, &amax, kPresets[p] == FP8_PRESET_ROW ? &amax_col : NULL, FP8_AMAX_GIVEN);
      same_side(&q, &want, FP8_SIDE_ROW);
      same_side(&q, &want, FP8_SIDE_COL);
      run(r, FP8_ROLE_ACTIVATION, &x, &q, NULL, &amax_col, FP8_AMAX_GIVEN); /* the row side's is taken from x */
      same_side(&q, &want, FP8_SIDE_ROW);
      same_side(&q, &want, FP8_SIDE_COL);
      upload(amax.data, &big, 4);
      run(r, FP8_ROLE_ACTIVATION, &x, &q, &amax, NULL, FP8_AMAX_GIVEN);
      s = get(&q.row_scale), t = get(&want.row_scale);
      assert_true(s[0] > 100 * t[0]);
      free(s), free(t);
    }
    fp8_recipe_destroy(r);
    free_all(NULL);
  }
}

/* 2D and TENSOR kinds: one amax serves both, whichever side q has. */
static void test_amax_serves_both(void **state) {
  fp8_recipe *r = recipe_of(FP8_PRESET_BLOCK);
  fp8_tensor w = random2(FP8_DTYPE_BF16, 300, 200, 1.0f), a = tensor2(FP8_DTYPE_F32, 3, 2), b = a;
  fp8_qtensor q = describe(r, FP8_ROLE_WEIGHT, 300, 200, FP8_SIDE_COL);
  (void)state;
  b = tensor2(FP8_DTYPE_F32, 3, 2);
  place(&q, FP8_SIDE_COL);
  run(r, FP8_ROLE_WEIGHT, &w, &q, &a, NULL, 0); /* row shape, q has the column side alone */
  q = describe(r, FP8_ROLE_WEIGHT, 300, 200, FP8_SIDE_ROW);
  place(&q, FP8_SIDE_ROW);
  run(r, FP8_ROLE_WEIGHT, &w, &q, &b, NULL, 0);
  same_bytes(a.data, b.data, 24);
  fp8_recipe_destroy(r);
}

/* Counters: exact, accumulated; of the row side, else of the column side, or of each. */
static void test_stats(void **state) {
  fp8_recipe *r = recipe_of(FP8_PRESET_TENSOR);
  fp8_tensor x = tensor2(FP8_DTYPE_F32, 4, 8), one = tensor1(FP8_DTYPE_U64, 8), two = tensor2(FP8_DTYPE_U64, 2, 8),
             amax = view(FP8_DTYPE_F32, 1, 1, 0, 0);
  fp8_qtensor both = describe(r, FP8_ROLE_ACTIVATION, 4, 8, FP8_SIDE_BOTH),
              col = describe(r, FP8_ROLE_ACTIVATION, 4, 8, FP8_SIDE_COL);
  fp8_quantize_args a;
  uint64_t h[16];
  float v[32];
  int i;
  (void)state;
  for (i = 0; i < 32; ++i) v[i] = (float)(i + 1);
  v[0] = NAN, v[1] = INFINITY, v[2] = 0,
  v[3] = 1e-20f; /* an Inf: multiplier 1, so 1e-20 underflows and Inf saturates */
  put(&x, v);
  place(&both, FP8_SIDE_BOTH);
  place(&col, FP8_SIDE_COL);
  FP8_INIT(&a);
  a.x = &x;
  a.q = &both;
  a.role = FP8_ROLE_ACTIVATION;
  a.stats = &one;
  OK(fp8_quantize(g_context, r, &a, NULL));
  download(h, one.data, 64);
  assert_int_equal(h[0], 32);
  assert_int_equal(h[1], 1);
  assert_int_equal(h[2], 1);
  assert_int_equal(h[4], 1);
  assert_int_equal(h[3], 29);               /* finite and not zero */
  OK(fp8_quantize(g_context, r, &a, NULL)); /* accumulates */
  download(h + 8, one.data, 64);
  for (i = 0; i < 8; ++i) assert_int_equal(h[8 + i], 2 * h[i]);
  a.stats = &two;
  OK(fp8_quantize(g_context, r, &a, NULL));
  download(h, two.data, 128);
  for (i = 0; i < 8; ++i) assert_int_equal(h[i], h[8 + i]);
  assert_int_equal(h[0], 32);
  OK(fp8_buffer_zero(g_context, one.data, 64, NULL));
  a.q = &col;
  a.stats = &one;
  OK(fp8_quantize(g_context, r, &a, NULL)); /* else of the column side */
  download(h, one.data, 64);
  assert_int_equal(h[0], 32);
  OK(fp8_buffer_zero(g_context, two.data, 128, NULL));
  a.stats = &two;
  OK(fp8_quantize(g_context, r, &a, NULL));
  download(h, two.data, 128);
  assert_int_equal(h[0], 0);
  assert_int_equal(h[8], 32);
  v[0] = v[1] = v[2] = v[3] = 1; /* an amax of 16: 17 to 32 lie above 448 of its grid, 17 * 28 > 464 */
  put(&x, v);
  v[0] = 16;
  amax.data = dev_alloc(4);
  upload(amax.data, v, 4);
  OK(fp8_buffer_zero(g_context, one.data, 64, NULL));
  a.q = &both;
  a.stats = &one;
  a.amax = &amax;
  a.flags = FP8_AMAX_GIVEN;
  OK(fp8_quantize(g_context, r, &a, NULL));
  download(h, one.data, 64);
  assert_int_equal(h[5], 16);
  fp8_recipe_destroy(r);
}

static void test_dbias(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) { /* NONE too: the sums without a cast */
    fp8_recipe *r = recipe_of(kPresets[p]);
    fp8_tensor dy = random2(FP8_DTYPE_BF16, 200, 70, 1.0f), dbias = tensor1(FP8_DTYPE_F32, 70), strided = dbias;
    fp8_qtensor q = describe(r, FP8_ROLE_GRADIENT, 200, 70, FP8_SIDE_BOTH);
    fp8_quantize_args a;
    float *h = get(&dy), *got;
    double want[70];
    int64_t i;
    int pass;
    place(&q, FP8_SIDE_BOTH);
    memset(want, 0, sizeof want);
    for (i = 0; i < 200 * 70; ++i) want[i % 70] += h[i];
    FP8_INIT(&a);
    a.x = &dy;
    a.q = &q;
    a.role = FP8_ROLE_GRADIENT;
    a.dbias = &dbias;
    for (pass = 1; pass <= 2; ++pass) {
      OK(fp8_quantize(g_context, r, &a, NULL));
      got = get(&dbias);
      for (i = 0; i < 70; ++i) assert_true(fabs(got[i] - pass * want[i]) < 1e-4);
      free(got);
      a.flags = FP8_ACCUMULATE_DBIAS;
    }
    a.flags = 0;
    strided.data = dev_alloc(70 * 3 * 4);
    strided.stride[0] = 3;
    a.dbias = &strided;
    OK(fp8_quantize(g_context, r, &a, NULL));
    strided.shape[0] = 1;
    got = get(&strided);
    assert_true(fabs(got[0] - want[0]) < 1e-4);
    free(got);
    free(h);
    fp8_recipe_destroy(r);
    free_all(NULL);
  }
}

/* Slices filled apart give the whole's bytes: a slice's neighbours are not padding. */
static void test_slices(void **state) {
  static const int64_t cuts[][2] = {{0, 2}, {2, 5}}; /* rows 2..6 of 7 have the stride of a whole of 5 */
  fp8_recipe *r = recipe_of(FP8_PRESET_BLOCK);
  const int64_t cols = 304; /* three tiles, rows at multiples of 16 bytes */
  fp8_tensor x = random2(FP8_DTYPE_BF16, 7, cols, 1.0f);
  fp8_qtensor whole = quantized(r, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_ROW),
              parts = describe(r, FP8_ROLE_ACTIVATION, 7, cols, FP8_SIDE_ROW), slice;
  int i;
  (void)state;
  place(&parts, FP8_SIDE_ROW);
  for (i = 0; i < 2; ++i) {
    fp8_tensor rows = x;
    rows.data = (char *)x.data + cuts[i][0] * cols * 2, rows.shape[0] = cuts[i][1];
    FP8_INIT(&slice);
    OK(fp8_qtensor_slice(&parts, cuts[i][0], cuts[i][1], &slice));
    run(r, FP8_ROLE_ACTIVATION, &rows, &slice, NULL, NULL, 0);
  }
  same_bytes(parts.row.data, whole.row.data, (uint64_t)(7 * cols));
  for (i = 0; i < 3; ++i)
    same_bytes((float *)parts.row_scale.data + 8 * i, (float *)whole.row_scale.data + 8 * i, 7 * sizeof(float));
  fp8_recipe_destroy(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_values, free_all), cmocka_unit_test_teardown(test_strides, free_all),
      cmocka_unit_test_teardown(test_amax, free_all),   cmocka_unit_test_teardown(test_amax_serves_both, free_all),
      cmocka_unit_test_teardown(test_stats, free_all),  cmocka_unit_test_teardown(test_dbias, free_all),
      cmocka_unit_test_teardown(test_slices, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
