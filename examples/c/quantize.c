/* SPDX-License-Identifier: Apache-2.0 */
/* Quantize a matrix and look at the parts: two copies (row side and column side), each with codes and scales, because
 * FP8 GEMMs want their operands scaled along the axis that they sum over. */
#include <math.h>

#include "common/memory.h"
#include "common/option.h"
#include "common/random.h"
#include "common/tensor.h"

enum { ROWS = 64, COLS = 96 };

static const char *name_of(int32_t dtype) { /* of those that a quantized matrix has */
  return dtype == FP8_DTYPE_E4M3   ? "E4M3"
         : dtype == FP8_DTYPE_E5M2 ? "E5M2"
         : dtype == FP8_DTYPE_E8M0 ? "E8M0"
         : dtype == FP8_DTYPE_F32  ? "F32"
                                   : "another";
}

static void print_part(const char *name, const fp8_tensor *t) {
  printf("  %-9s [%lld, %lld], strides {%lld, %lld}, dtype %s\n", name, (long long)t->shape[0], (long long)t->shape[1],
         (long long)t->stride[0], (long long)t->stride[1], name_of(t->dtype));
}

int main(int count, char **arguments) {
  option_none(count, arguments,
              "quantize: quantizes a matrix and prints the parts: codes, scales, the two sides, exact counts");
  fp8_context *context;
  fp8_recipe_config config;
  fp8_recipe *recipe;
  Memory memory;
  fp8_context_config place;
  FP8_INIT(&place);
  place.backend = FP8_BACKEND_CPU; /* the arrays here are host memory; CUDA would need memory_alloc and memory_write */
  CHECK(fp8_context_create(&place, &context));
  memory_open(&memory, context, NULL);

  FP8_INIT(&config);
  config.preset = FP8_PRESET_MX; /* 1 x 32 blocks, each with a power-of-two scale of one byte (E8M0) */
  CHECK(fp8_recipe_create(&config, &recipe));

  /* A matrix whose columns have very different sizes: one scale for all of it would lose the small ones. */
  static float x[ROWS * COLS], back[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; ++i)
    x[i] = random_normal(1, (uint64_t)i) * exp2f((float)(i % COLS / 32) * 12.0f - 12.0f);

  /* 1. describe: kinds, shapes and strides.  2. bytes.  3. place: the caller's memory.  4. quantize. */
  fp8_qtensor q;
  uint64_t row_bytes, col_bytes;
  FP8_INIT(&q);
  CHECK(fp8_recipe_describe(recipe, context, FP8_ROLE_ACTIVATION, ROWS, COLS, FP8_SIDE_BOTH, &q));
  CHECK(fp8_qtensor_bytes(&q, FP8_SIDE_ROW, &row_bytes));
  CHECK(fp8_qtensor_bytes(&q, FP8_SIDE_COL, &col_bytes));
  memory_place(&memory, &q, FP8_SIDE_ROW); /* apart: forward drops the row side, backward keeps the column side */
  memory_place(&memory, &q, FP8_SIDE_COL);

  fp8_tensor tx = matrix(x, FP8_DTYPE_F32, ROWS, COLS), tback = matrix(back, FP8_DTYPE_F32, ROWS, COLS);
  uint64_t counts[8] = {0};
  fp8_tensor stats = vector(counts, FP8_DTYPE_U64, 8);
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &tx;
  args.q = &q;
  args.role = FP8_ROLE_ACTIVATION;
  args.stats = &stats; /* optional: exact counts of what happened to the elements */
  CHECK(fp8_quantize(context, recipe, &args, NULL));

  printf("%d x %d of FP32: %d bytes; FP8 row side %llu bytes, column side %llu bytes\n", ROWS, COLS, (int)sizeof x,
         (unsigned long long)row_bytes, (unsigned long long)col_bytes);
  print_part("row", &q.row);
  print_part("row_scale", &q.row_scale);
  print_part("col", &q.col); /* the transpose: its rows run along the tokens */
  print_part("col_scale", &q.col_scale);

  const uint8_t *codes = q.row.data, *scales = q.row_scale.data;
  printf("row 0, scales: ");
  for (int b = 0; b < COLS / 32; ++b) printf(" 2^%d", scales[b * q.row_scale.stride[1]] - 127);
  printf("\nrow 0, block 1:  x -> code -> code * scale\n");
  CHECK(fp8_dequantize(context, &q, FP8_SIDE_ROW, &tback, NULL));
  for (int j = 32; j < 36; ++j) printf("  %+.6f -> 0x%02x -> %+.6f\n", x[j], codes[j], back[j]);
  printf("count %llu, nonzero %llu, underflow %llu, saturated %llu\n", (unsigned long long)counts[0],
         (unsigned long long)counts[3], (unsigned long long)counts[4], (unsigned long long)counts[5]);

  /* E4M3 has three fraction bits: half a unit of the last place is 2^-4 of the value, or of the smallest normal one. */
  for (int side = FP8_SIDE_ROW; side <= FP8_SIDE_COL; ++side) {
    CHECK(fp8_dequantize(context, &q, (uint32_t)side, &tback, NULL));
    for (int i = 0; i < ROWS * COLS; ++i) {
      float amax = 0.0f; /* of the element's block: 32 along the row, or 32 along the column */
      int row = i / COLS, col = i % COLS;
      for (int k = 0; k < 32; ++k) {
        float v = side == FP8_SIDE_ROW ? x[row * COLS + col / 32 * 32 + k] : x[(row / 32 * 32 + k) * COLS + col];
        amax = fmaxf(amax, fabsf(v));
      }
      float bound = fmaxf(fabsf(x[i]), amax * 0x1p-13f) * 0x1p-4f;
      REQUIRE(fabsf(back[i] - x[i]) <= bound, "side %d, element %d: %g became %g", side, i, x[i], back[i]);
    }
  }
  REQUIRE(counts[0] == ROWS * COLS && counts[5] == 0, "current scaling never saturates");
  printf("both sides lie within half a unit of the last place\n");

  memory_close(&memory);
  fp8_recipe_destroy(recipe);
  fp8_context_destroy(context);
  return 0;
}
