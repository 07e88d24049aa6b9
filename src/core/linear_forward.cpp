// SPDX-License-Identifier: Apache-2.0
// y = x . w^T + bias: x is quantized for both GEMMs that read it in one pass.
#include "core/contents.h"
#include "core/linear.h"

namespace fp8 {

namespace {

constexpr QuantizeNames names_of_x() {
  QuantizeNames n;
  n.x = "x";
  n.row = "x";
  n.col = "saved_x";
  n.amax = "amax_x";
  n.amax_col = "amax_x";
  n.stats = "stats_x";
  n.state = "state_x";
  return n;
}

void check_choice(const fp8_linear_forward_args &a) {
  if (!a.x && !a.qx) fail(FP8_ERR_ARGUMENT, "x and qx are both NULL, one of them is needed");
  if (a.x && a.qx) fail(FP8_ERR_ARGUMENT, "x and qx are both given, only one of them may be");
  if (!a.w) fail(FP8_ERR_ARGUMENT, "w is NULL");
  if (!a.y) fail(FP8_ERR_ARGUMENT, "y is NULL");
  const uint32_t unknown = a.flags & ~uint32_t{FP8_LINEAR_ACCUMULATE_DW | FP8_LINEAR_AMAX_GIVEN |
                                               FP8_LINEAR_ACCUMULATE_DX | FP8_LINEAR_ACCUMULATE_DBIAS};
  if (unknown) fail(FP8_ERR_UNSUPPORTED, "flags has unknown bits 0x%x", unknown);
  if (a.flags & ~uint32_t{FP8_LINEAR_AMAX_GIVEN})
    fail(FP8_ERR_ARGUMENT, "flags is 0x%x: the ACCUMULATE flags belong to backward", a.flags);
  if (!a.qx) return;
  const struct {
    const void *given;
    const char *name;
  } with_x_only[] = {{a.amax_x, "amax_x"}, {a.stats_x, "stats_x"}, {a.state_x, "state_x"}};
  for (const auto &g : with_x_only)
    if (g.given) fail(FP8_ERR_ARGUMENT, "%s is given with qx: it belongs to the quantize that made qx", g.name);
  if (a.saved_x) fail(FP8_ERR_ARGUMENT, "saved_x is given with qx: backward is given qx itself");
  if (a.flags & FP8_LINEAR_AMAX_GIVEN) fail(FP8_ERR_ARGUMENT, "FP8_LINEAR_AMAX_GIVEN is set with qx");
}

// Row side for fprop in the workspace or in place, column side in the caller's saved_x.
ops::Side plan_x(const fp8_linear &l, const fp8_linear_forward_args &a, int64_t rows, int32_t w_dtype, Temps &temps,
                 LinearPlan &plan) {
  fp8_qtensor q = linear_describe(l, FP8_ROLE_ACTIVATION, rows, FP8_SIDE_ROW);
  if (!is_quantized(q.row_kind)) plain_operand(q, FP8_SIDE_ROW, *a.x, "x", w_dtype, "w");
  if (q.row_kind != FP8_SCALING_UNQUANTIZED) temps.place(q, FP8_SIDE_ROW);
  if (a.saved_x) {
    check_extents(*a.saved_x, "saved_x", rows, "rows of x", l.in_features, "in_features");
    if (!a.saved_x->col_kind) fail(FP8_ERR_ARGUMENT, "saved_x has no column side: describe it with FP8_SIDE_COL");
    q.col_kind = a.saved_x->col_kind;
    q.col = a.saved_x->col;
    q.col_scale = a.saved_x->col_scale;
  }
  if (a.amax_x && role_scaling(*l.recipe, FP8_ROLE_ACTIVATION) != FP8_SCALING_TENSOR)
    fail(FP8_ERR_UNSUPPORTED, "amax_x is given with %s activations: only TENSOR has one amax",
         scaling_name(role_scaling(*l.recipe, FP8_ROLE_ACTIVATION)));
  fp8_quantize_args qa{};
  qa.x = a.x;
  qa.q = &q;
  qa.amax = a.amax_x;
  qa.stats = a.stats_x;
  qa.state = a.state_x;
  qa.flags = a.flags & FP8_LINEAR_AMAX_GIVEN ? uint32_t{FP8_AMAX_GIVEN} : 0u;
  qa.role = FP8_ROLE_ACTIVATION;
  qa.max_sms = a.max_sms;
  add_quantize(plan, plan_quantize(*l.context, *l.recipe, qa, names_of_x(), temps.mode()));
  const fp8_qtensor &made = plan.quantize[plan.quantize_count - 1].q;
  if (a.saved_x && made.col_kind == FP8_SCALING_UNQUANTIZED) {
    plan.has_view = true;
    plan.view = made.col;
  }
  return side_view(made, FP8_SIDE_ROW, "x", temps.query());
}

}  // namespace

LinearPlan plan_forward(const fp8_linear &l, const fp8_linear_forward_args &a, Workspace *ws) {
  check_choice(a);
  Temps temps(ws);
  LinearPlan plan;
  const ops::Side w = weight_side(l, *a.w, FP8_SIDE_ROW, temps.query());
  ops::Side x;
  int64_t rows;
  if (a.x) {
    rows = check_rows(*a.x, "x", l.input_dtype, l.in_features, "in_features", temps.query());
    x = plan_x(l, a, rows, w.codes.dtype, temps, plan);
  } else {
    rows = a.qx->rows;
    check_extents(*a.qx, "qx", rows, "its own", l.in_features, "in_features");
    check_described(*l.recipe, FP8_ROLE_ACTIVATION, *a.qx, FP8_SIDE_ROW, "qx");
    x = side_view(*a.qx, FP8_SIDE_ROW, "qx", temps.query());
  }
  const int64_t y_rows = check_rows(*a.y, "y", l.output_dtype, l.out_features, "out_features", temps.query());
  if (y_rows != rows)
    fail(FP8_ERR_ARGUMENT, "y has %lld rows, %s has %lld", (long long)y_rows, a.x ? "x" : "qx", (long long)rows);
  GemmNames names;
  names.a = a.x ? "x" : "qx";
  names.b = "w";
  names.d = "y";
  add_gemm(l, plan,
           plan_gemm(*l.context, x, w, a.bias, *a.y, gemm_flags(l, FP8_FPROP, false), a.max_sms, names, temps.query()));
  plan.total = temps.total(plan.scratch);
  return plan;
}

void refuse_overlaps(const fp8_linear_forward_args &a) {
  Footprints f;
  f.in(a.x, "x");
  if (a.qx) f.side_in(*a.qx, FP8_SIDE_ROW, "qx");
  f.side_in(*a.w, FP8_SIDE_ROW, "w");
  f.in(a.bias, "bias");
  f.out(a.y, "y");
  if (a.saved_x && a.saved_x->col_kind != FP8_SCALING_UNQUANTIZED) f.side_out(*a.saved_x, FP8_SIDE_COL, "saved_x");
  if (a.flags & FP8_LINEAR_AMAX_GIVEN)
    f.in(a.amax_x, "amax_x");
  else
    f.out(a.amax_x, "amax_x");
  f.out(a.stats_x, "stats_x");
  f.workspace(a.workspace);
}

void check_contents(const fp8_linear &l, const fp8_linear_forward_args &a, fp8_stream stream) {
  if (a.qx) check_scales(*l.context, *a.qx, FP8_SIDE_ROW, "qx", stream);
  check_scales(*l.context, *a.w, FP8_SIDE_ROW, "w", stream);
  if (a.flags & FP8_LINEAR_AMAX_GIVEN) check_given_amax(*l.context, a.amax_x, "amax_x", stream);
}

}  // namespace fp8
