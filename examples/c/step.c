/* SPDX-License-Identifier: Apache-2.0 */
/* One training step of one linear: quantize the weight, forward, backward, update; and the step helps. */
#include <math.h>

#include "common/memory.h"
#include "common/option.h"
#include "common/random.h"
#include "common/recipes.h"
#include "common/tensor.h"

enum { TOKENS = 96, IN = 128, OUT = 160 };

static bf16 x[TOKENS * IN], y[TOKENS * OUT], dy[TOKENS * OUT], dx[TOKENS * IN], target[TOKENS * OUT];
static float w[OUT * IN], dw[OUT * IN], bias[OUT], dbias[OUT]; /* the weight's master stays in FP32 */

/* Half the mean square of y - target over the batch; dy is its gradient, times TOKENS * OUT. */
static double loss_of(void) {
  double sum = 0.0;
  for (int i = 0; i < TOKENS * OUT; ++i) {
    float d = bf16_to_float(y[i]) - bf16_to_float(target[i]);
    dy[i] = bf16_from_float(d);
    sum += 0.5 * d * d;
  }
  return sum / (TOKENS * OUT);
}

int main(int count, char **arguments) {
  option_none(count, arguments,
              "step: one training step of one linear: quantizes the weight, forward, backward, update");
  fp8_context *context;
  Memory memory;
  fp8_context_config place;
  FP8_INIT(&place);
  place.backend = FP8_BACKEND_CPU; /* the arrays here are host memory; CUDA would need memory_alloc and memory_write */
  CHECK(fp8_context_create(&place, &context));
  memory_open(&memory, context, NULL);
  fp8_recipe *recipe = preset_create(FP8_PRESET_BLOCK);

  fp8_linear_config config; /* configuration and plans only: no tensor belongs to the linear */
  fp8_linear *linear;
  FP8_INIT(&config);
  config.in_features = IN;
  config.out_features = OUT;
  config.recipe = recipe;
  CHECK(fp8_linear_create(context, &config, &linear));

  for (int i = 0; i < TOKENS * IN; ++i) x[i] = bf16_from_float(random_normal(1, (uint64_t)i));
  for (int i = 0; i < TOKENS * OUT; ++i) target[i] = bf16_from_float(random_normal(2, (uint64_t)i));
  for (int i = 0; i < OUT * IN; ++i) w[i] = random_normal(3, (uint64_t)i) / sqrtf(IN);

  /* Once: homes for the quantized weight and for what forward saves, and a workspace that is enough for every call. */
  fp8_qtensor qw, saved;
  uint64_t bytes;
  FP8_INIT(&qw);
  FP8_INIT(&saved);
  CHECK(fp8_linear_describe(linear, FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH, &qw));
  CHECK(fp8_linear_describe(linear, FP8_ROLE_ACTIVATION, TOKENS, FP8_SIDE_COL, &saved));
  memory_place(&memory, &qw, FP8_SIDE_BOTH);
  memory_place(&memory, &saved, FP8_SIDE_COL);
  CHECK(fp8_linear_workspace(linear, TOKENS, 0, &bytes));
  fp8_buffer workspace = memory_buffer(&memory, bytes + 1);

  fp8_tensor tx = matrix(x, FP8_DTYPE_BF16, TOKENS, IN), ty = matrix(y, FP8_DTYPE_BF16, TOKENS, OUT);
  fp8_tensor tdx = matrix(dx, FP8_DTYPE_BF16, TOKENS, IN), tdy = matrix(dy, FP8_DTYPE_BF16, TOKENS, OUT);
  fp8_tensor tw = matrix(w, FP8_DTYPE_F32, OUT, IN), tdw = matrix(dw, FP8_DTYPE_F32, OUT, IN);
  fp8_tensor tb = vector(bias, FP8_DTYPE_F32, OUT), tdb = vector(dbias, FP8_DTYPE_F32, OUT);
  double losses[2];
  for (int step = 0; step < 2; ++step) {
    fp8_quantize_args quantize; /* 1. the weight, once per step: every micro-batch would use this copy */
    FP8_INIT(&quantize);
    quantize.x = &tw;
    quantize.q = &qw;
    quantize.role = FP8_ROLE_WEIGHT;
    quantize.workspace = &workspace;
    CHECK(fp8_quantize(context, recipe, &quantize, NULL));

    fp8_linear_forward_args forward; /* 2. y = x w^T + bias; x's column side is saved, x itself may go */
    FP8_INIT(&forward);
    forward.x = &tx;
    forward.w = &qw;
    forward.bias = &tb;
    forward.y = &ty;
    forward.saved_x = &saved;
    forward.workspace = &workspace;
    CHECK(fp8_linear_forward(linear, &forward, NULL));
    losses[step] = loss_of();

    fp8_linear_backward_args backward; /* 3. dx = dy w, dw = dy^T x, dbias */
    FP8_INIT(&backward);
    backward.dy = &tdy;
    backward.w = &qw;
    backward.saved_x = &saved;
    backward.dx = &tdx;
    backward.dw = &tdw;
    backward.dbias = &tdb;
    backward.workspace = &workspace;
    CHECK(fp8_linear_backward(linear, &backward, NULL));

    if (step == 0) { /* compare with sums in double: FP8 is off by a few percent of the whole, never more */
      double error = 0.0, size = 0.0;
      for (int o = 0; o < OUT; ++o)
        for (int i = 0; i < IN; ++i) {
          double exact = 0.0;
          for (int t = 0; t < TOKENS; ++t)
            exact += (double)bf16_to_float(dy[t * OUT + o]) * bf16_to_float(x[t * IN + i]);
          error += (dw[o * IN + i] - exact) * (dw[o * IN + i] - exact);
          size += exact * exact;
        }
      printf("dw: relative error %.2f %%\n", 100.0 * sqrt(error / size));
      REQUIRE(error < 0.05 * 0.05 * size, "dw is off by more than FP8 explains");
    }
    for (int i = 0; i < OUT * IN; ++i) w[i] -= 0.3f / TOKENS * dw[i]; /* 4. plain gradient descent on the master */
    for (int i = 0; i < OUT; ++i) bias[i] -= 0.3f / TOKENS * dbias[i];
  }
  printf("loss %.4f -> %.4f; saved for backward: %d bytes of FP8 instead of %d of BF16\n", losses[0], losses[1],
         (int)(TOKENS * IN + saved.col_scale.shape[0] * saved.col_scale.shape[1] * 4), (int)sizeof x);
  REQUIRE(losses[1] < 0.95 * losses[0], "the step did not help");

  fp8_linear_destroy(linear);
  fp8_recipe_destroy(recipe);
  memory_close(&memory);
  fp8_context_destroy(context);
  return 0;
}
