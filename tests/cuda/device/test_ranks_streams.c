/* SPDX-License-Identifier: Apache-2.0 */
/* On several GPUs, over NCCL: collectives of two communicators on two streams at once, begun in another order by every
 * rank, while kernels of a third stream hold the device; one communicator's on streams by turns; quantizers beside
 * collectives whose last rank is late; all-gathers whose last rank does not come, or is killed while they wait for it.
 * PROGRAM RANKS process|thread */
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

/* Quantizers on a stream of their own while a collective of this rank waits for a last rank that is late: a kernel that
 * begins only where others have left much room would hold everything up, with two communicators even for good. */
static const struct {
  int preset, rows, cols;
} kBeside[] = {{FP8_PRESET_TENSOR, 256, 512},
               {FP8_PRESET_TENSOR, 512, 512},
               {FP8_PRESET_TENSOR, 1024, 1024},
               {FP8_PRESET_TENSOR, 4096, 4096},
               {FP8_PRESET_ROW, 1024, 1024}};
enum { kBesides = sizeof kBeside / sizeof *kBeside, kMaxima = 4 << 20 };
static int g_held;

static void launch_late(rank_call *self, gather *g, fp8_tensor *maxima) {
  if (maxima)
    MUST(fp8_all_reduce_max(self->c, g->comm, maxima, g->stream));
  else
    launch_gather(self, g, g->stream);
}

static void beside_body(rank_call *self) {
  fp8_recipe *r = preset_recipe(FP8_PRESET_BLOCK, 0, 0);
  gather g = open_gather(self, r, self->comm, 4);
  fp8_buffer x = dev_new(self->c, NULL, (int64_t)4096 * 4096 * 2), memory = dev_new(self->c, NULL, 4 * kMaxima);
  fp8_tensor all = tensor_2d(memory.data, FP8_DTYPE_F32, 1, kMaxima), *way[2];
  fp8_stream others;
  int w, i;
  way[0] = NULL, way[1] = &all;
  MUST(fp8_buffer_zero(self->c, x.data, (uint64_t)4096 * 4096 * 2, NULL));
  MUST(fp8_buffer_zero(self->c, memory.data, 4 * kMaxima, NULL));
  MUST(fp8_stream_sync(self->c, NULL));
  MUST(fp8_stream_create(self->c, &others));
  for (w = 0; w < 2; ++w)
    for (i = 0; i < kBesides; ++i) {
      fp8_recipe *of = preset_recipe(kBeside[i].preset, 0, 0);
      sided to = make_rows(self->c, of, kBeside[i].rows, kBeside[i].cols);
      quantize_rows(self->c, of, x.data, &to, others);
      launch_late(self, &g, way[w]);
      MUST(fp8_comm_wait(g.comm, g.stream, 20000));
      if (self->rank == self->size - 1) {
        usleep(400000);
        launch_late(self, &g, way[w]);
      } else {
        double took;
        launch_late(self, &g, way[w]);
        usleep(50000);
        took = seconds();
        quantize_rows(self->c, of, x.data, &to, others);
        took = seconds() - took;
        if (self->rank == 0 || took > 0.2)
          printf("rank %d: %s of %d x %d beside %s that waits: %.4f s%s\n", self->rank,
                 kBeside[i].preset == FP8_PRESET_ROW ? "ROW" : "TENSOR", kBeside[i].rows, kBeside[i].cols,
                 w ? "NCCL" : "a gather", took, took > 0.2 ? ", held up" : "");
        __atomic_fetch_add(&g_held, took > 0.2, __ATOMIC_RELAXED);
      }
      MUST(fp8_comm_wait(g.comm, g.stream, 20000));
      dev_free(self->c, &to.memory);
      fp8_recipe_destroy(of);
    }
  fp8_stream_destroy(self->c, others);
  dev_free(self->c, &x);
  dev_free(self->c, &memory);
  close_gather(self, &g);
  fp8_recipe_destroy(r);
}

static void beside_late(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, g_nccl.size, beside_body, NULL);
  fp8_context_destroy(c);
}

static void nothing_held_up(void **state) { /* last: what it would leave undone */
  (void)state;
  assert_int_equal(g_held, 0);
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

RANKS_MAIN(cmocka_unit_test(streams), cmocka_unit_test(beside_late), cmocka_unit_test(stalled_gather),
           cmocka_unit_test(killed_gather), cmocka_unit_test(nothing_held_up))
