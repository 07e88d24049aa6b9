/* SPDX-License-Identifier: Apache-2.0 */
/* What fp8_quantize and fp8_amax refuse: the lattice of wrong arguments. Nothing is written. */
#include "support.h"

static fp8_recipe *g_recipe;
static fp8_tensor g_x, g_amax, g_stats, g_dbias;
static fp8_qtensor g_q;
static fp8_quantize_args g_good;

static void setup_good(int32_t preset) {
  g_recipe = recipe_of(preset);
  g_x = random2(FP8_DTYPE_BF16, 40, 96, 1.0f);
  g_q = describe(g_recipe, FP8_ROLE_ACTIVATION, 40, 96, FP8_SIDE_BOTH);
  place(&g_q, FP8_SIDE_ROW);
  place(&g_q, FP8_SIDE_COL);
  g_amax = tensor1(FP8_DTYPE_F32, 1);
  g_stats = tensor1(FP8_DTYPE_U64, 8);
  g_dbias = tensor1(FP8_DTYPE_F32, 96);
  FP8_INIT(&g_good);
  g_good.x = &g_x, g_good.q = &g_q, g_good.role = FP8_ROLE_ACTIVATION;
}

#define QUANTIZE fp8_quantize(g_context, g_recipe, &a, NULL)
#define AMAX fp8_amax(g_context, g_recipe, &a, NULL)

static void test_arguments(void **state) {
  fp8_quantize_args a;
  fp8_tensor t;
  uint64_t bytes;
  struct {
    fp8_quantize_args args;
    uint64_t later;
  } newer;
  (void)state;
  setup_good(FP8_PRESET_TENSOR);
  a = g_good;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_quantize|context is NULL", fp8_quantize(NULL, g_recipe, &a, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "fp8_quantize|recipe is NULL", fp8_quantize(g_context, NULL, &a, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "fp8_quantize|args", fp8_quantize(g_context, g_recipe, NULL, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "fp8_amax|context is NULL", fp8_amax(NULL, g_recipe, &a, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "fp8_quantize_workspace|bytes is NULL",
          fp8_quantize_workspace(g_context, g_recipe, &a, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "fp8_quantize_workspace|context", fp8_quantize_workspace(NULL, g_recipe, &a, &bytes));
  a.x = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "x is NULL", QUANTIZE);
  a = g_good, a.q = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "q is NULL", QUANTIZE);
  a = g_good, a.role = 0;
  REFUSED(FP8_ERR_ARGUMENT, "role is 0", QUANTIZE);
  a = g_good, a.role = 4;
  REFUSED(FP8_ERR_ARGUMENT, "role is 4", QUANTIZE);
  a = g_good, a.flags = 4;
  REFUSED(FP8_ERR_UNSUPPORTED, "flags|0x4", QUANTIZE);
  a = g_good, a.reserved = 1;
  REFUSED(FP8_ERR_UNSUPPORTED, "reserved is 1", QUANTIZE);
  a = g_good, a.max_sms = -1;
  REFUSED(FP8_ERR_ARGUMENT, "max_sms is -1", QUANTIZE);
  a = g_good, a.state = &g_amax;
  REFUSED(FP8_ERR_UNSUPPORTED, "state|delayed", QUANTIZE);
  if (test_backend() == FP8_BACKEND_CPU) {
    a = g_good;
    REFUSED(FP8_ERR_ARGUMENT, "stream", fp8_quantize(g_context, g_recipe, &a, (fp8_stream)&a));
  }

  a = g_good, a.x = &t;
  t = g_x, t.dtype = FP8_DTYPE_F64;
  REFUSED(FP8_ERR_ARGUMENT, "x.dtype is F64|F32", QUANTIZE);
  t = g_x, t.dtype = FP8_DTYPE_E4M3;
  REFUSED(FP8_ERR_ARGUMENT, "x.dtype is E4M3", QUANTIZE);
  t = g_x, t.dtype = 1000;
  REFUSED(FP8_ERR_ARGUMENT, "x.dtype|1000", QUANTIZE);
  t = g_x, t.ndim = -1;
  REFUSED(FP8_ERR_ARGUMENT, "x.ndim is -1", QUANTIZE);
  t = g_x, t.shape[0] = -4;
  REFUSED(FP8_ERR_ARGUMENT, "x.shape[0] is -4", QUANTIZE);
  t = g_x, t.shape[0] = 41;
  REFUSED(FP8_ERR_ARGUMENT, "q is 40 x 96|x is 41 x 96", QUANTIZE);
  t = g_x, t.shape[1] = 95;
  REFUSED(FP8_ERR_ARGUMENT, "x is 40 x 95", QUANTIZE);
  t = g_x, t.shape[0] = INT64_MAX / 4, t.stride[0] = INT64_MAX / 4;
  REFUSED(FP8_ERR_ARGUMENT, "x|too large", QUANTIZE);
  t = g_x, t.stride[0] = 0;
  REFUSED(FP8_ERR_ARGUMENT, "x.stride[0] is 0", QUANTIZE);
  t = g_x, t.stride[1] = -1;
  REFUSED(FP8_ERR_ARGUMENT, "x.stride[1] is -1", QUANTIZE);
  t = g_x, t.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "x.data is NULL", QUANTIZE);
  t = g_x, t.data = (char *)t.data + 8;
  REFUSED(FP8_ERR_ARGUMENT, "x.data|aligned to 16", QUANTIZE);

  a = g_good, a.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "args|struct_size", QUANTIZE);
  a = g_good, a.struct_size = 3;
  REFUSED(FP8_ERR_ARGUMENT, "args|struct_size", QUANTIZE);
  memset(&newer, 0, sizeof newer);
  newer.args = g_good, newer.args.struct_size = sizeof newer, newer.later = 9;
  REFUSED(FP8_ERR_UNSUPPORTED, "args|byte", fp8_quantize(g_context, g_recipe, &newer.args, NULL));
  newer.later = 0;
  OK(fp8_quantize(g_context, g_recipe, &newer.args, NULL));
  a = g_good, a.struct_size = offsetof(fp8_quantize_args, flags); /* older than role */
  REFUSED(FP8_ERR_ARGUMENT, "role is 0", QUANTIZE);
  fp8_recipe_destroy(g_recipe);
}

static void test_sides(void **state) {
  fp8_quantize_args a;
  fp8_qtensor q;
  fp8_recipe *other;
  int i;
  (void)state;
  setup_good(FP8_PRESET_BLOCK);
  a = g_good, a.q = &q;
  q = g_q, q.row_kind = q.col_kind = 0;
  REFUSED(FP8_ERR_ARGUMENT, "q has no side", QUANTIZE);
  q = g_q, q.row_kind = FP8_SCALING_1X32;
  REFUSED(FP8_ERR_ARGUMENT, "q.row_kind is 1x32|1x128|activation", QUANTIZE);
  q = g_q, q.col_kind = FP8_SCALING_UNQUANTIZED;
  REFUSED(FP8_ERR_ARGUMENT, "q.col_kind is unquantized|1x128", QUANTIZE);
  q = g_q, q.col_kind = 42;
  REFUSED(FP8_ERR_ARGUMENT, "q.col_kind", QUANTIZE);
  q = g_q, q.row.dtype = FP8_DTYPE_E5M2;
  REFUSED(FP8_ERR_ARGUMENT, "q.row.dtype is E5M2|E4M3", QUANTIZE);
  q = g_q, q.col.shape[0] = 40, q.col.shape[1] = 96;
  REFUSED(FP8_ERR_ARGUMENT, "q.col|40 x 96|96 x 40", QUANTIZE);
  q = g_q, q.row_scale.shape[1] = 2;
  REFUSED(FP8_ERR_ARGUMENT, "q.row_scale|40 x 2|40 x 1", QUANTIZE);
  q = g_q, q.row_scale.dtype = FP8_DTYPE_E8M0;
  REFUSED(FP8_ERR_ARGUMENT, "q.row_scale.dtype is E8M0|F32", QUANTIZE);
  q = g_q, q.col_scale.stride[0] = 0;
  REFUSED(FP8_ERR_ARGUMENT, "q.col_scale.stride[0] is 0", QUANTIZE);
  q = g_q, q.col.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "q.col.data is NULL", QUANTIZE);
  q = g_q, q.row_scale.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "q.row_scale.data is NULL", QUANTIZE);
  q = g_q, q.row.data = (char *)q.row.data + 8;
  REFUSED(FP8_ERR_ARGUMENT, "q.row.data|aligned to 16", QUANTIZE);
  q = g_q, q.row_scale.data = (char *)q.row_scale.data + 1;
  REFUSED(FP8_ERR_ARGUMENT, "q.row_scale.data|aligned to 4", QUANTIZE);
  q = g_q, q.rows = 39;
  REFUSED(FP8_ERR_ARGUMENT, "q is 39 x 96", QUANTIZE);
  q = g_q, q.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "q|struct_size", QUANTIZE);
  /* outputs that overlap */
  q = g_q, q.col.data = q.row.data;
  REFUSED(FP8_ERR_ARGUMENT, "q.col shares memory with q.row", QUANTIZE);
  q = g_q, q.row.data = g_x.data;
  REFUSED(FP8_ERR_ARGUMENT, "q.row shares memory with x", QUANTIZE);
  q = g_q, q.col_scale.data = q.row_scale.data;
  REFUSED(FP8_ERR_ARGUMENT, "q.col_scale shares memory with q.row_scale", QUANTIZE);
  q = g_q, q.row_scale.data = q.col.data;
  REFUSED(FP8_ERR_ARGUMENT, "shares memory", QUANTIZE);
  fp8_recipe_destroy(g_recipe);
  /* a qtensor of another recipe is refused whichever they are */
  for (i = FP8_PRESET_TENSOR; i <= FP8_PRESET_MX; ++i) {
    if (i == FP8_PRESET_TENSOR_DELAYED) continue;
    setup_good(i);
    other = recipe_of(i == FP8_PRESET_MX ? FP8_PRESET_ROW : FP8_PRESET_MX);
    REFUSED(FP8_ERR_ARGUMENT, "q.row_kind", fp8_quantize(g_context, other, &g_good, NULL));
    fp8_recipe_destroy(g_recipe);
    fp8_recipe_destroy(other);
  }
}

static void test_outputs(void **state) {
  fp8_quantize_args a;
  fp8_tensor t;
  fp8_qtensor row;
  (void)state;
  setup_good(FP8_PRESET_TENSOR);
  a = g_good, a.amax = &t;
  t = g_amax, t.dtype = FP8_DTYPE_BF16;
  REFUSED(FP8_ERR_ARGUMENT, "amax.dtype is BF16|F32", QUANTIZE);
  t = g_amax, t.shape[0] = 40;
  REFUSED(FP8_ERR_ARGUMENT, "amax|40|1", QUANTIZE);
  t = g_amax, t.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "amax.data is NULL", QUANTIZE);
  t = g_amax, t.data = (char *)t.data + 2;
  REFUSED(FP8_ERR_ARGUMENT, "amax.data|aligned to 4", QUANTIZE);
  t = g_amax, t.data = g_q.row_scale.data;
  REFUSED(FP8_ERR_ARGUMENT, "shares memory with amax", QUANTIZE);
  a = g_good, a.flags = FP8_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "FP8_AMAX_GIVEN|amax and amax_col are NULL", QUANTIZE);
  t = tensor1(FP8_DTYPE_F32, 1);
  a.amax = &g_amax, a.amax_col = &t;
  REFUSED(FP8_ERR_ARGUMENT, "amax and amax_col are both given|one amax", QUANTIZE);
  a = g_good, a.stats = &t;
  t = g_stats, t.dtype = FP8_DTYPE_I64;
  REFUSED(FP8_ERR_ARGUMENT, "stats.dtype is I64|U64", QUANTIZE);
  t = g_stats, t.shape[0] = 9;
  REFUSED(FP8_ERR_ARGUMENT, "stats|9|U64[8]", QUANTIZE);
  t = view(FP8_DTYPE_U64, 2, 3, 8, 0), t.data = dev_alloc(192);
  REFUSED(FP8_ERR_ARGUMENT, "stats|U64[2, 8]", QUANTIZE);
  t = g_stats, t.data = (char *)t.data + 4;
  REFUSED(FP8_ERR_ARGUMENT, "stats.data|aligned to 8", QUANTIZE);
  a = g_good, a.dbias = &t;
  t = g_dbias, t.shape[0] = 40;
  REFUSED(FP8_ERR_ARGUMENT, "dbias|40|96", QUANTIZE);
  t = g_dbias, t.dtype = FP8_DTYPE_BF16;
  REFUSED(FP8_ERR_ARGUMENT, "dbias.dtype is BF16", QUANTIZE);
  t = g_dbias, t.data = g_x.data;
  REFUSED(FP8_ERR_ARGUMENT, "dbias shares memory with x", QUANTIZE);

  a = g_good;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_amax|amax and amax_col are NULL", AMAX);
  a.amax = &g_amax, a.flags = FP8_AMAX_GIVEN;
  REFUSED(FP8_ERR_ARGUMENT, "fp8_amax|FP8_AMAX_GIVEN", AMAX);
  fp8_recipe_destroy(g_recipe);

  setup_good(FP8_PRESET_BLOCK); /* tiles take no amax; each side has its own */
  t = tensor2(FP8_DTYPE_F32, 40, 1);
  a = g_good, a.amax = &t, a.flags = FP8_AMAX_GIVEN;
  REFUSED(FP8_ERR_UNSUPPORTED, "FP8_AMAX_GIVEN|1x128|TENSOR and ROW", QUANTIZE);
  a.flags = 0, a.amax = NULL, a.amax_col = &t;
  REFUSED(FP8_ERR_ARGUMENT, "amax_col|[40, 1]|[96, 1]", QUANTIZE);
  row = describe(g_recipe, FP8_ROLE_ACTIVATION, 40, 96, FP8_SIDE_ROW);
  place(&row, FP8_SIDE_ROW);
  t = tensor2(FP8_DTYPE_F32, 96, 1), a.q = &row;
  REFUSED(FP8_ERR_ARGUMENT, "amax_col is given|no quantized column side", QUANTIZE);
  fp8_recipe_destroy(g_recipe);

  setup_good(FP8_PRESET_NONE);
  a = g_good, a.amax = &g_amax;
  REFUSED(FP8_ERR_ARGUMENT, "amax is given|quantizes no side", QUANTIZE);
  REFUSED(FP8_ERR_ARGUMENT, "fp8_amax|amax is given", AMAX);
  fp8_recipe_destroy(g_recipe);
}

/* After every refusal above: codes, scales and outputs as they were. */
static void test_nothing_written(void **state) {
  fp8_quantize_args a;
  char zero[40 * 96], seen[40 * 96];
  fp8_tensor bad;
  (void)state;
  setup_good(FP8_PRESET_MX);
  memset(zero, 0, sizeof zero);
  bad = g_dbias, bad.shape[0] = 95; /* the last thing that is checked */
  a = g_good, a.dbias = &bad, a.stats = &g_stats;
  REFUSED(FP8_ERR_ARGUMENT, "dbias|95", QUANTIZE);
  download(seen, g_q.row.data, sizeof seen);
  assert_memory_equal(seen, zero, sizeof seen);
  download(seen, g_q.col.data, sizeof seen);
  assert_memory_equal(seen, zero, sizeof seen);
  download(seen, g_stats.data, 64);
  assert_memory_equal(seen, zero, 64);
  OK(fp8_quantize(g_context, g_recipe, &g_good, NULL));
  download(seen, g_q.row.data, sizeof seen);
  assert_memory_not_equal(seen, zero, sizeof seen);
  fp8_recipe_destroy(g_recipe);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_arguments, free_all),
      cmocka_unit_test_teardown(test_sides, free_all),
      cmocka_unit_test_teardown(test_outputs, free_all),
      cmocka_unit_test_teardown(test_nothing_written, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
