/* SPDX-License-Identifier: Apache-2.0 */
/* Z6: quantizing the dispatched tokens equals dispatching the quantized ones, codes and scales, bit for bit; combine
 * and the two backwards equal sums written out here in the documented order. */
#include "routed.h"

/* An expert's output for a token: any function will do. */
static uint16_t expert_value(const job *j, int expert, int source, int64_t token, int64_t c) {
  return to_bf16(from_bf16(j->x[source][token * j->hidden + c]) * (float)(1 + expert) + (float)(c % 7) - 3.0f);
}

static int names_expert(const job *j, int source, int64_t token, int expert) { /* first slot that does, or -1 */
  int s;
  for (s = 0; s < j->k; ++s)
    if (j->ids[source][token * j->k + s] == expert) return s;
  return -1;
}

/* Rows of this rank's groups in order: source and token of each, -1 for padding. */
typedef struct groups {
  int64_t rows, ends[16], counts[16];
  int *source;
  int64_t *token;
  int *expert;
} groups;

static groups expected_groups(const job *j, int rank, int64_t alignment) {
  const int64_t room = (int64_t)j->world * kMaxTokens * j->experts + j->experts * alignment;
  groups g;
  int e, s;
  int64_t t;
  memset(&g, 0, sizeof g);
  g.source = (int *)host_new(room * sizeof(int));
  g.token = (int64_t *)host_new(room * sizeof(int64_t));
  g.expert = (int *)host_new(room * sizeof(int));
  for (e = 0; e < j->experts; ++e) {
    const int64_t begin = g.rows;
    for (s = 0; s < j->world; ++s)
      for (t = 0; t < j->tokens[s]; ++t)
        if (names_expert(j, s, t, rank * j->experts + e) >= 0) {
          g.source[g.rows] = s;
          g.token[g.rows] = t;
          g.expert[g.rows++] = rank * j->experts + e;
        }
    g.counts[e] = g.rows - begin;
    while (g.rows % alignment) g.source[g.rows++] = -1;
    g.ends[e] = g.rows;
  }
  return g;
}

static void free_groups(groups *g) {
  free(g->source);
  free(g->token);
  free(g->expert);
}

static void same_bytes(const fp8_context *c, const void *device, const void *host, uint64_t bytes, const char *what) {
  uint8_t *got = (uint8_t *)dev_get(c, device, bytes);
  uint64_t i;
  for (i = 0; i < bytes; ++i)
    if (got[i] != ((const uint8_t *)host)[i]) {
      fprintf(stderr, "%s differs at byte %llu of %llu\n", what, (unsigned long long)i, (unsigned long long)bytes);
      abort();
    }
  free(got);
}

static void check_forward(const job *j, rank_call *self, const fp8_dispatch_plan *plan, const groups *g,
                          const fp8_buffer *ws) {
  const int64_t h = j->hidden, n = j->tokens[self->rank];
  fp8_buffer x = dev_new(self->c, j->x[self->rank], n * h * 2), dense;
  sided tokens = make_rows(self->c, j->recipe, n, h), got = make_rows(self->c, j->recipe, g->rows, h),
        want = make_rows(self->c, j->recipe, g->rows, h);
  uint16_t *rows = (uint16_t *)calloc(g->rows * h + 1, 2);
  void *bytes;
  int64_t i;
  quantize_rows(self->c, j->recipe, x.data, &tokens, self->stream);
  MUST(fp8_dispatch(plan, &tokens.q, &got.q, ws, self->stream));
  MUST(fp8_stream_sync(self->c, self->stream));
  for (i = 0; i < g->rows; ++i)
    if (g->source[i] >= 0) memcpy(rows + i * h, j->x[g->source[i]] + g->token[i] * h, h * 2);
  dense = dev_new(self->c, rows, g->rows * h * 2);
  quantize_rows(self->c, j->recipe, dense.data, &want, self->stream);
  bytes = dev_get(self->c, want.memory.data, want.memory.bytes);
  same_bytes(self->c, got.memory.data, bytes, got.memory.bytes, "grouped");
  free(bytes);
  free(rows);
  dev_free(self->c, &x);
  dev_free(self->c, &dense);
  dev_free(self->c, &tokens.memory);
  dev_free(self->c, &got.memory);
  dev_free(self->c, &want.memory);
}

static void check_combine(const job *j, rank_call *self, const fp8_dispatch_plan *plan, const groups *g,
                          const fp8_buffer *ws) {
  const int64_t h = j->hidden, n = j->tokens[self->rank];
  uint16_t *rows = (uint16_t *)host_new(g->rows * h * 2), *want16 = (uint16_t *)host_new(n * h * 2);
  float *want32 = (float *)host_new(n * h * 4);
  fp8_buffer dev_rows, dev_weights = dev_new(self->c, j->weights[self->rank], n * j->k * 4),
                       out16 = dev_new(self->c, NULL, n * h * 2), out32 = dev_new(self->c, NULL, n * h * 4);
  fp8_tensor in, weights, y;
  int64_t i, t, c;
  int s;
  for (i = 0; i < g->rows; ++i)
    for (c = 0; c < h; ++c)
      rows[i * h + c] = g->source[i] < 0 ? 0x7fc0 /* padding is not read */
                                         : expert_value(j, g->expert[i], g->source[i], g->token[i], c);
  dev_rows = dev_new(self->c, rows, g->rows * h * 2);
  for (t = 0; t < n; ++t)
    for (c = 0; c < h; ++c) {
      float weighted = 0, plain = 0;
      for (s = 0; s < j->k; ++s) {
        const int expert = j->ids[self->rank][t * j->k + s];
        float v;
        if (expert < 0) continue;
        v = from_bf16(expert_value(j, expert, self->rank, t, c));
        weighted += j->weights[self->rank][t * j->k + s] * v;
        plain += v;
      }
      want16[t * h + c] = to_bf16(weighted);
      want32[t * h + c] = plain;
    }
  in = tensor_2d(dev_rows.data, FP8_DTYPE_BF16, g->rows, h);
  weights = tensor_2d(dev_weights.data, FP8_DTYPE_F32, n, j->k);
  y = tensor_2d(out16.data, FP8_DTYPE_BF16, n, h);
  MUST(fp8_combine(plan, &in, &weights, &y, ws, self->stream));
  y = tensor_2d(out32.data, FP8_DTYPE_F32, n, h);
  MUST(fp8_dispatch_backward(plan, &in, &y, ws, self->stream));
  MUST(fp8_stream_sync(self->c, self->stream));
  same_bytes(self->c, out16.data, want16, n * h * 2, "combined");
  same_bytes(self->c, out32.data, want32, n * h * 4, "dtokens");
  free(rows);
  free(want16);
  free(want32);
  dev_free(self->c, &dev_rows);
  dev_free(self->c, &dev_weights);
  dev_free(self->c, &out16);
  dev_free(self->c, &out32);
}

/* Lanes of 256, folded in halves. */
static float dot(const job *j, int source, int64_t token, int expert) {
  float lane[256] = {0};
  int64_t c;
  int half, l;
  for (c = 0; c < j->hidden; ++c)
    lane[c % 256] +=
        from_bf16(j->dy[source][token * j->hidden + c]) * from_bf16(expert_value(j, expert, source, token, c));
  for (half = 128; half; half /= 2)
    for (l = 0; l < half; ++l) lane[l] += lane[l + half];
  return lane[0];
}

static void check_backward(const job *j, rank_call *self, const fp8_dispatch_plan *plan, const groups *g,
                           const fp8_buffer *ws) {
  const int64_t h = j->hidden, n = j->tokens[self->rank];
  uint16_t *rows = (uint16_t *)host_new(g->rows * h * 2), *want = (uint16_t *)calloc(g->rows * h + 1, 2);
  float *want_w = (float *)host_new(n * j->k * 4);
  fp8_buffer dy = dev_new(self->c, j->dy[self->rank], n * h * 2),
             w = dev_new(self->c, j->weights[self->rank], n * j->k * 4), dev_rows,
             drows = dev_new(self->c, NULL, g->rows * h * 2), dw = dev_new(self->c, NULL, n * j->k * 4);
  fp8_tensor t_dy = tensor_2d(dy.data, FP8_DTYPE_BF16, n, h), t_w = tensor_2d(w.data, FP8_DTYPE_F32, n, j->k), t_rows,
             t_drows = tensor_2d(drows.data, FP8_DTYPE_BF16, g->rows, h),
             t_dw = tensor_2d(dw.data, FP8_DTYPE_F32, n, j->k);
  fp8_combine_backward_args args;
  int64_t i, c, t;
  int s;
  for (i = 0; i < g->rows; ++i) {
    float weight = 0;
    if (g->source[i] < 0) {
      memset(rows + i * h, 0, h * 2);
      continue;
    }
    for (s = 0; s < j->k; ++s)
      if (j->ids[g->source[i]][g->token[i] * j->k + s] == g->expert[i])
        weight += j->weights[g->source[i]][g->token[i] * j->k + s];
    for (c = 0; c < h; ++c) {
      rows[i * h + c] = expert_value(j, g->expert[i], g->source[i], g->token[i], c);
      want[i * h + c] = to_bf16(weight * from_bf16(j->dy[g->source[i]][g->token[i] * h + c]));
    }
  }
  dev_rows = dev_new(self->c, rows, g->rows * h * 2);
  t_rows = tensor_2d(dev_rows.data, FP8_DTYPE_BF16, g->rows, h);
  for (t = 0; t < n; ++t)
    for (s = 0; s < j->k; ++s) {
      const int expert = j->ids[self->rank][t * j->k + s];
      want_w[t * j->k + s] = expert < 0 ? 0.0f : dot(j, self->rank, t, expert);
    }
  FP8_INIT(&args);
  args.dtokens = &t_dy;
  args.weights = &t_w;
  args.expert_rows = &t_rows;
  args.dexpert_rows = &t_drows;
  args.dweights = &t_dw;
  args.workspace = ws;
  MUST(fp8_combine_backward(plan, &args, self->stream));
  MUST(fp8_stream_sync(self->c, self->stream));
  same_bytes(self->c, drows.data, want, g->rows * h * 2, "dexpert_rows");
  same_bytes(self->c, dw.data, want_w, n * j->k * 4, "dweights");
  free(rows);
  free(want);
  free(want_w);
  dev_free(self->c, &dy);
  dev_free(self->c, &w);
  dev_free(self->c, &dev_rows);
  dev_free(self->c, &drows);
  dev_free(self->c, &dw);
}

static void rank_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  const int preset_tile[] = {0, 16, 0, 0, 16, 128, 32, 32};
  const int64_t n = j->tokens[self->rank];
  fp8_buffer ids = dev_new(self->c, j->ids[self->rank], n * j->k * 4), memory, ws;
  fp8_tensor t = tensor_2d(ids.data, FP8_DTYPE_I32, n, j->k);
  fp8_dispatch_config config = config_of(j, self->rank, &t);
  fp8_recipe_config recipe;
  fp8_dispatch_plan *plan = NULL;
  groups g;
  int64_t max_rows, rows, ends[16], counts[16];
  uint64_t bytes;
  int e;
  FP8_INIT(&recipe);
  MUST(fp8_recipe_query(j->recipe, &recipe));
  MUST(fp8_dispatch_plan_sizes(self->c, self->comm, &config, &bytes, &max_rows));
  memory = dev_new(self->c, NULL, bytes);
  config.memory = &memory;
  MUST(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan));
  MUST(fp8_dispatch_plan_query(plan, &rows, ends, counts, &bytes));
  g = expected_groups(j, self->rank, j->row_alignment ? j->row_alignment : preset_tile[recipe.preset]);
  CHECK(rows == g.rows && rows <= max_rows);
  for (e = 0; e < j->experts; ++e) CHECK(ends[e] == g.ends[e] && counts[e] == g.counts[e]);
  ws = dev_new(self->c, NULL, bytes);
  check_forward(j, self, plan, &g, &ws);
  check_combine(j, self, plan, &g, &ws);
  check_backward(j, self, plan, &g, &ws);
  fp8_dispatch_plan_destroy(plan);
  free_groups(&g);
  dev_free(self->c, &ids);
  dev_free(self->c, &memory);
  dev_free(self->c, &ws);
}

static void round_trips(void **state) {
  static const int presets[] = {FP8_PRESET_NONE, FP8_PRESET_ROW, FP8_PRESET_BLOCK, FP8_PRESET_MX, FP8_PRESET_MX_W2D};
  static const int worlds[] = {1, 2, 3, 4, 8};
  fp8_context *c = ranks_context(2);
  uint64_t random = 31;
  size_t p, w;
  (void)state;
  for (p = 0; p < sizeof presets / sizeof *presets; ++p)
    for (w = 0; w < sizeof worlds / sizeof *worlds; ++w) {
      static const int64_t hiddens[] = {256, 320, 96, 33};
      job j;
      memset(&j, 0, sizeof j);
      j.recipe = preset_recipe(presets[p], 0, 0);
      j.row_alignment = w == 2 ? 256 : 0;
      make_job(&j, &random, worlds[w], 1 + (int)(next_random(&random) % kMaxK), 1 + (int)(next_random(&random) % 3),
               hiddens[(p + w) % 4], (p + w) % 5 == 4 ? 0 : kMaxTokens);
      run_ranks(c, worlds[w], rank_body, &j);
      free_job(&j);
      fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
    }
  fp8_context_destroy(c);
}

#ifdef RANKS_MAIN
RANKS_MAIN(cmocka_unit_test(round_trips))
#else
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
