/* SPDX-License-Identifier: Apache-2.0 */
/* On several GPUs, over NCCL: collectives of two communicators on two streams at once, begun in another order by every
 * rank, while kernels of a third stream hold the device; one communicator's on streams by turns; all-gathers whose last
 * rank does not come, or is killed while they wait for it. PROGRAM RANKS process|thread */
#include "../../capi/routed.h"

enum { kRows = 512, kCols = 4096, kRounds = 24 };

typedef struct gather {
  sided part, full, want;
  fp8_buffer x, workspace;
  fp8_stream stream;
  fp8_comm *comm;
} gather;

static gather open_gather(rank_call *self, const fp8_recipe *r, fp8_comm *comm, uint64_t seed) {
  const int64_t all = (int64_t)kRows * self->size;
  uint16_t *host = (uint16_t *)host_new(all * kCols * 2);
  gather g;
  uint64_t bytes;
  int64_t i;
  memset(&g, 0, sizeof g);
  for (i = 0; i < all * kCols; ++i) host[i] = to_bf16((float)(int32_t)next_random(&seed) / 2147483648.0f);
  g.comm = comm;
  MUST(fp8_stream_create(self->c, &g.stream));
  g.x = dev_new(self->c, host, all * kCols * 2);
  free(host);
  g.part = make_rows(self->c, r, kRows, kCols);
  g.full = make_rows(self->c, r, all, kCols);
  g.want = make_rows(self->c, r, all, kCols);
  quantize_rows(self->c, r, (uint16_t *)g.x.data + (int64_t)self->rank * kRows * kCols, &g.part, g.stream);
  quantize_rows(self->c, r, g.x.data, &g.want, g.stream);
  MUST(fp8_all_gather_workspace(self->c, comm, &g.part.q, FP8_SIDE_ROW, &g.full.q, &bytes));
  g.workspace = dev_new(self->c, NULL, bytes);
  MUST(fp8_stream_sync(self->c, g.stream));
  return g;
}

static void launch_gather(rank_call *self, gather *g, fp8_stream stream) {
  MUST(fp8_all_gather(self->c, g->comm, &g->part.q, FP8_SIDE_ROW, &g->full.q, &g->workspace, stream));
}

static void check_gather(rank_call *self, const gather *g, fp8_stream stream, const char *what) {
  char *got, *want;
  MUST(fp8_comm_wait(g->comm, stream, 20000));
  got = (char *)dev_get(self->c, g->full.memory.data, g->full.memory.bytes);
  want = (char *)dev_get(self->c, g->want.memory.data, g->want.memory.bytes);
  if (memcmp(got, want, g->want.memory.bytes)) {
    fprintf(stderr, "%s: another result on rank %d\n", what, self->rank);
    abort();
  }
  memset(got, 0, g->full.memory.bytes);
  dev_put(self->c, g->full.memory.data, got, g->full.memory.bytes);
  free(got);
  free(want);
}

static void close_gather(rank_call *self, gather *g) {
  dev_free(self->c, &g->part.memory);
  dev_free(self->c, &g->full.memory);
  dev_free(self->c, &g->want.memory);
  dev_free(self->c, &g->x);
  dev_free(self->c, &g->workspace);
  fp8_stream_destroy(self->c, g->stream);
}

static void streams_body(rank_call *self) {
  fp8_recipe *r = preset_recipe(FP8_PRESET_BLOCK, 0, 0);
  fp8_comm *second = nccl_second(self->c, self->rank);
  gather g[2] = {open_gather(self, r, self->comm, 1), open_gather(self, r, second, 2)}, *two[2];
  fp8_tensor x = tensor_2d(g[0].x.data, FP8_DTYPE_BF16, g[0].want.q.rows, kCols);
  fp8_quantize_args busy;
  fp8_stream others;
  int round, i;
  FP8_INIT(&busy);
  busy.x = &x, busy.q = &g[0].want.q, busy.role = FP8_ROLE_ACTIVATION;
  MUST(fp8_stream_create(self->c, &others));
  for (round = 0; round < kRounds; ++round) {
    for (i = 0; i < 2; ++i) two[i] = &g[(self->rank + i) % 2];
    if (round % 2)
      for (i = 0; i < 40; ++i) MUST(fp8_quantize(self->c, r, &busy, others));
    for (i = 0; i < 6; ++i) launch_gather(self, two[i % 2], two[i % 2]->stream);
    for (i = 0; i < 2; ++i) check_gather(self, &g[i], g[i].stream, "two communicators");
    MUST(fp8_stream_sync(self->c, others));
  }
  for (round = 0; round < kRounds; ++round) { /* each waits for the one before it */
    for (i = 0; i < 6; ++i) launch_gather(self, &g[0], g[i % 2].stream);
    MUST(fp8_comm_wait(g[0].comm, g[0].stream, 20000));
    check_gather(self, &g[0], g[1].stream, "one communicator");
  }
  for (i = 0; i < 2; ++i) close_gather(self, &g[i]);
  fp8_stream_destroy(self->c, others);
  fp8_comm_destroy(second);
  fp8_recipe_destroy(r);
}

static void streams(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, g_nccl.size, streams_body, NULL);
  fp8_context_destroy(c);
}

static void alone_body(rank_call *self) { /* the last rank does not come */
  const int killed = self->arg != NULL;
  fp8_recipe *r = preset_recipe(FP8_PRESET_BLOCK, 0, 0);
  gather g = open_gather(self, r, self->comm, 3);
  launch_gather(self, &g, g.stream);
  check_gather(self, &g, g.stream, "before a fault");
  if (self->rank == self->size - 1) {
    if (killed) {
      usleep(300000);
      kill(getpid(), SIGKILL);
    }
    while (__atomic_load_n(&g_nccl.board->done, __ATOMIC_ACQUIRE) < self->size - 1) usleep(1000);
  } else {
    launch_gather(self, &g, g.stream);
    CHECK(fp8_comm_wait(self->comm, g.stream, 1500) == FP8_ERR_COMM);
    if (self->rank == 0) printf("%s: %s\n", killed ? "killed" : "stalled", rank_message());
    MUST(fp8_stream_sync(self->c, g.stream)); /* the kernel has given up */
    CHECK(fp8_comm_status(self->comm) == FP8_ERR_COMM);
    CHECK(fp8_all_gather(self->c, self->comm, &g.part.q, FP8_SIDE_ROW, &g.full.q, &g.workspace, g.stream) ==
          FP8_ERR_COMM);
    __atomic_fetch_add(&g_nccl.board->done, 1, __ATOMIC_ACQ_REL);
  }
  close_gather(self, &g);
  fp8_recipe_destroy(r);
}

static void stalled_gather(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, g_nccl.size, alone_body, NULL);
  nccl_close();
  fp8_context_destroy(c);
}

static void killed_gather(void **state) {
  fp8_context *c;
  (void)state;
  if (!g_nccl.processes) return;
  c = ranks_context(1);
  g_nccl.mourned = 1;
  run_ranks(c, g_nccl.size, alone_body, c);
  nccl_close();
  fp8_context_destroy(c);
}

RANKS_MAIN(cmocka_unit_test(streams), cmocka_unit_test(stalled_gather), cmocka_unit_test(killed_gather))
