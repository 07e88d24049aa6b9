/* SPDX-License-Identifier: Apache-2.0 */
/* The presets that the training examples compare, by the names used on their command lines. */
#ifndef EXAMPLE_RECIPES_H
#define EXAMPLE_RECIPES_H
#include "check.h"

typedef struct Preset {
  const char *name;  /* on the command line and in CSV */
  const char *title; /* in tables */
  int32_t preset;
} Preset;

enum { PRESET_COUNT = 6 };
/* What other projects call them, as fp8_recipe_from_string() knows it. */
#define PRESET_ALIASES \
  "bf16, tensorwise, current, Float8CurrentScaling, rowwise, blockwise, Float8BlockScaling, mxfp8, MXFP8BlockScaling"
extern const Preset presets[PRESET_COUNT]; /* [0] is the BF16 baseline: preset NONE, through the same calls */

/* "all", or a comma-separated list of names that fp8_recipe_from_string() knows; the baseline is not part of the list.
 * Sets chosen[i]; ends the program with 2 and a clear message. */
void presets_parse(const char *list, int chosen[PRESET_COUNT]);
const Preset *preset_find(int32_t preset);
fp8_recipe *preset_create(int32_t preset);
#endif
