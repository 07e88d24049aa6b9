// SPDX-License-Identifier: Apache-2.0
#include "core/linear.h"

#include <algorithm>

namespace fp8 {

void Temps::place(fp8_qtensor &q, uint32_t sides) {
  const uint64_t bytes = qtensor_bytes(q, sides);
  plan_.add(bytes);
  if (!ws_) return;
  if (!ws_->holds(bytes)) throw ShortWorkspace();
  const fp8_buffer memory{ws_->take(bytes), bytes};
  fp8::place(q, sides, memory);
}

uint64_t Temps::total(uint64_t scratch) {
  plan_.add(scratch);
  return plan_.total();
}

fp8_linear *create_linear(const fp8_context &c, const fp8_linear_config &config) {
  if (config.in_features <= 0)
    fail(FP8_ERR_ARGUMENT, "config.in_features is %lld, must be > 0", (long long)config.in_features);
  if (config.out_features <= 0)
    fail(FP8_ERR_ARGUMENT, "config.out_features is %lld, must be > 0", (long long)config.out_features);
  if (!config.recipe) fail(FP8_ERR_ARGUMENT, "config.recipe is NULL");
  const struct {
    int32_t dtype;
    const char *name;
  } dtypes[] = {{config.input_dtype, "input_dtype"}, {config.output_dtype, "output_dtype"}};
  for (const auto &d : dtypes)
    if (d.dtype != 0 && d.dtype != FP8_DTYPE_F32 && d.dtype != FP8_DTYPE_F16 && d.dtype != FP8_DTYPE_BF16)
      fail(FP8_ERR_ARGUMENT, "config.%s is %s (%d), must be F32, F16 or BF16 (0 = BF16)", d.name, dtype_name(d.dtype),
           d.dtype);
  if (config.flags) fail(FP8_ERR_UNSUPPORTED, "config.flags has unknown bits 0x%x", config.flags);
  if (config.reserved) fail(FP8_ERR_UNSUPPORTED, "config.reserved is %d, must be 0", config.reserved);
  refuse_delayed(*config.recipe);
  describe(*config.recipe, FP8_ROLE_WEIGHT, config.out_features, config.in_features, FP8_SIDE_BOTH);  // addressable
  fp8_linear *l = new fp8_linear;
  l->context = Ref<const fp8_context>::share(&c);
  l->recipe = Ref<const fp8_recipe>::share(config.recipe);
  l->in_features = config.in_features;
  l->out_features = config.out_features;
  if (config.input_dtype) l->input_dtype = config.input_dtype;
  if (config.output_dtype) l->output_dtype = config.output_dtype;
  return l;
}

fp8_qtensor linear_describe(const fp8_linear &l, int32_t role, int64_t rows, uint32_t sides) {
  const bool weight = role == FP8_ROLE_WEIGHT;
  return describe(*l.recipe, role, weight ? l.out_features : rows,
                  role == FP8_ROLE_GRADIENT ? l.out_features : l.in_features, sides);
}

int64_t check_rows(const fp8_tensor &t, const char *name, int32_t dtype, int64_t features, const char *features_name,
                   bool query) {
  check_tensor(t, name, {dtype}, 16, query);
  if (t.ndim < 1) fail(FP8_ERR_ARGUMENT, "%s.ndim is 0, must be 1 to 4", name);
  if (tensor_cols(t) != features)
    fail(FP8_ERR_ARGUMENT, "%s.shape[%d] is %lld, the linear was created with %s %lld", name, t.ndim - 1,
         (long long)tensor_cols(t), features_name, (long long)features);
  return tensor_rows(t);
}

void check_extents(const fp8_qtensor &q, const char *name, int64_t rows, const char *rows_name, int64_t cols,
                   const char *cols_name) {
  if (q.rows != rows)
    fail(FP8_ERR_ARGUMENT, "%s.rows is %lld, must be %lld (%s)", name, (long long)q.rows, (long long)rows, rows_name);
  if (q.cols != cols)
    fail(FP8_ERR_ARGUMENT, "%s.cols is %lld, must be %lld (%s)", name, (long long)q.cols, (long long)cols, cols_name);
}

ops::Side weight_side(const fp8_linear &l, const fp8_qtensor &w, int32_t side, bool query) {
  check_extents(w, "w", l.out_features, "out_features", l.in_features, "in_features");
  const bool row = side == FP8_SIDE_ROW;
  const bool plain = !is_quantized(side_scaling(*l.recipe, FP8_ROLE_WEIGHT, side));
  const int32_t kind = side_kind(w, side);
  if (plain && (kind == 0 || is_quantized(kind)))
    fail(FP8_ERR_ARGUMENT,
         "w.%s_kind is %s: the recipe runs %s in BF16, which needs w in BF16 on this side, and this w is FP8 only",
         row ? "row" : "col", scaling_name(kind), row ? "fprop" : "dgrad");
  check_described(*l.recipe, FP8_ROLE_WEIGHT, w, side, "w");
  return side_view(w, side, "w", query);
}

void plain_operand(fp8_qtensor &q, int32_t side, const fp8_tensor &t, const char *name, int32_t target,
                   const char *partner) {
  const bool in_place = t.dtype == target;
  if (!in_place && t.dtype == FP8_DTYPE_BF16)
    fail(FP8_ERR_UNSUPPORTED, "%s is BF16 and %s is %s: unquantized operands have one dtype", name, partner,
         dtype_name(target));
  if (in_place && matrix(t).lead > 1)
    fail(FP8_ERR_UNSUPPORTED,
         "%s has leading dimensions that do not flatten to one stride, and a GEMM without quantization reads it in "
         "place",
         name);
  (side == FP8_SIDE_ROW ? q.row_kind : q.col_kind) = in_place ? FP8_SCALING_UNQUANTIZED : FP8_SCALING_COPY;
  (side == FP8_SIDE_ROW ? q.row : q.col).dtype = target;
}

void add_quantize(LinearPlan &plan, const QuantizePlan &quantize) {
  plan.scratch = std::max(plan.scratch, quantize.workspace);
  plan.quantize[plan.quantize_count++] = quantize;
}

void add_gemm(const fp8_linear &l, LinearPlan &plan, const ops::Gemm &op) {
  plan.gemm[plan.gemm_count] = op;
  plan.gemm[plan.gemm_count].workspace_bytes = gemm_backend_bytes(*l.context, op);
  plan.scratch = std::max(plan.scratch, plan.gemm[plan.gemm_count].workspace_bytes);
  ++plan.gemm_count;
}

uint32_t gemm_flags(const fp8_linear &l, int32_t gemm, bool accumulate) {
  return (accumulate ? uint32_t{FP8_GEMM_ACCUMULATE} : 0u) |
         (covered(*l.recipe, gemm) && fast_accumulation(*l.recipe, gemm) ? uint32_t{FP8_GEMM_FAST_ACCUMULATION} : 0u);
}

void run_linear(const fp8_linear &l, LinearPlan &plan, Workspace &ws, fp8_stream stream) {
  void *scratch = ws.take(plan.scratch);
  for (int i = 0; i < plan.quantize_count; ++i)
    run_quantize(*l.context, plan.quantize[i], scratch, plan.quantize[i].workspace, stream);
  for (int i = 0; i < plan.gemm_count; ++i)
    run_gemm(*l.context, plan.gemm[i], scratch, plan.gemm[i].workspace_bytes, stream);
}

}  // namespace fp8
