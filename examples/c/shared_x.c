/* SPDX-License-Identifier: Apache-2.0 */
/* q, k and v read the same x: quantize it once, keep one column side for all three, and let their dx add up in place.
 */
#include <math.h>

#include "common/memory.h"
#include "common/option.h"
#include "common/random.h"
#include "common/recipes.h"
#include "common/tensor.h"

enum { TOKENS = 64, DIM = 128, HEADS = 3 /* q, k, v */ };

static bf16 x[TOKENS * DIM], y[HEADS][TOKENS * DIM], dy[HEADS][TOKENS * DIM], one[TOKENS * DIM];
static float w[HEADS][DIM * DIM], dw[HEADS][DIM * DIM], dx[TOKENS * DIM]; /* dx may be FP32, whatever x is */
static double sum[TOKENS * DIM];

int main(int count, char **arguments) {
  option_none(count, arguments,
              "shared_x: one quantized x for q, k and v, kept once for backward; their dx are added in place");
  fp8_context *context;
  Memory memory;
  fp8_context_config place;
  FP8_INIT(&place);
  place.backend = FP8_BACKEND_CPU; /* the arrays here are host memory; CUDA would need memory_alloc and memory_write */
  CHECK(fp8_context_create(&place, &context));
  memory_open(&memory, context, NULL);
  fp8_recipe *recipe = preset_create(FP8_PRESET_MX);
  fp8_linear_config config;
  fp8_linear *linear; /* one plan serves all three: they have the same shape */
  FP8_INIT(&config);
  config.in_features = config.out_features = DIM;
  config.recipe = recipe;
  CHECK(fp8_linear_create(context, &config, &linear));

  for (int i = 0; i < TOKENS * DIM; ++i) x[i] = bf16_from_float(random_normal(1, (uint64_t)i));

  /* x: both sides at once. The row side serves the three forward products and can then go. */
  fp8_qtensor qx, qw[HEADS];
  uint64_t row_bytes, col_bytes;
  FP8_INIT(&qx);
  CHECK(fp8_linear_describe(linear, FP8_ROLE_ACTIVATION, TOKENS, FP8_SIDE_BOTH, &qx));
  CHECK(fp8_qtensor_bytes(&qx, FP8_SIDE_ROW, &row_bytes));
  CHECK(fp8_qtensor_bytes(&qx, FP8_SIDE_COL, &col_bytes));
  fp8_buffer row_memory;
  CHECK(fp8_buffer_alloc(context, row_bytes, &row_memory, NULL));
  CHECK(fp8_qtensor_place(&qx, FP8_SIDE_ROW, &row_memory));
  memory_place(&memory, &qx, FP8_SIDE_COL);
  fp8_tensor tx = matrix(x, FP8_DTYPE_BF16, TOKENS, DIM);
  fp8_quantize_args quantize;
  FP8_INIT(&quantize);
  quantize.x = &tx;
  quantize.q = &qx;
  quantize.role = FP8_ROLE_ACTIVATION;
  CHECK(fp8_quantize(context, recipe, &quantize, NULL));

  for (int h = 0; h < HEADS; ++h) {
    for (int i = 0; i < DIM * DIM; ++i) w[h][i] = random_normal(2 + (uint64_t)h, (uint64_t)i) / sqrtf(DIM);
    for (int i = 0; i < TOKENS * DIM; ++i) dy[h][i] = bf16_from_float(random_normal(10 + (uint64_t)h, (uint64_t)i));
    FP8_INIT(&qw[h]);
    CHECK(fp8_linear_describe(linear, FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH, &qw[h]));
    memory_place(&memory, &qw[h], FP8_SIDE_BOTH);
    fp8_tensor tw = matrix(w[h], FP8_DTYPE_F32, DIM, DIM);
    quantize.x = &tw;
    quantize.q = &qw[h];
    quantize.role = FP8_ROLE_WEIGHT;
    CHECK(fp8_quantize(context, recipe, &quantize, NULL));

    fp8_tensor ty = matrix(y[h], FP8_DTYPE_BF16, TOKENS, DIM);
    fp8_linear_forward_args forward;
    FP8_INIT(&forward);
    forward.qx = &qx; /* instead of x: nothing is quantized, nothing is saved by this call */
    forward.w = &qw[h];
    forward.y = &ty;
    CHECK(fp8_linear_forward(linear, &forward, NULL));
  }
  fp8_buffer_free(context, &row_memory, NULL);
  memset(&qx.row, 0, sizeof qx.row); /* no later call reads the row side */

  fp8_counters before, after;
  FP8_INIT(&before);
  FP8_INIT(&after);
  CHECK(fp8_context_counters(context, &before));
  fp8_tensor tdx = matrix(dx, FP8_DTYPE_F32, TOKENS, DIM);
  for (int h = 0; h < HEADS; ++h) {
    fp8_tensor tdy = matrix(dy[h], FP8_DTYPE_BF16, TOKENS, DIM), tdw = matrix(dw[h], FP8_DTYPE_F32, DIM, DIM);
    fp8_linear_backward_args backward;
    FP8_INIT(&backward);
    backward.dy = &tdy;
    backward.w = &qw[h];
    backward.saved_x = &qx; /* the same column side, three times */
    backward.dx = &tdx;
    backward.dw = &tdw;
    backward.flags = h ? FP8_LINEAR_ACCUMULATE_DX : 0; /* the first one writes, the others add */
    CHECK(fp8_linear_backward(linear, &backward, NULL));
  }
  CHECK(fp8_context_counters(context, &after));

  /* The same three gradients one by one, added here. */
  fp8_tensor tone = matrix(one, FP8_DTYPE_BF16, TOKENS, DIM);
  for (int h = 0; h < HEADS; ++h) {
    fp8_tensor tdy = matrix(dy[h], FP8_DTYPE_BF16, TOKENS, DIM);
    fp8_linear_backward_args backward;
    FP8_INIT(&backward);
    backward.dy = &tdy;
    backward.w = &qw[h];
    backward.dx = &tone; /* dx alone needs no x */
    CHECK(fp8_linear_backward(linear, &backward, NULL));
    for (int i = 0; i < TOKENS * DIM; ++i) sum[i] += bf16_to_float(one[i]);
  }
  for (int i = 0; i < TOKENS * DIM; ++i)
    REQUIRE(fabs(dx[i] - sum[i]) < 0.05, "dx[%d] is %g, the parts add up to %g", i, dx[i], sum[i]);
  printf("x kept for the backward of q, k and v: %llu bytes, once; as three BF16 copies: %d bytes\n",
         (unsigned long long)col_bytes, (int)(HEADS * sizeof x));
  printf("dx = dq Wq + dk Wk + dv Wv, added in place; quantizations in backward: %llu (dy alone)\n",
         (unsigned long long)(after.quantizations - before.quantizations));
  REQUIRE(after.quantizations - before.quantizations == HEADS, "x was quantized again");

  fp8_linear_destroy(linear);
  fp8_recipe_destroy(recipe);
  memory_close(&memory);
  fp8_context_destroy(context);
  return 0;
}
