// SPDX-License-Identifier: Apache-2.0
#include "core/convert.h"

namespace fp8 {

namespace {

const char *part(int32_t side) { return side == FP8_SIDE_ROW ? "row" : "col"; }

int32_t opposite(int32_t side) { return side == FP8_SIDE_ROW ? FP8_SIDE_COL : FP8_SIDE_ROW; }

int32_t source_side(const fp8_qtensor &q, const fp8_qtensor &other) {
  if (!q.row_kind && !q.col_kind) fail(FP8_ERR_ARGUMENT, "q has no side: row_kind and col_kind are 0");
  if (!q.col_kind) return FP8_SIDE_ROW;
  if (!q.row_kind) return FP8_SIDE_COL;
  return other.row_kind && !other.col_kind ? FP8_SIDE_COL : FP8_SIDE_ROW;
}

// Both sides belong to one role of the recipe.
void check_role(const fp8_recipe &r, const fp8_qtensor &q, const fp8_qtensor &other, int32_t from, int32_t to) {
  for (int32_t role = FP8_ROLE_ACTIVATION; role <= FP8_ROLE_GRADIENT; ++role) {
    const auto fits = [&](const fp8_qtensor &t, int32_t side) {
      const int32_t kind = side_kind(t, side), want = side_scaling(r, role, side);
      if (!is_quantized(want)) return !is_quantized(kind);
      return kind == want && side_codes(t, side).dtype == role_dtype(r, role);
    };
    if (fits(q, from) && fits(other, to)) return;
  }
  fail(FP8_ERR_ARGUMENT, "q.%s is %s in %s and other_side.%s is %s in %s, the recipe gives that to no role", part(from),
       dtype_name(side_codes(q, from).dtype), scaling_name(side_kind(q, from)), part(to),
       dtype_name(side_codes(other, to).dtype), scaling_name(side_kind(other, to)));
}

ops::Matrix scale_matrix(const ops::Scale &s) {
  ops::Matrix m{};
  m.data = s.data;
  m.dtype = s.dtype;
  m.lead = 1;
  m.rows = m.lead_shape[0] = s.rows;
  m.cols = s.cols;
  m.lead_stride[0] = s.row_stride;
  m.col_stride = s.col_stride;
  return m;
}

// Bytes of the target's scales where padding lies between them, padding included; else 0.
uint64_t padded_scale_bytes(const ops::Side &to) {
  const ops::Scale &s = to.scale;
  if (!s.padded) return 0;
  const int64_t elements = s.row_stride >= s.col_stride ? s.rows * s.row_stride : s.cols * s.col_stride;
  return static_cast<uint64_t>(elements * dtype_size(s.dtype));
}

void plan_from_codes(const fp8_context &c, const fp8_recipe &r, const ops::Side &from, const ops::Side &to,
                     RequantizePlan &plan) {
  const bool from_col = plan.from == FP8_SIDE_COL;
  const bool exact =
      from.scaling == to.scaling &&
      (from.scaling == FP8_SCALING_TENSOR || from.scaling == FP8_SCALING_128X128 || from.scaling == FP8_SCALING_32X32);
  if (exact) {
    plan.way = RequantizePlan::kTranspose;
    plan.codes.src = from.codes;
    plan.codes.dst = to.codes;
    plan.scale.src = scale_matrix(from.scale);
    plan.scale.dst = scale_matrix(to.scale);
    plan.zero_bytes = padded_scale_bytes(to);
  } else if (to.scaling == FP8_SCALING_COPY) {
    plan.way = RequantizePlan::kDequantize;
    plan.dequantize.side = from;
    plan.dequantize.is_col = from_col;
    plan.dequantize.x = upright(to.codes, plan.to);
  } else {
    plan.way = RequantizePlan::kQuantize;
    plan.op.source = from;
    plan.op.source_is_col = from_col;
    plan.op.x = upright(from.codes, plan.from);
    plan.op.x.data = nullptr;
    plan.op.x.dtype = FP8_DTYPE_NONE;
    (plan.to == FP8_SIDE_ROW ? plan.op.row : plan.op.col).side = to;
    plan.op.amax_floor = r.config.amax_floor;
    plan.op.max_sms = c.max_sms;
  }
}

void plan_from_plain(const fp8_context &c, const fp8_recipe &r, const ops::Side &from, const ops::Side &to,
                     RequantizePlan &plan) {
  const ops::Matrix source = upright(from.codes, plan.from);
  if (is_quantized(to.scaling)) {
    plan.way = RequantizePlan::kQuantize;
    plan.op.x = source;
    (plan.to == FP8_SIDE_ROW ? plan.op.row : plan.op.col).side = to;
    plan.op.amax_floor = r.config.amax_floor;
    plan.op.max_sms = c.max_sms;
    return;
  }
  plan.way = RequantizePlan::kCast;
  plan.cast.src = source;
  plan.cast.dst = upright(to.codes, plan.to);
  if (plan.cast.dst.data == source.data && plan.cast.dst.dtype == source.dtype &&
      plan.cast.dst.lead_stride[0] == source.lead_stride[0] && plan.cast.dst.col_stride == source.col_stride)
    plan.way = RequantizePlan::kView;  // placed together: one copy is both sides
}

}  // namespace

RequantizePlan plan_requantize(const fp8_context &c, const fp8_recipe &r, const fp8_qtensor &q,
                               const fp8_qtensor &other, const fp8_buffer *workspace, Mode mode) {
  refuse_delayed(r);
  RequantizePlan plan;
  plan.from = source_side(q, other);
  plan.to = opposite(plan.from);
  plan.other = other;
  if (!side_kind(other, plan.to))
    fail(FP8_ERR_ARGUMENT, "other_side has no %s side, which is the other of q's %s side", part(plan.to),
         part(plan.from));
  if (other.rows != q.rows || other.cols != q.cols)
    fail(FP8_ERR_ARGUMENT, "other_side is %lld x %lld, q is %lld x %lld", (long long)other.rows, (long long)other.cols,
         (long long)q.rows, (long long)q.cols);
  check_role(r, q, other, plan.from, plan.to);
  const ops::Side from = side_view(q, plan.from, "q", mode == Mode::kQuery);
  if (side_kind(other, plan.to) == FP8_SCALING_UNQUANTIZED) {
    if (is_quantized(from.scaling))
      fail(FP8_ERR_UNSUPPORTED, "other_side.%s is UNQUANTIZED, a view, and q.%s is %s: describe it with FP8_SIDE_COPY",
           part(plan.to), part(plan.from), scaling_name(from.scaling));
    (plan.to == FP8_SIDE_ROW ? plan.other.row : plan.other.col) = view_of(upright(from.codes, plan.from), plan.to);
    plan.view = true;
    return plan;
  }
  ops::Side to = side_view(other, plan.to, "other_side", mode == Mode::kQuery);
  to.rule = r.config.scale_rule;
  if (is_quantized(from.scaling)) {
    plan_from_codes(c, r, from, to, plan);
  } else {
    plan_from_plain(c, r, from, to, plan);
  }
  if (mode == Mode::kRun && plan.way != RequantizePlan::kView) {
    Footprints f;
    f.side_in(q, plan.from, "q");
    f.side_out(other, plan.to, "other_side");
    f.workspace(workspace);
  }
  if (plan.way == RequantizePlan::kQuantize) {
    uint64_t bytes = 0;
    check(c.api->quantize_workspace(c.self, &plan.op, &bytes));
    Plan pieces;
    pieces.add(bytes);
    plan.workspace = pieces.total();
    plan.op.workspace_bytes = bytes;
  }
  return plan;
}

void run_requantize(const fp8_context &c, RequantizePlan &plan, void *workspace, fp8_stream stream) {
  switch (plan.way) {
    case RequantizePlan::kView:
      break;
    case RequantizePlan::kCast:
      check(c.api->cast(c.self, &plan.cast, stream));
      break;
    case RequantizePlan::kDequantize:
      check(c.api->dequantize(c.self, &plan.dequantize, stream));
      break;
    case RequantizePlan::kTranspose:
      check(c.api->transpose(c.self, &plan.codes, stream));
      if (plan.zero_bytes) check(c.api->zero(c.self, plan.scale.dst.data, plan.zero_bytes, stream));
      check(c.api->transpose(c.self, &plan.scale, stream));
      break;
    case RequantizePlan::kQuantize:
      plan.op.workspace = workspace;
      count(c, ops::Counters::kQuantizations);
      check(c.api->quantize(c.self, &plan.op, stream));
      break;
  }
}

}  // namespace fp8
