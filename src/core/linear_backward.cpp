// SPDX-License-Identifier: Apache-2.0
// dx = dy . w and dw = dy^T . x: dy is quantized for both in one pass.
#include "core/contents.h"
#include "core/linear.h"

namespace fp8 {

namespace {

constexpr QuantizeNames names_of_dy() {
  QuantizeNames n;
  n.x = "dy";
  n.row = "dy";
  n.col = "saved_dy";
  n.amax = "amax_dy";
  n.amax_col = "amax_dy";
  n.stats = "stats_dy";
  n.state = "state_dy";
  n.dbias = "dbias";
  n.sides_optional = true;
  return n;
}

constexpr QuantizeNames names_of_x() {
  QuantizeNames n;
  n.x = "x";
  n.row = "x";
  n.col = "x";
  n.amax = "amax_x";
  n.amax_col = "amax_x";
  return n;
}

void check_choice(const fp8_linear_backward_args &a) {
  if (!a.dy && !a.qdy) fail(FP8_ERR_ARGUMENT, "dy and qdy are both NULL, one of them is needed");
  if (a.dy && a.qdy) fail(FP8_ERR_ARGUMENT, "dy and qdy are both given, only one of them may be");
  const uint32_t unknown = a.flags & ~uint32_t{FP8_LINEAR_ACCUMULATE_DW | FP8_LINEAR_AMAX_GIVEN |
                                               FP8_LINEAR_ACCUMULATE_DX | FP8_LINEAR_ACCUMULATE_DBIAS};
  if (unknown) fail(FP8_ERR_UNSUPPORTED, "flags has unknown bits 0x%x", unknown);
  if (a.qdy) {
    const struct {
      const void *given;
      const char *name;
    } with_dy_only[] = {{a.dbias, "dbias"},
                        {a.saved_dy, "saved_dy"},
                        {a.amax_dy, "amax_dy"},
                        {a.stats_dy, "stats_dy"},
                        {a.state_dy, "state_dy"}};
    for (const auto &g : with_dy_only)
      if (g.given) fail(FP8_ERR_ARGUMENT, "%s is given with qdy: it is made from dy only", g.name);
    if (a.flags & FP8_LINEAR_AMAX_GIVEN) fail(FP8_ERR_ARGUMENT, "FP8_LINEAR_AMAX_GIVEN is set with qdy");
  }
  if (!a.dx && !a.dw && !a.dbias && !a.saved_dy)
    fail(FP8_ERR_ARGUMENT, "dx, dw, dbias and saved_dy are all NULL, there is nothing to compute");
  if (a.dx && !a.w) fail(FP8_ERR_ARGUMENT, "w is NULL and dx is given");
  if (!a.dx && a.w) fail(FP8_ERR_ARGUMENT, "w is given and dx is NULL");
  if (a.dw && !a.saved_x && !a.x) fail(FP8_ERR_ARGUMENT, "saved_x and x are both NULL and dw is given");
  if (a.saved_x && a.x) fail(FP8_ERR_ARGUMENT, "saved_x and x are both given, only one of them may be");
  if (!a.dw && (a.saved_x || a.x)) fail(FP8_ERR_ARGUMENT, "%s is given and dw is NULL", a.x ? "x" : "saved_x");
  if (a.amax_x && !a.x) fail(FP8_ERR_ARGUMENT, "amax_x is given without x");
}

void tensor_amax_only(const fp8_linear &l, const fp8_tensor *amax, const char *name, int32_t role) {
  if (amax && role_scaling(*l.recipe, role) != FP8_SCALING_TENSOR)
    fail(FP8_ERR_UNSUPPORTED, "%s is given with %s %ss: only TENSOR has one amax", name,
         scaling_name(role_scaling(*l.recipe, role)), role_name(role));
}

// dtype of both operands of a wgrad without quantization: that of the side which is given, else BF16.
int32_t plain_wgrad_dtype(const fp8_linear_backward_args &a) {
  if (a.saved_x) return a.saved_x->col.dtype;
  if (a.qdy) return a.qdy->col.dtype;
  if (a.saved_dy && a.saved_dy->col_kind == FP8_SCALING_COPY) return a.saved_dy->col.dtype;
  const bool same = a.x && a.x->dtype == a.dy->dtype && a.dy->dtype == FP8_DTYPE_F16;
  return same ? FP8_DTYPE_F16 : FP8_DTYPE_BF16;
}

struct Gradient {
  ops::Side row{}, col{};
};

Gradient plan_dy(const fp8_linear &l, const fp8_linear_backward_args &a, int64_t rows, Temps &temps, LinearPlan &plan) {
  fp8_qtensor q{};
  q.struct_size = sizeof q;
  q.rows = rows;
  q.cols = l.out_features;
  if (a.dx || a.dw)
    q = linear_describe(l, FP8_ROLE_GRADIENT, rows,
                        (a.dx ? uint32_t{FP8_SIDE_ROW} : 0u) | (a.dw ? uint32_t{FP8_SIDE_COL} : 0u));
  if (a.dx && !is_quantized(q.row_kind)) plain_operand(q, FP8_SIDE_ROW, *a.dy, "dy", a.w->col.dtype, "w");
  if (a.saved_dy) {
    check_extents(*a.saved_dy, "saved_dy", rows, "rows of dy", l.out_features, "out_features");
    if (!a.saved_dy->col_kind) fail(FP8_ERR_ARGUMENT, "saved_dy has no column side: describe it with FP8_SIDE_COL");
    q.col_kind = a.saved_dy->col_kind;
    q.col = a.saved_dy->col;
    q.col_scale = a.saved_dy->col_scale;
  } else if (a.dw && !is_quantized(q.col_kind)) {
    plain_operand(q, FP8_SIDE_COL, *a.dy, "dy", plain_wgrad_dtype(a), a.saved_x ? "saved_x" : "x");
  }
  const bool own_row = q.row_kind && q.row_kind != FP8_SCALING_UNQUANTIZED;
  const bool own_col = !a.saved_dy && q.col_kind && q.col_kind != FP8_SCALING_UNQUANTIZED;
  if (own_row && own_col && q.row_kind == FP8_SCALING_COPY && q.col_kind == FP8_SCALING_COPY &&
      q.row.dtype == q.col.dtype) {
    temps.place(q, FP8_SIDE_BOTH);  // one copy
  } else {
    if (own_row) temps.place(q, FP8_SIDE_ROW);
    if (own_col) temps.place(q, FP8_SIDE_COL);
  }
  tensor_amax_only(l, a.amax_dy, "amax_dy", FP8_ROLE_GRADIENT);
  fp8_quantize_args qa{};
  qa.x = a.dy;
  qa.q = &q;
  qa.amax = a.amax_dy;
  qa.stats = a.stats_dy;
  qa.state = a.state_dy;
  qa.dbias = a.dbias;
  qa.flags = (a.flags & FP8_LINEAR_AMAX_GIVEN ? uint32_t{FP8_AMAX_GIVEN} : 0u) |
             (a.flags & FP8_LINEAR_ACCUMULATE_DBIAS ? uint32_t{FP8_ACCUMULATE_DBIAS} : 0u);
  qa.role = FP8_ROLE_GRADIENT;
  qa.max_sms = a.max_sms;
  add_quantize(plan, plan_quantize(*l.context, *l.recipe, qa, names_of_dy(), temps.mode()));
  const fp8_qtensor &made = plan.quantize[plan.quantize_count - 1].q;
  if (a.saved_dy && made.col_kind == FP8_SCALING_UNQUANTIZED) {
    plan.has_view = true;
    plan.view = made.col;
  }
  Gradient g;
  if (a.dx) g.row = side_view(made, FP8_SIDE_ROW, "dy", temps.query());
  if (a.dw) g.col = side_view(made, FP8_SIDE_COL, a.saved_dy ? "saved_dy" : "dy", temps.query());
  return g;
}

Gradient given_dy(const fp8_linear &l, const fp8_linear_backward_args &a, bool query) {
  check_extents(*a.qdy, "qdy", a.qdy->rows, "its own", l.out_features, "out_features");
  Gradient g;
  if (a.dx) {
    check_described(*l.recipe, FP8_ROLE_GRADIENT, *a.qdy, FP8_SIDE_ROW, "qdy");
    g.row = side_view(*a.qdy, FP8_SIDE_ROW, "qdy", query);
  }
  if (a.dw) {
    check_described(*l.recipe, FP8_ROLE_GRADIENT, *a.qdy, FP8_SIDE_COL, "qdy");
    g.col = side_view(*a.qdy, FP8_SIDE_COL, "qdy", query);
  }
  return g;
}

// The column side of x, from saved_x or quantized here.
ops::Side plan_x(const fp8_linear &l, const fp8_linear_backward_args &a, int64_t rows, int32_t dy_dtype, Temps &temps,
                 LinearPlan &plan) {
  if (a.saved_x) {
    check_extents(*a.saved_x, "saved_x", rows, "rows of dy", l.in_features, "in_features");
    check_described(*l.recipe, FP8_ROLE_ACTIVATION, *a.saved_x, FP8_SIDE_COL, "saved_x");
    return side_view(*a.saved_x, FP8_SIDE_COL, "saved_x", temps.query());
  }
  const int64_t x_rows = check_rows(*a.x, "x", l.input_dtype, l.in_features, "in_features", temps.query());
  if (x_rows != rows) fail(FP8_ERR_ARGUMENT, "x has %lld rows, dy has %lld", (long long)x_rows, (long long)rows);
  fp8_qtensor q = linear_describe(l, FP8_ROLE_ACTIVATION, rows, FP8_SIDE_COL);
  if (!is_quantized(q.col_kind)) plain_operand(q, FP8_SIDE_COL, *a.x, "x", dy_dtype, a.dy ? "dy" : "qdy");
  if (q.col_kind != FP8_SCALING_UNQUANTIZED) temps.place(q, FP8_SIDE_COL);
  tensor_amax_only(l, a.amax_x, "amax_x", FP8_ROLE_ACTIVATION);
  fp8_tensor amax{};
  fp8_quantize_args qa{};
  qa.x = a.x;
  qa.q = &q;
  if (a.amax_x) {
    amax = *a.amax_x;
    qa.amax = &amax;
    qa.flags = FP8_AMAX_GIVEN;
  }
  qa.role = FP8_ROLE_ACTIVATION;
  qa.max_sms = a.max_sms;
  add_quantize(plan, plan_quantize(*l.context, *l.recipe, qa, names_of_x(), temps.mode()));
  return side_view(plan.quantize[plan.quantize_count - 1].q, FP8_SIDE_COL, "x", temps.query());
}

void check_out(const fp8_tensor &t, const char *name, int32_t first, int32_t second, int64_t rows, int64_t cols) {
  if (t.dtype != first && t.dtype != second)
    fail(FP8_ERR_ARGUMENT, "%s.dtype is %s (%d), must be %s%s%s", name, dtype_name(t.dtype), t.dtype, dtype_name(first),
         first == second ? "" : " or ", first == second ? "" : dtype_name(second));
  if (tensor_rows(t) != rows || tensor_cols(t) != cols)
    fail(FP8_ERR_ARGUMENT, "%s is %lld x %lld, must be %lld x %lld", name, (long long)tensor_rows(t),
         (long long)tensor_cols(t), (long long)rows, (long long)cols);
}

}  // namespace

LinearPlan plan_backward(const fp8_linear &l, const fp8_linear_backward_args &a, Workspace *ws) {
  check_choice(a);
  Temps temps(ws);
  LinearPlan plan;
  ops::Side w{};
  if (a.dx) w = weight_side(l, *a.w, FP8_SIDE_COL, temps.query());
  const int64_t rows =
      a.dy ? check_rows(*a.dy, "dy", l.output_dtype, l.out_features, "out_features", temps.query()) : a.qdy->rows;
  const Gradient dy = a.dy ? plan_dy(l, a, rows, temps, plan) : given_dy(l, a, temps.query());
  GemmNames names;
  names.a = a.dy ? "dy" : "qdy";
  if (a.dx) {
    check_out(*a.dx, "dx", l.input_dtype, FP8_DTYPE_F32, rows, l.in_features);
    names.b = "w";
    names.d = "dx";
    const uint32_t flags = gemm_flags(l, FP8_DGRAD, a.flags & FP8_LINEAR_ACCUMULATE_DX);
    add_gemm(l, plan, plan_gemm(*l.context, dy.row, w, nullptr, *a.dx, flags, a.max_sms, names, temps.query()));
  }
  if (a.dw) {
    const ops::Side x = plan_x(l, a, rows, dy.col.codes.dtype, temps, plan);
    check_out(*a.dw, "dw", FP8_DTYPE_F32, FP8_DTYPE_BF16, l.out_features, l.in_features);
    names.b = a.x ? "x" : "saved_x";
    names.d = "dw";
    const uint32_t flags = gemm_flags(l, FP8_WGRAD, a.flags & FP8_LINEAR_ACCUMULATE_DW);
    add_gemm(l, plan, plan_gemm(*l.context, dy.col, x, nullptr, *a.dw, flags, a.max_sms, names, temps.query()));
  }
  plan.total = temps.total(plan.scratch);
  return plan;
}

void refuse_overlaps(const fp8_linear_backward_args &a) {
  Footprints f;
  f.in(a.dy, "dy");
  if (a.qdy && a.dx) f.side_in(*a.qdy, FP8_SIDE_ROW, "qdy");
  if (a.qdy && a.dw) f.side_in(*a.qdy, FP8_SIDE_COL, "qdy");
  if (a.dx) f.side_in(*a.w, FP8_SIDE_COL, "w");
  if (a.saved_x) f.side_in(*a.saved_x, FP8_SIDE_COL, "saved_x");
  f.in(a.x, "x");
  f.in(a.amax_x, "amax_x");
  f.out(a.dx, "dx");
  f.out(a.dw, "dw");
  f.out(a.dbias, "dbias");
  if (a.saved_dy && a.saved_dy->col_kind != FP8_SCALING_UNQUANTIZED) f.side_out(*a.saved_dy, FP8_SIDE_COL, "saved_dy");
  if (a.flags & FP8_LINEAR_AMAX_GIVEN)
    f.in(a.amax_dy, "amax_dy");
  else
    f.out(a.amax_dy, "amax_dy");
  f.out(a.stats_dy, "stats_dy");
  f.workspace(a.workspace);
}

void check_contents(const fp8_linear &l, const fp8_linear_backward_args &a, fp8_stream stream) {
  if (a.qdy && a.dx) check_scales(*l.context, *a.qdy, FP8_SIDE_ROW, "qdy", stream);
  if (a.qdy && a.dw) check_scales(*l.context, *a.qdy, FP8_SIDE_COL, "qdy", stream);
  if (a.dx) check_scales(*l.context, *a.w, FP8_SIDE_COL, "w", stream);
  if (a.saved_x) check_scales(*l.context, *a.saved_x, FP8_SIDE_COL, "saved_x", stream);
  if (a.flags & FP8_LINEAR_AMAX_GIVEN) check_given_amax(*l.context, a.amax_dy, "amax_dy", stream);
  check_given_amax(*l.context, a.amax_x, "amax_x", stream);
}

}  // namespace fp8
