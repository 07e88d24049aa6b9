/* SPDX-License-Identifier: Apache-2.0 */
/* What a dispatch moves, and what a plan refuses. */
#include "routed.h"

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
  MUST(fp8_dispatch_plan_sizes(own, self->comm, &config, &bytes, NULL));
  memory = dev_new(own, NULL, bytes);
  config.memory = &memory;
  MUST(fp8_dispatch_plan_create(own, self->comm, &config, NULL, &plan));
  MUST(fp8_dispatch_plan_query(plan, &rows, NULL, NULL, NULL));
  tokens = make_rows(own, j->recipe, n, h);
  grouped = make_rows(own, j->recipe, rows, h);
  quantize_rows(own, j->recipe, x.data, &tokens, NULL);
  FP8_INIT(&before);
  FP8_INIT(&after);
  MUST(fp8_context_counters(own, &before));
  MUST(fp8_dispatch(plan, &tokens.q, &grouped.q, NULL, NULL));
  MUST(fp8_context_counters(own, &after));
  if (self->rank == 1) g_moved = after.bytes_communicated - before.bytes_communicated;
  MUST(fp8_stream_sync(own, NULL));
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
    j.recipe = preset_recipe(kinds[p].preset, 0, 0);
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
  MUST(fp8_dispatch_plan_sizes(self->c, self->comm, &config, &bytes, NULL));
  memory = dev_new(self->c, NULL, bytes);
  config.memory = &memory;
  if (self->rank == 1)
    MUST_FAIL(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_ARGUMENT,
              "config.expert_ids[0, 1] is 99");
  else
    MUST_FAIL(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_COMM, "rank 1");
  t.data = good.data;
  config.hidden = self->rank == 1 ? 32 : 64;
  MUST_FAIL(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_COMM,
            "config.hidden is 32 on rank 1");
  config.hidden = 64;
  MUST(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan));
  fp8_dispatch_plan_destroy(plan);
  config.row_alignment = 24;
  MUST_FAIL(fp8_dispatch_plan_create(self->c, self->comm, &config, self->stream, &plan), FP8_ERR_ARGUMENT,
            "row_alignment");
  dev_free(self->c, &ids);
  dev_free(self->c, &good);
  dev_free(self->c, &memory);
}

static void refusals(void **state) {
  fp8_context *c = ranks_context(1);
  fp8_recipe *tensor = preset_recipe(FP8_PRESET_TENSOR, 0, 0);
  fp8_dispatch_config config;
  fp8_comm *comm;
  job j;
  (void)state;
  memset(&j, 0, sizeof j);
  j.recipe = preset_recipe(FP8_PRESET_MX, 0, 0);
  run_ranks(c, 2, refusing_body, &j);
  MUST(fp8_comm_create_local(1, &comm));
  FP8_INIT(&config);
  config.recipe = tensor;
  config.hidden = 64;
  config.k = 1;
  config.experts_per_rank = 1;
  MUST_FAIL(fp8_dispatch_plan_sizes(c, comm, &config, NULL, NULL), FP8_ERR_UNSUPPORTED, "per tensor");
  config.recipe = j.recipe;
  config.tokens = 5;
  MUST_FAIL(fp8_dispatch_plan_sizes(c, comm, &config, NULL, NULL), FP8_ERR_ARGUMENT, "max_tokens");
  fp8_comm_destroy(comm);
  fp8_recipe_destroy(tensor);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(travels_once), cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
