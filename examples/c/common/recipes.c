/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes.h"

#include <string.h>
#include <strings.h>

#include "option.h"

const Preset presets[PRESET_COUNT] = {
    {"none", "BF16", FP8_PRESET_NONE}, {"tensor", "TENSOR", FP8_PRESET_TENSOR},
    {"row", "ROW", FP8_PRESET_ROW},    {"block", "BLOCK", FP8_PRESET_BLOCK},
    {"mx", "MX", FP8_PRESET_MX},       {"mx_w2d", "MX_W2D", FP8_PRESET_MX_W2D},
};

/* The library knows names in any case and what other projects call them (PRESET_ALIASES); -1 if it is none of ours. */
static int preset_index(const char *name) {
  fp8_recipe *recipe;
  fp8_recipe_config config;
  if (strpbrk(name, ";=")) return -1;
  fp8_status status = fp8_recipe_from_string(name, &recipe);
  if (status == FP8_ERR_UNSUPPORTED) { /* a name that it knows, and does not offer */
    fp8_error error;
    FP8_INIT(&error);
    fp8_last_error(&error);
    option_bad("--recipe", name, "%s", error.message);
  }
  if (status != FP8_OK) return -1;
  FP8_INIT(&config);
  CHECK(fp8_recipe_query(recipe, &config));
  fp8_recipe_destroy(recipe);
  for (int i = 0; i < PRESET_COUNT; ++i)
    if (presets[i].preset == config.preset) return i;
  return -1;
}

void presets_parse(const char *list, int chosen[PRESET_COUNT]) {
  memset(chosen, 0, PRESET_COUNT * sizeof chosen[0]);
  while (*list) {
    size_t length = strcspn(list, ",");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), list);
    int all = !strcasecmp(name, "all"), found = all ? 0 : preset_index(name);
    if (found < 0)
      option_bad("--recipe", name, "all, none, tensor, row, block, mx or mx_w2d is needed, or another name of one: %s",
                 PRESET_ALIASES);
    for (int i = 1; i < PRESET_COUNT; ++i) chosen[i] |= all;
    chosen[found] |= !all;
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
