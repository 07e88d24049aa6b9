/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <string.h>

static const char *const names[] = {"", "wgrad-axis", "dy-e4m3-tensor", "floor-outliers"};

enum Fault fault_parse(const char *name) {
  for (int i = 1; i < FAULT_COUNT; ++i)
    if (!strcmp(name, names[i])) return (enum Fault)i;
  return FAULT_NONE;
}

const char *fault_name(enum Fault fault) { return names[fault]; }

int32_t fault_preset(enum Fault fault) { return fault == FAULT_DY_E4M3_TENSOR ? FP8_PRESET_TENSOR : FP8_PRESET_MX; }

void fault_recipe(enum Fault fault, fp8_recipe_config *config) {
  if (fault == FAULT_DY_E4M3_TENSOR) config->gradient_dtype = FP8_DTYPE_E4M3;
  if (fault == FAULT_FLOOR_OUTLIERS) config->scale_rule = FP8_SCALE_E8M0_FLOOR;
}

float fault_loss_scale(enum Fault fault) { return fault == FAULT_DY_E4M3_TENSOR ? 0x1p-12f : 1.0f; }

void fault_misread(const fp8_context *context, fp8_qtensor *q, fp8_stream stream) {
  const fp8_tensor *row = &q->row_scale, *col = &q->col_scale;
  REQUIRE(row->shape[0] * row->shape[1] >= col->shape[0] * col->shape[1],
          "this fault needs a number of rows that is a multiple of 32");
  CHECK(fp8_transpose(context, &q->row, &q->col, stream));
  q->col_scale.data = q->row_scale.data;
}
