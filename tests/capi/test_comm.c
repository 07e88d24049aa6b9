/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: reductions, comparisons across ranks, and every way in which a rank can fail its peers. */
#include <unistd.h>

#include "ranks.h"

static fp8_status reduce(rank_call *self, fp8_buffer *b, int32_t dtype, int64_t n) {
  fp8_tensor t = tensor_1d(b->data, dtype, n);
  return fp8_all_reduce_max(self->c, self->comm, &t, self->stream);
}

static void reduce_body(rank_call *self) {
  static const int64_t sizes[] = {0, 1, 3, 1000, 4097};
  size_t s;
  for (s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    const int64_t n = sizes[s];
    float *f = (float *)host_new(n * 4);
    uint8_t *u = (uint8_t *)host_new(n);
    fp8_buffer df, du;
    int64_t i;
    for (i = 0; i < n; ++i) {
      f[i] = (float)((i * 7 + self->rank * 13) % 101) * 0.125f;
      u[i] = (uint8_t)((i * 5 + self->rank * 31) % 256);
    }
    df = dev_new(self->c, f, n * 4);
    du = dev_new(self->c, u, n);
    MUST(reduce(self, &df, FP8_DTYPE_F32, n));
    MUST(reduce(self, &du, FP8_DTYPE_U8, n));
    MUST(fp8_stream_sync(self->c, self->stream));
    free(f);
    free(u);
    f = (float *)dev_get(self->c, df.data, n * 4);
    u = (uint8_t *)dev_get(self->c, du.data, n);
    for (i = 0; i < n; ++i) {
      float want = 0;
      int r, want8 = 0;
      for (r = 0; r < self->size; ++r) {
        const float v = (float)((i * 7 + r * 13) % 101) * 0.125f;
        const int v8 = (int)((i * 5 + r * 31) % 256);
        want = v > want ? v : want;
        want8 = v8 > want8 ? v8 : want8;
      }
      CHECK(f[i] == want && u[i] == want8);
    }
    free(f);
    free(u);
    dev_free(self->c, &df);
    dev_free(self->c, &du);
  }
}

static void reductions(void **state) {
  fp8_context *c = ranks_context(1);
  int world;
  (void)state;
  for (world = 1; world <= 8; ++world) run_ranks(c, world, reduce_body, NULL);
  fp8_context_destroy(c);
}

static void check_body(rank_call *self) {
  const int last = self->size - 1;
  const char *text = self->rank == last ? "other" : "thing";
  char who[128];
  snprintf(who, sizeof who,
           "the thing: not rank 0's on rank %d (5 bytes, different from byte 0 on, of which rank 0 has 5)", last);
  MUST(fp8_comm_check(self->comm, "the weather", "fine", 4));
  MUST(fp8_comm_check(self->comm, NULL, NULL, 0));
  MUST_FAIL(fp8_comm_check(self->comm, "the thing", text, 5), FP8_ERR_COMM, who);
  MUST_FAIL(fp8_comm_check(self->comm, "the size", text, self->rank == 1 ? 3 : 2), FP8_ERR_COMM,
            "rank 1 (3 bytes, different from byte ");
  MUST(fp8_comm_check(self->comm, "the weather", "fine", 4));
  MUST(fp8_comm_status(self->comm)); /* a difference is no fault of the communicator */
}

static void comparisons(void **state) {
  fp8_context *c = ranks_context(1);
  int world;
  (void)state;
  for (world = 2; world <= 8; ++world) run_ranks(c, world, check_body, NULL);
  fp8_context_destroy(c);
}

static void param_check_body(rank_call *self) {
  const fp8_recipe *const *recipes = (const fp8_recipe *const *)self->arg;
  int64_t cuts[] = {0, 40, 80}, other[] = {0, 41, 80};
  int trial;
  static const char *const says[] = {
      "the recipe of the params: not rank 0's on rank 1 (it has preset=block, rank 0 preset=mx); this is rank",
      "the shapes and order of the params: not rank 0's on rank 1 (params[1] is 10 x 8, rank 0's 8 x 10); this",
      "the cuts of the params: not rank 0's on rank 1 (params[1].cuts[1] is 41, rank 0's 40); this",
      "the shapes and order of the params: not rank 0's on rank 1 (a list of 1, rank 0 has one of 2)"};
  for (trial = 0; trial < 5; ++trial) {
    const int differ = self->rank == 1;
    fp8_param_config config;
    fp8_param *list[2];
    fp8_status status;
    FP8_INIT(&config);
    config.rows = 8;
    config.cols = 10;
    config.cuts = cuts;
    config.world = 2;
    config.rank = trial == 4 ? 0 : self->rank; /* the same rank twice */
    config.recipe = recipes[trial == 0 && differ];
    MUST(fp8_param_create(self->c, &config, &list[0]));
    config.rows = trial == 1 && differ ? 10 : 8;
    config.cols = trial == 1 && differ ? 8 : 10;
    config.cuts = trial == 2 && differ ? other : cuts;
    MUST(fp8_param_create(self->c, &config, &list[1]));
    status = fp8_param_check(self->c, self->comm, (const fp8_param *const *)list, trial == 3 && differ ? 1 : 2);
    if (trial < 4) CHECK(status == FP8_ERR_COMM && strstr(rank_message(), says[trial]));
    if (trial == 4) CHECK(status == (differ ? FP8_ERR_ARGUMENT : FP8_ERR_COMM));
    fp8_param_destroy(list[0]);
    fp8_param_destroy(list[1]);
  }
}

static void param_lists(void **state) {
  fp8_context *c = ranks_context(1);
  fp8_recipe *recipes[2] = {preset_recipe(FP8_PRESET_MX, 0, 0), preset_recipe(FP8_PRESET_BLOCK, 0, 0)};
  (void)state;
  run_ranks(c, 2, param_check_body, recipes);
  fp8_recipe_destroy(recipes[0]);
  fp8_recipe_destroy(recipes[1]);
  fp8_context_destroy(c);
}

/* ---- faults ---- */
static void misfit_body(rank_call *self) {
  fp8_buffer b = dev_new(self->c, NULL, 64);
  CHECK(reduce(self, &b, FP8_DTYPE_U8, self->rank == 2 ? 5 : 6) == FP8_ERR_COMM);
  CHECK(strstr(rank_message(), "5 elements"));
  MUST_FAIL(fp8_comm_status(self->comm), FP8_ERR_COMM, "5 elements");
  CHECK(reduce(self, &b, FP8_DTYPE_U8, 6) == FP8_ERR_COMM); /* an aborted group stays aborted */
  dev_free(self->c, &b);
}

static void misfits(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, 3, misfit_body, NULL);
  fp8_context_destroy(c);
}

/* Ranks do not agree on errors: the peers of one whose arguments are refused wait until it makes the call. */
static void refused_body(rank_call *self) {
  fp8_buffer b = dev_new(self->c, NULL, 64);
  fp8_tensor t = tensor_1d(b.data, FP8_DTYPE_BF16, 6);
  if (self->rank == 1) {
    MUST_FAIL(fp8_all_reduce_max(self->c, self->comm, &t, self->stream), FP8_ERR_ARGUMENT, "inout.dtype is BF16");
    usleep(20000);
  }
  MUST(reduce(self, &b, FP8_DTYPE_U8, 6));
  MUST(fp8_comm_status(self->comm));
  dev_free(self->c, &b);
}

static void one_refused(void **state) {
  fp8_context *c = ranks_context(1);
  (void)state;
  run_ranks(c, 3, refused_body, NULL);
  fp8_context_destroy(c);
}

typedef struct lone {
  fp8_context *c;
  fp8_comm *comm;
  fp8_status status;
  char message[256];
} lone;

static void *lone_main(void *arg) { /* a rank whose peer never comes */
  lone *l = (lone *)arg;
  fp8_buffer b = dev_new(l->c, NULL, 64);
  fp8_tensor t = tensor_1d(b.data, FP8_DTYPE_U8, 64);
  l->status = fp8_all_reduce_max(l->c, l->comm, &t, NULL);
  snprintf(l->message, sizeof l->message, "%s", rank_message());
  dev_free(l->c, &b);
  return NULL;
}

static void dead_rank(void **state) {
  fp8_comm *comms[2];
  pthread_t thread;
  lone l;
  (void)state;
  memset(&l, 0, sizeof l);
  l.c = ranks_context(1);
  MUST(fp8_comm_create_local(2, comms));
  l.comm = comms[0];
  CHECK(!pthread_create(&thread, NULL, lone_main, &l));
  usleep(50000);
  fp8_comm_destroy(comms[1]);
  pthread_join(thread, NULL);
  assert_int_equal(l.status, FP8_ERR_COMM);
  assert_non_null(strstr(l.message, "rank 1 has left"));
  MUST_FAIL(fp8_comm_status(comms[0]), FP8_ERR_COMM, "rank 1 has left");
  MUST_FAIL(fp8_comm_wait(comms[0], NULL, 1000), FP8_ERR_COMM, "rank 1 has left");
  fp8_comm_destroy(comms[0]);
  fp8_context_destroy(l.c);
}

static void *leave_soon(void *comm) {
  usleep(100000);
  fp8_comm_destroy((fp8_comm *)comm);
  return NULL;
}

static void endless_wait(void **state) { /* a timeout beyond any clock */
  static const int64_t kTimeouts[] = {INT64_MAX, INT64_MAX / 1000000 + 1};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof kTimeouts / sizeof *kTimeouts; ++i) {
    fp8_comm *comms[2];
    pthread_t threads[2];
    lone l;
    memset(&l, 0, sizeof l);
    l.c = ranks_context(1);
    MUST(fp8_comm_create_local(2, comms));
    l.comm = comms[0];
    CHECK(!pthread_create(&threads[0], NULL, lone_main, &l));
    usleep(50000);
    CHECK(!pthread_create(&threads[1], NULL, leave_soon, comms[1]));
    MUST_FAIL(fp8_comm_wait(comms[0], NULL, kTimeouts[i]), FP8_ERR_COMM, "rank 1 has left");
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    fp8_comm_destroy(comms[0]);
    fp8_context_destroy(l.c);
  }
}

static void stalled_rank(void **state) {
  fp8_comm *comms[3];
  pthread_t thread;
  double begin;
  lone l;
  (void)state;
  memset(&l, 0, sizeof l);
  l.c = ranks_context(1);
  MUST(fp8_comm_create_local(3, comms));
  MUST(fp8_comm_wait(comms[0], NULL, 0)); /* nothing is under way */
  l.comm = comms[0];
  CHECK(!pthread_create(&thread, NULL, lone_main, &l));
  usleep(50000);
  begin = seconds();
  MUST_FAIL(fp8_comm_wait(comms[0], NULL, 200), FP8_ERR_COMM, "missing ranks 1, 2");
  CHECK(seconds() - begin > 0.15 && seconds() - begin < 20.0);
  pthread_join(thread, NULL);
  assert_int_equal(l.status, FP8_ERR_COMM);
  MUST_FAIL(fp8_comm_status(comms[2]), FP8_ERR_COMM, "after 200 ms");
  fp8_comm_destroy(comms[2]);
  fp8_comm_destroy(comms[0]);
  fp8_comm_destroy(comms[1]);
  fp8_context_destroy(l.c);
}

/* ---- the caller's own callbacks ---- */
typedef struct spy {
  int gathers, reductions, released;
  int64_t bytes[2];
  fp8_status answer;
} spy;

static fp8_status spy_gather(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                             fp8_stream stream) {
  spy *s = (spy *)user;
  (void)src;
  (void)dst;
  (void)offsets;
  (void)stream;
  ++s->gathers;
  s->bytes[0] = bytes[0];
  s->bytes[1] = bytes[1];
  return s->answer;
}

static fp8_status spy_reduce(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream stream) {
  (void)inout;
  (void)count;
  (void)dtype;
  (void)stream;
  ++((spy *)user)->reductions;
  return FP8_OK;
}

static void spy_release(void *user) { ++((spy *)user)->released; }

static fp8_comm_ops spy_ops(spy *s) {
  fp8_comm_ops ops;
  FP8_INIT(&ops);
  ops.user = s;
  ops.rank = 0;
  ops.size = 2;
  ops.caps = FP8_COMM_HOST;
  ops.all_gather = spy_gather;
  ops.all_reduce_max = spy_reduce;
  ops.release = spy_release;
  return ops;
}

/* One reduction and one gather serve a whole list, and only owned bytes travel. */
static void one_of_each(void **state) {
  static const int presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_ROW,    FP8_PRESET_BLOCK,
                                FP8_PRESET_MX,     FP8_PRESET_MX_W2D, FP8_PRESET_NONE};
  fp8_context_config context_config;
  fp8_context *c;
  size_t p;
  (void)state;
  FP8_INIT(&context_config);
  context_config.backend = FP8_BACKEND_CPU;
  MUST(fp8_context_create(&context_config, &c));
  for (p = 0; p < sizeof presets / sizeof *presets; ++p) {
    enum { kCount = 5 };
    fp8_recipe *r = preset_recipe(presets[p], 0, 0);
    spy s = {0};
    fp8_comm_ops ops = spy_ops(&s);
    fp8_comm *comm;
    fp8_param *params[kCount];
    fp8_tensor masters[kCount];
    const fp8_tensor *master_at[kCount];
    weight full[kCount];
    fp8_qtensor *full_at[kCount];
    fp8_param_args args;
    fp8_param_layout layout;
    fp8_buffer amax, shard, master = dev_new(c, NULL, 64 * 64 * 4);
    const int both = presets[p] == FP8_PRESET_ROW || presets[p] == FP8_PRESET_MX;
    int64_t cuts[3] = {0, 48 * 16, 64 * 64};
    int i;
    MUST(fp8_comm_create(&ops, &comm));
    for (i = 0; i < kCount; ++i) {
      fp8_param_config config;
      FP8_INIT(&config);
      config.rows = config.cols = 64;
      config.cuts = cuts;
      config.world = 2;
      config.recipe = r;
      MUST(fp8_param_create(c, &config, &params[i]));
      masters[i] = tensor_1d(master.data, FP8_DTYPE_F32, cuts[1]);
      master_at[i] = &masters[i];
      full[i] = make_weight(c, r, 64, 64, FP8_SIDE_BOTH);
      full_at[i] = &full[i].q;
    }
    FP8_INIT(&layout);
    MUST(fp8_param_sizes((const fp8_param *const *)params, kCount, FP8_SIDE_BOTH, &layout));
    amax = dev_new(c, NULL, layout.amax_bytes);
    shard = dev_new(c, NULL, layout.row_bytes + layout.col_bytes);
    FP8_INIT(&args);
    args.params = (const fp8_param *const *)params;
    args.masters = master_at;
    args.full = full_at;
    args.amax = &amax;
    args.shard = &shard;
    args.count = kCount;
    args.sides = FP8_SIDE_BOTH;
    MUST(fp8_param_quantize(c, comm, &args, NULL));
    assert_int_equal(s.reductions, presets[p] != FP8_PRESET_NONE);
    assert_int_equal(s.gathers, 0);
    MUST(fp8_param_gather(c, comm, &args, NULL));
    assert_int_equal(s.gathers, 1);
    assert_int_equal(s.bytes[0], kCount * cuts[1] * (both || presets[p] == FP8_PRESET_NONE ? 2 : 1));
    assert_int_equal(s.bytes[1], kCount * (64 * 64 - cuts[1]) * (both || presets[p] == FP8_PRESET_NONE ? 2 : 1));
    s.answer = FP8_ERR_IO;
    MUST_FAIL(fp8_param_gather(c, comm, &args, NULL), FP8_ERR_IO, "all_gather");
    fp8_comm_destroy(comm);
    assert_int_equal(s.released, 1);
    for (i = 0; i < kCount; ++i) {
      fp8_param_destroy(params[i]);
      dev_free(c, &full[i].memory);
    }
    dev_free(c, &master);
    dev_free(c, &amax);
    dev_free(c, &shard);
    fp8_recipe_destroy(r);
  }
  fp8_context_destroy(c);
}

static void refusals(void **state) {
  spy s = {0};
  fp8_comm *comm = NULL;
  fp8_comm_ops ops = spy_ops(&s);
  int32_t rank = -1, size = -1;
  uint32_t caps = 0;
  (void)state;
  ops.rank = 2;
  MUST_FAIL(fp8_comm_create(&ops, &comm), FP8_ERR_ARGUMENT, "ops.rank is 2");
  ops = spy_ops(&s);
  ops.all_reduce_max = NULL;
  MUST_FAIL(fp8_comm_create(&ops, &comm), FP8_ERR_ARGUMENT, "all_reduce_max");
  ops = spy_ops(&s);
  ops.caps = 0;
  MUST_FAIL(fp8_comm_create(&ops, &comm), FP8_ERR_ARGUMENT, "caps");
  ops = spy_ops(&s);
  ops.struct_size = 0;
  MUST_FAIL(fp8_comm_create(&ops, &comm), FP8_ERR_ARGUMENT, "struct_size");
  MUST_FAIL(fp8_comm_create_local(0, &comm), FP8_ERR_ARGUMENT, "size is 0");
  assert_int_equal(s.released, 0);
  ops = spy_ops(&s);
  MUST(fp8_comm_create(&ops, &comm));
  MUST(fp8_comm_query(comm, &rank, &size, &caps));
  MUST(fp8_comm_query(comm, NULL, NULL, NULL));
  assert_true(rank == 0 && size == 2 && caps == FP8_COMM_HOST);
  MUST(fp8_comm_status(comm));
  fp8_comm_destroy(comm);
  fp8_comm_destroy(NULL);
}

/* A call that fails leaves NULL, not what was there: destroying it is no second free. */
static void no_handle_on_failure(void **state) {
#define LEAVES_NULL(type, call)                         \
  do {                                                  \
    type *handle = (type *)&anything;                   \
    const fp8_status status = (call);                   \
    assert_true(status != FP8_OK && rank_message()[0]); \
    assert_null(handle);                                \
  } while (0)
  char anything = 0;
  spy s = {0};
  uint8_t id[128] = {0};
  fp8_context *c = ranks_context(1);
  fp8_comm *locals[2] = {(fp8_comm *)&anything, (fp8_comm *)&anything}, *good = NULL;
  fp8_recipe *recipe = preset_recipe(FP8_PRESET_BLOCK, 0, 0);
  fp8_comm_ops bad = spy_ops(&s), ops = spy_ops(&s);
  fp8_param_config param;
  fp8_dispatch_config dispatch;
  (void)state;
  bad.size = 0;
  LEAVES_NULL(fp8_comm, fp8_comm_create(&bad, &handle));
  LEAVES_NULL(fp8_comm, fp8_comm_create(NULL, &handle));
  LEAVES_NULL(fp8_comm, fp8_comm_create_nccl(NULL, &handle));
  LEAVES_NULL(fp8_comm, fp8_comm_create_nccl_rank(NULL, id, 0, 1, &handle));
  LEAVES_NULL(fp8_comm, fp8_comm_create_nccl_rank(c, NULL, 0, 1, &handle));
  LEAVES_NULL(fp8_comm, fp8_comm_create_nccl_rank(c, id, 2, 2, &handle));
  assert_int_equal(fp8_comm_create_local(0, locals), FP8_ERR_ARGUMENT); /* an array of none */
  assert_ptr_equal(locals[0], &anything);
  FP8_INIT(&param);
  param.recipe = recipe;
  param.rows = -1;
  LEAVES_NULL(fp8_param, fp8_param_create(c, &param, &handle));
  LEAVES_NULL(fp8_param, fp8_param_create(c, NULL, &handle));
  LEAVES_NULL(fp8_param, fp8_param_create(NULL, &param, &handle));
  MUST(fp8_comm_create(&ops, &good));
  FP8_INIT(&dispatch);
  dispatch.recipe = recipe;
  dispatch.k = 0;
  LEAVES_NULL(fp8_dispatch_plan, fp8_dispatch_plan_create(c, good, &dispatch, NULL, &handle));
  LEAVES_NULL(fp8_dispatch_plan, fp8_dispatch_plan_create(c, good, NULL, NULL, &handle));
  LEAVES_NULL(fp8_dispatch_plan, fp8_dispatch_plan_create(c, NULL, &dispatch, NULL, &handle));
  LEAVES_NULL(fp8_dispatch_plan, fp8_dispatch_plan_create(NULL, good, &dispatch, NULL, &handle));
  fp8_comm_destroy(good);
  fp8_recipe_destroy(recipe);
  fp8_context_destroy(c);
#undef LEAVES_NULL
}

#ifdef RANKS_MAIN
RANKS_MAIN(cmocka_unit_test(reductions), cmocka_unit_test(comparisons), cmocka_unit_test(param_lists))
#else
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reductions),   cmocka_unit_test(comparisons),         cmocka_unit_test(param_lists),
      cmocka_unit_test(misfits),      cmocka_unit_test(one_refused),         cmocka_unit_test(dead_rank),
      cmocka_unit_test(stalled_rank), cmocka_unit_test(endless_wait),        cmocka_unit_test(one_of_each),
      cmocka_unit_test(refusals),     cmocka_unit_test(no_handle_on_failure)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
