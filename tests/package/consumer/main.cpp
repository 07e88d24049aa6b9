// SPDX-License-Identifier: Apache-2.0
// A C++ program outside the tree: makes a recipe and describes a weight with it.
#include <fp8/fp8.h>

#include <cstdio>

int main() {
  fp8_recipe_config config;
  FP8_INIT(&config);
  config.preset = FP8_PRESET_BLOCK;
  fp8_recipe *recipe = nullptr;
  fp8_qtensor q;
  FP8_INIT(&q);
  fp8_status status = fp8_recipe_create(&config, &recipe);
  if (status == FP8_OK) status = fp8_recipe_describe(recipe, nullptr, FP8_ROLE_WEIGHT, 256, 384, FP8_SIDE_BOTH, &q);
  fp8_recipe_destroy(recipe);
  if (status != FP8_OK || q.row_scale.shape[0] != 2 || q.row_scale.shape[1] != 3) {
    std::fprintf(stderr, "%s, scales [%lld, %lld]\n", fp8_status_name(status),
                 static_cast<long long>(q.row_scale.shape[0]), static_cast<long long>(q.row_scale.shape[1]));
    return 1;
  }
  std::puts("C++: libfp8 describes a weight");
  return 0;
}
