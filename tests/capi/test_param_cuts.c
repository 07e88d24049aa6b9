/* SPDX-License-Identifier: Apache-2.0 */
/* Z1 and Z2: sharded at any cut equals the whole master quantized on one rank, bit for bit.
 * Without arguments cuts are sampled; `every` walks them all. */
#include "sharded.h"

static int64_t g_step = 509;

typedef struct kind {
  const char *name;
  int preset, rule, rounding;
} kind;

static const kind kinds[] = {
    {"tensor", FP8_PRESET_TENSOR, 0, 0},
    {"tensor direct", FP8_PRESET_TENSOR, 0, FP8_MASTER_DIRECT},
    {"row", FP8_PRESET_ROW, 0, 0},
    {"block", FP8_PRESET_BLOCK, 0, 0},
    {"block fp32 direct", FP8_PRESET_BLOCK, FP8_SCALE_FP32, FP8_MASTER_DIRECT},
    {"mx", FP8_PRESET_MX, 0, 0},
    {"mx direct", FP8_PRESET_MX, 0, FP8_MASTER_DIRECT},
    {"mx floor", FP8_PRESET_MX, FP8_SCALE_E8M0_FLOOR, 0},
    {"mx_w2d", FP8_PRESET_MX_W2D, 0, 0},
};
enum { kKinds = sizeof kinds / sizeof *kinds };

static void open_list(sharded *s, fp8_context *c, const kind *k) {
  memset(s, 0, sizeof *s);
  s->c = c;
  s->recipe = preset_recipe(k->preset, k->rule, k->rounding);
}

static void close_list(sharded *s) {
  free_reference(s);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)s->recipe);
}

/* One weight of 130 x 200, cut in two at every step-th place, and in 3 to 8 with the cuts moving together. */
static void cuts_of_one(void **state) {
  fp8_context *c = ranks_context(1);
  int k, world, r;
  (void)state;
  for (k = 0; k < kKinds; ++k) {
    sharded s;
    int64_t cut;
    open_list(&s, c, &kinds[k]);
    s.count = 1;
    s.rows[0] = 130;
    s.cols[0] = 200;
    make_reference(&s, 7);
    for (world = 1; world <= 8; ++world) {
      const int64_t size = 130 * 200, step = world == 2 ? g_step : g_step * 8 + 1;
      s.world = world;
      for (cut = 0; cut <= (world == 1 ? 0 : size); cut += step) {
        for (r = 0; r <= world; ++r)
          s.cuts[0][r] = r == 0 ? 0 : r == world ? size : cut + (size - cut) * (r - 1) / world * (r - 1) / world;
        check_stateless(&s, (int)(cut % 2));
      }
    }
    close_list(&s);
  }
  fp8_context_destroy(c);
}

/* Lists of small weights, ragged and empty, cut at random; a rank may own nothing of any. */
static void random_lists(void **state) {
  fp8_context *c = ranks_context(1);
  uint64_t random = 99;
  int k, round, i;
  (void)state;
  for (k = 0; k < kKinds; ++k)
    for (round = 0; round < (g_step == 1 ? 400 : 12); ++round) {
      sharded s;
      open_list(&s, c, &kinds[k]);
      s.count = 1 + (int)(next_random(&random) % 5);
      s.world = 1 + (int)(next_random(&random) % 8);
      for (i = 0; i < s.count; ++i) {
        s.rows[i] = next_random(&random) % (round % 3 ? 70 : 300);
        s.cols[i] = next_random(&random) % (round % 4 ? 90 : 270);
        random_cuts(s.cuts[i], s.world, s.rows[i] * s.cols[i], &random);
      }
      make_reference(&s, random);
      check_stateless(&s, round % 2);
      close_list(&s);
    }
  fp8_context_destroy(c);
}

typedef struct job {
  sharded s;
  int both;
} job;

static void rank_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  check_rank(&j->s, self->comm, self->rank, self->stream, j->both);
}

static void communicator(void **state) {
  fp8_context *c = ranks_context(2);
  uint64_t random = 4242;
  int k, i;
  (void)state;
  for (k = 0; k < kKinds; ++k) {
    int world;
    for (world = 1; world <= 8; ++world) {
      job j;
      open_list(&j.s, c, &kinds[k]);
      j.both = world % 2;
      j.s.count = 3;
      j.s.world = world;
      for (i = 0; i < 3; ++i) {
        j.s.rows[i] = 1 + next_random(&random) % 200;
        j.s.cols[i] = 1 + next_random(&random) % 200;
        random_cuts(j.s.cuts[i], world, j.s.rows[i] * j.s.cols[i], &random);
      }
      make_reference(&j.s, random);
      run_ranks(c, world, rank_body, &j);
      close_list(&j.s);
    }
  }
  fp8_context_destroy(c);
}

#ifndef FP8_TEST_MPI
/* Callbacks of the caller's own, that fuse groups: big weights then travel each by itself. */
typedef struct meeting {
  pthread_barrier_t all;
  int size, groups; /* of rank 0 */
  void *at[kMaxWorld];
} meeting;

typedef struct own_rank {
  meeting *m;
  const job *j;
  int rank;
  pthread_t thread;
} own_rank;

static fp8_status own_gather(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                             fp8_stream stream) {
  own_rank *o = (own_rank *)user;
  int r;
  (void)stream;
  o->m->at[o->rank] = (void *)(uintptr_t)src;
  pthread_barrier_wait(&o->m->all);
  for (r = 0; r < o->m->size; ++r) memmove((char *)dst + offsets[r], o->m->at[r], bytes[r]);
  pthread_barrier_wait(&o->m->all);
  return FP8_OK;
}

static fp8_status own_reduce(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream stream) {
  own_rank *o = (own_rank *)user;
  const int64_t bytes = count * (dtype == FP8_DTYPE_F32 ? 4 : 1);
  char *best = (char *)host_new(bytes);
  fp8_param_layout l;
  int r;
  (void)stream;
  memset(&l, 0, sizeof l);
  l.amax_dtype = dtype;
  l.amax_count = count;
  o->m->at[o->rank] = inout;
  pthread_barrier_wait(&o->m->all);
  memcpy(best, inout, bytes);
  for (r = 0; r < o->m->size; ++r) reduce_amax(&l, best, o->m->at[r]);
  pthread_barrier_wait(&o->m->all);
  memcpy(inout, best, bytes);
  free(best);
  return FP8_OK;
}

static fp8_status own_begin(void *user) {
  own_rank *o = (own_rank *)user;
  o->m->groups += o->rank == 0;
  return FP8_OK;
}

static fp8_status own_end(void *user) { return user ? FP8_OK : FP8_ERR_ARGUMENT; }

static void *own_main(void *arg) {
  own_rank *o = (own_rank *)arg;
  fp8_comm_ops ops;
  fp8_comm *comm;
  fp8_stream stream;
  FP8_INIT(&ops);
  ops.user = o;
  ops.rank = o->rank;
  ops.size = o->m->size;
  ops.caps = FP8_COMM_HOST;
  ops.all_gather = own_gather;
  ops.all_reduce_max = own_reduce;
  ops.group_begin = own_begin;
  ops.group_end = own_end;
  MUST(fp8_comm_create(&ops, &comm));
  MUST(fp8_stream_create(o->j->s.c, &stream));
  check_rank(&o->j->s, comm, o->rank, stream, o->j->both);
  MUST(fp8_stream_sync(o->j->s.c, stream));
  fp8_stream_destroy(o->j->s.c, stream);
  fp8_comm_destroy(comm);
  return NULL;
}

static void fused_groups(void **state) {
  fp8_context *c = ranks_context(1);
  int k, both;
  (void)state;
  for (k = 0; k < kKinds; k += 2)
    for (both = 0; both < 2; ++both) {
      own_rank ranks[3];
      meeting m = {0};
      job j;
      int r;
      const int64_t size = 700 * 1300;
      const int one_side = kinds[k].preset == FP8_PRESET_MX || kinds[k].preset == FP8_PRESET_ROW;
      open_list(&j.s, c, &kinds[k]);
      j.both = both;
      j.s.count = 2;
      j.s.world = m.size = 3;
      j.s.rows[0] = 700, j.s.cols[0] = 1300;
      j.s.rows[1] = 1, j.s.cols[1] = 37;
      for (r = 0; r < 4; ++r) j.s.cuts[0][r] = r == 0 ? 0 : r == 3 ? size : 350001, j.s.cuts[1][r] = r < 3 ? 0 : 37;
      make_reference(&j.s, 3);
      pthread_barrier_init(&m.all, NULL, 3);
      for (r = 0; r < 3; ++r) {
        ranks[r].m = &m;
        ranks[r].j = &j;
        ranks[r].rank = r;
        CHECK(!pthread_create(&ranks[r].thread, NULL, own_main, &ranks[r]));
      }
      for (r = 0; r < 3; ++r) pthread_join(ranks[r].thread, NULL);
      pthread_barrier_destroy(&m.all);
      /* columns of 1D kinds travel in slots, everything else weight by weight */
      assert_int_equal(m.groups, one_side ? !both : 2 - both);
      close_list(&j.s);
    }
  fp8_context_destroy(c);
}
#endif

#ifdef FP8_TEST_MPI
RANKS_MAIN(cmocka_unit_test(communicator))
#else
int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_of_one), cmocka_unit_test(random_lists),
                                     cmocka_unit_test(communicator), cmocka_unit_test(fused_groups)};
  if (argc > 1 && !strcmp(argv[1], "every")) g_step = 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
