// SPDX-License-Identifier: Apache-2.0
// A recipe, resolved: what each role is quantized to, along which axis, and which GEMMs are covered.
#pragma once
#include <string>

#include "core/handle.h"
#include "fp8/recipe.h"

struct fp8_recipe : fp8::Counted {
  fp8_recipe_config config{};  // every field resolved
};

namespace fp8 {

fp8_recipe *create_recipe(const fp8_recipe_config &config);  // resolves; throws UNSUPPORTED outside the closed list
fp8_recipe *parse_recipe(const char *text);
std::string recipe_text(const fp8_recipe &r);
std::string role_text(int32_t dtype, int32_t scaling);  // "e4m3/1x128"; "F32 (1)/1x128" where a text has no word
const char *rule_text(int32_t rule);                    // "pow2"

fp8_recipe_config preset_config(int32_t preset);
bool legal_pair(int32_t a, int32_t b);  // of two quantized scalings, either order: the closed list

int32_t role_dtype(const fp8_recipe &r, int32_t role);
int32_t role_scaling(const fp8_recipe &r, int32_t role);
int32_t gemm_of(int32_t role, int32_t side);  // enum fp8_gemm_kind that reads this side
bool covered(const fp8_recipe &r, int32_t gemm);
int32_t side_scaling(const fp8_recipe &r, int32_t role, int32_t side);  // UNQUANTIZED where uncovered
int32_t side_dtype(const fp8_recipe &r, int32_t role, int32_t side);    // BF16 where an FP8 role is uncovered
bool fast_accumulation(const fp8_recipe &r, int32_t gemm);

// kinds, dtypes, shapes and native strides; data NULL. sides may hold FP8_SIDE_COPY.
fp8_qtensor describe(const fp8_recipe &r, int32_t role, int64_t rows, int64_t cols, uint32_t sides);

}  // namespace fp8
