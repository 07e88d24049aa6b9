/* SPDX-License-Identifier: Apache-2.0 */
/* Checks CUDA's kernels against the CPU's on the same inputs, and against themselves: twice the same bits. Ends with 77
 * where there is no device. Compiled with FP8_CUDA_EMULATE it runs the same kernels on the host. `speed` after the name
 * also prints what each takes at the size of a real model. */
#include <math.h>

#include "../../common/clock.h"
#include "../../common/place.h"
#include "../../common/random.h"
#include "../cpu/kernels_cpu.h"
#include "kernels_cuda.h"

typedef struct Both { /* one array, on the host and on the device */
  void *host, *device;
  uint64_t bytes;
} Both;

typedef struct Test {
  fp8_context *context;
  Device cpu, cuda;
  Shape shape;
  Both arrays[64];
  int count;
  const char *name;
  int timing;
} Test;

static Both *array(Test *t, int64_t count, uint64_t size) {
  Both *b = &t->arrays[t->count++];
  fp8_buffer buffer;
  b->bytes = (uint64_t)count * size;
  b->host = calloc((size_t)count, (size_t)size);
  CHECK(fp8_buffer_alloc(t->context, b->bytes, &buffer, t->cuda.stream));
  b->device = buffer.data;
  return b;
}

static void upload(const Test *t, const Both *b) {
  CHECK(fp8_buffer_copy(t->context, b->device, b->host, b->bytes, t->cuda.stream));
  place_wait(t->cuda.stream);
}

static void *download(const Test *t, const Both *b) {
  void *copy = malloc((size_t)b->bytes);
  REQUIRE(copy, "out of memory");
  CHECK(fp8_buffer_copy(t->context, copy, b->device, b->bytes, t->cuda.stream));
  place_wait(t->cuda.stream);
  return copy;
}

static uint64_t seed;

static Both *floats(Test *t, int64_t count, float mean, float deviation) {
  Both *b = array(t, count, sizeof(float));
  float *x = b->host;
  ++seed;
  for (int64_t i = 0; i < count; ++i) x[i] = mean + (deviation ? deviation * random_normal(seed, (uint64_t)i) : 0.0f);
  upload(t, b);
  return b;
}

static Both *halves(Test *t, int64_t count, float deviation) {
  Both *b = array(t, count, sizeof(bf16));
  bf16 *x = b->host;
  ++seed;
  for (int64_t i = 0; i < count; ++i)
    x[i] = deviation ? bf16_from_float(deviation * random_normal(seed, (uint64_t)i)) : 0x7fc0; /* NaN: to be written */
  upload(t, b);
  return b;
}

static Both *letters(Test *t, int64_t count) {
  Both *b = array(t, count, 1);
  uint8_t *x = b->host;
  ++seed;
  for (int64_t i = 0; i < count; ++i) x[i] = (uint8_t)(random_bits(seed, (uint64_t)i) % 97);
  upload(t, b);
  return b;
}

static double value(const void *data, int wide, int64_t i) {
  return wide ? (double)((const float *)data)[i] : (double)bf16_to_float(((const bf16 *)data)[i]);
}

/* The device's array against the host's, which the CPU's kernel has written. */
static void same(const Test *t, const char *what, const Both *b, int wide, double bound) {
  void *got = download(t, b);
  int64_t count = (int64_t)(b->bytes / (wide ? sizeof(float) : sizeof(bf16)));
  double error = 0.0, size = 0.0, worst = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    double exact = value(b->host, wide, i), d = value(got, wide, i) - exact;
    error += d * d;
    size += exact * exact;
    worst = fmax(worst, fabs(d));
  }
  free(got);
  error = sqrt(error / size);
  printf("%-12s %-12s relative error %.1e, largest difference %.1e of mean %.1e\n", t->name, what, error, worst,
         sqrt(size / (double)count));
  REQUIRE(error < bound, "%s: %s is not what the CPU computes (bound %.0e)", t->name, what, bound); /* NaN fails */
}

typedef void (*Kernel)(Test *t, Both *const *arrays);

/* Runs the kernel twice from the same state, which `changed` arrays hold; then as often as a time needs. */
static void repeat(Test *t, Kernel kernel, Both *const *arrays, const Both *changed, double bytes, double operations) {
  kernel(t, arrays);
  void *first = download(t, changed);
  for (int i = 0; i < t->count; ++i) upload(t, &t->arrays[i]);
  kernel(t, arrays);
  void *second = download(t, changed);
  REQUIRE(!memcmp(first, second, (size_t)changed->bytes), "%s: two runs differ", t->name);
  free(first);
  free(second);
  if (!t->timing) return;
  for (int i = 0; i < t->count; ++i) upload(t, &t->arrays[i]);
  enum { TIMES = 20 };
  place_wait(t->cuda.stream);
  double start = seconds_now();
  for (int i = 0; i < TIMES; ++i) kernel(t, arrays);
  place_wait(t->cuda.stream);
  double each = (seconds_now() - start) / TIMES;
  printf("%-20s %8.1f us  %6.2f TB/s  %6.1f TFLOPS\n", t->name, 1e6 * each, bytes / each / 1e12,
         operations / each / 1e12);
  for (int i = 0; i < t->count; ++i) upload(t, &t->arrays[i]);
  kernel(t, arrays);
}

static void begin(Test *t, const char *name) { t->name = name; }

static void end(Test *t) {
  for (int i = 0; i < t->count; ++i) {
    fp8_buffer buffer = {t->arrays[i].device, t->arrays[i].bytes};
    free(t->arrays[i].host);
    fp8_buffer_free(t->context, &buffer, t->cuda.stream);
  }
  t->count = 0;
}

#define DEVICE(i) (arrays[i]->device)
#define HOST(i) (arrays[i]->host)

static void run_attention(Test *t, Both *const *arrays) {
  cuda_attention(&t->cuda, &t->shape, DEVICE(0), DEVICE(1), DEVICE(2));
}
static void run_attention_backward(Test *t, Both *const *arrays) {
  cuda_attention_backward(&t->cuda, &t->shape, DEVICE(0), DEVICE(1), DEVICE(2), DEVICE(3), DEVICE(4));
}

static void check_attention(Test *t) {
  const Shape *s = &t->shape;
  int64_t rows = shape_rows(s);
  double flops = 2.0 * (double)(s->batch * s->heads) * (double)s->seq * (double)s->seq * 64.0; /* half is masked */
  begin(t, "attention");
  Both *const arrays[] = {halves(t, rows * 3 * s->dim, 1.5f), halves(t, rows * s->dim, 0.0f),
                          floats(t, rows * s->heads, 0.0f, 0.0f), halves(t, rows * s->dim, 1.0f),
                          halves(t, rows * 3 * s->dim, 0.0f)};
  repeat(t, run_attention, arrays, arrays[1], 8.0 * (double)(rows * s->dim), flops);
  cpu_attention(&t->cpu, s, HOST(0), HOST(1), HOST(2));
  same(t, "out", arrays[1], 0, 6e-3);
  same(t, "logsum", arrays[2], 1, 1e-5);
  upload(t, arrays[1]);
  upload(t, arrays[2]);
  begin(t, "attention b.");
  repeat(t, run_attention_backward, arrays, arrays[4], 16.0 * (double)(rows * s->dim), 2.5 * flops);
  cpu_attention_backward(&t->cpu, s, HOST(0), HOST(1), HOST(2), HOST(3), HOST(4));
  same(t, "dqkv", arrays[4], 0, 8e-3);
  end(t);
}

static NormArgs norm_args(void *const *p) {
  NormArgs a = {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
  return a;
}
static NormBackwardArgs norm_backward_args(void *const *p) {
  NormBackwardArgs a = {p[1], p[2], p[6], p[7], p[3], p[8], p[5], p[9], p[10]};
  return a;
}
static void pointers(Both *const *arrays, int device, void **p) {
  for (int i = 0; i < 11; ++i) p[i] = device ? arrays[i]->device : arrays[i]->host;
}
static void run_norm(Test *t, Both *const *arrays) {
  void *p[11];
  pointers(arrays, 1, p);
  NormArgs a = norm_args(p);
  cuda_norm(&t->cuda, shape_rows(&t->shape), t->shape.dim, &a);
}
static void run_norm_backward(Test *t, Both *const *arrays) {
  void *p[11];
  pointers(arrays, 1, p);
  NormBackwardArgs a = norm_backward_args(p);
  cuda_norm_backward(&t->cuda, shape_rows(&t->shape), t->shape.dim, &a);
}

static void check_norm(Test *t) {
  int64_t rows = shape_rows(&t->shape), dim = t->shape.dim;
  void *p[11];
  begin(t, "norm");
  Both *const arrays[] = {
      floats(t, rows * dim, 0.5f, 2.0f), halves(t, rows * dim, 1.0f), floats(t, rows * dim, 0.0f, 0.0f),
      floats(t, dim, 1.0f, 0.1f),        floats(t, dim, 0.0f, 0.1f),  halves(t, rows * dim, 0.0f),
      floats(t, rows, 0.0f, 0.0f),       floats(t, rows, 0.0f, 0.0f), floats(t, rows * dim, 0.0f, 1.0f),
      floats(t, dim, 0.0f, 1.0f),        floats(t, dim, 0.0f, 1.0f)};
  repeat(t, run_norm, arrays, arrays[5], 12.0 * (double)(rows * dim), 0.0);
  pointers(arrays, 0, p);
  NormArgs forward = norm_args(p);
  cpu_norm(&t->cpu, rows, dim, &forward);
  same(t, "out", arrays[5], 0, 1e-3);
  same(t, "residual", arrays[2], 1, 1e-7);
  same(t, "mean", arrays[6], 1, 1e-5);
  same(t, "scale", arrays[7], 1, 1e-5);
  for (int i = 2; i < 8; ++i) upload(t, arrays[i]);
  begin(t, "norm b.");
  repeat(t, run_norm_backward, arrays, arrays[9], 22.0 * (double)(rows * dim), 0.0);
  NormBackwardArgs backward = norm_backward_args(p);
  cpu_norm_backward(&t->cpu, rows, dim, &backward);
  same(t, "dresidual", arrays[8], 1, 1e-5);
  same(t, "dbranch", arrays[5], 0, 1e-3);
  same(t, "dgain", arrays[9], 1, 1e-4);
  same(t, "dbias", arrays[10], 1, 1e-4);
  end(t);
}

static void run_gelu(Test *t, Both *const *arrays) {
  cuda_gelu(&t->cuda, 4 * shape_rows(&t->shape) * t->shape.dim, DEVICE(0), DEVICE(1));
}
static void run_gelu_backward(Test *t, Both *const *arrays) {
  cuda_gelu_backward(&t->cuda, 4 * shape_rows(&t->shape) * t->shape.dim, DEVICE(0), DEVICE(2), DEVICE(3));
}
static void run_amplify(Test *t, Both *const *arrays) {
  cuda_amplify(&t->cuda, shape_rows(&t->shape), t->shape.dim, 16.0f, DEVICE(0));
}

static void check_gelu(Test *t) {
  int64_t count = 4 * shape_rows(&t->shape) * t->shape.dim;
  begin(t, "GELU");
  Both *const arrays[] = {halves(t, count, 2.0f), halves(t, count, 0.0f), halves(t, count, 1.0f),
                          halves(t, count, 0.0f)};
  repeat(t, run_gelu, arrays, arrays[1], 4.0 * (double)count, 0.0);
  cpu_gelu(&t->cpu, count, HOST(0), HOST(1));
  same(t, "out", arrays[1], 0, 1e-3);
  begin(t, "GELU b.");
  repeat(t, run_gelu_backward, arrays, arrays[3], 6.0 * (double)count, 0.0);
  cpu_gelu_backward(&t->cpu, count, HOST(0), HOST(2), HOST(3));
  same(t, "din", arrays[3], 0, 1e-3);
  begin(t, "amplify");
  t->timing = -t->timing; /* in place: times mean nothing */
  upload(t, arrays[0]);
  run_amplify(t, arrays);
  cpu_amplify(&t->cpu, shape_rows(&t->shape), t->shape.dim, 16.0f, HOST(0));
  same(t, "values", arrays[0], 0, 1e-7);
  t->timing = -t->timing;
  end(t);
}

static void run_loss(Test *t, Both *const *arrays) {
  cuda_cross_entropy(&t->cuda, shape_rows(&t->shape), DEVICE(0), DEVICE(1), 0.5f, DEVICE(2), DEVICE(3));
}

static void check_loss(Test *t) {
  int64_t rows = shape_rows(&t->shape);
  begin(t, "loss");
  Both *const arrays[] = {halves(t, rows * VOCABULARY, 2.0f), letters(t, rows), floats(t, rows, 0.0f, 0.0f),
                          halves(t, rows * VOCABULARY, 0.0f)};
  repeat(t, run_loss, arrays, arrays[3], 4.0 * (double)(rows * VOCABULARY), 0.0);
  cpu_cross_entropy(&t->cpu, rows, HOST(0), HOST(1), 0.5f, HOST(2), HOST(3));
  same(t, "losses", arrays[2], 1, 1e-6);
  same(t, "dlogits", arrays[3], 0, 1e-3);
  cuda_cross_entropy(&t->cuda, rows, arrays[0]->device, arrays[1]->device, 0.5f, arrays[2]->device, NULL);
  end(t);
}

static void run_embed(Test *t, Both *const *arrays) {
  cuda_embed(&t->cuda, &t->shape, DEVICE(0), DEVICE(1), DEVICE(2), DEVICE(3));
}
static void run_embed_backward(Test *t, Both *const *arrays) {
  cuda_embed_backward(&t->cuda, &t->shape, DEVICE(0), DEVICE(3), DEVICE(1), DEVICE(2));
}

static void check_embed(Test *t) {
  const Shape *s = &t->shape;
  int64_t rows = shape_rows(s);
  begin(t, "embed");
  Both *const arrays[] = {letters(t, rows), floats(t, VOCABULARY * s->dim, 0.0f, 1.0f),
                          floats(t, s->seq * s->dim, 0.0f, 1.0f), floats(t, rows * s->dim, 0.0f, 1.0f)};
  repeat(t, run_embed, arrays, arrays[3], 4.0 * (double)(rows * s->dim), 0.0);
  cpu_embed(&t->cpu, s, HOST(0), HOST(1), HOST(2), HOST(3));
  same(t, "residual", arrays[3], 1, 1e-7);
  upload(t, arrays[3]);
  begin(t, "embed b.");
  repeat(t, run_embed_backward, arrays, arrays[1], 8.0 * (double)(rows * s->dim), 0.0);
  cpu_embed_backward(&t->cpu, s, HOST(0), HOST(3), HOST(1), HOST(2));
  same(t, "dbytes", arrays[1], 1, 1e-5);
  same(t, "dpositions", arrays[2], 1, 1e-5);
  end(t);
}

static int64_t adam_count; /* odd: a share of the flat order ends anywhere */

static AdamArgs adam_args(void *master, void *grad, void *m, void *v) {
  AdamArgs a = {.master = master,
                .grad = grad,
                .m = m,
                .v = v,
                .begin = 0,
                .end = adam_count,
                .decayed = adam_count / 3,
                .rate = 1e-2f,
                .beta1 = 0.9f,
                .beta2 = 0.95f,
                .epsilon = 1e-8f,
                .decay = 0.1f,
                .grad_scale = 0.5f,
                .step = 3};
  return a;
}
static void run_adam(Test *t, Both *const *arrays) {
  AdamArgs a = adam_args(DEVICE(0), DEVICE(1), DEVICE(2), DEVICE(3));
  cuda_adamw(&t->cuda, &a);
}
static void run_squares(Test *t, Both *const *arrays) {
  double sum, exact = 0.0;
  const float *x = HOST(1);
  cuda_square_sum(&t->cuda, adam_count, DEVICE(1), &sum);
  for (int64_t i = 0; i < adam_count && !t->timing; ++i) exact += (double)x[i] * x[i];
  REQUIRE(t->timing || fabs(sum - exact) <= 1e-12 * exact, "the sum of squares is %.17g, not %.17g", sum, exact);
}
static void run_sum(Test *t, Both *const *arrays) { /* of three ranks, this is the second */
  cuda_sum_ranks(&t->cuda, adam_count / 3, 3, 1, DEVICE(0), adam_count / 3, DEVICE(3));
}

static void check_optimizer(Test *t) {
  adam_count = t->timing ? 20000001 : 7001;
  begin(t, "AdamW");
  Both *const arrays[] = {floats(t, adam_count, 0.0f, 1.0f), floats(t, adam_count, 0.0f, 1.0f),
                          floats(t, adam_count, 0.0f, 0.1f), floats(t, adam_count, 1.0f, 0.1f)};
  repeat(t, run_adam, arrays, arrays[0], 32.0 * (double)adam_count, 0.0);
  AdamArgs a = adam_args(HOST(0), HOST(1), HOST(2), HOST(3));
  cpu_adamw(&t->cpu, &a);
  same(t, "masters", arrays[0], 1, 1e-6);
  same(t, "m", arrays[2], 1, 1e-6);
  same(t, "v", arrays[3], 1, 1e-6);
  float *grad = download(t, arrays[1]);
  for (int64_t i = 0; i < adam_count; ++i) REQUIRE(grad[i] == 0.0f, "the gradient is not cleared for the next step");
  free(grad);
  for (int i = 0; i < t->count; ++i) upload(t, &t->arrays[i]);
  begin(t, "sum of ranks");
  repeat(t, run_sum, arrays, arrays[3], 4.0 * (double)adam_count, 0.0);
  cpu_sum_ranks(&t->cpu, adam_count / 3, 3, 1, HOST(0), adam_count / 3, HOST(3));
  same(t, "sums", arrays[3], 1, 1e-30); /* in the same order: the same bits */
  ((float *)arrays[1]->host)[adam_count - 1] = 3.0f;
  upload(t, arrays[1]);
  begin(t, "square sum");
  repeat(t, run_squares, arrays, arrays[1], 4.0 * (double)adam_count, 0.0);
  end(t);
}

static void check_shape(Test *t, int64_t dim, int64_t seq, int64_t batch, int all) {
  Shape s = {.layers = 1, .dim = dim, .heads = dim / 64, .seq = seq, .batch = batch};
  t->shape = s;
  printf("-- dim %d, sequences %d of %d\n", (int)dim, (int)batch, (int)seq);
  t->cpu.scratch = malloc((size_t)kernels_cpu.scratch_bytes(&s, pool_threads(t->cpu.pool)));
  fp8_buffer scratch;
  CHECK(fp8_buffer_alloc(t->context, kernels_cuda.scratch_bytes(&s, 1), &scratch, t->cuda.stream));
  t->cuda.scratch = scratch.data;
  REQUIRE(t->cpu.scratch, "out of memory");
  check_norm(t);
  if (all) {
    check_attention(t);
    check_gelu(t);
    check_loss(t);
    check_embed(t);
  }
  if (all > 1) check_optimizer(t);
  free(t->cpu.scratch);
  fp8_buffer_free(t->context, &scratch, t->cuda.stream);
}

int main(int count, char **arguments) {
  static Test t;
  t.cpu.pool = pool_create(0);
#ifdef FP8_CUDA_EMULATE
  Place place = {FP8_BACKEND_CPU, 0};
#else
  Place place = {FP8_BACKEND_CUDA, 0};
#endif
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = place.backend;
  if (fp8_context_create(&config, &t.context) != FP8_OK) {
    fp8_error error;
    FP8_INIT(&error);
    fp8_last_error(&error);
    printf("skipped: %s\n", error.message);
    return 77;
  }
  t.cuda.stream = place_open(&place);
  check_shape(&t, 64, 16, 1, 2);   /* less than a tile */
  check_shape(&t, 128, 144, 2, 1); /* tiles, and a part of one */
  check_shape(&t, 256, 16, 1, 0);  /* sizes with kernels of their own */
  check_shape(&t, 768, 16, 1, 0);
  check_shape(&t, 1088, 16, 1, 0); /* wider than what a norm keeps in registers */
#ifndef FP8_CUDA_EMULATE
  check_shape(&t, 768, 1024, 2, 1);
  t.timing = count > 1 && !strcmp(arguments[1], "speed");
  if (t.timing) check_shape(&t, 768, 1024, 16, 2);
#else
  (void)count, (void)arguments;
#endif
  place_close(&place, t.cuda.stream);
  fp8_context_destroy(t.context);
  pool_destroy(t.cpu.pool);
  printf("all kernels agree with the CPU's\n");
  return 0;
}
