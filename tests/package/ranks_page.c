/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the steps that docs/ranks.md shows, which snippet.py puts into page.h, on ranks that are threads, and compares
 * what they give with one rank's. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "page.h"

enum { RANKS = 2, TOKENS = 128, WIDTH = 256, EXPERTS = 2, K = 2 };

static float master_of(int64_t i) { return (float)(i % 61 - 25) / 1024; }
static uint16_t token_of(int rank, int64_t i) { return (uint16_t)(0x3f00 + (i * 7 + rank) % 100); }

static fp8_buffer room(const Rank *r, uint64_t bytes) { /* zeroed; this short program keeps it */
  fp8_buffer b;
  must(fp8_buffer_alloc(r->c, bytes, &b, r->stream));
  must(fp8_buffer_zero(r->c, b.data, bytes, r->stream));
  return b;
}

static fp8_tensor matrix(const Rank *r, int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t = {NULL, 0, 2, {0}, {0}};
  t.dtype = dtype;
  t.shape[0] = rows;
  t.shape[1] = t.stride[0] = cols;
  t.stride[1] = 1;
  t.data = room(r, (uint64_t)(rows * cols) * 4).data;
  return t;
}

static fp8_qtensor quantized(const Rank *r, int32_t role, int64_t rows) {
  fp8_qtensor q;
  fp8_buffer b;
  uint64_t bytes;
  FP8_INIT(&q);
  must(fp8_recipe_describe(r->recipe, r->c, role, rows, WIDTH, FP8_SIDE_BOTH, &q));
  must(fp8_qtensor_bytes(&q, FP8_SIDE_BOTH, &bytes));
  b = room(r, bytes);
  must(fp8_qtensor_place(&q, FP8_SIDE_BOTH, &b));
  return q;
}

static float value(const fp8_tensor *t, int64_t i) { /* BF16 */
  const uint32_t bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static void check(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static int same(const fp8_qtensor *a, const fp8_qtensor *b, int64_t rows) { /* codes of both sides */
  return !memcmp(a->row.data, b->row.data, (size_t)(rows * WIDTH)) &&
         !memcmp(a->col.data, b->col.data, (size_t)(rows * WIDTH));
}

static void quantize(const Rank *r, int32_t role, const fp8_tensor *x, fp8_qtensor *q) {
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = x;
  args.q = q;
  args.role = role;
  must(fp8_quantize(r->c, r->recipe, &args, r->stream));
}

static void *rank_main(void *arg) {
  Rank *r = arg;
  fp8_context_config config;
  fp8_linear_config layer;
  fp8_linear *linear;
  uint64_t bytes;
  int64_t i, c;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CPU;
  config.threads = 1;
  must(fp8_context_create(&config, &r->c));
  must(fp8_recipe_from_string("block", &r->recipe));
  must(fp8_stream_create(r->c, &r->stream));
  FP8_INIT(&layer);
  layer.in_features = layer.out_features = WIDTH;
  layer.recipe = r->recipe;
  must(fp8_linear_create(r->c, &layer, &linear));

  /* ZeRO-1: one weight, cut inside a row */
  const int64_t cuts[RANKS + 1] = {0, 100 * WIDTH + 7, WIDTH * WIDTH}, own = cuts[r->rank + 1] - cuts[r->rank];
  fp8_tensor master = {NULL, FP8_DTYPE_F32, 1, {0}, {1}};
  const fp8_tensor *masters[] = {&master};
  fp8_qtensor w = quantized(r, FP8_ROLE_WEIGHT, WIDTH), *weights[] = {&w};
  fp8_param_config param;
  fp8_param *params[1];
  fp8_param_layout layout;
  FP8_INIT(&param);
  param.rows = param.cols = WIDTH;
  param.cuts = cuts;
  param.world = r->size;
  param.rank = r->rank;
  param.recipe = r->recipe;
  must(fp8_param_create(r->c, &param, &params[0]));
  must(fp8_param_check(r->c, r->comm, (const fp8_param *const *)params, 1)); /* once */
  FP8_INIT(&layout);
  must(fp8_param_sizes((const fp8_param *const *)params, 1, FP8_SIDE_BOTH, &layout));
  fp8_buffer amax = room(r, layout.amax_bytes), shard = room(r, layout.row_bytes + layout.col_bytes);
  master.shape[0] = own;
  master.data = room(r, (uint64_t)own * 4).data;
  for (i = 0; i < own; ++i) ((float *)master.data)[i] = master_of(cuts[r->rank] + i);
  publish_weights(r, (const fp8_param *const *)params, masters, weights, 1, &amax, &shard);
  fp8_tensor whole = matrix(r, FP8_DTYPE_F32, WIDTH, WIDTH);
  fp8_qtensor uncut = quantized(r, FP8_ROLE_WEIGHT, WIDTH);
  for (i = 0; i < WIDTH * WIDTH; ++i) ((float *)whole.data)[i] = master_of(i);
  quantize(r, FP8_ROLE_WEIGHT, &whole, &uncut);
  check(same(&w, &uncut, WIDTH), "weights are not those of one rank");

  /* tensor parallel */
  fp8_tensor x = matrix(r, FP8_DTYPE_BF16, TOKENS, WIDTH), y = matrix(r, FP8_DTYPE_BF16, RANKS * TOKENS, WIDTH);
  fp8_tensor dx = matrix(r, FP8_DTYPE_F32, RANKS * TOKENS, WIDTH), dw = matrix(r, FP8_DTYPE_F32, WIDTH, WIDTH);
  fp8_qtensor part = quantized(r, FP8_ROLE_ACTIVATION, TOKENS), all = quantized(r, FP8_ROLE_ACTIVATION, RANKS * TOKENS);
  for (i = 0; i < TOKENS * WIDTH; ++i) ((uint16_t *)x.data)[i] = token_of(r->rank, i);
  column_parallel_forward(r, linear, &x, &part, &all, &w, &y);
  column_parallel_backward(r, linear, &y, &part, &all, &w, &dx, &dw);
  fp8_tensor all_x = matrix(r, FP8_DTYPE_BF16, RANKS * TOKENS, WIDTH);
  fp8_qtensor one = quantized(r, FP8_ROLE_ACTIVATION, RANKS * TOKENS);
  for (i = 0; i < RANKS * TOKENS * WIDTH; ++i)
    ((uint16_t *)all_x.data)[i] = token_of((int)(i / (TOKENS * WIDTH)), i % (TOKENS * WIDTH));
  quantize(r, FP8_ROLE_ACTIVATION, &all_x, &one);
  check(same(&all, &one, RANKS * TOKENS), "gathered activations are not those of one rank");

  /* expert parallel */
  fp8_tensor ids = matrix(r, FP8_DTYPE_I32, TOKENS, K), gate = matrix(r, FP8_DTYPE_F32, TOKENS, K);
  fp8_dispatch_config route;
  fp8_dispatch_plan *plan;
  int64_t rows, most, ends[EXPERTS];
  for (i = 0; i < TOKENS * K; ++i) {
    ((int32_t *)ids.data)[i] = (int32_t)(i % (RANKS * EXPERTS));
    ((float *)gate.data)[i] = 1.0f / K;
  }
  FP8_INIT(&route);
  route.expert_ids = &ids;
  route.recipe = r->recipe;
  route.tokens = route.max_tokens = TOKENS;
  route.hidden = WIDTH;
  route.k = K;
  route.experts_per_rank = EXPERTS;
  must(fp8_dispatch_plan_sizes(r->c, r->comm, &route, &bytes, &most));
  fp8_buffer tables = room(r, bytes);
  route.memory = &tables;
  must(fp8_dispatch_plan_create(r->c, r->comm, &route, r->stream, &plan)); /* waits: counts are exchanged */
  must(fp8_dispatch_plan_query(plan, &rows, ends, NULL, NULL));
  fp8_qtensor grouped = quantized(r, FP8_ROLE_ACTIVATION, rows), expert_w[EXPERTS] = {w, w};
  fp8_tensor out = matrix(r, FP8_DTYPE_BF16, rows, WIDTH), dout = matrix(r, FP8_DTYPE_BF16, rows, WIDTH);
  fp8_tensor dgrouped = matrix(r, FP8_DTYPE_BF16, rows, WIDTH), dgate = matrix(r, FP8_DTYPE_F32, TOKENS, K);
  fp8_tensor sum = matrix(r, FP8_DTYPE_BF16, TOKENS, WIDTH), dsum = matrix(r, FP8_DTYPE_BF16, TOKENS, WIDTH);
  fp8_tensor expert_dw[EXPERTS] = {matrix(r, FP8_DTYPE_F32, WIDTH, WIDTH), matrix(r, FP8_DTYPE_F32, WIDTH, WIDTH)};
  experts_forward(r, plan, linear, EXPERTS, ends, &part, &grouped, expert_w, &out, &gate, &sum);
  experts_backward(r, plan, linear, EXPERTS, ends, &grouped, expert_w, &out, &gate, &sum, &dout, &dgate, &dgrouped,
                   expert_dw, &dsum);
  /* every expert is one linear here, twice a token at half the weight: what the linear alone gives for y; dy is y, at
   * half the weight and twice: its dx */
  for (i = 0; i < TOKENS; ++i)
    for (c = 0; c < WIDTH; ++c) {
      const float want = value(&y, (r->rank * TOKENS + i) * WIDTH + c), got = value(&sum, i * WIDTH + c);
      const float dwant = ((float *)dx.data)[(r->rank * TOKENS + i) * WIDTH + c], dgot = value(&dsum, i * WIDTH + c);
      check(fabsf(got - want) <= fabsf(want) / 64 + 1e-3f, "the experts' sum is not the linear's y");
      check(fabsf(dgot - dwant) <= 0.05f * fabsf(dwant) + 0.05f, "the experts' gradient is not the linear's dx");
    }
  check(((float *)dgate.data)[0] > 0 && ((float *)expert_dw[1].data)[0] != 0,
        "gradients of gates or experts are missing");

  must(fp8_comm_wait(r->comm, r->stream, 10000));
  fp8_dispatch_plan_destroy(plan);
  fp8_param_destroy(params[0]);
  fp8_linear_destroy(linear);
  return NULL;
}

int main(void) {
  fp8_comm *comms[RANKS];
  Rank ranks[RANKS];
  pthread_t threads[RANKS];
  int i;
  must(fp8_comm_create_local(RANKS, comms));
  memset(ranks, 0, sizeof ranks);
  for (i = 0; i < RANKS; ++i) {
    ranks[i].comm = comms[i];
    must(fp8_comm_query(comms[i], &ranks[i].rank, &ranks[i].size, NULL));
    pthread_create(&threads[i], NULL, rank_main, &ranks[i]);
  }
  for (i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < RANKS; ++i) fp8_comm_destroy(comms[i]);
  return 0;
}
