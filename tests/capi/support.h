/* SPDX-License-Identifier: Apache-2.0 */
/* What the C API's tests share: a context of the backend under test, memory of its device, values, errors. */
#ifndef FP8_TESTS_CAPI_SUPPORT_H
#define FP8_TESTS_CAPI_SUPPORT_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp8/fp8.h"
#include "half.h"
#include "with_cmocka.h"

#if defined(__GNUC__)
#define TEST_UNUSED __attribute__((unused))
#else
#define TEST_UNUSED
#endif

/* ---- errors ---- */
TEST_UNUSED static const char *last_message(void) {
  static fp8_error e;
  FP8_INIT(&e);
  fp8_last_error(&e);
  return e.message ? e.message : "";
}

TEST_UNUSED static void check_ok(fp8_status status, const char *what, const char *file, int line) {
  if (status == FP8_OK) return;
  print_error("%s: %s: %s\n", what, fp8_status_name(status), last_message());
  _fail(file, line);
}
#define OK(call) check_ok((call), #call, __FILE__, __LINE__)

/* status, and a message that holds every word of `words` (separated by '|') */
TEST_UNUSED static void check_refused(fp8_status want, const char *words, fp8_status got, const char *what,
                                      const char *file, int line) {
  char copy[256], *word;
  int good = got == want;
  snprintf(copy, sizeof copy, "%s", words);
  for (word = strtok(copy, "|"); good && word; word = strtok(NULL, "|")) good = strstr(last_message(), word) != NULL;
  if (good) return;
  print_error("%s: %s \"%s\", expected %s with \"%s\"\n", what, fp8_status_name(got), got ? last_message() : "",
              fp8_status_name(want), words);
  _fail(file, line);
}
#define REFUSED(status, words, call) check_refused((status), (words), (call), #call, __FILE__, __LINE__)

/* ---- the context under test: FP8_TEST_BACKEND=cuda, else the CPU ---- */
TEST_UNUSED static int32_t test_backend(void) {
  const char *name = getenv("FP8_TEST_BACKEND");
  return name && strcmp(name, "cuda") == 0 ? FP8_BACKEND_CUDA : FP8_BACKEND_CPU;
}

TEST_UNUSED static int32_t test_device(void) { /* FP8_TEST_DEVICE: the GPU, whichever is current */
  const char *device = getenv("FP8_TEST_DEVICE");
  return device && test_backend() == FP8_BACKEND_CUDA ? atoi(device) : 0;
}

TEST_UNUSED static int32_t test_max_sms(void) { /* FP8_TEST_MAX_SMS: multiprocessors, for calls that give none */
  const char *most = getenv("FP8_TEST_MAX_SMS");
  return most ? atoi(most) : 0;
}

TEST_UNUSED static fp8_context *new_context(uint32_t flags) {
  fp8_context *c = NULL;
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = test_backend();
  config.device = test_device();
  config.flags = flags;
  config.threads = 2;
  config.max_sms = test_max_sms();
  OK(fp8_context_create(&config, &c));
  return c;
}

/* ---- memory of the device, freed by free_all in a test's teardown ---- */
#define TEST_BUFFERS 8192
static fp8_buffer g_buffers[TEST_BUFFERS];
static int g_buffer_count;
static fp8_context *g_context; /* of the running group */

TEST_UNUSED static void *dev_alloc(uint64_t bytes) {
  fp8_buffer *b = &g_buffers[g_buffer_count];
  assert_true(g_buffer_count < TEST_BUFFERS);
  OK(fp8_buffer_alloc(g_context, bytes ? bytes : 1, b, NULL));
  OK(fp8_buffer_zero(g_context, b->data, bytes ? bytes : 1, NULL));
  ++g_buffer_count;
  return b->data;
}

TEST_UNUSED static int free_all(void **state) {
  (void)state;
  while (g_buffer_count) fp8_buffer_free(g_context, &g_buffers[--g_buffer_count], NULL);
  return 0;
}

TEST_UNUSED static void skip_without_device(void) { /* no driver or no device; anything else is a failure */
  fp8_context_config config;
  fp8_context *c = NULL;
  fp8_error e;
  if (test_backend() != FP8_BACKEND_CUDA) return;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CUDA;
  config.device = test_device();
  if (fp8_context_create(&config, &c) == FP8_OK) {
    fp8_context_destroy(c);
    return;
  }
  FP8_INIT(&e);
  fp8_last_error(&e);
  if (e.domain != FP8_DOMAIN_CUDA || (e.native_code != 0 && e.native_code != 100)) return;
  printf("skipped: %s\n", e.message);
  exit(77);
}

TEST_UNUSED static int group_setup(void **state) {
  (void)state;
  skip_without_device();
  g_context = new_context(0);
  return 0;
}

TEST_UNUSED static int group_teardown(void **state) {
  free_all(state);
  fp8_context_destroy(g_context);
  g_context = NULL;
  return 0;
}

TEST_UNUSED static void sync(void) { OK(fp8_stream_sync(g_context, NULL)); }
TEST_UNUSED static void upload(void *dst, const void *src, uint64_t bytes) {
  OK(fp8_buffer_copy(g_context, dst, src, bytes, NULL));
  sync();
}
TEST_UNUSED static void download(void *dst, const void *src, uint64_t bytes) {
  OK(fp8_buffer_copy(g_context, dst, src, bytes, NULL));
  sync();
}

/* ---- tensors ---- */
TEST_UNUSED static int64_t size_of(int32_t dtype) {
  static const int sizes[] = {0, 4, 2, 2, 1, 1, 1, 1, 4, 8, 8, 8};
  return sizes[dtype];
}

TEST_UNUSED static int64_t count_of(const fp8_tensor *t) {
  int64_t n = 1;
  int i;
  for (i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}

/* a compact view; memory NULL */
TEST_UNUSED static fp8_tensor view(int32_t dtype, int ndim, int64_t a, int64_t b, int64_t c) {
  fp8_tensor t;
  memset(&t, 0, sizeof t);
  t.dtype = dtype;
  t.ndim = ndim;
  t.shape[0] = a;
  t.shape[1] = b;
  t.shape[2] = c;
  if (ndim < 3) t.shape[2] = 0;
  if (ndim < 2) t.shape[1] = 0;
  OK(fp8_tensor_compact(&t));
  return t;
}

TEST_UNUSED static fp8_tensor tensor2(int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t = view(dtype, 2, rows, cols, 0);
  t.data = dev_alloc((uint64_t)(count_of(&t) * size_of(dtype)));
  return t;
}

TEST_UNUSED static fp8_tensor tensor1(int32_t dtype, int64_t n) {
  fp8_tensor t = view(dtype, 1, n, 0, 0);
  t.data = dev_alloc((uint64_t)(count_of(&t) * size_of(dtype)));
  return t;
}

/* ---- values ---- */
TEST_UNUSED static void put(const fp8_tensor *t, const float *values) { /* compact tensors */
  const int64_t n = count_of(t);
  int64_t i;
  uint16_t *h;
  if (t->dtype == FP8_DTYPE_F32) {
    upload(t->data, values, (uint64_t)n * 4);
    return;
  }
  h = malloc((size_t)n * 2 + 2);
  for (i = 0; i < n; ++i) h[i] = t->dtype == FP8_DTYPE_BF16 ? to_bf16(values[i]) : to_f16(values[i]);
  upload(t->data, h, (uint64_t)n * 2);
  free(h);
}

TEST_UNUSED static float *get(const fp8_tensor *t) { /* compact tensors; free() it */
  const int64_t n = count_of(t);
  float *values = malloc((size_t)n * 4 + 4);
  int64_t i;
  uint16_t *h;
  if (t->dtype == FP8_DTYPE_F32) {
    download(values, t->data, (uint64_t)n * 4);
    return values;
  }
  h = malloc((size_t)n * 2 + 2);
  download(h, t->data, (uint64_t)n * 2);
  for (i = 0; i < n; ++i) values[i] = t->dtype == FP8_DTYPE_BF16 ? from_bf16(h[i]) : from_f16(h[i]);
  free(h);
  return values;
}

static uint64_t g_random = 88172645463325252ull;
TEST_UNUSED static float uniform(void) {
  g_random ^= g_random << 13;
  g_random ^= g_random >> 7;
  g_random ^= g_random << 17;
  return (float)(g_random >> 40) / 16777216.0f;
}
TEST_UNUSED static float normal(void) { /* close enough to Gaussian */
  float s = 0;
  int i;
  for (i = 0; i < 6; ++i) s += uniform();
  return (s - 3.0f) * 1.41421356f;
}

TEST_UNUSED static fp8_tensor random2(int32_t dtype, int64_t rows, int64_t cols, float scale) {
  fp8_tensor t = tensor2(dtype, rows, cols);
  float *v = malloc((size_t)(rows * cols) * 4 + 4);
  int64_t i;
  for (i = 0; i < rows * cols; ++i) v[i] = normal() * scale;
  put(&t, v);
  free(v);
  return t;
}

/* ---- recipes and quantized tensors ---- */
TEST_UNUSED static fp8_recipe *recipe_of(int32_t preset) {
  fp8_recipe_config config;
  fp8_recipe *r = NULL;
  FP8_INIT(&config);
  config.preset = preset;
  OK(fp8_recipe_create(&config, &r));
  return r;
}

TEST_UNUSED static void place(fp8_qtensor *q, uint32_t sides) {
  fp8_buffer memory;
  OK(fp8_qtensor_bytes(q, sides, &memory.bytes));
  memory.data = dev_alloc(memory.bytes);
  OK(fp8_qtensor_place(q, sides, &memory));
}

TEST_UNUSED static fp8_qtensor describe(const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols, uint32_t sides) {
  fp8_qtensor q;
  FP8_INIT(&q);
  OK(fp8_recipe_describe(r, g_context, role, rows, cols, sides, &q));
  return q;
}

/* by a recipe's text, portable; memory NULL */
TEST_UNUSED static fp8_qtensor described(const char *text, int32_t role, int64_t rows, int64_t cols, uint32_t sides) {
  fp8_recipe *r = NULL;
  fp8_qtensor q;
  FP8_INIT(&q);
  OK(fp8_recipe_from_string(text, &r));
  OK(fp8_recipe_describe(r, NULL, role, rows, cols, sides, &q));
  fp8_recipe_destroy(r);
  return q;
}

TEST_UNUSED static fp8_qtensor quantized(const fp8_recipe *r, int32_t role, const fp8_tensor *x, uint32_t sides) {
  fp8_qtensor q = describe(r, role, x->shape[0], x->shape[1], sides);
  fp8_quantize_args a;
  place(&q, sides & FP8_SIDE_BOTH);
  FP8_INIT(&a);
  a.x = x;
  a.q = &q;
  a.role = role;
  OK(fp8_quantize(g_context, r, &a, NULL));
  return q;
}

/* rows x cols values of a side, widened; free() it */
TEST_UNUSED static double *values_of(const fp8_qtensor *q, uint32_t side) {
  fp8_tensor t = tensor2(FP8_DTYPE_F32, q->rows, q->cols);
  float *f;
  double *d = malloc((size_t)(q->rows * q->cols) * 8 + 8);
  int64_t i;
  OK(fp8_dequantize(g_context, q, side, &t, NULL));
  f = get(&t);
  for (i = 0; i < q->rows * q->cols; ++i) d[i] = f[i];
  free(f);
  return d;
}

/* ||got - want|| / ||want|| */
TEST_UNUSED static double relative(const float *got, const double *want, int64_t n) {
  double e = 0, s = 0;
  int64_t i;
  for (i = 0; i < n; ++i) {
    e += (got[i] - want[i]) * (got[i] - want[i]);
    s += want[i] * want[i];
  }
  return s > 0 ? sqrt(e / s) : sqrt(e);
}

#endif
