/* SPDX-License-Identifier: Apache-2.0 */
/* One linear with its tensors, and the product in FP64 that it is held against. */
#ifndef FP8_TESTS_CAPI_LINEAR_CASE_H
#define FP8_TESTS_CAPI_LINEAR_CASE_H
#include "support.h"

static const int32_t kPresets[] = {FP8_PRESET_NONE,  FP8_PRESET_TENSOR, FP8_PRESET_ROW,
                                   FP8_PRESET_BLOCK, FP8_PRESET_MX,     FP8_PRESET_MX_W2D};
#define PRESETS (int)(sizeof kPresets / sizeof *kPresets)

typedef struct linear_case {
  const fp8_context *c;
  fp8_recipe *r;
  fp8_linear *l;
  int64_t rows, in, out;
  int32_t input, output;
  fp8_tensor x, w, dy, bias, y, dx, dw, dbias;
  fp8_qtensor qw, saved;
} linear_case;

TEST_UNUSED static void case_with(linear_case *k, const fp8_context *c, const fp8_recipe_config *rc, int64_t rows,
                                  int64_t in, int64_t out, int32_t input, int32_t output) {
  fp8_linear_config config;
  memset(k, 0, sizeof *k);
  k->c = c, k->rows = rows, k->in = in, k->out = out, k->input = input, k->output = output;
  OK(fp8_recipe_create(rc, &k->r));
  FP8_INIT(&config);
  config.in_features = in;
  config.out_features = out;
  config.recipe = k->r;
  config.input_dtype = input;
  config.output_dtype = output;
  OK(fp8_linear_create(c, &config, &k->l));
  k->x = random2(input, rows, in, 1.0f);
  k->w = random2(FP8_DTYPE_BF16, out, in, 0.05f);
  k->dy = random2(output, rows, out, 1e-3f);
  k->bias = random2(FP8_DTYPE_F32, 1, out, 1.0f);
  k->y = tensor2(output, rows, out);
  k->dx = tensor2(input, rows, in);
  k->dw = tensor2(FP8_DTYPE_F32, out, in);
  k->dbias = tensor1(FP8_DTYPE_F32, out);
  k->qw = quantized(k->r, FP8_ROLE_WEIGHT, &k->w, FP8_SIDE_BOTH);
  FP8_INIT(&k->saved);
  OK(fp8_linear_describe(k->l, FP8_ROLE_ACTIVATION, rows, FP8_SIDE_COL | (input == FP8_DTYPE_F32 ? FP8_SIDE_COPY : 0),
                         &k->saved));
  place(&k->saved, FP8_SIDE_COL);
}

TEST_UNUSED static void case_new(linear_case *k, int32_t preset, int64_t rows, int64_t in, int64_t out) {
  fp8_recipe_config config;
  FP8_INIT(&config);
  config.preset = preset;
  config.fast_accumulation = FP8_NO_GEMM;
  case_with(k, g_context, &config, rows, in, out, FP8_DTYPE_BF16, FP8_DTYPE_BF16);
}

TEST_UNUSED static void case_free(linear_case *k) {
  fp8_linear_destroy(k->l);
  fp8_recipe_destroy(k->r);
  free_all(NULL);
}

TEST_UNUSED static fp8_linear_forward_args forward_args(linear_case *k) {
  fp8_linear_forward_args a;
  FP8_INIT(&a);
  a.x = &k->x, a.w = &k->qw, a.y = &k->y, a.saved_x = &k->saved;
  return a;
}

TEST_UNUSED static fp8_linear_backward_args backward_args(linear_case *k) {
  fp8_linear_backward_args a;
  FP8_INIT(&a);
  a.dy = &k->dy, a.w = &k->qw, a.saved_x = &k->saved, a.dx = &k->dx, a.dw = &k->dw;
  return a;
}

/* The values that a GEMM reads of a tensor of this role and side, rows x cols as the tensor itself. */
TEST_UNUSED static double *seen(const linear_case *k, int32_t role, const fp8_tensor *t, uint32_t side) {
  fp8_qtensor q = describe(k->r, role, t->shape[0], t->shape[1], side | FP8_SIDE_COPY);
  fp8_quantize_args a;
  place(&q, side);
  FP8_INIT(&a);
  a.x = t, a.q = &q, a.role = role;
  OK(fp8_quantize(k->c, k->r, &a, NULL));
  return values_of(&q, side);
}

/* c[i, j] = sum over l of a[i, l] b[j, l], with strides */
TEST_UNUSED static double *matmul(const double *a, int64_t ai, int64_t al, const double *b, int64_t bj, int64_t bl,
                                  int64_t m, int64_t n, int64_t k) {
  double *c = calloc((size_t)(m * n) + 1, 8);
  int64_t i, j, l;
  for (i = 0; i < m; ++i)
    for (j = 0; j < n; ++j) {
      double sum = 0;
      for (l = 0; l < k; ++l) sum += a[i * ai + l * al] * b[j * bj + l * bl];
      c[i * n + j] = sum;
    }
  return c;
}

TEST_UNUSED static double *want_y(const linear_case *k) {
  double *x = seen(k, FP8_ROLE_ACTIVATION, &k->x, FP8_SIDE_ROW), *w = seen(k, FP8_ROLE_WEIGHT, &k->w, FP8_SIDE_ROW);
  double *y = matmul(x, k->in, 1, w, k->in, 1, k->rows, k->out, k->in);
  free(x), free(w);
  return y;
}

TEST_UNUSED static double *want_dx(const linear_case *k) {
  double *dy = seen(k, FP8_ROLE_GRADIENT, &k->dy, FP8_SIDE_ROW), *w = seen(k, FP8_ROLE_WEIGHT, &k->w, FP8_SIDE_COL);
  double *dx = matmul(dy, k->out, 1, w, 1, k->in, k->rows, k->in, k->out);
  free(dy), free(w);
  return dx;
}

TEST_UNUSED static double *want_dw(const linear_case *k) {
  double *dy = seen(k, FP8_ROLE_GRADIENT, &k->dy, FP8_SIDE_COL), *x = seen(k, FP8_ROLE_ACTIVATION, &k->x, FP8_SIDE_COL);
  double *dw = matmul(dy, 1, k->out, x, 1, k->in, k->out, k->in, k->rows);
  free(dy), free(x);
  return dw;
}

TEST_UNUSED static double gate_of(int32_t dtype) {
  return dtype == FP8_DTYPE_BF16              ? 2e-3
         : dtype == FP8_DTYPE_F16             ? 3e-4
         : test_backend() == FP8_BACKEND_CUDA ? 2e-4
                                              : 1e-5;
}

/* t holds `want`, frees it */
#define CLOSE(t, want)                                                   \
  do {                                                                   \
    double *want_ = (want);                                              \
    float *got_ = get(t);                                                \
    const double error_ = relative(got_, want_, count_of(t));            \
    free(want_), free(got_);                                             \
    if (error_ > gate_of((t)->dtype)) print_error("error %g\n", error_); \
    assert_true(error_ <= gate_of((t)->dtype));                          \
  } while (0)

/* two compact tensors of one dtype and shape hold the same bytes */
TEST_UNUSED static int equal(const fp8_tensor *a, const fp8_tensor *b) {
  const size_t bytes = (size_t)(count_of(a) * size_of(a->dtype));
  char *ha = malloc(bytes + 1), *hb = malloc(bytes + 1);
  int same;
  download(ha, a->data, bytes);
  download(hb, b->data, bytes);
  same = memcmp(ha, hb, bytes) == 0;
  free(ha), free(hb);
  return same;
}

TEST_UNUSED static fp8_tensor like(const fp8_tensor *t) { return tensor2(t->dtype, t->shape[0], t->shape[1]); }

#endif
