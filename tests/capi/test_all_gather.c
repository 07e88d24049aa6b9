/* SPDX-License-Identifier: Apache-2.0 */
/* Z4 and Z5: gathering quantized parts along tokens equals quantizing the gathered tensor, bit for bit. */
#include "ranks_fused.h"

typedef struct job {
  const fp8_recipe *recipe;
  int32_t role;
  int64_t rows, cols; /* of a part */
  uint16_t *x;        /* BF16 [world * rows, cols] */
} job;

typedef struct sided {
  fp8_qtensor q;
  fp8_buffer memory;
} sided;

static sided make_side(const fp8_context *c, const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols,
                       uint32_t side) {
  sided s;
  uint64_t bytes;
  FP8_INIT(&s.q);
  MUST(fp8_recipe_describe(r, c, role, rows, cols, side | FP8_SIDE_COPY, &s.q));
  MUST(fp8_qtensor_bytes(&s.q, side, &bytes));
  s.memory = dev_new(c, NULL, bytes);
  MUST(fp8_qtensor_place(&s.q, side, &s.memory));
  return s;
}

/* amax reduced over the group where a scale spans ranks */
static void quantize_part(rank_call *self, const job *j, void *x, sided *s, uint32_t side, int alone) {
  fp8_tensor t = tensor_2d(x, FP8_DTYPE_BF16, s->q.rows, s->q.cols), amax;
  const fp8_tensor *scale = side == FP8_SIDE_ROW ? &s->q.row_scale : &s->q.col_scale;
  const int kind = side == FP8_SIDE_ROW ? s->q.row_kind : s->q.col_kind;
  fp8_quantize_args args;
  fp8_buffer memory;
  FP8_INIT(&args);
  args.x = &t;
  args.q = &s->q;
  args.role = j->role;
  if (!alone && (kind == FP8_SCALING_TENSOR || (kind == FP8_SCALING_ROW && side == FP8_SIDE_COL))) {
    memory = dev_new(self->c, NULL, scale->shape[0] * 4);
    amax = *scale;
    amax.data = memory.data;
    if (side == FP8_SIDE_ROW || kind == FP8_SCALING_TENSOR) args.amax = &amax;
    if (side == FP8_SIDE_COL && kind != FP8_SCALING_TENSOR) args.amax_col = &amax;
    MUST(fp8_amax(self->c, j->recipe, &args, self->stream));
    MUST(fp8_all_reduce_max(self->c, self->comm, &amax, self->stream));
    args.flags = FP8_AMAX_GIVEN;
    MUST(fp8_quantize(self->c, j->recipe, &args, self->stream));
    MUST(fp8_stream_sync(self->c, self->stream));
    dev_free(self->c, &memory);
    return;
  }
  MUST(fp8_quantize(self->c, j->recipe, &args, self->stream));
  MUST(fp8_stream_sync(self->c, self->stream));
}

static void rank_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  const int64_t rows = j->rows, cols = j->cols, all = rows * self->size;
  fp8_buffer x = dev_new(self->c, j->x, all * cols * 2),
             own = dev_new(self->c, j->x + self->rank * rows * cols, rows * cols * 2);
  uint32_t side;
  for (side = FP8_SIDE_ROW; side <= FP8_SIDE_COL; ++side) {
    sided part = make_side(self->c, j->recipe, j->role, rows, cols, side),
          full = make_side(self->c, j->recipe, j->role, all, cols, side),
          want = make_side(self->c, j->recipe, j->role, all, cols, side);
    uint8_t *a, *b;
    uint64_t bytes;
    fp8_buffer ws;
    quantize_part(self, j, own.data, &part, side, 0);
    quantize_part(self, j, x.data, &want, side, 1);
    MUST(fp8_all_gather_workspace(self->c, self->comm, &part.q, side, &full.q, &bytes));
    ws = dev_new(self->c, NULL, bytes + 1);
    ws.data = (char *)ws.data + 1; /* any address will do */
    --ws.bytes;
    MUST(fp8_all_gather(self->c, self->comm, &part.q, side, &full.q, &ws, self->stream));
    MUST(fp8_stream_sync(self->c, self->stream));
    a = (uint8_t *)dev_get(self->c, full.memory.data, full.memory.bytes);
    b = (uint8_t *)dev_get(self->c, want.memory.data, full.memory.bytes);
    for (bytes = 0; bytes < full.memory.bytes; ++bytes)
      if (a[bytes] != b[bytes]) {
        fprintf(stderr, "side %u of kind %d, %lld x %lld over %d ranks: byte %llu of %llu differs\n", side,
                side == FP8_SIDE_ROW ? full.q.row_kind : full.q.col_kind, (long long)rows, (long long)cols, self->size,
                (unsigned long long)bytes, (unsigned long long)full.memory.bytes);
        abort();
      }
    free(a);
    free(b);
    ws.data = (char *)ws.data - 1;
    dev_free(self->c, &ws);
    dev_free(self->c, &part.memory);
    dev_free(self->c, &full.memory);
    dev_free(self->c, &want.memory);
  }
  dev_free(self->c, &x);
  dev_free(self->c, &own);
}

static void equal_to_whole(void **state) {
  static const struct {
    int preset, role;
    int64_t rows, cols;
  } cases[] = {{FP8_PRESET_NONE, FP8_ROLE_ACTIVATION, 1, 200},      {FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION, 5, 33},
               {FP8_PRESET_ROW, FP8_ROLE_ACTIVATION, 5, 40},        {FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, 128, 320},
               {FP8_PRESET_MX, FP8_ROLE_ACTIVATION, 32, 33},        {FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT, 128, 320},
#ifdef FP8_TEST_NCCL /* more than fits a window at once */
               {FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION, 2048, 5120}, {FP8_PRESET_MX, FP8_ROLE_ACTIVATION, 2048, 5136},
               {FP8_PRESET_ROW, FP8_ROLE_ACTIVATION, 2049, 5000},   {FP8_PRESET_NONE, FP8_ROLE_ACTIVATION, 1023, 5001},
#endif
               {FP8_PRESET_MX_W2D, FP8_ROLE_WEIGHT, 64, 100}};
  fp8_context *c = ranks_context(2);
  uint64_t random = 77;
  size_t p;
  int world;
  (void)state;
  for (p = 0; p < sizeof cases / sizeof *cases; ++p)
    for (world = 1; world <= 8; world += world < 5 ? 1 : 3) {
      job j;
      int64_t i, n;
      j.recipe = preset_recipe(cases[p].preset, 0, 0);
      j.role = cases[p].role;
      j.rows = cases[p].rows * (1 + world % 2);
      j.cols = cases[p].cols;
      n = world * j.rows * j.cols;
      j.x = (uint16_t *)host_new(n * 2);
      for (i = 0; i < n; ++i) { /* every BF16 but NaN and Inf near the middle of the range */
        const uint32_t u = next_random(&random);
        j.x[i] = (uint16_t)((u & 0x807f) | ((110 + u / 65536 % 30) << 7));
      }
      run_ranks(c, world, rank_body, &j);
#ifndef RANKS_MAIN
      if (world > 1) { /* again over a transport that fuses: two messages each */
        int groups = 0;
        run_fused(c, world, rank_body, &j, &groups);
        assert_int_equal(groups, 2);
      }
#endif
      free(j.x);
      fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
    }
  fp8_context_destroy(c);
}

static void refusing_body(rank_call *self) {
  const job *j = (const job *)self->arg;
  sided part = make_side(self->c, j->recipe, j->role, 48, 64, FP8_SIDE_BOTH),
        full = make_side(self->c, j->recipe, j->role, 96, 64, FP8_SIDE_BOTH),
        odd = make_side(self->c, j->recipe, j->role, 95, 64, FP8_SIDE_BOTH);
  fp8_recipe *other = preset_recipe(FP8_PRESET_BLOCK, 0, 0);
  sided block = make_side(self->c, other, j->role, 96, 64, FP8_SIDE_BOTH);
  fp8_recipe *none = preset_recipe(FP8_PRESET_NONE, 0, 0);
  sided plain_part = make_side(self->c, none, j->role, 48, 64, FP8_SIDE_BOTH),
        plain_full = make_side(self->c, none, j->role, 96, 64, FP8_SIDE_BOTH);
  uint64_t bytes;
  MUST(fp8_all_gather_workspace(self->c, self->comm, &part.q, FP8_SIDE_ROW, &full.q, &bytes));
  MUST_FAIL(fp8_all_gather(self->c, self->comm, &part.q, FP8_SIDE_COL, &full.q, NULL, self->stream),
            FP8_ERR_UNSUPPORTED, "part.rows is 48: the col side's 1x32 scales span 32 tokens");
  MUST_FAIL(fp8_all_gather(self->c, self->comm, &part.q, FP8_SIDE_ROW, &odd.q, NULL, self->stream), FP8_ERR_ARGUMENT,
            "full.rows is 95");
  MUST_FAIL(fp8_all_gather(self->c, self->comm, &part.q, FP8_SIDE_ROW, &block.q, NULL, self->stream), FP8_ERR_ARGUMENT,
            "row_kind");
  MUST_FAIL(fp8_all_gather(self->c, self->comm, &part.q, FP8_SIDE_BOTH, &full.q, NULL, self->stream), FP8_ERR_ARGUMENT,
            "side is 3");
  MUST(fp8_all_gather(self->c, self->comm, &part.q, FP8_SIDE_ROW, &full.q, NULL, self->stream));
  plain_part.q.col.ndim = 3;
  plain_part.q.col.shape[0] = 2, plain_part.q.col.shape[1] = 32, plain_part.q.col.shape[2] = 48;
  plain_part.q.col.stride[0] = 30, plain_part.q.col.stride[1] = 1, plain_part.q.col.stride[2] = 64;
  MUST_FAIL(fp8_all_gather(self->c, self->comm, &plain_part.q, FP8_SIDE_COL, &plain_full.q, NULL, self->stream),
            FP8_ERR_ARGUMENT, "part.col: its leading dimensions do not flatten");
  MUST(fp8_stream_sync(self->c, self->stream));
  dev_free(self->c, &part.memory);
  dev_free(self->c, &full.memory);
  dev_free(self->c, &odd.memory);
  dev_free(self->c, &block.memory);
  dev_free(self->c, &plain_part.memory);
  dev_free(self->c, &plain_full.memory);
  fp8_recipe_destroy(other);
  fp8_recipe_destroy(none);
}

static void refusals(void **state) {
  fp8_context *c = ranks_context(1);
  job j;
  (void)state;
  memset(&j, 0, sizeof j);
  j.recipe = preset_recipe(FP8_PRESET_MX, 0, 0);
  j.role = FP8_ROLE_ACTIVATION;
  run_ranks(c, 2, refusing_body, &j);
  fp8_recipe_destroy((fp8_recipe *)(uintptr_t)j.recipe);
  fp8_context_destroy(c);
}

#ifdef RANKS_MAIN
RANKS_MAIN(cmocka_unit_test(equal_to_whole))
#else
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_to_whole), cmocka_unit_test(refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
