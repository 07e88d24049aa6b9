// SPDX-License-Identifier: Apache-2.0
#include "fp8/recipe.h"

#include "api/guard.h"
#include "api/text.h"
#include "core/recipe.h"

extern "C" {

fp8_status fp8_recipe_config_preset(int32_t preset, fp8_recipe_config *config) {
  return fp8::guard("fp8_recipe_config_preset",
                    [&] { fp8::write_sized(config, fp8::preset_config(preset), "config"); });
}

fp8_status fp8_recipe_create(const fp8_recipe_config *config, fp8_recipe **recipe) {
  return fp8::guard("fp8_recipe_create", [&] {
    fp8::need(recipe, "recipe");
    *recipe = nullptr;
    *recipe = fp8::create_recipe(fp8::read_sized(config, "config"));
  });
}

fp8_status fp8_recipe_query(const fp8_recipe *recipe, fp8_recipe_config *resolved) {
  return fp8::guard("fp8_recipe_query", [&] {
    fp8::need(recipe, "recipe");
    fp8::write_sized(resolved, recipe->config, "resolved");
  });
}

fp8_status fp8_recipe_to_string(const fp8_recipe *recipe, char *text, uint64_t bytes, uint64_t *needed) {
  return fp8::guard("fp8_recipe_to_string", [&] {
    fp8::need(recipe, "recipe");
    fp8::write_text(fp8::recipe_text(*recipe), text, bytes, needed);
  });
}

fp8_status fp8_recipe_from_string(const char *text, fp8_recipe **recipe) {
  return fp8::guard("fp8_recipe_from_string", [&] {
    fp8::need(recipe, "recipe");
    *recipe = nullptr;
    fp8::need(text, "text");
    *recipe = fp8::parse_recipe(text);
  });
}

fp8_status fp8_recipe_describe(const fp8_recipe *recipe, const fp8_context *, int32_t role, int64_t rows, int64_t cols,
                               uint32_t sides, fp8_qtensor *q) {
  return fp8::guard("fp8_recipe_describe", [&] {
    fp8::need(recipe, "recipe");
    fp8::need(q, "q");
    fp8::write_sized(q, fp8::describe(*recipe, role, rows, cols, sides), "q");
  });
}

void fp8_recipe_destroy(fp8_recipe *recipe) { fp8::Ref<fp8_recipe>::adopt(recipe); }

}  // extern "C"
