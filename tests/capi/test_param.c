/* SPDX-License-Identifier: Apache-2.0 */
/* Primary weights apart from the cuts: golden vectors, the rank as data, sides on demand, launches, memory, refusals.
 */
#include "golden.h"
#include "sharded.h"

/* ---- the golden family ---- */
static void golden_zero1(void **state) {
  static const struct {
    const char *name;
    int preset, rule;
  } kinds[] = {{"tensor_fp32", FP8_PRESET_TENSOR, FP8_SCALE_FP32},
               {"b128x128_fp32", FP8_PRESET_BLOCK, FP8_SCALE_FP32},
               {"b128x128_pow2", FP8_PRESET_BLOCK, FP8_SCALE_POW2},
               {"mx32x32_rceil", FP8_PRESET_MX_W2D, 0},
               {"mx1x32_rceil", FP8_PRESET_MX, 0}};
  static const int64_t edges[] = {0, 17000, 33333, 50001, 60000};
  golden master = golden_load("zero1__master__w");
  fp8_context *c = ranks_context(1);
  int k, direct, r;
  (void)state;
  for (k = 0; k < 5; ++k)
    for (direct = 0; direct < 2; ++direct) {
      char name[96];
      golden want[3];
      const char *const parts[] = {"q", "s", "shard_amax"};
      rank_list ranks[4];
      slots all;
      sharded s;
      weight full;
      fp8_qtensor *at = &full.q;
      void *reduced = NULL, *codes, *scales;
      int64_t i, j;
      int m;
      memset(&s, 0, sizeof s);
      s.c = c;
      s.recipe = preset_recipe(kinds[k].preset, kinds[k].rule, direct ? FP8_MASTER_DIRECT : FP8_MASTER_BF16);
      s.count = 1;
      s.world = 4;
      s.rows[0] = 200;
      s.cols[0] = 300;
      memcpy(s.cuts[0], edges, sizeof edges);
      s.master[0] = dev_new(c, master.data, master.bytes);
      for (m = 0; m < 3; ++m) {
        snprintf(name, sizeof name, "zero1__%s_%s__%s", kinds[k].name, direct ? "none" : "bf16", parts[m]);
        want[m] = golden_load(name);
      }
      for (r = 0; r < 4; ++r) {
        const int64_t tiles = want[2].count / 4;
        float *amax = (float *)want[2].data + r * tiles;
        void *got;
        open_rank(&s, r, FP8_SIDE_BOTH, &ranks[r]);
        MUST(fp8_param_amax(c, &ranks[r].args, NULL));
        got = dev_get(c, ranks[r].amax.data, ranks[r].amax.bytes);
        if (ranks[r].layout.amax_dtype == FP8_DTYPE_F32) assert_memory_equal(got, amax, tiles * 4);
        if (reduced) {
          reduce_amax(&ranks[0].layout, reduced, got);
          free(got);
        } else {
          reduced = got;
        }
      }
      for (r = 0; r < 4; ++r) {
        dev_put(c, ranks[r].amax.data, reduced, ranks[r].amax.bytes);
        MUST(fp8_param_cast(c, &ranks[r].args, NULL));
      }
      free(reduced);
      all.c = c;
      all.ranks = ranks;
      all.world = 4;
      full = make_weight(c, s.recipe, 200, 300, FP8_SIDE_BOTH);
      ranks[3].args.full = &at;
      assemble_slots(&ranks[3], &all);
      codes = dev_get(c, full.q.row.data, 200 * 300);
      assert_memory_equal(codes, want[0].data, 200 * 300);
      free(codes);
      scales = dev_get(c, full.memory.data, full.memory.bytes);
      for (i = 0; i < want[1].shape[0]; ++i)
        for (j = 0; j < want[1].shape[1]; ++j) {
          const int64_t offset = (char *)full.q.row_scale.data - (char *)full.memory.data;
          const int64_t at_ij =
              full.q.row_scale.ndim > 1 ? i * full.q.row_scale.stride[0] + j * full.q.row_scale.stride[1] : 0;
          if (full.q.row_scale.dtype == FP8_DTYPE_F32)
            assert_memory_equal((char *)scales + offset + at_ij * 4, (float *)want[1].data + i * want[1].shape[1] + j,
                                4);
          else
            assert_int_equal(((uint8_t *)scales)[offset + at_ij], ((uint8_t *)want[1].data)[i * want[1].shape[1] + j]);
        }
      free(scales);
      for (m = 0; m < 3; ++m) free(want[m].data);
      for (r = 0; r < 4; ++r) close_rank(&s, &ranks[r]);
      dev_free(c, &full.memory);
      dev_free(c, &s.master[0]);
      fp8_recipe_destroy((fp8_recipe *)(uintptr_t)s.recipe);
    }
  free(master.data);
  fp8_context_destroy(c);
}

static void open_small(sharded *s, fp8_context *c, int preset, int count, int world) {
  uint64_t random = 12;
  int i;
  memset(s, 0, sizeof *s);
  s->c = c;
  s->recipe = preset_recipe(preset, 0, 0);
  s->count = count;
  s->world = world;
  for (i = 0; i < count; ++i) {
    s->rows[i] = 40 + 30 * i;
    s->cols[i] = 70 - 10 * i;
    random_cuts(s->cuts[i], world, s->rows[i] * s->cols[i], &random);
  }
  make_reference(s, 3);
}

static void close_small(sharded *s) {
  free_reference(s);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)s->recipe);
}

/* rank -1: one program for all ranks, the rank read on the device, masters padded to the largest shard. */
static void rank_is_data(void **state) {
  static const int presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_MX, FP8_PRESET_NONE};
  fp8_context *c = ranks_context(1);
  int p;
  (void)state;
  for (p = 0; p < 3; ++p) {
    sharded s;
    int r, i;
    open_small(&s, c, presets[p], 2, 4);
    for (r = 0; r < 4; ++r) {
      rank_list known, data;
      const int32_t rank_value = r;
      fp8_buffer rank = dev_new(c, &rank_value, 4), padded[2];
      fp8_tensor rank_tensor = tensor_1d(rank.data, FP8_DTYPE_I32, 1);
      void *a, *b;
      open_rank(&s, r, FP8_SIDE_BOTH, &known);
      open_rank(&s, r, FP8_SIDE_BOTH, &data);
      for (i = 0; i < 2; ++i) {
        fp8_param_config config;
        int64_t largest = 0;
        int q;
        float *host;
        const int64_t begin = s.cuts[i][r], n = s.cuts[i][r + 1] - begin;
        fp8_param_destroy(data.params[i]);
        FP8_INIT(&config);
        config.rows = s.rows[i];
        config.cols = s.cols[i];
        config.cuts = s.cuts[i];
        config.world = 4;
        config.rank = -1;
        config.recipe = s.recipe;
        MUST(fp8_param_create(c, &config, &data.params[i]));
        for (q = 0; q < 4; ++q)
          if (s.cuts[i][q + 1] - s.cuts[i][q] > largest) largest = s.cuts[i][q + 1] - s.cuts[i][q];
        host = (float *)host_new(largest * 4);
        for (q = 0; q < largest; ++q) host[q] = 1e30f; /* beyond the shard: never read into an amax */
        if (n) dev_put(c, host, (float *)s.master[i].data + begin, n * 4);
        padded[i] = dev_new(c, host, largest * 4);
        free(host);
        data.masters[i] = tensor_1d(padded[i].data, FP8_DTYPE_F32, largest);
        data.master_at[i] = &data.masters[i];
      }
      MUST_FAIL(fp8_param_amax(c, &data.args, NULL), FP8_ERR_ARGUMENT, "args.rank is NULL");
      data.args.rank = &rank_tensor;
      MUST(fp8_param_amax(c, &known.args, NULL));
      MUST(fp8_param_amax(c, &data.args, NULL));
      MUST(fp8_param_cast(c, &known.args, NULL));
      MUST(fp8_param_cast(c, &data.args, NULL));
      a = dev_get(c, known.amax.data, known.amax.bytes);
      b = dev_get(c, data.amax.data, data.amax.bytes);
      assert_memory_equal(a, b, known.amax.bytes);
      free(a);
      free(b);
      a = dev_get(c, known.shard.data, known.shard.bytes);
      b = dev_get(c, data.shard.data, data.shard.bytes);
      assert_memory_equal(a, b, known.shard.bytes);
      free(a);
      free(b);
      known.args.rank = &rank_tensor;
      MUST_FAIL(fp8_param_amax(c, &known.args, NULL), FP8_ERR_ARGUMENT, "args.rank is given");
      close_rank(&s, &known);
      close_rank(&s, &data);
      dev_free(c, &rank);
      dev_free(c, &padded[0]);
      dev_free(c, &padded[1]);
    }
    close_small(&s);
  }
  fp8_context_destroy(c);
}

/* The column side out of the row side, later, without any rank. */
static void column_on_demand(void **state) {
  static const int presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_BLOCK, FP8_PRESET_MX_W2D};
  fp8_context *c = ranks_context(1);
  int p, i;
  (void)state;
  for (p = 0; p < 3; ++p) {
    sharded s;
    rank_list l;
    weight full[2];
    fp8_qtensor *at[2] = {&full[0].q, &full[1].q};
    fp8_comm *comm;
    open_small(&s, c, presets[p], 2, 1);
    MUST(fp8_comm_create_local(1, &comm));
    open_rank(&s, 0, FP8_SIDE_ROW, &l);
    for (i = 0; i < 2; ++i) full[i] = make_weight(c, s.recipe, s.rows[i], s.cols[i], FP8_SIDE_BOTH);
    l.args.full = at;
    MUST(fp8_param_quantize(c, comm, &l.args, NULL));
    MUST(fp8_param_gather(c, comm, &l.args, NULL));
    MUST_FAIL(fp8_param_assemble(c, &l.args, NULL), FP8_ERR_ARGUMENT, "only FP8_SIDE_COL");
    l.args.sides = FP8_SIDE_COL;
    l.args.amax = NULL; /* the scales are in full */
    MUST(fp8_param_assemble(c, &l.args, NULL));
    for (i = 0; i < 2; ++i) {
      void *a = dev_get(c, full[i].memory.data, full[i].memory.bytes),
           *b = dev_get(c, s.whole[i].memory.data, full[i].memory.bytes);
      assert_memory_equal(a, b, full[i].memory.bytes);
      free(a);
      free(b);
      dev_free(c, &full[i].memory);
    }
    fp8_comm_destroy(comm);
    close_rank(&s, &l);
    close_small(&s);
  }
  fp8_context_destroy(c);
}

/* Scales in a compact array of the caller's: nothing is written beyond it, as if its strides had padding. */
static void compact_scales(void **state) {
  static const int64_t rows[] = {128, 300, 300}, cols[] = {300, 128, 300};
  fp8_context *c = ranks_context(1);
  fp8_recipe *r = preset_recipe(FP8_PRESET_BLOCK, 0, 0);
  fp8_comm *comm;
  int i, j;
  (void)state;
  MUST(fp8_comm_create_local(1, &comm));
  for (i = 0; i < 3; ++i) {
    const int64_t cuts[] = {0, rows[i] * cols[i]};
    float *values = malloc((size_t)cuts[1] * 4), dirty[10], *got, *want;
    fp8_buffer memory, scales;
    fp8_tensor master, source;
    const fp8_tensor *masters[] = {&master};
    weight whole, full;
    fp8_qtensor *fulls[] = {&full.q};
    fp8_param_config config;
    fp8_param *param;
    fp8_param_layout layout;
    fp8_param_args args;
    fp8_quantize_args q;
    fp8_buffer amax, shard;
    for (j = 0; j < cuts[1]; ++j) values[j] = (float)(j % 997 - 400) * (float)(1 + j / 5000);
    for (j = 0; j < 10; ++j) dirty[j] = 77;
    memory = dev_new(c, values, (uint64_t)cuts[1] * 4);
    scales = dev_new(c, dirty, sizeof dirty);
    memset(&master, 0, sizeof master);
    master.data = memory.data, master.dtype = FP8_DTYPE_F32;
    source = master;
    master.ndim = 1, master.shape[0] = cuts[1], master.stride[0] = 1;
    source.ndim = 2, source.shape[0] = rows[i], source.shape[1] = cols[i];
    MUST(fp8_tensor_compact(&source));
    whole = make_weight(c, r, rows[i], cols[i], FP8_SIDE_ROW), full = make_weight(c, r, rows[i], cols[i], FP8_SIDE_ROW);
    FP8_INIT(&q);
    q.x = &source, q.q = &whole.q, q.role = FP8_ROLE_WEIGHT;
    MUST(fp8_quantize(c, r, &q, NULL));
    full.q.row_scale.data = scales.data;
    full.q.row_scale.stride[0] = full.q.row_scale.shape[1], full.q.row_scale.stride[1] = 1;
    FP8_INIT(&config);
    config.rows = rows[i], config.cols = cols[i], config.cuts = cuts, config.world = 1, config.recipe = r;
    MUST(fp8_param_create(c, &config, &param));
    FP8_INIT(&layout);
    MUST(fp8_param_sizes((const fp8_param *const *)&param, 1, FP8_SIDE_ROW, &layout));
    amax = dev_new(c, NULL, layout.amax_bytes), shard = dev_new(c, NULL, layout.row_bytes + layout.col_bytes);
    FP8_INIT(&args);
    args.params = (const fp8_param *const *)&param, args.masters = masters, args.full = fulls;
    args.amax = &amax, args.shard = &shard, args.count = 1, args.sides = FP8_SIDE_ROW;
    MUST(fp8_param_quantize(c, comm, &args, NULL));
    MUST(fp8_param_gather(c, comm, &args, NULL));
    got = dev_get(c, scales.data, sizeof dirty);
    want = dev_get(c, whole.q.row_scale.data, (uint64_t)full.q.row_scale.shape[0] * 4 * 4);
    for (j = 0; j < full.q.row_scale.shape[0] * full.q.row_scale.shape[1]; ++j)
      assert_true(got[j] == want[j / full.q.row_scale.shape[1] * 4 + j % full.q.row_scale.shape[1]]);
    for (; j < 10; ++j) assert_true(got[j] == 77);
    free(got), free(want), free(values);
    fp8_param_destroy(param);
    dev_free(c, &memory), dev_free(c, &scales), dev_free(c, &amax), dev_free(c, &shard);
    dev_free(c, &whole.memory), dev_free(c, &full.memory);
  }
  fp8_comm_destroy(comm);
  fp8_recipe_destroy(r);
  fp8_context_destroy(c);
}

/* A long list costs few launches; with workspaces nothing is allocated; outside the owned run the shard keeps its
 * bytes. */
static void long_list(void **state) {
  enum { kCount = 500 };
  static fp8_param *params[kCount];
  static fp8_tensor masters[kCount];
  static const fp8_tensor *master_at[kCount];
  static weight full[kCount];
  static fp8_qtensor *full_at[kCount];
  static const int presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_ROW, FP8_PRESET_MX};
  fp8_context *c = ranks_context(2);
  int p, i;
  (void)state;
  for (p = 0; p < 3; ++p) {
    fp8_recipe *r = preset_recipe(presets[p], 0, 0);
    const int64_t cuts[] = {0, 16, 32 * 48};
    fp8_buffer master = dev_new(c, NULL, 32 * 48 * 4), amax, shard, gathered, ws;
    fp8_param_layout layout;
    fp8_param_args args;
    fp8_counters before, after;
    uint8_t *bytes;
    for (i = 0; i < kCount; ++i) {
      fp8_param_config config;
      FP8_INIT(&config);
      config.rows = 32;
      config.cols = 48;
      config.cuts = cuts;
      config.world = 2;
      config.recipe = r;
      MUST(fp8_param_create(c, &config, &params[i]));
      masters[i] = tensor_1d(master.data, FP8_DTYPE_F32, 16);
      master_at[i] = &masters[i];
      full[i] = make_weight(c, r, 32, 48, FP8_SIDE_BOTH);
      full_at[i] = &full[i].q;
    }
    FP8_INIT(&layout);
    MUST(fp8_param_sizes((const fp8_param *const *)params, kCount, FP8_SIDE_BOTH, &layout));
    amax = dev_new(c, NULL, layout.amax_bytes);
    shard = dev_new(c, NULL, layout.row_bytes + layout.col_bytes);
    gathered = dev_new(c, NULL, layout.gathered_bytes);
    ws = dev_new(c, NULL, layout.workspace_bytes);
    FP8_INIT(&args);
    args.params = (const fp8_param *const *)params;
    args.masters = master_at;
    args.full = full_at;
    args.amax = &amax;
    args.shard = &shard;
    args.gathered = &gathered;
    args.workspace = &ws;
    args.count = kCount;
    args.sides = FP8_SIDE_BOTH;
    FP8_INIT(&before);
    FP8_INIT(&after);
    MUST(fp8_context_counters(c, &before));
    MUST(fp8_param_amax(c, &args, NULL));
    MUST(fp8_param_cast(c, &args, NULL));
    MUST(fp8_param_assemble(c, &args, NULL));
    MUST(fp8_context_counters(c, &after));
    assert_in_range(after.launches - before.launches, 3, 10);
    assert_int_equal(after.allocations, before.allocations);
    /* rank 0 owns the last 16 bytes a weight of the row part, and the first of the column part */
    bytes = (uint8_t *)dev_get(c, shard.data, shard.bytes);
    for (i = 0; (uint64_t)i < layout.row_bytes + layout.col_bytes; ++i) {
      const int64_t at = (int64_t)i - (int64_t)layout.row_bytes, owned = 16 * kCount;
      if (at < -owned || at >= (layout.col_bytes ? owned : 0)) assert_int_equal(bytes[i], 0xa5);
    }
    free(bytes);
    ws.bytes -= 1;
    MUST_FAIL(fp8_param_gather(c, NULL, &args, NULL), FP8_ERR_ARGUMENT, "comm is NULL");
    ws.bytes += 1;
    for (i = 0; i < kCount; ++i) {
      fp8_param_destroy(params[i]);
      dev_free(c, &full[i].memory);
    }
    dev_free(c, &master);
    dev_free(c, &amax);
    dev_free(c, &shard);
    dev_free(c, &gathered);
    dev_free(c, &ws);
    fp8_recipe_destroy(r);
  }
  fp8_context_destroy(c);
}

static void refusals(void **state) {
  fp8_context *c = ranks_context(1);
  fp8_recipe *block = preset_recipe(FP8_PRESET_BLOCK, 0, 0), *mx = preset_recipe(FP8_PRESET_MX, 0, 0), *forward_only;
  fp8_recipe_config recipe_config;
  int64_t cuts[] = {0, 30, 20, 100}, good[] = {0, 30, 60, 100};
  float data[100] = {0};
  fp8_param_config config;
  fp8_param *p = NULL, *other = NULL;
  const fp8_param *list[2];
  fp8_param_layout layout;
  fp8_param_args args;
  fp8_tensor master = tensor_1d(data, FP8_DTYPE_F32, 30), *master_at = &master;
  weight full;
  fp8_qtensor *full_at = &full.q;
  fp8_buffer gathered;
  (void)state;
  FP8_INIT(&config);
  config.rows = 10;
  config.cols = 10;
  config.cuts = cuts;
  config.world = 3;
  config.recipe = block;
  MUST_FAIL(fp8_param_create(c, &config, &p), FP8_ERR_ARGUMENT, "config.cuts[2] is 20 after cuts[1] 30");
  config.cuts = good;
  config.rows = 11;
  MUST_FAIL(fp8_param_create(c, &config, &p), FP8_ERR_ARGUMENT, "config.cuts[3] is 100, it must be rows x cols = 110");
  config.rows = 10;
  config.rank = 3;
  MUST_FAIL(fp8_param_create(c, &config, &p), FP8_ERR_ARGUMENT, "config.rank is 3");
  config.rank = 1;
  MUST(fp8_param_create(c, &config, &p));
  config.recipe = mx;
  MUST(fp8_param_create(c, &config, &other));
  list[0] = p;
  list[1] = other;
  FP8_INIT(&layout);
  MUST_FAIL(fp8_param_sizes(list, 2, FP8_SIDE_BOTH, &layout), FP8_ERR_ARGUMENT, "a list has one recipe");
  MUST_FAIL(fp8_param_sizes(list, 0, FP8_SIDE_BOTH, &layout), FP8_ERR_ARGUMENT, "count is 0");
  MUST_FAIL(fp8_param_sizes(list, 1, 0, &layout), FP8_ERR_ARGUMENT, "sides is 0");
  FP8_INIT(&args);
  args.params = list;
  args.count = 1;
  args.sides = FP8_SIDE_BOTH;
  args.masters = (const fp8_tensor *const *)&master_at;
  MUST_FAIL(fp8_param_amax(c, &args, NULL), FP8_ERR_ARGUMENT, "args.amax is NULL");
  master.shape[0] = 31;
  MUST_FAIL(fp8_param_amax(c, &args, NULL), FP8_ERR_ARGUMENT, "args.masters[0].shape[0] is 31");
  master_at = NULL;
  MUST_FAIL(fp8_param_amax(c, &args, NULL), FP8_ERR_ARGUMENT, "this rank owns 30 elements");
  list[0] = other;
  full = make_weight(c, mx, 10, 10, FP8_SIDE_BOTH);
  args.full = &full_at;
  args.sides = FP8_SIDE_COL;
  MUST_FAIL(fp8_param_assemble(c, &args, NULL), FP8_ERR_UNSUPPORTED, "must travel");
  gathered.data = data;
  gathered.bytes = 1;
  args.gathered = &gathered;
  MUST_FAIL(fp8_param_assemble(c, &args, NULL), FP8_ERR_ARGUMENT, "args.gathered has 1 bytes");
  fp8_param_destroy(other);
  /* dgrad in BF16 needs w in BF16, which an FP8-only weight does not have */
  FP8_INIT(&recipe_config);
  MUST(fp8_recipe_config_preset(FP8_PRESET_BLOCK, &recipe_config));
  recipe_config.coverage = FP8_FPROP;
  MUST(fp8_recipe_create(&recipe_config, &forward_only));
  config.recipe = forward_only;
  MUST(fp8_param_create(c, &config, &other));
  list[0] = other;
  MUST_FAIL(fp8_param_sizes(list, 1, FP8_SIDE_BOTH, &layout), FP8_ERR_UNSUPPORTED, "dgrad in BF16");
  MUST(fp8_param_sizes(list, 1, FP8_SIDE_ROW, &layout));
  fp8_param_destroy(other);
  fp8_param_destroy(p);
  fp8_param_destroy(NULL);
  dev_free(c, &full.memory);
  fp8_recipe_destroy(block);
  fp8_recipe_destroy(mx);
  fp8_recipe_destroy(forward_only);
  fp8_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(golden_zero1),     cmocka_unit_test(rank_is_data),
                                     cmocka_unit_test(column_on_demand), cmocka_unit_test(compact_scales),
                                     cmocka_unit_test(long_list),        cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
