/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads over the local communicator, and small helpers that fail the test. */
#ifndef FP8_TEST_RANKS_H
#define FP8_TEST_RANKS_H
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fp8/fp8.h"
#include "with_cmocka.h"

/* CMocka's asserts jump on the calling thread, which a rank's thread must not: ranks abort with the text instead. */
#define MUST(call)                                                                                  \
  do {                                                                                              \
    fp8_status status_ = (call);                                                                    \
    if (status_ != FP8_OK) {                                                                        \
      fp8_error error_;                                                                             \
      FP8_INIT(&error_);                                                                            \
      fp8_last_error(&error_);                                                                      \
      fprintf(stderr, "%s:%d: %s -> %s: %s\n", __FILE__, __LINE__, #call, fp8_status_name(status_), \
              error_.message ? error_.message : "");                                                \
      abort();                                                                                      \
    }                                                                                               \
  } while (0)
#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      abort();                                                                      \
    }                                                                               \
  } while (0)

static inline const char *rank_message(void) {
  static __thread fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  return error.message ? error.message : "";
}

/* The call fails with this status and its text names this. */
#define MUST_FAIL(call, status, text)                                                              \
  do {                                                                                             \
    fp8_status got_ = (call);                                                                      \
    if (got_ != (status) || !strstr(rank_message(), (text))) {                                     \
      fprintf(stderr, "%s:%d: %s -> %s: %s; expected %s naming '%s'\n", __FILE__, __LINE__, #call, \
              fp8_status_name(got_), rank_message(), fp8_status_name(status), (text));             \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

/* ---- memory of the context's device, from any thread ---- */
static inline int ranks_device(void);

static inline fp8_context *ranks_context(int threads) { /* FP8_TEST_BACKEND=cuda, else the CPU */
  const char *name = getenv("FP8_TEST_BACKEND");
  fp8_context_config config;
  fp8_context *c = NULL;
  FP8_INIT(&config);
  config.backend = name && !strcmp(name, "cuda") ? FP8_BACKEND_CUDA : FP8_BACKEND_CPU;
  config.threads = threads;
  if (config.backend == FP8_BACKEND_CUDA) config.device = ranks_device();
  MUST(fp8_context_create(&config, &c));
  return c;
}

static inline void *host_new(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  if (!p) abort();
  return p;
}

static inline void dev_put(const fp8_context *c, void *dst, const void *src, uint64_t bytes) {
  if (!bytes) return;
  MUST(fp8_buffer_copy(c, dst, src, bytes, NULL));
  MUST(fp8_stream_sync(c, NULL));
}

static inline void *dev_get(const fp8_context *c, const void *src, uint64_t bytes) { /* free() it */
  void *host = host_new(bytes);
  dev_put(c, host, src, bytes);
  return host;
}

/* Filled with one pattern when there is no source, so that what nobody writes compares equal. */
static inline fp8_buffer dev_new(const fp8_context *c, const void *src, uint64_t bytes) {
  fp8_buffer b;
  void *pattern = NULL;
  MUST(fp8_buffer_alloc(c, bytes ? bytes : 1, &b, NULL));
  if (!src) src = memset(pattern = host_new(bytes), 0xa5, bytes);
  dev_put(c, b.data, src, bytes);
  free(pattern);
  b.bytes = bytes;
  return b;
}

static inline void dev_free(const fp8_context *c, fp8_buffer *b) { fp8_buffer_free(c, b, NULL); }

typedef struct rank_call {
  int rank, size;
  fp8_comm *comm;
  const fp8_context *c;
  fp8_stream stream; /* its own */
  void *arg;
  void (*body)(struct rank_call *self);
  pthread_t thread;
} rank_call;

static inline void *rank_main(void *arg) {
  rank_call *self = (rank_call *)arg;
  MUST(fp8_stream_create(self->c, &self->stream));
  self->body(self);
  MUST(fp8_stream_sync(self->c, self->stream));
  fp8_stream_destroy(self->c, self->stream);
  return NULL;
}

#ifdef FP8_TEST_NCCL
#include "ranks_nccl.h"
#else
static inline int ranks_device(void) { /* the GPU, whichever is current */
  const char *device = getenv("FP8_TEST_DEVICE");
  return device ? atoi(device) : 0;
}
#endif

#ifdef FP8_TEST_MPI
/* The same programs under mpirun: this process is one rank, and jobs of another size pass it by. */
#include <mpi.h>

#include "fp8_mpi/fp8_mpi.h"

static inline void run_ranks(const fp8_context *context, int size, void (*body)(rank_call *), void *arg) {
  rank_call call = {0};
  MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &call.size);
  if (call.size != size) return;
  const char *flags = getenv("FP8_TEST_MPI_FLAGS");
  MUST(fp8_comm_create_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), flags ? (uint32_t)atoi(flags) : 0u, &call.comm));
  call.c = context;
  call.arg = arg;
  call.body = body;
  rank_main(&call);
  fp8_comm_destroy(call.comm);
}

#define RANKS_MAIN(...)                                 \
  int main(int argc, char **argv) {                     \
    const struct CMUnitTest tests[] = {__VA_ARGS__};    \
    int failed;                                         \
    MPI_Init(&argc, &argv);                             \
    failed = cmocka_run_group_tests(tests, NULL, NULL); \
    MPI_Finalize();                                     \
    return failed;                                      \
  }
#elif !defined(FP8_TEST_NCCL)
static inline void run_ranks(const fp8_context *context, int size, void (*body)(rank_call *), void *arg) {
  fp8_comm *comms[64];
  rank_call calls[64];
  int r;
  CHECK(size <= 64);
  MUST(fp8_comm_create_local(size, comms));
  for (r = 0; r < size; ++r) {
    rank_call c = {0};
    c.rank = r;
    c.size = size;
    c.comm = comms[r];
    c.c = context;
    c.arg = arg;
    c.body = body;
    calls[r] = c;
    CHECK(!pthread_create(&calls[r].thread, NULL, rank_main, &calls[r]));
  }
  for (r = 0; r < size; ++r) pthread_join(calls[r].thread, NULL);
  for (r = 0; r < size; ++r) fp8_comm_destroy(comms[r]);
}
#endif

static inline double seconds(void) { /* of a clock that only goes forward */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline uint32_t next_random(uint64_t *state) { /* splitmix64, high half */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* Values over many binades with zeros and a few specials, so that every tile has another scale. */
static inline void fill_random(float *x, int64_t n, uint64_t seed) {
  uint64_t s = seed;
  int64_t i;
  for (i = 0; i < n; ++i) {
    const uint32_t u = next_random(&s);
    const int binade = (int)(next_random(&s) % 24) - 16;
    x[i] = ldexpf(((float)(u >> 8) / 8388608.0f - 1.0f), binade);
    if (u % 101 == 0) x[i] = 0.0f;
    if (u % 997 == 0) x[i] = -0.0f;
    if (u % 4001 == 0) x[i] = NAN;
  }
}

static inline fp8_tensor tensor_1d(void *data, int32_t dtype, int64_t n) {
  fp8_tensor t = {0};
  t.data = data;
  t.dtype = dtype;
  t.ndim = 1;
  t.shape[0] = n;
  t.stride[0] = 1;
  return t;
}

static inline fp8_tensor tensor_2d(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t = {0};
  t.data = data;
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = cols;
  t.stride[0] = cols;
  t.stride[1] = 1;
  return t;
}

static inline fp8_recipe *preset_recipe(int preset, int rule, int rounding) { /* 0 = the preset's */
  fp8_recipe_config config;
  fp8_recipe *r = NULL;
  FP8_INIT(&config);
  MUST(fp8_recipe_config_preset(preset, &config));
  if (rule) config.scale_rule = rule;
  if (rounding) config.master_rounding = rounding;
  MUST(fp8_recipe_create(&config, &r));
  return r;
}

/* A weight described and placed in memory of its own. */
typedef struct weight {
  fp8_qtensor q;
  fp8_buffer memory;
} weight;

static inline weight make_weight(const fp8_context *c, const fp8_recipe *r, int64_t rows, int64_t cols,
                                 uint32_t sides) {
  weight w;
  uint64_t bytes = 0;
  FP8_INIT(&w.q);
  MUST(fp8_recipe_describe(r, c, FP8_ROLE_WEIGHT, rows, cols, sides | FP8_SIDE_COPY, &w.q));
  MUST(fp8_qtensor_bytes(&w.q, sides, &bytes));
  w.memory = dev_new(c, NULL, bytes);
  MUST(fp8_qtensor_place(&w.q, sides, &w.memory));
  return w;
}

/* The whole master, in device memory, quantized on one rank: what every sharded way must equal. */
static inline weight whole_weight(const fp8_context *c, const fp8_recipe *r, const void *master, int64_t rows,
                                  int64_t cols, uint32_t sides) {
  weight w = make_weight(c, r, rows, cols, sides);
  fp8_tensor x = tensor_2d((void *)(uintptr_t)master, FP8_DTYPE_F32, rows, cols);
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.q = &w.q;
  args.role = FP8_ROLE_WEIGHT;
  MUST(fp8_quantize(c, r, &args, NULL));
  return w;
}
#endif
