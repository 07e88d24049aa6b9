/* SPDX-License-Identifier: Apache-2.0 */
/* Z6: quantizing the dispatched tokens equals dispatching the quantized ones, codes and scales, bit for bit; combine
 * and the two backwards equal sums written out here in the documented order. */
#include "ranks.h"

enum { kMaxTokens = 40, kMaxK = 5, kRanks = 8 };

typedef struct job { /* one global routing, known to every rank */
  const fp8_recipe *recipe;
  int world, k, experts, row_alignment;
  int64_t hidden, tokens[kRanks];
  uint16_t *x[kRanks], *dy[kRanks]; /* BF16 [tokens, hidden] */
  int32_t ids[kRanks][kMaxTokens * kMaxK];
  float weights[kRanks][kMaxTokens * kMaxK];
} job;

static float from_bf16(uint16_t h) {
  const uint32_t u = (uint32_t)h << 16;
  float v;
  memcpy(&v, &u, 4);
  return v;
}

static uint16_t to_bf16(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

/* An expert's output for a token: any function will do. */
static uint16_t expert_value(const job *j, int expert, int source, int64_t token, int64_t c) {
  return to_bf16(from_bf16(j->x[source][token * j->hidden + c]) * (float)(1 + expert) + (float)(c % 7) - 3.0f);
}

static void make_job(job *j, uint64_t *random, int world, int k, int experts, int64_t hidden, int tokens) {
  int r;
  int64_t i;
  j->world = world;
  j->k = k;
  j->experts = experts;
  j->hidden = hidden;
  for (r = 0; r < world; ++r) {
    j->tokens[r] = r == 1 ? 0 : next_random(random) % (tokens + 1);
    j->x[r] = (uint16_t *)host_new(j->tokens[r] * hidden * 2);
    j->dy[r] = (uint16_t *)host_new(j->tokens[r] * hidden * 2);
    for (i = 0; i < j->tokens[r] * hidden; ++i) {
      const int binade = (int)(next_random(random) % 20) - 10;
      j->x[r][i] = to_bf16(ldexpf((float)(int32_t)next_random(random) / 2147483648.0f, binade));
      j->dy[r][i] = to_bf16((float)(int32_t)next_random(random) / 2147483648.0f);
    }
    for (i = 0; i < j->tokens[r] * k; ++i) { /* -1 and repeats included */
      j->ids[r][i] = (int32_t)(next_random(random) % (uint32_t)(world * experts + 1)) - 1;
      j->weights[r][i] = (float)(next_random(random) >> 8) / 16777216.0f;
    }
  }
}

static void free_job(job *j) {
  int r;
  for (r = 0; r < j->world; ++r) {
    free(j->x[r]);
    free(j->dy[r]);
  }
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

typedef struct sided { /* an activation's row side, in memory of its own */
  fp8_qtensor q;
  fp8_buffer memory;
} sided;

static sided make_rows(const fp8_context *c, const fp8_recipe *r, int64_t rows, int64_t cols) {
  sided s;
  uint64_t bytes;
  FP8_INIT(&s.q);
  OK(fp8_recipe_describe(r, c, FP8_ROLE_ACTIVATION, rows, cols, FP8_SIDE_ROW | FP8_SIDE_COPY, &s.q));
  OK(fp8_qtensor_bytes(&s.q, FP8_SIDE_ROW, &bytes));
  s.memory = dev_new(c, NULL, bytes);
  s.memory.bytes = bytes;
  OK(fp8_qtensor_place(&s.q, FP8_SIDE_ROW, &s.memory));
  return s;
}

static void quantize_rows(const fp8_context *c, const fp8_recipe *r, void *x, sided *s, fp8_stream stream) {
  fp8_tensor t = tensor_2d(x, FP8_DTYPE_BF16, s->q.rows, s->q.cols);
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &t;
  args.q = &s->q;
  args.role = FP8_ROLE_ACTIVATION;
  OK(fp8_quantize(c, r, &args, stream));
  OK(fp8_stream_sync(c, stream));
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
  OK(fp8_dispatch(plan, &tokens.q, &got.q, ws, self->stream));
  OK(fp8_stream_sync(self->c, self->stream));
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
  OK(fp8_combine(plan, &in, &weights, &y, ws, self->stream));
  y = tensor_2d(out32.data, FP8_DTYPE_F32, n, h);
  OK(fp8_dispatch_backward(plan, &in, &y, ws, self->stream));
  OK(fp8_stream_sync(self->c, self->stream));
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
  OK(fp8_combine_backward(plan, &args, self->stream));
  OK(fp8_stream_sync(self->c, self->stream));
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

static fp8_dispatch_config config_of(const job *j, int rank, const fp8_tensor *ids) {
  fp8_dispatch_config config;
  FP8_INIT(&config);
  config.expert_ids = ids;
  config.recipe = j->recipe;
  config.tokens = j->tokens[rank];
  config.hidden = j->hidden;
  config.max_tokens = kMaxTokens;
  config.k = j->k;
  config.experts_per_rank = j->experts;
  config.row_alignment = j->row_alignment;
  return config;
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
  OK(fp8_recipe_query(j->recipe, &recipe));
  OK(fp8_dispatch_plan_sizes(self->c, self->comm, &config, &bytes, &max_rows));
  memory = dev_new(self->c, NULL, bytes);
  config.memory = &memory;
  OK(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan));
  OK(fp8_dispatch_plan_query(plan, &rows, ends, counts, &bytes));
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
  static const int worlds[] = {1, 2, 3, 8};
  fp8_context *c = ranks_context(2);
  uint64_t random = 31;
  size_t p, w;
  (void)state;
  for (p = 0; p < sizeof presets / sizeof *presets; ++p)
    for (w = 0; w < sizeof worlds / sizeof *worlds; ++w) {
      static const int64_t hiddens[] = {256, 320, 96, 33};
      job j;
      memset(&j, 0, sizeof j);
      j.recipe = recipe_of(presets[p], 0, 0);
      j.row_alignment = w == 2 ? 256 : 0;
      make_job(&j, &random, worlds[w], 1 + (int)(next_random(&random) % kMaxK), 1 + (int)(next_random(&random) % 3),
               hiddens[(p + w) % 4], (p + w) % 5 == 4 ? 0 : kMaxTokens);
      run_ranks(c, worlds[w], rank_body, &j);
      free_job(&j);
      fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
    }
  fp8_context_destroy(c);
}

/* A token travels once to a rank, however many of its experts live there; FP8 moves half of BF16's bytes and the
 * scales. */
static uint64_t g_moved;

static void count_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  const int64_t n = j->tokens[self->rank], h = j->hidden;
  fp8_buffer ids = dev_new(self->c, j->ids[self->rank], n * j->k * 4), memory,
             x = dev_new(self->c, j->x[self->rank], n * h * 2);
  fp8_tensor t = tensor_2d(ids.data, FP8_DTYPE_I32, n, j->k);
  fp8_dispatch_config config = config_of(j, self->rank, &t);
  fp8_dispatch_plan *plan = NULL;
  fp8_context *own = ranks_context(1); /* counters of this rank alone */
  fp8_counters before, after;
  sided tokens, grouped;
  int64_t rows;
  uint64_t bytes;
  OK(fp8_dispatch_plan_sizes(own, self->comm, &config, &bytes, NULL));
  memory = dev_new(own, NULL, bytes);
  config.memory = &memory;
  OK(fp8_dispatch_plan_create(own, self->comm, &config, NULL, &plan));
  OK(fp8_dispatch_plan_query(plan, &rows, NULL, NULL, NULL));
  tokens = make_rows(own, j->recipe, n, h);
  grouped = make_rows(own, j->recipe, rows, h);
  quantize_rows(own, j->recipe, x.data, &tokens, NULL);
  FP8_INIT(&before);
  FP8_INIT(&after);
  OK(fp8_context_counters(own, &before));
  OK(fp8_dispatch(plan, &tokens.q, &grouped.q, NULL, NULL));
  OK(fp8_context_counters(own, &after));
  if (self->rank == 1) g_moved = after.bytes_communicated - before.bytes_communicated;
  OK(fp8_stream_sync(own, NULL));
  fp8_dispatch_plan_destroy(plan);
  dev_free(own, &tokens.memory);
  dev_free(own, &grouped.memory);
  dev_free(own, &memory);
  dev_free(self->c, &ids);
  dev_free(self->c, &x);
  fp8_context_destroy(own);
}

static void travels_once(void **state) {
  static const struct {
    int preset;
    uint64_t row_bytes;
  } kinds[] = {{FP8_PRESET_NONE, 512}, {FP8_PRESET_BLOCK, 256 + 2 * 4 + 8}, {FP8_PRESET_MX, 256 + 8 + 8}};
  fp8_context *c = ranks_context(1);
  uint64_t random = 5;
  size_t p;
  (void)state;
  for (p = 0; p < 3; ++p) {
    job j;
    int64_t i;
    memset(&j, 0, sizeof j);
    j.recipe = recipe_of(kinds[p].preset, 0, 0);
    make_job(&j, &random, 2, 2, 2, 256, 0);
    free(j.x[0]);
    j.tokens[0] = 30;
    j.x[0] = (uint16_t *)calloc(30 * 256, 2);
    for (i = 0; i < 30; ++i) { /* both experts of rank 1 */
      j.ids[0][2 * i] = 2;
      j.ids[0][2 * i + 1] = 3;
    }
    run_ranks(c, 2, count_body, &j);
    assert_int_equal(g_moved, 30 * kinds[p].row_bytes);
    free_job(&j);
    fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
  }
  fp8_context_destroy(c);
}

/* Refusals name what is wrong, on every rank. */
static void refusing_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  int32_t bad_ids[2] = {0, 99}, good_ids[2] = {0, 1};
  fp8_buffer ids = dev_new(self->c, self->rank == 1 ? bad_ids : good_ids, 8), good = dev_new(self->c, good_ids, 8),
             memory;
  fp8_tensor t = tensor_2d(ids.data, FP8_DTYPE_I32, 1, 2);
  fp8_dispatch_config config;
  fp8_dispatch_plan *plan = NULL;
  uint64_t bytes;
  FP8_INIT(&config);
  config.expert_ids = &t;
  config.recipe = j->recipe;
  config.tokens = 1;
  config.hidden = 64;
  config.max_tokens = 4;
  config.k = 2;
  config.experts_per_rank = 1;
  OK(fp8_dispatch_plan_sizes(self->c, self->comm, &config, &bytes, NULL));
  memory = dev_new(self->c, NULL, bytes);
  config.memory = &memory;
  if (self->rank == 1)
    REFUSED(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_ARGUMENT,
            "config.expert_ids[0, 1] is 99");
  else
    REFUSED(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_COMM, "rank 1");
  t.data = good.data;
  config.hidden = self->rank == 1 ? 32 : 64;
  REFUSED(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_COMM,
          "config.hidden is 32 on rank 1");
  config.hidden = 64;
  OK(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan));
  fp8_dispatch_plan_destroy(plan);
  config.row_alignment = 24;
  REFUSED(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_ARGUMENT,
          "row_alignment");
  dev_free(self->c, &ids);
  dev_free(self->c, &good);
  dev_free(self->c, &memory);
}

static void refusals(void **state) {
  fp8_context *c = ranks_context(1);
  fp8_recipe *tensor = recipe_of(FP8_PRESET_TENSOR, 0, 0);
  fp8_dispatch_config config;
  fp8_comm *comm;
  job j;
  (void)state;
  memset(&j, 0, sizeof j);
  j.recipe = recipe_of(FP8_PRESET_MX, 0, 0);
  run_ranks(c, 2, refusing_body, &j);
  OK(fp8_comm_create_local(1, &comm));
  FP8_INIT(&config);
  config.recipe = tensor;
  config.hidden = 64;
  config.k = 1;
  config.experts_per_rank = 1;
  REFUSED(fp8_dispatch_plan_sizes(c, comm, &config, NULL, NULL), FP8_ERR_UNSUPPORTED, "per tensor");
  config.recipe = j.recipe;
  config.tokens = 5;
  REFUSED(fp8_dispatch_plan_sizes(c, comm, &config, NULL, NULL), FP8_ERR_ARGUMENT, "max_tokens");
  fp8_comm_destroy(comm);
  fp8_recipe_destroy(tensor);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips), cmocka_unit_test(travels_once),
                                     cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
