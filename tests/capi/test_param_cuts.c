/* SPDX-License-Identifier: Apache-2.0 */
/* Z1 and Z2: sharded at any cut equals the whole master quantized on one rank, bit for bit.
 * Without arguments cuts are sampled; `every` walks them all. */
#include "ranks_fused.h"
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
  uint64_t seed;
  int both;
} job;

static void rank_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  sharded own = j->s;
  if (own.c != self->c) { /* another device: masters and reference of its own */
    own.c = self->c;
    make_reference(&own, j->seed);
  }
  check_rank(&own, self->comm, self->rank, self->stream, j->both);
  if (own.c != j->s.c) free_reference(&own);
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
      make_reference(&j.s, j.seed = random);
      run_ranks(c, world, rank_body, &j);
      close_list(&j.s);
    }
  }
  fp8_context_destroy(c);
}

/* Weights that are worth a message each where the transport fuses a group; beside them a small one and an empty shard.
 */
static void big_weights(void **state) {
#ifdef FP8_TEST_NCCL
  enum { kMost = 8 };
#else
  enum { kMost = 2 };
#endif
  fp8_context *c = ranks_context(2);
  int k, both, world;
  (void)state;
  for (world = 2; world <= kMost; ++world)
    for (k = 0; k < kKinds; ++k)
      for (both = 0; both < 2; ++both) {
        job j;
        int r;
#ifdef FP8_TEST_NCCL
        if (world != g_nccl.size) continue;
#endif
        open_list(&j.s, c, &kinds[k]);
        j.both = both;
        j.s.count = 3;
        j.s.world = world;
        j.s.rows[0] = 420 * world, j.s.cols[0] = 1300;
        j.s.rows[1] = 420 * world, j.s.cols[1] = 1309;
        j.s.rows[2] = 1, j.s.cols[2] = 37;
        for (r = 0; r <= world; ++r) { /* even; another size on every rank, none on the last; all on the last */
          j.s.cuts[0][r] = 420 * 1300 * r;
          j.s.cuts[1][r] = r >= world - 1 ? 420 * 1309 * world : (420 * 1309 - 4801) * r;
          j.s.cuts[2][r] = r < world ? 0 : 37;
        }
        make_reference(&j.s, j.seed = 3);
        run_ranks(c, world, rank_body, &j);
        close_list(&j.s);
      }
  fp8_context_destroy(c);
}

#ifndef RANKS_MAIN
static void fused_groups(void **state) {
  fp8_context *c = ranks_context(1);
  int k, both;
  (void)state;
  for (k = 0; k < kKinds; k += 2)
    for (both = 0; both < 2; ++both) {
      job j;
      int r, groups = 0;
      const int64_t size = 700 * 1300;
      const int one_side = kinds[k].preset == FP8_PRESET_MX || kinds[k].preset == FP8_PRESET_ROW;
      open_list(&j.s, c, &kinds[k]);
      j.both = both;
      j.s.count = 2;
      j.s.world = 3;
      j.s.rows[0] = 700, j.s.cols[0] = 1300;
      j.s.rows[1] = 1, j.s.cols[1] = 37;
      for (r = 0; r < 4; ++r) j.s.cuts[0][r] = r == 0 ? 0 : r == 3 ? size : 350001, j.s.cuts[1][r] = r < 3 ? 0 : 37;
      make_reference(&j.s, j.seed = 3);
      run_fused(c, 3, rank_body, &j, &groups);
      /* columns of 1D kinds travel in slots, everything else weight by weight */
      assert_int_equal(groups, one_side ? !both : 2 - both);
      close_list(&j.s);
    }
  fp8_context_destroy(c);
}
#endif

#ifdef RANKS_MAIN
RANKS_MAIN(cmocka_unit_test(communicator), cmocka_unit_test(big_weights))
#else
int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_of_one), cmocka_unit_test(random_lists),
                                     cmocka_unit_test(communicator), cmocka_unit_test(big_weights),
                                     cmocka_unit_test(fused_groups)};
  if (argc > 1 && !strcmp(argv[1], "every")) g_step = 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
