/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward of every recipe against FP64 of what their GEMMs read, and the ways that must give equal bits.
 */
#include "linear_case.h"

static const int64_t kShapes[][3] = {{64, 128, 96}, {33, 150, 70}, {1, 1, 1}, {130, 32, 260}};
#define SHAPES 4

static void test_values(void **state) {
  int p, s;
  (void)state;
  for (p = 0; p < PRESETS; ++p)
    for (s = 0; s < SHAPES; ++s) {
      linear_case k;
      fp8_linear_forward_args f;
      fp8_linear_backward_args b;
      if (kShapes[s][0] == 1) continue; /* one element: below */
      case_new(&k, kPresets[p], kShapes[s][0], kShapes[s][1], kShapes[s][2]);
      f = forward_args(&k), b = backward_args(&k);
      OK(fp8_linear_forward(k.l, &f, NULL));
      OK(fp8_linear_backward(k.l, &b, NULL));
      CLOSE(&k.y, want_y(&k));
      CLOSE(&k.dx, want_dx(&k));
      CLOSE(&k.dw, want_dw(&k));
      case_free(&k);
    }
}

static void test_one_element(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    double *x, *w;
    float *y;
    case_new(&k, kPresets[p], 1, 1, 1);
    f = forward_args(&k), b = backward_args(&k);
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    x = seen(&k, FP8_ROLE_ACTIVATION, &k.x, FP8_SIDE_ROW), w = seen(&k, FP8_ROLE_WEIGHT, &k.w, FP8_SIDE_ROW);
    y = get(&k.y);
    assert_true(fabs(y[0] - x[0] * w[0]) <= 4e-3 * fabs(x[0] * w[0]));
    free(x), free(w), free(y);
    case_free(&k);
  }
}

static double *plus_bias(double *y, const linear_case *k, const fp8_tensor *bias) {
  float *h = get(bias);
  int64_t i;
  for (i = 0; i < k->rows * k->out; ++i) y[i] += h[i % k->out];
  free(h);
  return y;
}

/* bias in FP32 or in the output's dtype, any output and input dtype, x and y with leading dimensions */
static void test_dtypes(void **state) {
  static const int32_t dtypes[] = {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16};
  int p, i, o;
  (void)state;
  for (p = 0; p < PRESETS; ++p)
    for (i = 0; i < 3; ++i)
      for (o = 0; o < 3; ++o) {
        linear_case k;
        fp8_recipe_config config;
        fp8_linear_forward_args f;
        fp8_linear_backward_args b;
        fp8_tensor bias, x3, y3, dy3, dw, dw32, dx;
        float *h;
        FP8_INIT(&config);
        config.preset = kPresets[p];
        config.fast_accumulation = FP8_NO_GEMM;
        case_with(&k, g_context, &config, 30, 64, 40, dtypes[i], dtypes[o]);
        x3 = view(k.input, 3, 5, 6, 64), y3 = view(k.output, 3, 5, 6, 40), dy3 = y3;
        x3.data = k.x.data, y3.data = k.y.data, dy3.data = k.dy.data;
        bias = tensor2(k.output, 1, 40);
        h = get(&k.bias);
        put(&bias, h);
        free(h);
        f = forward_args(&k), b = backward_args(&k);
        f.x = &x3, f.y = &y3, f.bias = &bias;
        if (kPresets[p] == FP8_PRESET_NONE && i == 2) /* F16: saved as a copy in BF16, or as a view in F16 */
          k.saved = describe(k.r, FP8_ROLE_ACTIVATION, 30, 64, FP8_SIDE_COL | FP8_SIDE_COPY),
          place(&k.saved, FP8_SIDE_COL);
        OK(fp8_linear_forward(k.l, &f, NULL));
        CLOSE(&k.y, plus_bias(want_y(&k), &k, &bias));
        f.bias = &k.bias;
        OK(fp8_linear_forward(k.l, &f, NULL));
        CLOSE(&k.y, plus_bias(want_y(&k), &k, &k.bias));
        dx = tensor2(FP8_DTYPE_F32, 30, 64), dw = tensor2(FP8_DTYPE_BF16, 40, 64), dw32 = like(&k.dw);
        b.dy = &dy3, b.dbias = &k.dbias;
        OK(fp8_linear_backward(k.l, &b, NULL));
        CLOSE(&k.dx, want_dx(&k));
        CLOSE(&k.dw, want_dw(&k));
        b.dx = &dx, b.dw = &dw;
        OK(fp8_linear_backward(k.l, &b, NULL));
        CLOSE(&dx, want_dx(&k));
        CLOSE(&dw, want_dw(&k));
        if (kPresets[p] == FP8_PRESET_NONE && i == 2 && o == 2) { /* both F16: read as they are, so saved_x is a view */
          OK(fp8_linear_describe(k.l, FP8_ROLE_ACTIVATION, 30, FP8_SIDE_COL, &k.saved));
          OK(fp8_linear_forward(k.l, &f, NULL));
          assert_true(k.saved.col.data == k.x.data && k.saved.col.dtype == FP8_DTYPE_F16);
          b.dx = NULL, b.w = NULL, b.dw = &k.dw;
          OK(fp8_linear_backward(k.l, &b, NULL));
          b.saved_x = NULL, b.x = &x3, b.dw = &dw32;
          OK(fp8_linear_backward(k.l, &b, NULL));
          assert_true(equal(&dw32, &k.dw));
        } else {
          b.saved_x = NULL, b.x = &x3; /* the high-precision x instead */
          OK(fp8_linear_backward(k.l, &b, NULL));
          CLOSE(&dw, want_dw(&k));
        }
        case_free(&k);
      }
}

/* One product has many ways, all of equal bits. */
static void test_ways(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    fp8_qtensor qx, qdy, saved_dy;
    fp8_tensor y, dx, dw, dw2;
    case_new(&k, kPresets[p], 66, 100, 40);
    y = like(&k.y), dx = like(&k.dx), dw = like(&k.dw), dw2 = like(&k.dw);
    f = forward_args(&k), b = backward_args(&k);
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));

    f.saved_x = NULL, f.y = &y; /* inference */
    OK(fp8_linear_forward(k.l, &f, NULL));
    assert_true(equal(&y, &k.y));
    qx = quantized(k.r, FP8_ROLE_ACTIVATION, &k.x, FP8_SIDE_BOTH); /* shared by several linears */
    OK(fp8_buffer_zero(k.c, y.data, (uint64_t)count_of(&y) * 2, NULL));
    f.x = NULL, f.qx = &qx;
    OK(fp8_linear_forward(k.l, &f, NULL));
    assert_true(equal(&y, &k.y));

    b.dx = NULL, b.w = NULL, b.dw = &dw, b.saved_x = &qx; /* dw alone, from qx */
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dw, &k.dw));
    b.saved_x = NULL, b.x = &k.x, b.dw = &dw2; /* from x */
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dw2, &k.dw));
    b.x = NULL, b.dw = NULL, b.w = &k.qw, b.dx = &dx; /* dx alone */
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dx, &k.dx));

    qdy = quantized(k.r, FP8_ROLE_GRADIENT, &k.dy, FP8_SIDE_BOTH); /* dy quantized before */
    OK(fp8_buffer_zero(k.c, dx.data, (uint64_t)count_of(&dx) * 2, NULL));
    OK(fp8_buffer_zero(k.c, dw.data, (uint64_t)count_of(&dw) * 4, NULL));
    b.dy = NULL, b.qdy = &qdy, b.saved_x = &k.saved, b.dw = &dw;
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dx, &k.dx) && equal(&dw, &k.dw));

    FP8_INIT(&saved_dy); /* dx now, dw later */
    OK(fp8_linear_describe(k.l, FP8_ROLE_GRADIENT, k.rows, FP8_SIDE_COL, &saved_dy));
    place(&saved_dy, FP8_SIDE_COL);
    OK(fp8_buffer_zero(k.c, dx.data, (uint64_t)count_of(&dx) * 2, NULL));
    OK(fp8_buffer_zero(k.c, dw.data, (uint64_t)count_of(&dw) * 4, NULL));
    b.dy = &k.dy, b.qdy = NULL, b.dw = NULL, b.saved_x = NULL, b.saved_dy = &saved_dy;
    OK(fp8_linear_backward(k.l, &b, NULL));
    if (kPresets[p] == FP8_PRESET_NONE) assert_true(saved_dy.col.data == k.dy.data); /* a view */
    b.dy = NULL, b.saved_dy = NULL, b.qdy = &saved_dy, b.dx = NULL, b.w = NULL, b.dw = &dw, b.saved_x = &k.saved;
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dx, &k.dx) && equal(&dw, &k.dw));
    b.qdy = NULL, b.dy = &k.dy, b.saved_dy = &saved_dy, b.dw = &dw2; /* both at once */
    OK(fp8_linear_backward(k.l, &b, NULL));
    assert_true(equal(&dw2, &k.dw));
    case_free(&k);
  }
}

/* Two micro-batches into one FP32 gradient; q, k and v into one dx; dbias over both. */
static void test_accumulation(void **state) {
  int p;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case a, b;
    fp8_recipe_config config;
    fp8_linear_forward_args f;
    fp8_linear_backward_args g;
    double *first, *second, *sum;
    float *dbias, *h0, *h1, *dx;
    int64_t i;
    int pass;
    FP8_INIT(&config);
    config.preset = kPresets[p];
    case_with(&a, g_context, &config, 48, 64, 32, FP8_DTYPE_BF16, FP8_DTYPE_BF16);
    case_with(&b, g_context, &config, 48, 64, 32, FP8_DTYPE_BF16, FP8_DTYPE_BF16);
    f = forward_args(&a);
    OK(fp8_linear_forward(a.l, &f, NULL));
    f.x = &b.x, f.saved_x = &b.saved;
    OK(fp8_linear_forward(a.l, &f, NULL));
    g = backward_args(&a);
    g.dbias = &a.dbias;
    for (pass = 0; pass < 2; ++pass) {
      g.dy = pass ? &b.dy : &a.dy, g.saved_x = pass ? &b.saved : &a.saved;
      if (pass) g.flags = FP8_LINEAR_ACCUMULATE_DW | FP8_LINEAR_ACCUMULATE_DX | FP8_LINEAR_ACCUMULATE_DBIAS;
      OK(fp8_linear_backward(a.l, &g, NULL));
    }
    first = want_dw(&a), second = want_dw(&b);
    for (i = 0; i < 32 * 64; ++i) first[i] += second[i];
    free(second);
    CLOSE(&a.dw, first);
    b.w = a.w; /* b's dy went through a's weight */
    first = want_dx(&a), sum = want_dx(&b);
    dx = get(&a.dx);
    for (i = 0; i < 48 * 64; ++i) sum[i] += first[i];
    assert_true(relative(dx, sum, 48 * 64) < 4e-3); /* rounded to BF16 in between */
    free(first), free(sum), free(dx);
    dbias = get(&a.dbias), h0 = get(&a.dy), h1 = get(&b.dy);
    for (i = 0; i < 32; ++i) {
      double want = 0;
      int64_t t;
      for (t = 0; t < 48; ++t) want += (double)h0[t * 32 + i] + h1[t * 32 + i];
      assert_true(fabs(dbias[i] - want) < 1e-6);
    }
    free(dbias), free(h0), free(h1);
    fp8_linear_destroy(b.l);
    fp8_recipe_destroy(b.r);
    case_free(&a);
  }
}

/* Each ACCUMULATE flag is of its own output alone. */
static void test_flags_apart(void **state) {
  uint32_t bits;
  (void)state;
  for (bits = 0; bits < 8; ++bits) {
    linear_case k;
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    float *before[3], *after[3];
    fp8_tensor *outs[3];
    int i;
    case_new(&k, FP8_PRESET_BLOCK, 48, 64, 32);
    k.dx = tensor2(FP8_DTYPE_F32, 48, 64);
    outs[0] = &k.dw, outs[1] = &k.dx, outs[2] = &k.dbias;
    f = forward_args(&k), b = backward_args(&k);
    b.dbias = &k.dbias;
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    for (i = 0; i < 3; ++i) before[i] = get(outs[i]);
    b.flags = (bits & 1 ? FP8_LINEAR_ACCUMULATE_DW : 0) | (bits & 2 ? FP8_LINEAR_ACCUMULATE_DX : 0) |
              (bits & 4 ? FP8_LINEAR_ACCUMULATE_DBIAS : 0);
    OK(fp8_linear_backward(k.l, &b, NULL));
    for (i = 0; i < 3; ++i) {
      const float factor = bits >> i & 1 ? 2.0f : 1.0f;
      int64_t j;
      after[i] = get(outs[i]);
      for (j = 0; j < count_of(outs[i]); ++j)
        assert_true(fabsf(after[i][j] - factor * before[i][j]) <= 1e-6f * fabsf(before[i][j]));
      free(before[i]), free(after[i]);
    }
    case_free(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_values, free_all),       cmocka_unit_test_teardown(test_one_element, free_all),
      cmocka_unit_test_teardown(test_dtypes, free_all),       cmocka_unit_test_teardown(test_ways, free_all),
      cmocka_unit_test_teardown(test_accumulation, free_all), cmocka_unit_test_teardown(test_flags_apart, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
