/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL communicators where a GPU and NCCL are (one rank a GPU); without them, the refusal. */
#include <unistd.h>

#include "sharded.h"

typedef struct job {
  sharded s;
  uint8_t id[128];
} job;

typedef struct rank_thread {
  job *j;
  int rank;
  pthread_t thread;
} rank_thread;

static void *rank_body(void *arg) {
  rank_thread *t = (rank_thread *)arg;
  fp8_context_config config;
  fp8_context *c = NULL;
  fp8_comm *comm = NULL;
  fp8_stream stream;
  sharded own = t->j->s;
  int32_t rank, size, i;
  uint32_t caps;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CUDA;
  config.device = t->rank;
  MUST(fp8_context_create(&config, &c));
  MUST(fp8_comm_create_nccl_rank(c, t->j->id, t->rank, own.world, &comm));
  MUST(fp8_comm_query(comm, &rank, &size, &caps));
  CHECK(rank == t->rank && size == own.world && (caps & FP8_COMM_CAPTURABLE));
  MUST(fp8_comm_check(comm, "the weather", "fine", 4));
  MUST(fp8_stream_create(c, &stream));
  own.c = c; /* every rank has its own copy of the masters, on its own GPU */
  own.recipe = t->j->s.recipe;
  make_reference(&own, 5);
  check_rank(&own, comm, t->rank, stream, 1);
  MUST(fp8_comm_wait(comm, stream, 10000));
  MUST(fp8_comm_status(comm));
  for (i = 0; i < own.count; ++i) dev_free(c, &own.master[i]);
  for (i = 0; i < own.count; ++i) dev_free(c, &own.whole[i].memory);
  fp8_stream_destroy(c, stream);
  fp8_comm_destroy(comm);
  fp8_context_destroy(c);
  return NULL;
}

static void ranks_on_gpus(void **state) {
  const char *backend = getenv("FP8_TEST_BACKEND"), *gpus = getenv("FP8_TEST_GPUS");
  static const int presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_ROW,    FP8_PRESET_BLOCK,
                                FP8_PRESET_MX,     FP8_PRESET_MX_W2D, FP8_PRESET_NONE};
  size_t p;
  (void)state;
  if (!backend || strcmp(backend, "cuda")) {
    uint8_t id[128];
    fp8_comm *comm = NULL;
    fp8_context *c = ranks_context(1);
    const fp8_status status = fp8_comm_nccl_id(id);
    CHECK(status == FP8_OK || status == FP8_ERR_BACKEND ||
          status == FP8_ERR_UNSUPPORTED); /* the module, or NCCL, may be absent: said so, not fatal */
    memset(id, 0, sizeof id);
    MUST_FAIL(fp8_comm_create_nccl_rank(c, id, 0, 1, &comm), FP8_ERR_ARGUMENT, "CPU context");
    MUST_FAIL(fp8_comm_create_nccl(NULL, &comm), FP8_ERR_ARGUMENT, "nccl_comm is NULL");
    fp8_context_destroy(c);
    return;
  }
  for (p = 0; p < sizeof presets / sizeof *presets; ++p) {
    job j;
    rank_thread threads[8];
    uint64_t random = 17;
    int r, i;
    memset(&j, 0, sizeof j);
    j.s.world = gpus ? atoi(gpus) : 1;
    j.s.recipe = preset_recipe(presets[p], 0, 0);
    j.s.count = 3;
    for (i = 0; i < 3; ++i) {
      j.s.rows[i] = 1 + next_random(&random) % 300;
      j.s.cols[i] = 1 + next_random(&random) % 300;
      random_cuts(j.s.cuts[i], j.s.world, j.s.rows[i] * j.s.cols[i], &random);
    }
    MUST(fp8_comm_nccl_id(j.id));
    for (r = 0; r < j.s.world; ++r) {
      threads[r].j = &j;
      threads[r].rank = r;
      CHECK(!pthread_create(&threads[r].thread, NULL, rank_body, &threads[r]));
    }
    for (r = 0; r < j.s.world; ++r) pthread_join(threads[r].thread, NULL);
    fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.s.recipe);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_on_gpus)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
