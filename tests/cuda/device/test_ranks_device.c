/* SPDX-License-Identifier: Apache-2.0 */
/* On several GPUs, over NCCL: linears on every device whichever is current, from threads of their own and from one
 * thread by turns, graphs of collectives replayed with
 * new data, a rank that stalls and one that is killed. PROGRAM RANKS process|thread */
#include <cuda_runtime_api.h>

#include "../../capi/routed.h"
#include "../../capi/sharded.h"

#define CUDA(call)                                                                                 \
  do {                                                                                             \
    cudaError_t error_ = (call);                                                                   \
    if (error_ != cudaSuccess) {                                                                   \
      fprintf(stderr, "%s:%d: %s -> %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

static void same(const fp8_context *c, const fp8_buffer *a, const fp8_buffer *b, const char *what) {
  char *x = (char *)dev_get(c, a->data, a->bytes), *y = (char *)dev_get(c, b->data, b->bytes);
  uint64_t i;
  CHECK(a->bytes == b->bytes);
  for (i = 0; i < a->bytes; ++i)
    if (x[i] != y[i]) {
      fprintf(stderr, "%s differs at byte %llu of %llu\n", what, (unsigned long long)i, (unsigned long long)a->bytes);
      abort();
    }
  free(x);
  free(y);
}

static uint16_t *random_bf16(int64_t n, uint64_t seed) {
  uint16_t *x = (uint16_t *)host_new(n * 2);
  int64_t i;
  for (i = 0; i < n; ++i) x[i] = to_bf16((float)(int32_t)next_random(&seed) / 2147483648.0f);
  return x;
}

/* ---- a linear on each device, its thread's current device being 0 ---- */
enum { kRows = 128, kIn = 256, kOut = 384, kSteps = 20 };

typedef struct linear_results {
  int preset;
  void *y[kGpus], *dx[kGpus], *dw[kGpus];
} linear_results;

static fp8_tensor tensor_from(const fp8_context *c, fp8_buffer *memory, int32_t dtype, int64_t rows, int64_t cols,
                              uint64_t seed) {
  uint16_t *host = seed ? random_bf16(rows * cols, seed) : NULL;
  *memory = dev_new(c, host, rows * cols * (dtype == FP8_DTYPE_F32 ? 4 : 2));
  free(host);
  return tensor_2d(memory->data, dtype, rows, cols);
}

typedef struct linear_case {
  const fp8_context *c;
  fp8_recipe *r;
  fp8_linear *l;
  fp8_buffer memory[6], x_side;
  weight w;
  fp8_tensor x, y, dy, dx, dw;
  fp8_qtensor saved;
} linear_case;

static void linear_open(linear_case *k, const fp8_context *c, int preset) {
  fp8_linear_config config;
  fp8_quantize_args q;
  fp8_tensor w;
  uint64_t bytes;
  memset(k, 0, sizeof *k);
  k->c = c;
  k->r = preset_recipe(preset, 0, 0);
  k->x = tensor_from(c, &k->memory[0], FP8_DTYPE_BF16, kRows, kIn, 1);
  w = tensor_from(c, &k->memory[1], FP8_DTYPE_BF16, kOut, kIn, 2);
  k->dy = tensor_from(c, &k->memory[2], FP8_DTYPE_BF16, kRows, kOut, 3);
  k->y = tensor_from(c, &k->memory[3], FP8_DTYPE_BF16, kRows, kOut, 0);
  k->dx = tensor_from(c, &k->memory[4], FP8_DTYPE_BF16, kRows, kIn, 0);
  k->dw = tensor_from(c, &k->memory[5], FP8_DTYPE_F32, kOut, kIn, 0);
  k->w = make_weight(c, k->r, kOut, kIn, FP8_SIDE_BOTH);
  FP8_INIT(&q);
  q.x = &w;
  q.q = &k->w.q;
  q.role = FP8_ROLE_WEIGHT;
  MUST(fp8_quantize(c, k->r, &q, NULL));
  MUST(fp8_stream_sync(c, NULL));
  FP8_INIT(&config);
  config.in_features = kIn;
  config.out_features = kOut;
  config.recipe = k->r;
  MUST(fp8_linear_create(c, &config, &k->l));
  FP8_INIT(&k->saved);
  MUST(fp8_linear_describe(k->l, FP8_ROLE_ACTIVATION, kRows, FP8_SIDE_COL, &k->saved));
  MUST(fp8_qtensor_bytes(&k->saved, FP8_SIDE_COL, &bytes));
  k->x_side = dev_new(c, NULL, bytes);
  MUST(fp8_qtensor_place(&k->saved, FP8_SIDE_COL, &k->x_side));
}

static void linear_step(linear_case *k, fp8_stream stream) {
  fp8_linear_forward_args f;
  fp8_linear_backward_args b;
  FP8_INIT(&f);
  f.x = &k->x, f.w = &k->w.q, f.y = &k->y, f.saved_x = &k->saved;
  FP8_INIT(&b);
  b.dy = &k->dy, b.w = &k->w.q, b.saved_x = &k->saved, b.dx = &k->dx, b.dw = &k->dw;
  MUST(fp8_linear_forward(k->l, &f, stream));
  MUST(fp8_linear_backward(k->l, &b, stream));
}

static void linear_close(linear_case *k, linear_results *results, int at) {
  int i;
  results->y[at] = dev_get(k->c, k->y.data, k->memory[3].bytes);
  results->dx[at] = dev_get(k->c, k->dx.data, k->memory[4].bytes);
  results->dw[at] = dev_get(k->c, k->dw.data, k->memory[5].bytes);
  fp8_linear_destroy(k->l);
  fp8_recipe_destroy(k->r);
  for (i = 0; i < 6; ++i) dev_free(k->c, &k->memory[i]);
  dev_free(k->c, &k->w.memory);
  dev_free(k->c, &k->x_side);
}

static void linear_compare(linear_results *results, int count) {
  int r;
  for (r = 1; r < count; ++r) {
    CHECK(!memcmp(results->y[0], results->y[r], kRows * kOut * 2));
    CHECK(!memcmp(results->dx[0], results->dx[r], kRows * kIn * 2));
    CHECK(!memcmp(results->dw[0], results->dw[r], kOut * kIn * 4));
  }
  for (r = 0; r < count; ++r) free(results->y[r]), free(results->dx[r]), free(results->dw[r]);
}

static void current_is(int want) {
  int device = -1;
  CUDA(cudaGetDevice(&device));
  CHECK(device == want);
}

static void linear_body(rank_call *self) {
  linear_results *results = (linear_results *)self->arg;
  linear_case k;
  int step;
  linear_open(&k, self->c, results->preset);
  for (step = 0; step < kSteps; ++step) linear_step(&k, self->stream);
  MUST(fp8_stream_sync(self->c, self->stream));
  current_is(0);
  linear_close(&k, results, self->rank);
}

static const int kLinears[] = {FP8_PRESET_NONE, FP8_PRESET_TENSOR, FP8_PRESET_BLOCK, FP8_PRESET_MX};

static void linear_everywhere(void **state) {
  size_t p;
  (void)state;
  if (g_nccl.processes) return; /* the ranks' results are compared in one process */
  for (p = 0; p < sizeof kLinears / sizeof *kLinears; ++p) {
    linear_results results;
    memset(&results, 0, sizeof results);
    results.preset = kLinears[p];
    run_ranks(NULL, g_nccl.size, linear_body, &results);
    linear_compare(&results, g_nccl.size);
  }
}

/* ---- one thread, a context a device, by turns; whichever device is current ---- */
static void *linear_turns(void *arg) {
  const int current = *(int *)arg, size = g_nccl.size;
  fp8_context *contexts[kGpus];
  fp8_stream streams[kGpus];
  linear_case cases[kGpus];
  size_t p;
  int r, step;
  CUDA(cudaSetDevice(current));
  for (r = 0; r < size; ++r) {
    fp8_context_config config;
    FP8_INIT(&config);
    config.backend = FP8_BACKEND_CUDA;
    config.device = r;
    MUST(fp8_context_create(&config, &contexts[r]));
    MUST(fp8_stream_create(contexts[r], &streams[r]));
  }
  current_is(current);
  for (p = 0; p < sizeof kLinears / sizeof *kLinears; ++p) {
    linear_results results;
    memset(&results, 0, sizeof results);
    for (r = 0; r < size; ++r) linear_open(&cases[r], contexts[r], kLinears[p]);
    for (step = 0; step < kSteps; ++step)
      for (r = 0; r < size; ++r) linear_step(&cases[r], streams[r]);
    current_is(current);
    for (r = 0; r < size; ++r) {
      MUST(fp8_stream_sync(contexts[r], streams[r]));
      linear_close(&cases[r], &results, r);
    }
    linear_compare(&results, size);
  }
  for (r = 0; r < size; ++r) {
    fp8_stream_destroy(contexts[r], streams[r]);
    fp8_context_destroy(contexts[r]);
  }
  current_is(current);
  return NULL;
}

/* Two such threads at once, other devices being current, each with contexts of its own. */
static void linear_by_turns(void **state) {
  pthread_t threads[2];
  int current[2] = {0, 1}, i;
  (void)state;
  if (g_nccl.processes) return;
  for (i = 0; i < 2; ++i) CHECK(!pthread_create(&threads[i], NULL, linear_turns, &current[i]));
  for (i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}

/* ---- graphs ---- */
static void begin_capture(fp8_stream s) {
  CUDA(cudaStreamBeginCapture((cudaStream_t)s, cudaStreamCaptureModeThreadLocal));
}

static cudaGraphExec_t end_capture(fp8_stream s) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamEndCapture((cudaStream_t)s, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphDestroy(graph));
  return exec;
}

static void replay(rank_call *self, cudaGraphExec_t exec) {
  CUDA(cudaGraphLaunch(exec, (cudaStream_t)self->stream));
  MUST(fp8_comm_wait(self->comm, self->stream, 20000));
}

static void param_graph(rank_call *self, int preset) {
  sharded s;
  rank_list l;
  weight full[2];
  fp8_qtensor *at[2] = {&full[0].q, &full[1].q};
  fp8_buffer workspace;
  cudaGraphExec_t exec;
  uint64_t random = 5;
  int i, round, r;
  memset(&s, 0, sizeof s);
  s.c = self->c;
  s.recipe = preset_recipe(preset, 0, 0);
  s.count = 2;
  s.world = self->size;
  s.rows[0] = 130, s.cols[0] = 200, s.rows[1] = 512 * self->size, s.cols[1] = 1024;
  random_cuts(s.cuts[0], s.world, 130 * 200, &random);
  for (r = 0; r <= s.world; ++r) s.cuts[1][r] = 512 * 1024 * r;
  make_reference(&s, 11);
  open_rank(&s, self->rank, FP8_SIDE_BOTH, &l);
  workspace = dev_new(self->c, NULL, l.layout.workspace_bytes);
  for (i = 0; i < 2; ++i) full[i] = make_weight(self->c, s.recipe, s.rows[i], s.cols[i], FP8_SIDE_BOTH);
  l.args.full = at;
  l.args.workspace = &workspace;
  begin_capture(self->stream);
  MUST(fp8_param_quantize(self->c, self->comm, &l.args, self->stream));
  MUST(fp8_param_gather(self->c, self->comm, &l.args, self->stream));
  exec = end_capture(self->stream);
  for (round = 0; round < 3; ++round) {
    replay(self, exec);
    for (i = 0; i < 2; ++i) same(self->c, &full[i].memory, &s.whole[i].memory, "a weight of a graph");
    for (i = 0; i < 2; ++i) { /* other masters */
      const int64_t n = s.rows[i] * s.cols[i];
      float *host = (float *)host_new(n * 4);
      fill_random(host, n, 100 * round + i + 1);
      dev_put(self->c, s.master[i].data, host, n * 4);
      free(host);
      dev_free(self->c, &s.whole[i].memory);
      s.whole[i] = whole_weight(self->c, s.recipe, s.master[i].data, s.rows[i], s.cols[i], FP8_SIDE_BOTH);
    }
    MUST(fp8_stream_sync(self->c, NULL));
  }
  CUDA(cudaGraphExecDestroy(exec));
  close_rank(&s, &l);
  free_reference(&s);
  for (i = 0; i < 2; ++i) dev_free(self->c, &full[i].memory);
  dev_free(self->c, &workspace);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)s.recipe);
}

static void activation_graph(rank_call *self, int preset) {
  const int64_t rows = 256, cols = 384, all = rows * self->size;
  fp8_recipe *r = preset_recipe(preset, 0, 0);
  sided part = make_rows(self->c, r, rows, cols), full = make_rows(self->c, r, all, cols),
        want = make_rows(self->c, r, all, cols);
  fp8_buffer x = dev_new(self->c, NULL, all * cols * 2), workspace;
  fp8_tensor own = tensor_2d((uint16_t *)x.data + self->rank * rows * cols, FP8_DTYPE_BF16, rows, cols);
  fp8_quantize_args args;
  cudaGraphExec_t exec;
  uint64_t bytes;
  int round;
  MUST(fp8_all_gather_workspace(self->c, self->comm, &part.q, FP8_SIDE_ROW, &full.q, &bytes));
  workspace = dev_new(self->c, NULL, bytes);
  FP8_INIT(&args);
  args.x = &own;
  args.q = &part.q;
  args.role = FP8_ROLE_ACTIVATION;
  begin_capture(self->stream);
  MUST(fp8_quantize(self->c, r, &args, self->stream));
  MUST(fp8_all_gather(self->c, self->comm, &part.q, FP8_SIDE_ROW, &full.q, &workspace, self->stream));
  exec = end_capture(self->stream);
  for (round = 0; round < 3; ++round) {
    uint16_t *host = random_bf16(all * cols, 7 + round);
    dev_put(self->c, x.data, host, all * cols * 2);
    free(host);
    quantize_rows(self->c, r, x.data, &want, self->stream);
    replay(self, exec);
    same(self->c, &full.memory, &want.memory, "an activation of a graph");
  }
  CUDA(cudaGraphExecDestroy(exec));
  dev_free(self->c, &part.memory);
  dev_free(self->c, &full.memory);
  dev_free(self->c, &want.memory);
  dev_free(self->c, &x);
  dev_free(self->c, &workspace);
  fp8_recipe_destroy(r);
}

static void dispatch_graph(rank_call *self, int preset) {
  enum { kTokens = 40, kHidden = 256, kSlots = 3, kExperts = 2 };
  fp8_recipe *r = preset_recipe(preset, 0, 0);
  int32_t ids[kTokens * kSlots];
  uint64_t random = 50 + self->rank, bytes;
  fp8_buffer x, dev_ids, memory, workspace, sum[2], rows_of;
  fp8_tensor t_ids, t_rows, t_sum[2];
  sided tokens = make_rows(self->c, r, kTokens, kHidden), got, want;
  fp8_dispatch_config config;
  fp8_dispatch_plan *plan = NULL;
  fp8_quantize_args args;
  fp8_tensor t_x;
  cudaGraphExec_t exec;
  int64_t rows, most;
  int i, round;
  for (i = 0; i < kTokens * kSlots; ++i) ids[i] = (int32_t)(next_random(&random) % (uint32_t)(self->size * kExperts));
  dev_ids = dev_new(self->c, ids, sizeof ids);
  t_ids = tensor_2d(dev_ids.data, FP8_DTYPE_I32, kTokens, kSlots);
  FP8_INIT(&config);
  config.expert_ids = &t_ids;
  config.recipe = r;
  config.tokens = config.max_tokens = kTokens;
  config.hidden = kHidden;
  config.k = kSlots;
  config.experts_per_rank = kExperts;
  MUST(fp8_dispatch_plan_sizes(self->c, self->comm, &config, &bytes, &most));
  memory = dev_new(self->c, NULL, bytes);
  config.memory = &memory;
  MUST(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan));
  MUST(fp8_dispatch_plan_query(plan, &rows, NULL, NULL, &bytes));
  workspace = dev_new(self->c, NULL, bytes);
  got = make_rows(self->c, r, rows, kHidden);
  want = make_rows(self->c, r, rows, kHidden);
  x = dev_new(self->c, NULL, kTokens * kHidden * 2);
  t_x = tensor_2d(x.data, FP8_DTYPE_BF16, kTokens, kHidden);
  rows_of = dev_new(self->c, NULL, rows * kHidden * 2);
  t_rows = tensor_2d(rows_of.data, FP8_DTYPE_BF16, rows, kHidden);
  for (i = 0; i < 2; ++i) {
    sum[i] = dev_new(self->c, NULL, kTokens * kHidden * 4);
    t_sum[i] = tensor_2d(sum[i].data, FP8_DTYPE_F32, kTokens, kHidden);
  }
  FP8_INIT(&args);
  args.x = &t_x;
  args.q = &tokens.q;
  args.role = FP8_ROLE_ACTIVATION;
  begin_capture(self->stream);
  MUST(fp8_quantize(self->c, r, &args, self->stream));
  MUST(fp8_dispatch(plan, &tokens.q, &got.q, &workspace, self->stream));
  MUST(fp8_dispatch_backward(plan, &t_rows, &t_sum[0], &workspace, self->stream));
  exec = end_capture(self->stream);
  for (round = 0; round < 3; ++round) {
    uint16_t *host = random_bf16(kTokens * kHidden, 70 + 10 * self->rank + round);
    dev_put(self->c, x.data, host, kTokens * kHidden * 2);
    free(host);
    host = random_bf16(rows * kHidden, 90 + 10 * self->rank + round);
    dev_put(self->c, rows_of.data, host, rows * kHidden * 2);
    free(host);
    quantize_rows(self->c, r, x.data, &tokens, self->stream);
    MUST(fp8_dispatch(plan, &tokens.q, &want.q, &workspace, self->stream));
    MUST(fp8_dispatch_backward(plan, &t_rows, &t_sum[1], &workspace, self->stream));
    replay(self, exec);
    same(self->c, &got.memory, &want.memory, "tokens of a graph");
    same(self->c, &sum[0], &sum[1], "gradients of a graph");
  }
  CUDA(cudaGraphExecDestroy(exec));
  fp8_dispatch_plan_destroy(plan);
  dev_free(self->c, &dev_ids);
  dev_free(self->c, &memory);
  dev_free(self->c, &workspace);
  dev_free(self->c, &x);
  dev_free(self->c, &rows_of);
  for (i = 0; i < 2; ++i) dev_free(self->c, &sum[i]);
  dev_free(self->c, &tokens.memory);
  dev_free(self->c, &got.memory);
  dev_free(self->c, &want.memory);
  fp8_recipe_destroy(r);
}

static void graph_body(rank_call *self) {
  static const int weights[] = {FP8_PRESET_TENSOR, FP8_PRESET_BLOCK, FP8_PRESET_MX_W2D, FP8_PRESET_MX},
                   activations[] = {FP8_PRESET_NONE, FP8_PRESET_ROW, FP8_PRESET_BLOCK, FP8_PRESET_MX};
  int i;
  for (i = 0; i < 4; ++i) {
    param_graph(self, weights[i]);
    activation_graph(self, activations[i]);
    dispatch_graph(self, activations[i]);
  }
}

static void graphs(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, g_nccl.size, graph_body, NULL);
  fp8_context_destroy(c);
}

/* ---- faults ---- */
/* The last rank does not come: the others give up in time, may go on with their streams, and are told again. */
static void fault_body(rank_call *self) {
  const int killed = self->arg != NULL;
  sharded s;
  rank_list l;
  weight full;
  fp8_qtensor *at[1] = {&full.q};
  double begin;
  int r;
  fp8_status status;
  memset(&s, 0, sizeof s);
  s.c = self->c;
  s.recipe = preset_recipe(FP8_PRESET_TENSOR, 0, 0);
  s.count = 1;
  s.world = self->size;
  s.rows[0] = 512 * self->size, s.cols[0] = 1024;
  for (r = 0; r <= s.world; ++r) s.cuts[0][r] = 512 * 1024 * r;
  make_reference(&s, 1);
  check_rank(&s, self->comm, self->rank, self->stream, 0); /* all is well */
  if (self->rank == self->size - 1) {
    if (killed) kill(getpid(), SIGKILL);
    while (__atomic_load_n(&g_nccl.board->done, __ATOMIC_ACQUIRE) < self->size - 1) usleep(1000);
    free_reference(&s);
    fp8_recipe_destroy((fp8_recipe *)(uintptr_t)s.recipe);
    return;
  }
  open_rank(&s, self->rank, FP8_SIDE_BOTH, &l);
  full = make_weight(self->c, s.recipe, s.rows[0], s.cols[0], FP8_SIDE_BOTH);
  l.args.full = at;
  begin = seconds();
  status = fp8_param_quantize(self->c, self->comm, &l.args, self->stream);
  if (status == FP8_OK) status = fp8_param_gather(self->c, self->comm, &l.args, self->stream);
  if (status == FP8_OK) status = fp8_comm_wait(self->comm, self->stream, 2000);
  if (self->rank == 0)
    printf("%s: after %.2f s: %s: %s\n", killed ? "killed" : "stalled", seconds() - begin, fp8_status_name(status),
           rank_message());
  CHECK(status == FP8_ERR_COMM && seconds() - begin < 4.0);
  CHECK(fp8_comm_status(self->comm) == FP8_ERR_COMM);
  CHECK(fp8_param_quantize(self->c, self->comm, &l.args, self->stream) == FP8_ERR_COMM);
  MUST(fp8_stream_sync(self->c, self->stream));
  dev_free(self->c, &s.whole[0].memory); /* the device still works */
  s.whole[0] = whole_weight(self->c, s.recipe, s.master[0].data, s.rows[0], s.cols[0], FP8_SIDE_BOTH);
  MUST(fp8_stream_sync(self->c, NULL));
  __atomic_fetch_add(&g_nccl.board->done, 1, __ATOMIC_ACQ_REL);
  close_rank(&s, &l);
  dev_free(self->c, &full.memory);
  free_reference(&s);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)s.recipe);
}

static void stalled_rank(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, g_nccl.size, fault_body, NULL);
  nccl_close();
  fp8_context_destroy(c);
}

static void killed_rank(void **state) {
  fp8_context *c;
  (void)state;
  if (!g_nccl.processes) return;
  c = ranks_context(1);
  g_nccl.mourned = 1;
  run_ranks(c, g_nccl.size, fault_body, c);
  nccl_close();
  fp8_context_destroy(c);
}

RANKS_MAIN(cmocka_unit_test(linear_everywhere), cmocka_unit_test(linear_by_turns), cmocka_unit_test(graphs),
           cmocka_unit_test(stalled_rank), cmocka_unit_test(killed_rank))
