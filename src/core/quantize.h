// SPDX-License-Identifier: Apache-2.0
// Quantize in two steps: plan_* checks everything and writes nothing, run_* only enqueues. linear uses the same two.
#pragma once
#include "core/context.h"
#include "core/overlap.h"
#include "core/recipe.h"
#include "fp8/quantize.h"
#include "ops/quantize.h"

namespace fp8 {

// How the errors name the arguments: the linear's x and saved_x are quantize's x and q.
struct QuantizeNames {
  const char *x = "x", *row = "q", *col = "q";
  const char *amax = "amax", *amax_col = "amax_col", *stats = "stats", *state = "state", *dbias = "dbias";
  bool sides_optional = false;  // dbias alone
};

enum class Mode { kRun, kQuery };  // kQuery reads shapes, strides and kinds only

struct QuantizePlan {
  ops::Quantize op{};
  ops::Cast copies[2]{};  // COPY sides
  int copy_count = 0;
  bool enqueue = false;  // something for the backend's quantize
  fp8_qtensor q{};       // args.q with its UNQUANTIZED sides viewing x
  bool views = false;    // q differs from args.q
  uint64_t workspace = 0;
};

// args.q is this library's own copy. amax_only: fp8_amax.
QuantizePlan plan_quantize(const fp8_context &c, const fp8_recipe &r, const fp8_quantize_args &args,
                           const QuantizeNames &names, Mode mode, bool amax_only = false);
void add_footprints(Footprints &f, const fp8_quantize_args &args, const QuantizePlan &plan, const QuantizeNames &names,
                    bool amax_only = false);
void run_quantize(const fp8_context &c, QuantizePlan &plan, void *workspace, uint64_t bytes, fp8_stream stream);

// One side seen as the rows x cols matrix itself: the col side with swapped strides.
ops::Matrix upright(const ops::Matrix &codes, int32_t side);
fp8_tensor view_of(const ops::Matrix &m, int32_t side);
int32_t one_side(uint32_t side, const char *name);  // ROW or COL, else refused
int32_t resolve_max_sms(const fp8_context &c, int32_t max_sms);
void refuse_delayed(const fp8_recipe &r);
// A q's side is what the recipe gives for this role: kind and dtype (COPY counts as UNQUANTIZED).
void check_described(const fp8_recipe &r, int32_t role, const fp8_qtensor &q, int32_t side, const char *name);
const char *role_name(int32_t role);

}  // namespace fp8
