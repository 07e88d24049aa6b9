/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_requantize, fp8_dequantize, fp8_transpose, fp8_cast and fp8_measure. */
#include "golden.h"

static const int32_t kPresets[] = {FP8_PRESET_TENSOR, FP8_PRESET_ROW, FP8_PRESET_BLOCK, FP8_PRESET_MX,
                                   FP8_PRESET_MX_W2D};

static void expect_bytes(const void *device, const void *want, uint64_t bytes) {
  char *got = malloc(bytes + 1);
  download(got, device, bytes);
  assert_memory_equal(got, want, bytes);
  free(got);
}

/* The golden family `requant`: double quantization of the row side to the column side. */
static void test_golden_requant(void **state) {
  static const struct {
    const char *kind;
    int32_t preset, rule;
  } cases[] = {{"b1x128_fp32", FP8_PRESET_BLOCK, FP8_SCALE_FP32},
               {"b1x128_pow2", FP8_PRESET_BLOCK, FP8_SCALE_POW2},
               {"mx1x32_rceil", FP8_PRESET_MX, 0}};
  int i, u8;
  (void)state;
  for (i = 0; i < 3; ++i)
    for (u8 = 0; u8 < (cases[i].preset == FP8_PRESET_MX ? 2 : 1); ++u8) {
      char name[64];
      fp8_recipe_config config;
      fp8_recipe *r;
      fp8_qtensor q, col;
      golden codes, scale, want, want_scale;
      float *got;
      int64_t a, b;
      fp8_buffer ws;
      const int mx = cases[i].preset == FP8_PRESET_MX;
      FP8_INIT(&config);
      config.preset = cases[i].preset;
      config.scale_rule = cases[i].rule;
      OK(fp8_recipe_create(&config, &r));
      snprintf(name, sizeof name, "requant__%s__q", cases[i].kind), codes = golden_load(name);
      snprintf(name, sizeof name, "requant__%s__s", cases[i].kind), scale = golden_load(name);
      snprintf(name, sizeof name, "requant__%s__qT", cases[i].kind), want = golden_load(name);
      snprintf(name, sizeof name, "requant__%s__sT", cases[i].kind), want_scale = golden_load(name);
      q = describe(r, FP8_ROLE_ACTIVATION, codes.shape[0], codes.shape[1], FP8_SIDE_ROW);
      place(&q, FP8_SIDE_ROW);
      upload(q.row.data, codes.data, (uint64_t)codes.bytes);
      q.row_scale.data = dev_alloc((uint64_t)scale.bytes); /* compact, as the array is */
      q.row_scale.stride[0] = scale.shape[1], q.row_scale.stride[1] = 1;
      if (u8) q.row_scale.dtype = FP8_DTYPE_U8;
      upload(q.row_scale.data, scale.data, (uint64_t)scale.bytes);
      col = describe(r, FP8_ROLE_ACTIVATION, codes.shape[0], codes.shape[1], FP8_SIDE_COL);
      place(&col, FP8_SIDE_COL);
      OK(fp8_requantize_workspace(g_context, r, &q, &col, &ws.bytes));
      ws.data = dev_alloc(ws.bytes);
      OK(fp8_requantize(g_context, r, &q, &col, &ws, NULL));
      expect_bytes(col.col.data, want.data, (uint64_t)want.bytes);
      if (mx) {
        expect_bytes(col.col_scale.data, want_scale.data, (uint64_t)want_scale.bytes);
      } else {
        const int64_t stride = col.col_scale.stride[1];
        got = malloc((size_t)(stride * want_scale.shape[1]) * 4);
        download(got, col.col_scale.data, (uint64_t)(stride * want_scale.shape[1]) * 4);
        for (a = 0; a < want_scale.shape[0]; ++a)
          for (b = 0; b < want_scale.shape[1]; ++b)
            assert_true(got[a + b * stride] == ((float *)want_scale.data)[a * want_scale.shape[1] + b]);
        free(got);
      }
      free(codes.data), free(scale.data), free(want.data), free(want_scale.data);
      fp8_recipe_destroy(r);
    }
}

/* TENSOR and 2D kinds: the other side is what quantizing it directly gives, either way, also within one qtensor. */
static void test_exact_transpose(void **state) {
  int p;
  (void)state;
  for (p = 0; p < 5; ++p) {
    const int32_t role = FP8_ROLE_WEIGHT;
    const int exact = kPresets[p] != FP8_PRESET_ROW && kPresets[p] != FP8_PRESET_MX;
    fp8_recipe *r = recipe_of(kPresets[p]);
    fp8_tensor x = random2(FP8_DTYPE_BF16, 300, 170, 1.0f);
    fp8_qtensor both = quantized(r, role, &x, FP8_SIDE_BOTH), q = both, row, other;
    uint64_t scale_bytes;
    char *want, *seen;
    q = describe(r, role, 300, 170, FP8_SIDE_BOTH); /* other_side is q itself: row to col */
    place(&q, FP8_SIDE_BOTH);
    row = quantized(r, role, &x, FP8_SIDE_ROW);
    q.row = row.row, q.row_scale = row.row_scale;
    OK(fp8_requantize(g_context, r, &q, &q, NULL, NULL));
    if (exact) {
      seen = malloc(300 * 170), want = malloc(300 * 170);
      download(want, both.col.data, 300 * 170);
      expect_bytes(q.col.data, want, 300 * 170);
      scale_bytes = kPresets[p] == FP8_PRESET_TENSOR ? 4
                    : kPresets[p] == FP8_PRESET_BLOCK
                        ? (uint64_t)both.col_scale.shape[0] * (uint64_t)both.col_scale.stride[0] * 4
                        : (uint64_t)count_of(&both.col_scale);
      download(want, both.col_scale.data, scale_bytes); /* with the padding */
      expect_bytes(q.col_scale.data, want, scale_bytes);
      free(seen), free(want);
    }
    other = describe(r, role, 300, 170, FP8_SIDE_ROW); /* col to row: q has the column side alone */
    place(&other, FP8_SIDE_ROW);
    q = both, q.row_kind = 0;
    OK(fp8_requantize(g_context, r, &q, &other, NULL, NULL));
    {
      double *a = values_of(&both, FP8_SIDE_COL), *b = values_of(&other, FP8_SIDE_ROW);
      float *f = get(&x);
      if (exact)
        assert_memory_equal(a, b, 300 * 170 * 8);
      else
        assert_true(relative(f, b, 300 * 170) < 0.06);
      free(a), free(b), free(f);
    }
    fp8_recipe_destroy(r);
    free_all(NULL);
  }
}

static void dirty_place(fp8_qtensor *q, uint32_t sides) { /* memory that held something else */
  fp8_buffer memory;
  char *ones;
  OK(fp8_qtensor_bytes(q, sides, &memory.bytes));
  memory.data = dev_alloc(memory.bytes);
  ones = malloc(memory.bytes);
  memset(ones, 0xff, memory.bytes);
  upload(memory.data, ones, memory.bytes);
  free(ones);
  OK(fp8_qtensor_place(q, sides, &memory));
}

static void padding_is_zero(const fp8_tensor *scale) { /* between the elements of native F32 scales */
  const int across = scale->stride[0] == 1;            /* lines run down the columns */
  const int64_t lines = across ? scale->shape[1] : scale->shape[0], used = across ? scale->shape[0] : scale->shape[1];
  const int64_t step = across ? scale->stride[1] : scale->stride[0];
  float *h = malloc((size_t)(lines * step) * 4);
  int64_t i, j, seen = 0;
  download(h, scale->data, (uint64_t)(lines * step) * 4);
  for (i = 0; i < lines; ++i)
    for (j = used; j < step; ++j, ++seen) assert_true(h[i * step + j] == 0);
  assert_true(seen > 0);
  free(h);
}

/* Padding of native strides is zero whoever fills the side. */
static void test_padding(void **state) {
  fp8_recipe *r = recipe_of(FP8_PRESET_BLOCK);
  int32_t role;
  (void)state;
  for (role = FP8_ROLE_ACTIVATION; role <= FP8_ROLE_GRADIENT; ++role) {
    fp8_tensor x = random2(FP8_DTYPE_BF16, 301, 170, 1.0f);
    fp8_qtensor q = describe(r, role, 301, 170, FP8_SIDE_BOTH), other = describe(r, role, 301, 170, FP8_SIDE_COL);
    fp8_quantize_args a;
    dirty_place(&q, FP8_SIDE_BOTH);
    dirty_place(&other, FP8_SIDE_COL);
    FP8_INIT(&a);
    a.x = &x, a.q = &q, a.role = role;
    OK(fp8_quantize(g_context, r, &a, NULL));
    padding_is_zero(&q.row_scale);
    padding_is_zero(&q.col_scale);
    OK(fp8_requantize(g_context, r, &q, &other, NULL, NULL));
    padding_is_zero(&other.col_scale);
  }
  fp8_recipe_destroy(r);
}

/* Slices in any order make the whole: what lies beside a slice's scales is its neighbours', never padding. */
static void test_slices(void **state) {
  static const int32_t presets[] = {FP8_PRESET_BLOCK, FP8_PRESET_MX, FP8_PRESET_MX_W2D};
  int p;
  int32_t role;
  (void)state;
  for (p = 0; p < 3; ++p)
    for (role = FP8_ROLE_ACTIVATION; role <= FP8_ROLE_WEIGHT; ++role) {
      fp8_recipe *r = recipe_of(presets[p]);
      const int64_t rows = 512, step = 128;
      fp8_tensor x = random2(FP8_DTYPE_BF16, rows, 512, 1.0f);
      fp8_qtensor q = describe(r, role, rows, 512, FP8_SIDE_BOTH), parts = q, again = q;
      fp8_quantize_args a;
      int64_t first;
      uint64_t bytes;
      char *want;
      OK(fp8_qtensor_bytes(&q, FP8_SIDE_BOTH, &bytes));
      want = malloc(bytes);
      place(&q, FP8_SIDE_BOTH), place(&parts, FP8_SIDE_BOTH), place(&again, FP8_SIDE_BOTH);
      FP8_INIT(&a);
      a.x = &x, a.q = &q, a.role = role;
      OK(fp8_quantize(g_context, r, &a, NULL));
      download(want, q.row.data, bytes);
      for (first = rows - step; first >= 0; first -= step) {
        fp8_qtensor slice, row, col;
        fp8_tensor rows_of_x = x;
        FP8_INIT(&slice), FP8_INIT(&row), FP8_INIT(&col);
        OK(fp8_qtensor_slice(&parts, first, step, &slice));
        rows_of_x.data = (uint16_t *)x.data + first * 512;
        rows_of_x.shape[0] = step;
        a.x = &rows_of_x, a.q = &slice;
        OK(fp8_quantize(g_context, r, &a, NULL));
        OK(fp8_qtensor_slice(&q, first, step, &row));
        OK(fp8_qtensor_slice(&again, first, step, &col));
        row.col_kind = 0;
        OK(fp8_requantize(g_context, r, &row, &col, NULL, NULL));
      }
      expect_bytes(parts.row.data, want, bytes);
      if (role == FP8_ROLE_WEIGHT && presets[p] != FP8_PRESET_MX) { /* exact transposes */
        char *col = malloc(bytes);
        const uint64_t at = (uint64_t)((char *)q.col.data - (char *)q.row.data);
        download(col, again.col.data, bytes - at);
        assert_memory_equal(col, want + at, bytes - at);
        free(col);
      }
      free(want);
      fp8_recipe_destroy(r);
      free_all(NULL);
    }
}

/* Sides without quantization: views, copies, and quantizing the view. */
static void test_requantize_plain(void **state) {
  fp8_recipe *none = recipe_of(FP8_PRESET_NONE), *partly;
  fp8_recipe_config config;
  fp8_tensor x = random2(FP8_DTYPE_BF16, 40, 64, 1.0f);
  fp8_qtensor q = quantized(none, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_ROW), other, direct;
  double *a, *b;
  (void)state;
  other = describe(none, FP8_ROLE_ACTIVATION, 40, 64, FP8_SIDE_COL);
  OK(fp8_requantize(g_context, none, &q, &other, NULL, NULL));
  assert_true(other.col.data == x.data && other.col.stride[0] == 1 && other.col.stride[1] == 64);
  other = describe(none, FP8_ROLE_ACTIVATION, 40, 64, FP8_SIDE_COL | FP8_SIDE_COPY);
  place(&other, FP8_SIDE_COL);
  OK(fp8_requantize(g_context, none, &q, &other, NULL, NULL));
  a = values_of(&q, FP8_SIDE_ROW), b = values_of(&other, FP8_SIDE_COL);
  assert_true(other.col.data != x.data);
  assert_memory_equal(a, b, 40 * 64 * 8);
  free(a), free(b);
  FP8_INIT(&config);
  config.preset = FP8_PRESET_MX;
  config.coverage = FP8_WGRAD; /* row in BF16, col in FP8 */
  OK(fp8_recipe_create(&config, &partly));
  q = quantized(partly, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_ROW);
  other = describe(partly, FP8_ROLE_ACTIVATION, 40, 64, FP8_SIDE_COL), place(&other, FP8_SIDE_COL);
  direct = quantized(partly, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_COL);
  OK(fp8_requantize(g_context, partly, &q, &other, NULL, NULL));
  a = values_of(&direct, FP8_SIDE_COL), b = values_of(&other, FP8_SIDE_COL);
  assert_memory_equal(a, b, 40 * 64 * 8);
  free(a), free(b);
  q = describe(partly, FP8_ROLE_ACTIVATION, 40, 64,
               FP8_SIDE_ROW); /* from FP8 to a view: impossible; to a copy: decoded */
  REFUSED(FP8_ERR_UNSUPPORTED, "fp8_requantize|other_side.row is UNQUANTIZED|COPY",
          fp8_requantize(g_context, partly, &direct, &q, NULL, NULL));
  q = describe(partly, FP8_ROLE_ACTIVATION, 40, 64, FP8_SIDE_ROW | FP8_SIDE_COPY), place(&q, FP8_SIDE_ROW);
  OK(fp8_requantize(g_context, partly, &direct, &q, NULL, NULL));
  a = values_of(&direct, FP8_SIDE_COL), b = values_of(&q, FP8_SIDE_ROW);
  assert_memory_equal(a, b, 40 * 64 * 8); /* powers of two: exact in BF16 */
  free(a), free(b);

  REFUSED(FP8_ERR_ARGUMENT, "fp8_requantize|context", fp8_requantize(NULL, none, &q, &q, NULL, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "q|NULL", fp8_requantize(g_context, none, NULL, &q, NULL, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "other_side has no row side",
          fp8_requantize(g_context, partly, &direct, &direct, NULL, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "no role", fp8_requantize(g_context, none, &direct, &q, NULL, NULL));
  q.rows = 39;
  REFUSED(FP8_ERR_ARGUMENT, "other_side is 39 x 64", fp8_requantize(g_context, partly, &direct, &q, NULL, NULL));
  q.rows = 40, q.row.data = direct.col.data;
  REFUSED(FP8_ERR_ARGUMENT, "other_side.row shares memory with q.col",
          fp8_requantize(g_context, partly, &direct, &q, NULL, NULL));
  fp8_recipe_destroy(none);
  fp8_recipe_destroy(partly);
}

static void test_dequantize(void **state) {
  fp8_recipe *r = recipe_of(FP8_PRESET_MX);
  fp8_tensor x = random2(FP8_DTYPE_BF16, 34, 50, 1.0f), f = tensor2(FP8_DTYPE_F32, 34, 50),
             h = tensor2(FP8_DTYPE_BF16, 34, 50);
  fp8_tensor t;
  fp8_qtensor q = quantized(r, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_BOTH), none = q;
  float *a, *b;
  (void)state;
  OK(fp8_dequantize(g_context, &q, FP8_SIDE_ROW, &f, NULL));
  OK(fp8_dequantize(g_context, &q, FP8_SIDE_ROW, &h, NULL));
  a = get(&f), b = get(&h);
  assert_memory_equal(a, b, 34 * 50 * 4); /* exact in BF16 */
  free(a), free(b);
  REFUSED(FP8_ERR_ARGUMENT, "fp8_dequantize|side is 3", fp8_dequantize(g_context, &q, FP8_SIDE_BOTH, &f, NULL));
  none.col_kind = 0;
  REFUSED(FP8_ERR_ARGUMENT, "q has no column side", fp8_dequantize(g_context, &none, FP8_SIDE_COL, &f, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "x is NULL", fp8_dequantize(g_context, &q, FP8_SIDE_ROW, NULL, NULL));
  t = f, t.shape[0] = 33;
  REFUSED(FP8_ERR_ARGUMENT, "x is 33 x 50|34 x 50", fp8_dequantize(g_context, &q, FP8_SIDE_ROW, &t, NULL));
  t = f, t.dtype = FP8_DTYPE_I32;
  REFUSED(FP8_ERR_ARGUMENT, "x.dtype is I32", fp8_dequantize(g_context, &q, FP8_SIDE_ROW, &t, NULL));
  t = f, t.data = q.row.data;
  REFUSED(FP8_ERR_ARGUMENT, "x shares memory with q.row", fp8_dequantize(g_context, &q, FP8_SIDE_ROW, &t, NULL));
  fp8_recipe_destroy(r);
}

static void test_transpose(void **state) {
  golden src = golden_load("transpose__129x257__q"), want = golden_load("transpose__129x257__qT");
  fp8_tensor s = tensor2(FP8_DTYPE_E4M3, 129, 257), d = tensor2(FP8_DTYPE_E4M3, 257, 129), t;
  fp8_tensor wide = random2(FP8_DTYPE_F32, 20, 30, 1.0f), back = tensor2(FP8_DTYPE_F32, 30, 20),
             again = tensor2(FP8_DTYPE_F32, 20, 30);
  float *a, *b;
  (void)state;
  upload(s.data, src.data, (uint64_t)src.bytes);
  OK(fp8_transpose(g_context, &s, &d, NULL));
  expect_bytes(d.data, want.data, (uint64_t)want.bytes);
  OK(fp8_transpose(g_context, &wide, &back, NULL));
  OK(fp8_transpose(g_context, &back, &again, NULL));
  a = get(&wide), b = get(&again);
  assert_memory_equal(a, b, 600 * 4);
  free(a), free(b);
  REFUSED(FP8_ERR_ARGUMENT, "fp8_transpose|dst is 20 x 30|30 x 20", fp8_transpose(g_context, &wide, &again, NULL));
  t = back, t.dtype = FP8_DTYPE_I32;
  REFUSED(FP8_ERR_ARGUMENT, "dst.dtype is I32|F32", fp8_transpose(g_context, &wide, &t, NULL));
  t = back, t.data = wide.data;
  REFUSED(FP8_ERR_ARGUMENT, "dst shares memory with src", fp8_transpose(g_context, &wide, &t, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "src is NULL", fp8_transpose(g_context, NULL, &t, NULL));
  free(src.data), free(want.data);
}

static void test_cast(void **state) {
  static const float values[8] = {0.0f, -0.0f, 1.0f, 465.0f, -1e6f, 448.0f, 0.3f, -NAN};
  static const uint8_t saturated[8] = {0x00, 0x80, 0x38, 0x7e, 0xfe, 0x7e, 0x2a, 0x7f};
  fp8_tensor x = tensor2(FP8_DTYPE_F32, 2, 4), q = tensor2(FP8_DTYPE_E4M3, 2, 4), scale = tensor1(FP8_DTYPE_F32, 1), t;
  uint8_t nosat[8], half[8];
  float factor = 0.5f, *f;
  (void)state;
  put(&x, values);
  OK(fp8_cast(g_context, &x, NULL, 1, &q, NULL));
  expect_bytes(q.data, saturated, 8);
  OK(fp8_cast(g_context, &x, NULL, 0, &q, NULL));
  download(nosat, q.data, 8);
  assert_int_equal(nosat[3], 0x7f);
  assert_int_equal(nosat[4], 0xff);
  upload(scale.data, &factor, 4);
  OK(fp8_cast(g_context, &x, &scale, 1, &q, NULL));
  download(half, q.data, 8);
  assert_int_equal(half[2], 0x30);
  assert_int_equal(half[5], 0x76);
  OK(fp8_cast(g_context, &q, NULL, 0, &x, NULL));
  f = get(&x);
  assert_true(f[2] == 0.5f && f[5] == 224.0f);
  free(f);
  t = x, t.dtype = FP8_DTYPE_U8;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_cast|src.dtype is U8", fp8_cast(g_context, &t, NULL, 1, &q, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "saturate is 2", fp8_cast(g_context, &x, NULL, 2, &q, NULL));
  t = q, t.shape[0] = 1;
  REFUSED(FP8_ERR_ARGUMENT, "dst is 1 x 4|2 x 4", fp8_cast(g_context, &x, NULL, 1, &t, NULL));
  t = scale, t.shape[0] = 2;
  REFUSED(FP8_ERR_ARGUMENT, "scale has 2 elements", fp8_cast(g_context, &x, &t, 1, &q, NULL));
  t = x;
  REFUSED(FP8_ERR_ARGUMENT, "dst shares memory with src", fp8_cast(g_context, &x, NULL, 1, &t, NULL));
}

/* sums of x.x, e.e, x.x' and max|e| */
static void test_measure(void **state) {
  int p;
  uint32_t side;
  (void)state;
  for (p = -1; p < 5; ++p)
    for (side = FP8_SIDE_ROW; side <= FP8_SIDE_COL; ++side) {
      fp8_recipe *r = recipe_of(p < 0 ? FP8_PRESET_NONE : kPresets[p]);
      fp8_tensor x = random2(FP8_DTYPE_BF16, 130, 70, 1.0f), sums = tensor1(FP8_DTYPE_F64, 4), t;
      fp8_qtensor q = quantized(r, FP8_ROLE_ACTIVATION, &x, FP8_SIDE_BOTH);
      float *f = get(&x);
      double *v = values_of(&q, side), want[4] = {0, 0, 0, 0}, got[4];
      fp8_buffer ws;
      int64_t i;
      for (i = 0; i < 130 * 70; ++i) {
        const double e = f[i] - v[i];
        want[0] += (double)f[i] * f[i], want[1] += e * e, want[2] += f[i] * v[i], want[3] = fmax(want[3], fabs(e));
      }
      OK(fp8_measure_workspace(g_context, &x, &q, side, &ws.bytes));
      ws.data = dev_alloc(ws.bytes);
      OK(fp8_measure(g_context, &x, &q, side, &sums, &ws, NULL));
      download(got, sums.data, 32);
      for (i = 0; i < 3; ++i) assert_true(fabs(got[i] - want[i]) <= 1e-9 * fabs(want[0]));
      assert_true(fabs(got[3] - want[3]) <= 1e-12);
      assert_true((want[1] == 0) == (p < 0));
      t = sums, t.shape[0] = 3;
      REFUSED(FP8_ERR_ARGUMENT, "fp8_measure|sums is 1 x 3|F64[4]",
              fp8_measure(g_context, &x, &q, side, &t, &ws, NULL));
      t = sums, t.dtype = FP8_DTYPE_F32;
      REFUSED(FP8_ERR_ARGUMENT, "sums.dtype is F32", fp8_measure(g_context, &x, &q, side, &t, &ws, NULL));
      REFUSED(FP8_ERR_ARGUMENT, "side is 0", fp8_measure(g_context, &x, &q, 0, &sums, &ws, NULL));
      free(f), free(v);
      fp8_recipe_destroy(r);
      free_all(NULL);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_golden_requant, free_all),
      cmocka_unit_test_teardown(test_exact_transpose, free_all),
      cmocka_unit_test_teardown(test_padding, free_all),
      cmocka_unit_test_teardown(test_slices, free_all),
      cmocka_unit_test_teardown(test_requantize_plain, free_all),
      cmocka_unit_test_teardown(test_dequantize, free_all),
      cmocka_unit_test_teardown(test_transpose, free_all),
      cmocka_unit_test_teardown(test_cast, free_all),
      cmocka_unit_test_teardown(test_measure, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
