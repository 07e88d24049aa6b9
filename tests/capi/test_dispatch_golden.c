/* SPDX-License-Identifier: Apache-2.0 */
/* The golden family `ep`: tokens quantized, then dispatched, are the stored rows, whatever the number of ranks. A token
 * that the case takes n times names the first n experts. */
#include "golden.h"
#include "routed.h"

typedef struct stored {
  const fp8_recipe *recipe;
  golden x, idx, q, s;
  int experts, names[96], row_of[96]; /* of each token: how often it is taken, a stored row of it */
  int rows[kRanks];                   /* compared on each rank */
} stored;

static void rank_body(rank_call *self) {
  stored *g = (stored *)self->arg;
  const int64_t all = g->x.shape[0], h = g->x.shape[1], n = all / self->size, scales = g->s.shape[1],
                size = g->s.bytes / g->s.count, per_rank = (g->experts + self->size - 1) / self->size;
  int32_t *ids = (int32_t *)host_new(n * g->experts * 4);
  fp8_buffer x, dev_ids, memory, ws;
  sided tokens = make_rows(self->c, g->recipe, n, h), got;
  fp8_tensor t_ids;
  fp8_dispatch_config config;
  fp8_dispatch_plan *plan = NULL;
  int64_t most, rows, ends[16], counts[16], i, j, e, at;
  uint64_t bytes;
  uint8_t *codes, *values;
  for (i = 0; i < n; ++i)
    for (j = 0; j < g->experts; ++j) ids[i * g->experts + j] = j < g->names[self->rank * n + i] ? (int32_t)j : -1;
  dev_ids = dev_new(self->c, ids, n * g->experts * 4);
  t_ids = tensor_2d(dev_ids.data, FP8_DTYPE_I32, n, g->experts);
  FP8_INIT(&config);
  config.expert_ids = &t_ids;
  config.recipe = g->recipe;
  config.tokens = config.max_tokens = n;
  config.hidden = h;
  config.k = g->experts;
  config.experts_per_rank = (int32_t)per_rank;
  MUST(fp8_dispatch_plan_sizes(self->c, self->comm, &config, &bytes, &most));
  memory = dev_new(self->c, NULL, bytes);
  config.memory = &memory;
  MUST(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan));
  MUST(fp8_dispatch_plan_query(plan, &rows, ends, counts, &bytes));
  ws = dev_new(self->c, NULL, bytes);
  got = make_rows(self->c, g->recipe, rows, h);
  x = dev_new(self->c, (uint16_t *)g->x.data + self->rank * n * h, n * h * 2);
  quantize_rows(self->c, g->recipe, x.data, &tokens, self->stream);
  MUST(fp8_dispatch(plan, &tokens.q, &got.q, &ws, self->stream));
  MUST(fp8_stream_sync(self->c, self->stream));
  CHECK(got.q.row.stride[0] == h && got.q.row_scale.shape[1] == scales);
  codes = (uint8_t *)dev_get(self->c, got.q.row.data, rows * h);
  at = (rows - 1) * got.q.row_scale.stride[0] + (scales - 1) * got.q.row_scale.stride[1] + 1;
  values = (uint8_t *)dev_get(self->c, got.q.row_scale.data, rows ? at * size : 0);
  for (e = 0; e < per_rank; ++e) {
    int64_t token = -1;
    const int64_t expert = self->rank * per_rank + e;
    for (i = e ? ends[e - 1] : 0, j = i + counts[e]; i < j; ++i) {
      do ++token;
      while (token < all && g->names[token] <= expert);
      CHECK(token < all);
      CHECK(!memcmp(codes + i * h, (uint8_t *)g->q.data + g->row_of[token] * h, h));
      for (at = 0; at < scales; ++at)
        CHECK(!memcmp(values + (i * got.q.row_scale.stride[0] + at * got.q.row_scale.stride[1]) * size,
                      (uint8_t *)g->s.data + (g->row_of[token] * scales + at) * size, size));
      ++g->rows[self->rank];
    }
  }
  fp8_dispatch_plan_destroy(plan);
  free(ids);
  free(codes);
  free(values);
  dev_free(self->c, &x);
  dev_free(self->c, &dev_ids);
  dev_free(self->c, &memory);
  dev_free(self->c, &ws);
  dev_free(self->c, &tokens.memory);
  dev_free(self->c, &got.memory);
}

static void golden_ep(void **state) {
  static const struct {
    const char *name;
    int preset, rule;
  } cases[] = {{"b1x128_fp32", FP8_PRESET_BLOCK, FP8_SCALE_FP32},
               {"b1x128_pow2", FP8_PRESET_BLOCK, FP8_SCALE_POW2},
               {"mx1x32_rceil", FP8_PRESET_MX, 0}};
  fp8_context *c = ranks_context(1);
  size_t k;
  (void)state;
  for (k = 0; k < sizeof cases / sizeof *cases; ++k) {
    char name[64];
    stored g;
    golden *parts[4];
    static const char *const suffixes[] = {"x", "idx", "q", "s"};
    int world, i;
    memset(&g, 0, sizeof g);
    parts[0] = &g.x, parts[1] = &g.idx, parts[2] = &g.q, parts[3] = &g.s;
    for (i = 0; i < 4; ++i) {
      snprintf(name, sizeof name, "ep__%s__%s", cases[k].name, suffixes[i]);
      *parts[i] = golden_load(name);
    }
    CHECK(g.x.shape[0] == 96);
    for (i = 0; i < g.idx.count; ++i) {
      const int32_t token = ((int32_t *)g.idx.data)[i];
      g.row_of[token] = i;
      if (++g.names[token] > g.experts) g.experts = g.names[token];
    }
    g.recipe = preset_recipe(cases[k].preset, cases[k].rule, 0);
    for (world = 1; world <= 4; ++world) {
      int64_t rows = 0;
      memset(g.rows, 0, sizeof g.rows);
      run_ranks(c, world, rank_body, &g);
      for (i = 0; i < world; ++i) rows += g.rows[i];
      assert_int_equal(rows, g.idx.count);
    }
    for (i = 0; i < 4; ++i) free(parts[i]->data);
    fp8_recipe_destroy((fp8_recipe *)(uintptr_t)g.recipe);
  }
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(golden_ep)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
