/* SPDX-License-Identifier: Apache-2.0 */
/* Primary weights: memory that one call would both read and write, or write twice, is refused by name; what may share
 * memory may. */
#include "sharded.h"

enum { kWeights = 2, kRows = 40, kCols = 48 };

typedef struct fixture {
  fp8_context *c;
  sharded s;
  rank_list l;
  fp8_comm *comm;
  fp8_buffer gathered, workspace;
  weight full[kWeights];
  fp8_qtensor *full_at[kWeights];
} fixture;

static void open_fixture(fixture *f, int preset, uint32_t sides) {
  int i;
  memset(f, 0, sizeof *f);
  f->c = ranks_context(1);
  f->s.c = f->c;
  f->s.recipe = preset_recipe(preset, 0, 0);
  f->s.count = kWeights;
  f->s.world = 1;
  for (i = 0; i < kWeights; ++i) {
    f->s.rows[i] = kRows;
    f->s.cols[i] = kCols;
    f->s.cuts[i][1] = kRows * kCols;
  }
  make_reference(&f->s, 5);
  open_rank(&f->s, 0, sides, &f->l);
  MUST(fp8_comm_create_local(1, &f->comm));
  f->gathered = dev_new(f->c, NULL, f->l.layout.gathered_bytes);
  f->workspace = dev_new(f->c, NULL, f->l.layout.workspace_bytes);
  for (i = 0; i < kWeights; ++i) {
    f->full[i] = make_weight(f->c, f->s.recipe, kRows, kCols, FP8_SIDE_BOTH);
    f->full_at[i] = &f->full[i].q;
  }
  f->l.args.full = f->full_at;
  f->l.args.gathered = &f->gathered;
  f->l.args.workspace = &f->workspace;
}

static void close_fixture(fixture *f) {
  int i;
  for (i = 0; i < kWeights; ++i) dev_free(f->c, &f->full[i].memory);
  dev_free(f->c, &f->gathered);
  dev_free(f->c, &f->workspace);
  fp8_comm_destroy(f->comm);
  close_rank(&f->s, &f->l);
  free_reference(&f->s);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)f->s.recipe);
  fp8_context_destroy(f->c);
}

#define REFUSED(call, text) MUST_FAIL(call, FP8_ERR_ARGUMENT, text " shares memory with")

static void one_memory_for_all(void **state) {
  fixture f;
  fp8_param_args args;
  fp8_buffer same, other;
  (void)state;
  open_fixture(&f, FP8_PRESET_BLOCK, FP8_SIDE_BOTH);
  same.data = f.s.master[1].data;
  same.bytes = kRows * kCols * 4;
  args = f.l.args;
  args.amax = &same;
  MUST_FAIL(fp8_param_amax(f.c, &args, NULL), FP8_ERR_ARGUMENT,
            "fp8_param_amax: args.amax shares memory with args.masters[1], an output must not overlap");
  REFUSED(fp8_param_quantize(f.c, f.comm, &args, NULL), "args.amax");
  args = f.l.args;
  args.shard = &same;
  MUST_FAIL(fp8_param_cast(f.c, &args, NULL), FP8_ERR_ARGUMENT, "args.shard shares memory with args.masters[1]");
  REFUSED(fp8_param_quantize(f.c, f.comm, &args, NULL), "args.shard");
  args = f.l.args;
  args.workspace = &same;
  MUST_FAIL(fp8_param_amax(f.c, &args, NULL), FP8_ERR_ARGUMENT, "args.workspace shares memory with args.masters[1]");
  REFUSED(fp8_param_cast(f.c, &args, NULL), "args.workspace");
  REFUSED(fp8_param_quantize(f.c, f.comm, &args, NULL), "args.workspace");
  args = f.l.args;
  args.amax = args.shard = &f.workspace;
  MUST_FAIL(fp8_param_cast(f.c, &args, NULL), FP8_ERR_ARGUMENT, " shares memory with args.");
  MUST_FAIL(fp8_param_gather(f.c, f.comm, &args, NULL), FP8_ERR_ARGUMENT, "args.workspace shares memory with args.");
  /* a weight into its own shard, into what was gathered, into its amax */
  same.data = f.full[1].q.row.data;
  same.bytes = f.full[1].memory.bytes;
  args = f.l.args;
  f.full[1].q.row.data = f.l.shard.data;
  MUST_FAIL(fp8_param_gather(f.c, f.comm, &args, NULL), FP8_ERR_ARGUMENT,
            "args.full[1].row shares memory with args.shard");
  f.full[1].q.row.data = f.gathered.data;
  MUST_FAIL(fp8_param_assemble(f.c, &args, NULL), FP8_ERR_ARGUMENT,
            "args.full[1].row shares memory with args.gathered");
  f.full[1].q.row.data = same.data;
  f.full[0].q.row_scale.data = f.l.amax.data;
  MUST_FAIL(fp8_param_gather(f.c, f.comm, &args, NULL), FP8_ERR_ARGUMENT,
            "args.full[0].row_scale shares memory with args.amax");
  f.full[0].q.row_scale.data = f.full[1].q.row_scale.data; /* one memory, two weights */
  MUST_FAIL(fp8_param_gather(f.c, f.comm, &args, NULL), FP8_ERR_ARGUMENT, ".row_scale shares memory with args.full[");
  f.full[0].q.row_scale.data = (char *)f.full[1].q.row_scale.data + 4; /* where the other's padding becomes zero */
  MUST_FAIL(fp8_param_gather(f.c, f.comm, &args, NULL), FP8_ERR_ARGUMENT, ".row_scale shares memory with args.full[");
  f.full[0].q.row_scale.data = (char *)f.full[0].q.row.data + kRows * kCols - 4;
  REFUSED(fp8_param_gather(f.c, f.comm, &args, NULL), "args.full[0].row");
  /* nothing was written by all of these: amax still has dev_new's pattern */
  other = f.l.amax;
  {
    uint8_t *bytes = (uint8_t *)dev_get(f.c, other.data, other.bytes);
    uint64_t i;
    for (i = 0; i < other.bytes; ++i) assert_int_equal(bytes[i], 0xa5);
    free(bytes);
  }
  close_fixture(&f);
}

/* What is not read or written by a call may lie anywhere: shard in its slot of gathered, a sides' row unasked. */
static void unused_memory_is_no_matter(void **state) {
  fixture f;
  (void)state;
  open_fixture(&f, FP8_PRESET_BLOCK, FP8_SIDE_BOTH);
  f.l.args.shard = &f.gathered; /* world 1: its slot is all of it */
  MUST(fp8_param_amax(f.c, &f.l.args, NULL));
  MUST(fp8_param_cast(f.c, &f.l.args, NULL));
  MUST(fp8_param_assemble(f.c, &f.l.args, NULL));
  f.l.args.gathered = &f.l.amax;
  MUST(fp8_param_gather(f.c, f.comm, &f.l.args, NULL));
  f.l.args.gathered = NULL; /* the column side from the row side: neither is one memory with the other */
  f.l.args.sides = FP8_SIDE_COL;
  MUST(fp8_param_assemble(f.c, &f.l.args, NULL));
  f.full[1].q.col.data = f.full[0].q.row.data;
  MUST_FAIL(fp8_param_assemble(f.c, &f.l.args, NULL), FP8_ERR_ARGUMENT,
            "args.full[1].col shares memory with args.full[0].row");
  f.l.args.sides = FP8_SIDE_ROW;
  MUST(fp8_param_gather(f.c, f.comm, &f.l.args, NULL)); /* col is not touched */
  MUST(fp8_stream_sync(f.c, NULL));
  close_fixture(&f);
}

/* One copy for both sides: BF16, and TENSOR where col is row with swapped strides. */
static void one_copy_for_both_sides(void **state) {
  static const int presets[] = {FP8_PRESET_NONE, FP8_PRESET_TENSOR};
  int p, i;
  (void)state;
  for (p = 0; p < 2; ++p) {
    fixture f;
    const uint64_t codes = kRows * kCols * (p ? 1 : 2);
    open_fixture(&f, presets[p], FP8_SIDE_BOTH);
    for (i = 0; i < kWeights; ++i) {
      fp8_qtensor *q = &f.full[i].q;
      q->col.data = q->row.data;
      q->col.stride[0] = q->row.stride[1];
      q->col.stride[1] = q->row.stride[0];
      q->col_scale.data = q->row_scale.data;
    }
    MUST(fp8_param_quantize(f.c, f.comm, &f.l.args, NULL));
    MUST(fp8_param_gather(f.c, f.comm, &f.l.args, NULL));
    for (i = 0; i < kWeights; ++i) {
      void *a = dev_get(f.c, f.full[i].q.row.data, codes), *b = dev_get(f.c, f.s.whole[i].q.row.data, codes);
      assert_memory_equal(a, b, codes);
      free(a);
      free(b);
    }
    if (p) { /* the column side stored transposed cannot lie where the row side lies */
      f.full[0].q.col.stride[0] = kRows;
      f.full[0].q.col.stride[1] = 1;
      MUST_FAIL(fp8_param_gather(f.c, f.comm, &f.l.args, NULL), FP8_ERR_ARGUMENT,
                "args.full[0].row shares memory with args.full[0].col");
    }
    close_fixture(&f);
  }
}

/* Two weights that are rows of one fused matrix: their column sides lie between each other. */
static void slices_of_one_weight(void **state) {
  static const int presets[] = {FP8_PRESET_TENSOR, FP8_PRESET_MX_W2D};
  int p, i;
  (void)state;
  for (p = 0; p < 2; ++p) {
    fixture f;
    weight fused;
    fp8_qtensor kept[kWeights];
    open_fixture(&f, presets[p], FP8_SIDE_BOTH);
    fused = make_weight(f.c, f.s.recipe, 2 * 64, kCols, FP8_SIDE_BOTH);
    for (i = 0; i < kWeights; ++i) {
      fp8_qtensor *q = &f.full[i].q;
      kept[i] = *q;
      q->row = fused.q.row;
      q->row.data = (char *)fused.q.row.data + i * 64 * kCols;
      q->row.shape[0] = kRows;
      q->col = fused.q.col;
      q->col.data = (char *)fused.q.col.data + i * 64;
      q->col.shape[1] = kRows;
    }
    MUST(fp8_param_quantize(f.c, f.comm, &f.l.args, NULL));
    MUST(fp8_param_gather(f.c, f.comm, &f.l.args, NULL));
    f.full[1].q.col.data = (char *)fused.q.col.data + 32; /* 40 of each 128 bytes, from 0 and from 32 on */
    MUST_FAIL(fp8_param_gather(f.c, f.comm, &f.l.args, NULL), FP8_ERR_ARGUMENT,
              "args.full[0].col shares memory with args.full[1].col");
    for (i = 0; i < kWeights; ++i) f.full[i].q = kept[i];
    dev_free(f.c, &fused.memory);
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_memory_for_all), cmocka_unit_test(unused_memory_is_no_matter),
                                     cmocka_unit_test(one_copy_for_both_sides), cmocka_unit_test(slices_of_one_weight)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
