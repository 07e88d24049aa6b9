/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes.h"

#include <string.h>

const Preset presets[PRESET_COUNT] = {
    {"none", "BF16", FP8_PRESET_NONE}, {"tensor", "TENSOR", FP8_PRESET_TENSOR},
    {"row", "ROW", FP8_PRESET_ROW},    {"block", "BLOCK", FP8_PRESET_BLOCK},
    {"mx", "MX", FP8_PRESET_MX},       {"mx_w2d", "MX_W2D", FP8_PRESET_MX_W2D},
};

void presets_parse(const char *list, int chosen[PRESET_COUNT]) {
  memset(chosen, 0, PRESET_COUNT * sizeof chosen[0]);
  while (*list) {
    size_t length = strcspn(list, ",");
    int found = 0;
    for (int i = 0; i < PRESET_COUNT; ++i) {
      int all = length == 3 && !strncmp(list, "all", 3) && i > 0;
      if (all || (strlen(presets[i].name) == length && !strncmp(list, presets[i].name, length))) found = chosen[i] = 1;
    }
    if (!found) fail("--recipe: '%.*s' is none of all, none, tensor, row, block, mx, mx_w2d", (int)length, list);
    list += length + (list[length] == ',');
  }
}

const Preset *preset_find(int32_t preset) {
  for (int i = 0; i < PRESET_COUNT; ++i)
    if (presets[i].preset == preset) return &presets[i];
  fail("preset %d has no name here", (int)preset);
}

fp8_recipe *preset_create(int32_t preset) {
  fp8_recipe_config config;
  fp8_recipe *recipe;
  CHECK(fp8_recipe_config_preset(preset, (FP8_INIT(&config), &config)));
  CHECK(fp8_recipe_create(&config, &recipe));
  return recipe;
}
