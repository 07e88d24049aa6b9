/* SPDX-License-Identifier: Apache-2.0 */
/* Sides without quantization (views and copies), FP32 weights, empty tensors, workspaces. */
#include "support.h"

static void run(const fp8_recipe *r, int32_t role, const fp8_tensor *x, fp8_qtensor *q) {
  fp8_quantize_args a;
  FP8_INIT(&a);
  a.x = x;
  a.q = q;
  a.role = role;
  OK(fp8_quantize(g_context, r, &a, NULL));
}

/* UNQUANTIZED: a view, written back; col is row with swapped strides; nothing is launched. */
static void test_views(void **state) {
  fp8_recipe *r = recipe_of(FP8_PRESET_NONE);
  fp8_tensor x = random2(FP8_DTYPE_BF16, 20, 32, 1.0f), part = x, lead, f16 = random2(FP8_DTYPE_F16, 20, 32, 1.0f);
  fp8_tensor f32 = random2(FP8_DTYPE_F32, 20, 32, 1.0f);
  fp8_qtensor q = describe(r, FP8_ROLE_ACTIVATION, 20, 32, FP8_SIDE_BOTH), older;
  fp8_counters before, after;
  fp8_quantize_args a;
  uint64_t bytes;
  (void)state;
  FP8_INIT(&before);
  FP8_INIT(&after);
  OK(fp8_qtensor_bytes(&q, FP8_SIDE_BOTH, &bytes));
  assert_int_equal(bytes, 0);
  OK(fp8_context_counters(g_context, &before));
  run(r, FP8_ROLE_ACTIVATION, &x, &q);
  OK(fp8_context_counters(g_context, &after));
  assert_int_equal(after.launches, before.launches);
  assert_int_equal(after.quantizations, before.quantizations);
  assert_true(q.row.data == x.data && q.col.data == x.data);
  assert_true(q.row.shape[0] == 20 && q.row.shape[1] == 32 && q.row.stride[0] == 32 && q.row.stride[1] == 1);
  assert_true(q.col.shape[0] == 32 && q.col.shape[1] == 20 && q.col.stride[0] == 1 && q.col.stride[1] == 32);
  part.shape[1] = 16; /* a strided source */
  part.stride[1] = 2;
  q = describe(r, FP8_ROLE_ACTIVATION, 20, 16, FP8_SIDE_BOTH);
  run(r, FP8_ROLE_ACTIVATION, &part, &q);
  assert_true(q.col.stride[0] == 2 && q.col.stride[1] == 32);
  q = describe(r, FP8_ROLE_ACTIVATION, 20, 32, FP8_SIDE_ROW);
  run(r, FP8_ROLE_ACTIVATION, &f16, &q);
  assert_int_equal(q.row.dtype, FP8_DTYPE_F16);
  lead = view(FP8_DTYPE_BF16, 3, 4, 5, 32); /* leading dimensions that flatten */
  lead.data = x.data;
  run(r, FP8_ROLE_ACTIVATION, &lead, &q);
  assert_true(q.row.ndim == 2 && q.row.stride[0] == 32);

  FP8_INIT(&a);
  a.x = &f32, a.q = &q, a.role = FP8_ROLE_ACTIVATION;
  REFUSED(FP8_ERR_UNSUPPORTED, "fp8_quantize|x is F32|q.row|FP8_SIDE_COPY", fp8_quantize(g_context, r, &a, NULL));
  lead.stride[0] = 200;
  lead.shape[0] = 2;
  q = describe(r, FP8_ROLE_ACTIVATION, 10, 32, FP8_SIDE_ROW);
  a.x = &lead, a.q = &q;
  REFUSED(FP8_ERR_UNSUPPORTED, "leading dimensions|FP8_SIDE_COPY", fp8_quantize(g_context, r, &a, NULL));
  older = describe(r, FP8_ROLE_ACTIVATION, 20, 32, FP8_SIDE_BOTH); /* a qtensor that ends before `col` cannot take it */
  older.struct_size = offsetof(fp8_qtensor, col);
  a.x = &x, a.q = &older;
  REFUSED(FP8_ERR_ARGUMENT, "q.col.dtype is NONE|BF16", fp8_quantize(g_context, r, &a, NULL));
  assert_null(older.row.data); /* nothing was written */
  older.col_kind = 0;
  OK(fp8_quantize(g_context, r, &a, NULL));
  assert_true(older.row.data == x.data);
  fp8_recipe_destroy(r);
}

/* COPY: memory of its own, one for both sides placed together, any source dtype. */
static void test_copies(void **state) {
  static const int32_t dtypes[] = {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16};
  fp8_recipe *r = recipe_of(FP8_PRESET_NONE);
  int d, apart;
  (void)state;
  for (d = 0; d < 3; ++d)
    for (apart = 0; apart < 2; ++apart) {
      fp8_tensor x = random2(dtypes[d], 21, 34, 1.0f);
      fp8_qtensor q = describe(r, FP8_ROLE_WEIGHT, 21, 34, FP8_SIDE_BOTH | FP8_SIDE_COPY);
      float *want = get(&x);
      double *row, *col;
      int64_t i;
      assert_int_equal(q.row_kind, FP8_SCALING_COPY);
      if (apart) {
        place(&q, FP8_SIDE_ROW);
        place(&q, FP8_SIDE_COL);
      } else {
        place(&q, FP8_SIDE_BOTH);
        assert_true(q.row.data == q.col.data);
      }
      run(r, FP8_ROLE_WEIGHT, &x, &q);
      row = values_of(&q, FP8_SIDE_ROW), col = values_of(&q, FP8_SIDE_COL);
      for (i = 0; i < 21 * 34; ++i) assert_true(row[i] == from_bf16(to_bf16(want[i])) && col[i] == row[i]);
      free(want), free(row), free(col);
    }
  {
    fp8_tensor x = random2(FP8_DTYPE_F32, 4, 16, 1.0f);
    fp8_qtensor q = describe(r, FP8_ROLE_WEIGHT, 4, 16, FP8_SIDE_ROW | FP8_SIDE_COPY);
    fp8_quantize_args a;
    q.row.data = x.data;
    FP8_INIT(&a);
    a.x = &x, a.q = &q, a.role = FP8_ROLE_WEIGHT;
    REFUSED(FP8_ERR_ARGUMENT, "q.row shares memory with x", fp8_quantize(g_context, r, &a, NULL));
  }
  fp8_recipe_destroy(r);
}

/* FP32 weights are rounded to BF16 first, by default and for weights alone. */
static void test_master_rounding(void **state) {
  static const int32_t presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_ROW, FP8_PRESET_BLOCK, FP8_PRESET_MX,
                                    FP8_PRESET_MX_W2D};
  int p;
  (void)state;
  for (p = 0; p < 5; ++p) {
    fp8_recipe_config config;
    fp8_recipe *rounds = recipe_of(presets[p]), *direct;
    fp8_tensor w = random2(FP8_DTYPE_F32, 130, 140, 1.0f), rounded = tensor2(FP8_DTYPE_BF16, 130, 140);
    float *h = get(&w);
    fp8_qtensor a, b, c, d;
    double *va, *vb, *vc, *vd;
    FP8_INIT(&config);
    config.preset = presets[p];
    config.master_rounding = FP8_MASTER_DIRECT;
    OK(fp8_recipe_create(&config, &direct));
    put(&rounded, h);
    a = quantized(rounds, FP8_ROLE_WEIGHT, &w, FP8_SIDE_BOTH);
    b = quantized(rounds, FP8_ROLE_WEIGHT, &rounded, FP8_SIDE_BOTH);
    c = quantized(direct, FP8_ROLE_WEIGHT, &w, FP8_SIDE_BOTH);
    d = quantized(rounds, FP8_ROLE_ACTIVATION, &w, FP8_SIDE_ROW); /* an activation is not rounded */
    va = values_of(&a, FP8_SIDE_COL), vb = values_of(&b, FP8_SIDE_COL), vc = values_of(&c, FP8_SIDE_COL);
    assert_memory_equal(va, vb, 130 * 140 * 8);
    assert_memory_not_equal(va, vc, 130 * 140 * 8);
    if (presets[p] == FP8_PRESET_TENSOR || presets[p] == FP8_PRESET_ROW || presets[p] == FP8_PRESET_MX) {
      free(vc);
      vc = values_of(&c, FP8_SIDE_ROW), vd = values_of(&d, FP8_SIDE_ROW);
      assert_memory_equal(vc, vd, 130 * 140 * 8);
      free(vd);
    }
    free(h), free(va), free(vb), free(vc);
    fp8_recipe_destroy(rounds);
    fp8_recipe_destroy(direct);
    free_all(NULL);
  }
}

static void test_empty(void **state) {
  static const int32_t presets[] = {FP8_PRESET_NONE,  FP8_PRESET_TENSOR, FP8_PRESET_ROW,
                                    FP8_PRESET_BLOCK, FP8_PRESET_MX,     FP8_PRESET_MX_W2D};
  static const int64_t shapes[][2] = {{0, 5}, {5, 0}, {0, 0}};
  int p, s;
  (void)state;
  for (p = 0; p < 6; ++p)
    for (s = 0; s < 3; ++s) {
      fp8_recipe *r = recipe_of(presets[p]);
      fp8_tensor x = view(FP8_DTYPE_BF16, 2, shapes[s][0], shapes[s][1], 0), stats = tensor1(FP8_DTYPE_U64, 8);
      fp8_tensor dbias = tensor1(FP8_DTYPE_F32, shapes[s][1]), amax = tensor1(FP8_DTYPE_F32, 1);
      fp8_qtensor q = describe(r, FP8_ROLE_GRADIENT, shapes[s][0], shapes[s][1], FP8_SIDE_BOTH);
      fp8_quantize_args a;
      uint64_t h[8], bytes;
      float v[5] = {7, 7, 7, 7, 7};
      place(&q, FP8_SIDE_BOTH);
      upload(dbias.data, v, (uint64_t)shapes[s][1] * 4);
      FP8_INIT(&a);
      a.x = &x, a.q = &q, a.role = FP8_ROLE_GRADIENT, a.stats = &stats, a.dbias = &dbias;
      if (presets[p] == FP8_PRESET_TENSOR) a.amax = &amax;
      OK(fp8_quantize_workspace(g_context, r, &a, &bytes));
      OK(fp8_quantize(g_context, r, &a, NULL));
      download(h, stats.data, 64);
      assert_int_equal(h[0], 0);
      download(v, dbias.data, (uint64_t)shapes[s][1] * 4);
      if (shapes[s][1]) assert_true(v[0] == 0 && v[4] == 0);
      if (presets[p] == FP8_PRESET_TENSOR) { /* an empty tensor has amax 0 and scale 1 */
        float scale;
        download(&scale, q.row_scale.data, 4);
        assert_true(scale == 1);
        download(&scale, amax.data, 4);
        assert_true(scale == 0);
      }
      fp8_recipe_destroy(r);
      free_all(NULL);
    }
}

/* Sides that are not quantized count nothing: U64[8] is then of the other one. */
static void test_stats_of_plain_sides(void **state) {
  static const char *const texts[] = {"none", "block;coverage=wgrad", "block"}; /* x: neither, column side, both */
  int t;
  (void)state;
  for (t = 0; t < 3; ++t) {
    fp8_recipe *r;
    fp8_tensor x = tensor2(FP8_DTYPE_BF16, 3, 5), stats = tensor1(FP8_DTYPE_U64, 8);
    uint64_t h[8] = {100, 100, 100, 100, 100, 100, 100, 100};
    uint16_t values[15];
    fp8_qtensor q;
    fp8_quantize_args a;
    int i;
    for (i = 0; i < 15; ++i) values[i] = 0x3f80;
    OK(fp8_recipe_from_string(texts[t], &r));
    q = describe(r, FP8_ROLE_ACTIVATION, 3, 5, FP8_SIDE_BOTH);
    place(&q, FP8_SIDE_BOTH);
    upload(x.data, values, sizeof values);
    upload(stats.data, h, sizeof h);
    FP8_INIT(&a);
    a.x = &x, a.q = &q, a.role = FP8_ROLE_ACTIVATION, a.stats = &stats;
    OK(fp8_quantize(g_context, r, &a, NULL));
    download(h, stats.data, sizeof h);
    for (i = 0; i < 8; ++i) assert_int_equal(h[i], t && (i == 0 || i == 3) ? 115 : 100);
    fp8_recipe_destroy(r);
    free_all(NULL);
  }
}

/* The query reads no data; that many bytes at any address are enough; fewer are refused; NO_ALLOC wants them. */
static void test_workspace(void **state) {
  static const int32_t presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_ROW, FP8_PRESET_BLOCK, FP8_PRESET_MX,
                                    FP8_PRESET_MX_W2D};
  fp8_context *c = new_context(FP8_CONTEXT_NO_ALLOC);
  int p;
  (void)state;
  for (p = 0; p < 5; ++p) {
    fp8_recipe *r = recipe_of(presets[p]);
    fp8_tensor x = random2(FP8_DTYPE_BF16, 150, 70, 1.0f), bare = x, dbias = tensor1(FP8_DTYPE_F32, 70),
               bare_dbias = dbias;
    fp8_qtensor q = describe(r, FP8_ROLE_GRADIENT, 150, 70, FP8_SIDE_BOTH);
    fp8_quantize_args a;
    fp8_buffer ws;
    uint64_t bytes;
    char *memory, guard[64], seen_guard[64];
    bare.data = NULL, bare_dbias.data = NULL;
    FP8_INIT(&a);
    a.x = &bare, a.q = &q, a.role = FP8_ROLE_GRADIENT, a.dbias = &bare_dbias;
    OK(fp8_quantize_workspace(c, r, &a, &bytes));
    assert_true(bytes > 0);
    place(&q, FP8_SIDE_BOTH);
    a.x = &x, a.dbias = &dbias;
    REFUSED(FP8_ERR_NO_ALLOC, "fp8_quantize|workspace is NULL", fp8_quantize(c, r, &a, NULL));
    memory = dev_alloc(bytes + 256);
    memset(guard, 0x77, sizeof guard);
    upload(memory + 3 + bytes, guard, sizeof guard);
    ws.data = memory + 3, ws.bytes = bytes - 1;
    a.workspace = &ws;
    REFUSED(FP8_ERR_ARGUMENT, "workspace.bytes", fp8_quantize(c, r, &a, NULL));
    ws.bytes = bytes;
    OK(fp8_quantize(c, r, &a, NULL));
    download(seen_guard, memory + 3 + bytes, sizeof guard);
    assert_memory_equal(guard, seen_guard, sizeof guard);
    fp8_recipe_destroy(r);
  }
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_views, free_all),
      cmocka_unit_test_teardown(test_copies, free_all),
      cmocka_unit_test_teardown(test_master_rounding, free_all),
      cmocka_unit_test_teardown(test_empty, free_all),
      cmocka_unit_test_teardown(test_workspace, free_all),
      cmocka_unit_test_teardown(test_stats_of_plain_sides, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
