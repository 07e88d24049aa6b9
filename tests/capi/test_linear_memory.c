/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces, NO_ALLOC, lifetimes, and many threads on one linear. */
#include <pthread.h>

#include "linear_case.h"

/* One workspace of fp8_linear_workspace serves every legal call with up to these rows, at any address, and nothing is
 * allocated or written beyond it. */
static void every_call(linear_case *k, const fp8_buffer *ws) {
  fp8_linear_forward_args f = forward_args(k);
  fp8_linear_backward_args b = backward_args(k);
  fp8_tensor amax = tensor1(FP8_DTYPE_F32, 1), stats = tensor2(FP8_DTYPE_U64, 2, 8), dx32, dw16;
  fp8_tensor w32 = random2(FP8_DTYPE_F32, k->out, k->in, 1.0f);
  fp8_qtensor qx, qdy, saved_dy;
  fp8_quantize_args q;
  int tensor, variant;
  fp8_recipe_config rc;
  FP8_INIT(&rc);
  OK(fp8_recipe_query(k->r, &rc));
  tensor = rc.preset == FP8_PRESET_TENSOR;
  dx32 = tensor2(FP8_DTYPE_F32, k->rows, k->in), dw16 = tensor2(FP8_DTYPE_BF16, k->out, k->in);
  FP8_INIT(&saved_dy);
  OK(fp8_linear_describe(k->l, FP8_ROLE_GRADIENT, k->rows,
                         FP8_SIDE_COL | (k->output == FP8_DTYPE_F32 ? FP8_SIDE_COPY : 0), &saved_dy));
  place(&saved_dy, FP8_SIDE_COL);
  f.workspace = b.workspace = ws;
  f.stats_x = &stats, f.bias = &k->bias, f.amax_x = tensor ? &amax : NULL;
  OK(fp8_linear_forward(k->l, &f, NULL));
  f.flags = tensor ? FP8_LINEAR_AMAX_GIVEN : 0, f.saved_x = NULL, f.stats_x = NULL;
  OK(fp8_linear_forward(k->l, &f, NULL));
  for (variant = 0; variant < 32; ++variant) {
    b.flags = variant & 1 ? FP8_LINEAR_ACCUMULATE_DW | FP8_LINEAR_ACCUMULATE_DX | FP8_LINEAR_ACCUMULATE_DBIAS : 0;
    b.dx = variant & 2 ? &dx32 : &k->dx, b.dw = variant & 2 ? &dw16 : &k->dw;
    b.x = variant & 4 ? &k->x : NULL, b.saved_x = variant & 4 ? NULL : &k->saved;
    b.amax_x = variant & 4 && tensor ? &amax : NULL;
    b.dbias = variant & 8 ? &k->dbias : NULL, b.stats_dy = variant & 8 ? &stats : NULL;
    b.saved_dy = variant & 16 ? &saved_dy : NULL;
    OK(fp8_linear_backward(k->l, &b, NULL));
  }
  if (rc.preset == FP8_PRESET_NONE) { /* dy saved in BF16: an F16 x follows it */
    saved_dy = describe(k->r, FP8_ROLE_GRADIENT, k->rows, k->out, FP8_SIDE_COL | FP8_SIDE_COPY);
    place(&saved_dy, FP8_SIDE_COL);
    OK(fp8_linear_backward(k->l, &b, NULL));
  }
  FP8_INIT(&q); /* fp8_quantize of x, dy and w */
  q.workspace = ws, q.stats = &stats;
  qx = describe(k->r, FP8_ROLE_ACTIVATION, k->rows, k->in, FP8_SIDE_BOTH | FP8_SIDE_COPY), place(&qx, FP8_SIDE_BOTH);
  q.x = &k->x, q.q = &qx, q.role = FP8_ROLE_ACTIVATION;
  OK(fp8_quantize(k->c, k->r, &q, NULL));
  qdy = describe(k->r, FP8_ROLE_GRADIENT, k->rows, k->out, FP8_SIDE_BOTH | FP8_SIDE_COPY), place(&qdy, FP8_SIDE_BOTH);
  q.x = &k->dy, q.q = &qdy, q.role = FP8_ROLE_GRADIENT, q.dbias = &k->dbias;
  OK(fp8_quantize(k->c, k->r, &q, NULL));
  q.dbias = NULL, q.x = &w32, q.role = FP8_ROLE_WEIGHT;
  k->qw = describe(k->r, FP8_ROLE_WEIGHT, k->out, k->in, FP8_SIDE_BOTH | FP8_SIDE_COPY), place(&k->qw, FP8_SIDE_BOTH);
  q.q = &k->qw;
  OK(fp8_quantize(k->c, k->r, &q, NULL));
  f.x = NULL, f.qx = &qx, f.amax_x = NULL, f.flags = 0;
  OK(fp8_linear_forward(k->l, &f, NULL));
  b.dy = NULL, b.qdy = &qdy, b.dbias = NULL, b.stats_dy = NULL, b.saved_dy = NULL;
  OK(fp8_linear_backward(k->l, &b, NULL));
}

static void test_no_alloc(void **state) {
  static const int32_t dtypes[] = {FP8_DTYPE_BF16, FP8_DTYPE_F32, FP8_DTYPE_F16};
  fp8_context *c = new_context(FP8_CONTEXT_NO_ALLOC);
  int p, d, s;
  (void)state;
  for (p = 0; p < PRESETS; ++p)
    for (d = 0; d < 3; ++d)
      for (s = 0; s < 3; ++s) {
        linear_case k;
        fp8_recipe_config config;
        fp8_buffer ws;
        fp8_counters before, after;
        fp8_linear_forward_args f;
        const int64_t rows = s == 0 ? 70 : s == 1 ? 33 : 1;
        uint64_t bytes;
        char *memory, guard[64], seen_guard[64];
        FP8_INIT(&config);
        config.preset = kPresets[p];
        case_with(&k, g_context, &config, rows, 50, 40, dtypes[d], dtypes[d]);
        fp8_linear_destroy(k.l);
        {
          fp8_linear_config lc;
          FP8_INIT(&lc);
          lc.in_features = 50, lc.out_features = 40, lc.recipe = k.r, lc.input_dtype = lc.output_dtype = dtypes[d];
          OK(fp8_linear_create(c, &lc, &k.l));
        }
        k.c = c;
        OK(fp8_linear_workspace(k.l, 70, 0, &bytes)); /* of 70 rows; fewer run in it */
        OK(fp8_linear_prepare(k.l, rows, 0));
        memory = dev_alloc(bytes + 256);
        memset(guard, 0x5a, sizeof guard);
        ws.data = memory + 7; /* any address */
        ws.bytes = bytes;
        upload(memory + 7 + bytes, guard, sizeof guard);
        FP8_INIT(&before);
        FP8_INIT(&after);
        OK(fp8_context_counters(c, &before));
        every_call(&k, bytes ? &ws : NULL);
        OK(fp8_context_counters(c, &after));
        assert_int_equal(after.allocations, before.allocations);
        download(seen_guard, memory + 7 + bytes, sizeof guard);
        assert_memory_equal(guard, seen_guard, sizeof guard);
        f = forward_args(&k);
        if (kPresets[p] != FP8_PRESET_NONE) {
          REFUSED(FP8_ERR_NO_ALLOC, "fp8_linear_forward|workspace is NULL|NO_ALLOC", fp8_linear_forward(k.l, &f, NULL));
          ws.bytes = 3;
          f.workspace = &ws;
          REFUSED(FP8_ERR_ARGUMENT, "workspace.bytes is 3", fp8_linear_forward(k.l, &f, NULL));
        }
        case_free(&k);
      }
  fp8_context_destroy(c);
}

/* Without NO_ALLOC a call takes its own, and counts it; the fewest bytes are those of the row count. */
static void test_allocations(void **state) {
  linear_case k;
  fp8_linear_forward_args f;
  fp8_counters before, after;
  (void)state;
  case_new(&k, FP8_PRESET_BLOCK, 32, 64, 48);
  f = forward_args(&k);
  FP8_INIT(&before);
  FP8_INIT(&after);
  OK(fp8_context_counters(g_context, &before));
  OK(fp8_linear_forward(k.l, &f, NULL));
  OK(fp8_context_counters(g_context, &after));
  assert_int_equal(after.allocations - before.allocations, 1);
  assert_int_equal(after.quantizations - before.quantizations, 1);
  assert_int_equal(after.gemms - before.gemms, 1);
  case_free(&k);
}

/* An unquantized w may be F16 or BF16, whatever the recipe describes: the workspace serves both. */
static void test_workspace_plain_dtypes(void **state) {
  static const struct {
    int32_t recipe, input, output, w;
  } cases[] = {{0, FP8_DTYPE_F16, FP8_DTYPE_F32, FP8_DTYPE_F16}, /* dy is rounded to F16 for dx, to BF16 for dw */
               {FP8_DTYPE_F16, FP8_DTYPE_F16, FP8_DTYPE_BF16, FP8_DTYPE_BF16}};
  int i;
  (void)state;
  for (i = 0; i < 2; ++i) {
    linear_case k;
    fp8_recipe_config rc;
    fp8_quantize_args q;
    fp8_linear_backward_args b;
    fp8_tensor w;
    fp8_buffer ws;
    FP8_INIT(&rc);
    rc.preset = FP8_PRESET_NONE;
    rc.activation_dtype = rc.weight_dtype = rc.gradient_dtype = cases[i].recipe;
    case_with(&k, g_context, &rc, 2, 128, 96, cases[i].input, cases[i].output);
    w = random2(cases[i].w, 96, 128, 1.0f);
    FP8_INIT(&q);
    k.qw = describe(k.r, FP8_ROLE_WEIGHT, 96, 128, FP8_SIDE_BOTH);
    q.x = &w, q.q = &k.qw, q.role = FP8_ROLE_WEIGHT;
    OK(fp8_quantize(g_context, k.r, &q, NULL));
    OK(fp8_linear_workspace(k.l, 2, 0, &ws.bytes));
    ws.data = dev_alloc(ws.bytes);
    FP8_INIT(&b);
    b.dy = &k.dy, b.w = &k.qw, b.x = &k.x, b.dx = &k.dx, b.dw = &k.dw, b.workspace = &ws;
    OK(fp8_linear_backward(k.l, &b, NULL));
    fp8_linear_destroy(k.l);
    fp8_recipe_destroy(k.r);
    free_all(NULL);
  }
}

static void test_workspace_grows(void **state) {
  static const uint32_t gemms[] = {0, FP8_FPROP, FP8_DGRAD, FP8_WGRAD, FP8_DGRAD | FP8_WGRAD, FP8_NO_GEMM};
  int p, g;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    uint64_t all;
    case_new(&k, kPresets[p], 1, 200, 136);
    for (g = 0; g < 6; ++g) {
      uint64_t last = 0, bytes;
      int64_t rows;
      for (rows = 0; rows < 700; rows += rows < 8 ? 1 : rows < 136 ? 8 : 150) {
        OK(fp8_linear_workspace(k.l, rows, gemms[g], &bytes));
        OK(fp8_linear_workspace(k.l, rows, 0, &all));
        assert_true(bytes >= last && bytes <= all);
        last = bytes;
      }
    }
    REFUSED(FP8_ERR_ARGUMENT, "fp8_linear_workspace|gemms", fp8_linear_workspace(k.l, 1, 16, &all));
    REFUSED(FP8_ERR_ARGUMENT, "gemms|NO_GEMM", fp8_linear_workspace(k.l, 1, 9, &all));
    REFUSED(FP8_ERR_ARGUMENT, "rows is -1", fp8_linear_workspace(k.l, -1, 0, &all));
    REFUSED(FP8_ERR_ARGUMENT, "rows is -1", fp8_linear_prepare(k.l, -1, 0));
    case_free(&k);
  }
}

/* The answers that a linear keeps are those of a linear that has none, more sizes than it keeps included. */
static void test_workspace_again(void **state) {
  static const uint32_t gemms[] = {FP8_FPROP, 0, FP8_WGRAD};
  linear_case k;
  uint64_t first[30], again;
  int i, round;
  (void)state;
  case_new(&k, FP8_PRESET_BLOCK, 1, 200, 136);
  for (round = 0; round < 3; ++round)
    for (i = 0; i < 30; ++i) {
      const int at = round ? 29 - i : i;
      OK(fp8_linear_workspace(k.l, at % 10 * 40, gemms[at / 10], &again));
      if (round) {
        assert_int_equal(again, first[at]);
      } else {
        fp8_linear_config config;
        fp8_linear *other;
        FP8_INIT(&config);
        config.in_features = 200, config.out_features = 136, config.recipe = k.r;
        OK(fp8_linear_create(k.c, &config, &other));
        OK(fp8_linear_workspace(other, at % 10 * 40, gemms[at / 10], &first[at]));
        assert_int_equal(again, first[at]);
        fp8_linear_destroy(other);
      }
    }
  case_free(&k);
}

/* Children hold their parents: any order of destruction. */
static void test_lifetimes(void **state) {
  fp8_context *c = new_context(0);
  fp8_recipe *r = recipe_of(FP8_PRESET_MX);
  fp8_linear *l;
  fp8_linear_config config;
  fp8_qtensor q;
  uint64_t bytes;
  (void)state;
  FP8_INIT(&config);
  config.in_features = 64, config.out_features = 32, config.recipe = r;
  OK(fp8_linear_create(c, &config, &l));
  fp8_context_destroy(c);
  fp8_recipe_destroy(r);
  FP8_INIT(&q);
  OK(fp8_linear_describe(l, FP8_ROLE_WEIGHT, -5, FP8_SIDE_BOTH, &q)); /* rows are ignored for a weight */
  assert_int_equal(q.rows, 32);
  assert_int_equal(q.cols, 64);
  OK(fp8_linear_describe(l, FP8_ROLE_GRADIENT, 7, FP8_SIDE_COL, &q));
  assert_int_equal(q.rows, 7);
  assert_int_equal(q.cols, 32);
  OK(fp8_linear_workspace(l, 16, 0, &bytes));
  fp8_linear_destroy(l);
  fp8_linear_destroy(NULL);
}

typedef struct worker {
  linear_case *k;
  fp8_tensor y, dx, dw;
  fp8_qtensor saved;
  int failures;
} worker;

static void *work(void *arg) {
  worker *w = arg;
  int i;
  for (i = 0; i < 20; ++i) {
    fp8_linear_forward_args f = forward_args(w->k);
    fp8_linear_backward_args b = backward_args(w->k);
    f.y = &w->y, f.saved_x = &w->saved;
    b.dx = &w->dx, b.dw = &w->dw, b.saved_x = &w->saved;
    w->failures += fp8_linear_forward(w->k->l, &f, NULL) != FP8_OK;
    w->failures += fp8_linear_backward(w->k->l, &b, NULL) != FP8_OK;
    f.y = NULL; /* a refusal's text is the thread's own */
    w->failures += fp8_linear_forward(w->k->l, &f, NULL) != FP8_ERR_ARGUMENT;
  }
  return NULL;
}

static void test_threads(void **state) {
  enum { kThreads = 4 };
  int p, t;
  (void)state;
  for (p = 0; p < PRESETS; ++p) {
    linear_case k;
    pthread_t threads[kThreads];
    worker workers[kThreads];
    fp8_linear_forward_args f;
    fp8_linear_backward_args b;
    case_new(&k, kPresets[p], 48, 64, 56);
    f = forward_args(&k), b = backward_args(&k);
    OK(fp8_linear_forward(k.l, &f, NULL));
    OK(fp8_linear_backward(k.l, &b, NULL));
    for (t = 0; t < kThreads; ++t) {
      workers[t].k = &k;
      workers[t].failures = 0;
      workers[t].y = like(&k.y), workers[t].dx = like(&k.dx), workers[t].dw = like(&k.dw);
      FP8_INIT(&workers[t].saved);
      OK(fp8_linear_describe(k.l, FP8_ROLE_ACTIVATION, k.rows, FP8_SIDE_COL, &workers[t].saved));
      place(&workers[t].saved, FP8_SIDE_COL);
    }
    for (t = 0; t < kThreads; ++t) assert_int_equal(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
    for (t = 0; t < kThreads; ++t) assert_int_equal(pthread_join(threads[t], NULL), 0);
    sync();
    for (t = 0; t < kThreads; ++t) {
      assert_int_equal(workers[t].failures, 0);
      assert_true(equal(&workers[t].y, &k.y) && equal(&workers[t].dx, &k.dx) && equal(&workers[t].dw, &k.dw));
    }
    case_free(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_no_alloc, free_all),
      cmocka_unit_test_teardown(test_allocations, free_all),
      cmocka_unit_test_teardown(test_workspace_plain_dtypes, free_all),
      cmocka_unit_test_teardown(test_workspace_grows, free_all),
      cmocka_unit_test_teardown(test_workspace_again, free_all),
      cmocka_unit_test_teardown(test_lifetimes, free_all),
      cmocka_unit_test_teardown(test_threads, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
