// SPDX-License-Identifier: Apache-2.0
#include "core/quantize.h"

namespace fp8 {

namespace {

constexpr int32_t kSides[2] = {FP8_SIDE_ROW, FP8_SIDE_COL};

// Backends tell a wanted vector by its data; a query has none to give.
char g_placeholder;

bool symmetric(int32_t scaling) {  // both sides have the same scales, one the transpose of the other
  return scaling == FP8_SCALING_TENSOR || scaling == FP8_SCALING_128X128 || scaling == FP8_SCALING_32X32;
}

ops::Scale transposed(ops::Scale s) {
  std::swap(s.rows, s.cols);
  std::swap(s.row_stride, s.col_stride);
  return s;
}

// An amax tensor of the scales' shape, seen as `rows` x `cols`.
ops::Scale amax_view(const fp8_tensor &t, const char *name, int64_t rows, int64_t cols, Mode mode) {
  check_tensor(t, name, {FP8_DTYPE_F32}, 0, mode == Mode::kQuery);
  const bool column = cols == 1 && t.ndim <= 1;  // [rows], as describe gives it
  const int64_t got_rows = column ? (t.ndim ? t.shape[0] : 1) : tensor_rows(t);
  const int64_t got_cols = column ? 1 : tensor_cols(t);
  const bool flat = rows == 1 && cols == 1 && got_rows == 1 && got_cols == 1;
  if (!flat && (t.ndim > 2 || got_rows != rows || got_cols != cols))
    fail(FP8_ERR_ARGUMENT, "%s has shape [%lld, %lld], its scales have [%lld, %lld]", name, (long long)got_rows,
         (long long)got_cols, (long long)rows, (long long)cols);
  ops::Scale s{};
  s.data = mode == Mode::kQuery ? &g_placeholder : t.data;
  s.dtype = FP8_DTYPE_F32;
  s.rows = rows;
  s.cols = cols;
  const int64_t last = t.ndim ? t.stride[t.ndim - 1] : 1;
  s.row_stride = t.ndim == 2 ? t.stride[0] : last;
  s.col_stride = last;
  return s;
}

void set_amax(const fp8_quantize_args &a, const QuantizeNames &n, int32_t scaling, bool have_row, bool have_col,
              Mode mode, QuantizePlan &plan) {
  const bool given = a.flags & FP8_AMAX_GIVEN;
  if (!a.amax && !a.amax_col) {
    if (given) fail(FP8_ERR_ARGUMENT, "FP8_AMAX_GIVEN is set and both %s and %s are NULL", n.amax, n.amax_col);
    return;
  }
  if (!have_row && !have_col) {
    if (given) return;
    fail(FP8_ERR_ARGUMENT, "%s is given, but this call quantizes no side", a.amax ? n.amax : n.amax_col);
  }
  if (given && scaling != FP8_SCALING_TENSOR && scaling != FP8_SCALING_ROW)
    fail(FP8_ERR_UNSUPPORTED, "FP8_AMAX_GIVEN with %s scaling: only TENSOR and ROW take an amax",
         scaling_name(scaling));
  const int64_t rows = plan.op.x.rows, cols = plan.op.x.cols;
  int64_t row_shape[2], col_shape[2];
  scale_shape(scaling, rows, cols, row_shape);
  scale_shape(scaling, cols, rows, col_shape);
  ops::Scale row{}, col{};
  if (a.amax) row = amax_view(*a.amax, n.amax, row_shape[0], row_shape[1], mode);
  if (a.amax_col) col = amax_view(*a.amax_col, n.amax_col, col_shape[0], col_shape[1], mode);
  if (symmetric(scaling)) {  // one serves both
    if (given && a.amax && a.amax_col && a.amax->data != a.amax_col->data)
      fail(FP8_ERR_ARGUMENT, "%s and %s are both given, with %s scaling one amax serves both sides", n.amax, n.amax_col,
           scaling_name(scaling));
    if (given && !col.data) col = transposed(row);
    if (given && !row.data) row = transposed(col);
    if (!have_row && row.data && !col.data) col = transposed(row), row = {};
    if (!have_col && col.data && !row.data) row = transposed(col), col = {};
    if (!given && !have_row && row.data) fail(FP8_ERR_ARGUMENT, "%s is given, but q has no quantized row side", n.amax);
    if (!given && !have_col && col.data)
      fail(FP8_ERR_ARGUMENT, "%s is given, but q has no quantized column side", n.amax_col);
  } else {
    if (row.data && !have_row) fail(FP8_ERR_ARGUMENT, "%s is given, but q has no quantized row side", n.amax);
    if (col.data && !have_col) fail(FP8_ERR_ARGUMENT, "%s is given, but q has no quantized column side", n.amax_col);
  }
  if (have_row) plan.op.row.amax = row, plan.op.row.amax_given = given && row.data;
  if (have_col) plan.op.col.amax = col, plan.op.col.amax_given = given && col.data;
}

void set_stats(const fp8_tensor &t, const char *name, bool have_row, bool have_col, Mode mode, QuantizePlan &plan) {
  check_tensor(t, name, {FP8_DTYPE_U64}, 0, mode == Mode::kQuery);
  const bool two = t.ndim == 2 && t.shape[0] == 2;
  const int64_t inner = t.ndim ? t.shape[t.ndim - 1] : 1;
  if (inner != 8 || !(t.ndim == 1 || two || (t.ndim == 2 && t.shape[0] == 1)))
    fail(FP8_ERR_ARGUMENT, "%s has %d dimensions, the last of %lld: must be U64[8] or U64[2, 8]", name, t.ndim,
         (long long)inner);
  ops::Vector v{};
  v.data = mode == Mode::kQuery ? &g_placeholder : t.data;
  v.dtype = FP8_DTYPE_U64;
  v.size = 8;
  v.stride = t.stride[t.ndim - 1];
  if (have_row) plan.op.row.stats = v;
  if (have_col && (two || !have_row)) {
    if (two && mode == Mode::kRun) v.data = static_cast<uint64_t *>(t.data) + t.stride[0];
    plan.op.col.stats = v;
  }
}

void set_dbias(const fp8_quantize_args &a, const char *name, Mode mode, QuantizePlan &plan) {
  check_tensor(*a.dbias, name, {FP8_DTYPE_F32}, 0, mode == Mode::kQuery);
  if (tensor_rows(*a.dbias) != 1 || tensor_cols(*a.dbias) != plan.op.x.cols)
    fail(FP8_ERR_ARGUMENT, "%s has shape [%lld, %lld], must be [%lld], one sum per column", name,
         (long long)tensor_rows(*a.dbias), (long long)tensor_cols(*a.dbias), (long long)plan.op.x.cols);
  plan.op.dbias = vector(*a.dbias);
  if (mode == Mode::kQuery) plan.op.dbias.data = &g_placeholder;
  plan.op.dbias_accumulate = (a.flags & FP8_ACCUMULATE_DBIAS) != 0;
}

// UNQUANTIZED: a view of x; COPY: a cast into memory of its own.
void set_plain_side(const fp8_quantize_args &a, const QuantizeNames &n, int32_t side, Mode mode, QuantizePlan &plan) {
  const bool row = side == FP8_SIDE_ROW;
  const char *owner = row ? n.row : n.col, *part = row ? "row" : "col";
  if (side_kind(*a.q, side) == FP8_SCALING_UNQUANTIZED) {
    if (a.x->dtype == FP8_DTYPE_F32)
      fail(FP8_ERR_UNSUPPORTED,
           "%s is F32 and %s.%s is UNQUANTIZED, a view of 16-bit data: describe it with FP8_SIDE_COPY", n.x, owner,
           part);
    if (plan.op.x.lead > 1)
      fail(FP8_ERR_UNSUPPORTED,
           "%s has leading dimensions that do not flatten to one stride, and %s.%s is UNQUANTIZED, a view of it: "
           "describe it with FP8_SIDE_COPY",
           n.x, owner, part);
    (row ? plan.q.row : plan.q.col) = view_of(plan.op.x, side);
    plan.views = true;
    return;
  }
  const ops::Matrix copy = upright(side_view(*a.q, side, owner, mode == Mode::kQuery).codes, side);
  if (plan.copy_count == 1) {  // placed together: one copy for both
    const ops::Matrix &first = plan.copies[0].dst;
    const bool rows = copy.rows <= 1 || first.lead_stride[0] == copy.lead_stride[0];
    const bool cols = copy.cols <= 1 || first.col_stride == copy.col_stride;
    if (first.data == copy.data && first.dtype == copy.dtype && rows && cols) return;
  }
  ops::Cast &cast = plan.copies[plan.copy_count++];
  cast.src = plan.op.x;
  cast.dst = copy;
  cast.max_sms = plan.op.max_sms;
}

bool same_memory(const fp8_qtensor &q) {  // a device that multiplies any layout: col is row with swapped strides
  return q.row_kind == FP8_SCALING_TENSOR && q.col_kind == FP8_SCALING_TENSOR && q.row.data &&
         q.row.data == q.col.data && q.row_scale.data == q.col_scale.data && q.row.ndim == 2 && q.col.ndim == 2 &&
         q.row.stride[0] == q.col.stride[1] && q.row.stride[1] == q.col.stride[0];
}

}  // namespace

ops::Matrix upright(const ops::Matrix &codes, int32_t side) {
  if (side == FP8_SIDE_ROW) return codes;
  ops::Matrix m = codes;
  m.rows = codes.cols;
  m.cols = codes.rows;
  m.lead = 1;
  m.lead_shape[0] = m.rows;
  m.lead_stride[0] = codes.col_stride;
  m.col_stride = codes.lead_stride[0];
  return m;
}

fp8_tensor view_of(const ops::Matrix &m, int32_t side) {
  const int r = side == FP8_SIDE_ROW ? 0 : 1;
  fp8_tensor t{};
  t.data = m.data;
  t.dtype = m.dtype;
  t.ndim = 2;
  t.shape[r] = m.rows;
  t.stride[r] = m.lead_stride[0];
  t.shape[1 - r] = m.cols;
  t.stride[1 - r] = m.col_stride;
  return t;
}

int32_t one_side(uint32_t side, const char *name) {
  if (side != FP8_SIDE_ROW && side != FP8_SIDE_COL)
    fail(FP8_ERR_ARGUMENT, "%s is %u, must be FP8_SIDE_ROW or FP8_SIDE_COL", name, side);
  return static_cast<int32_t>(side);
}

int32_t resolve_max_sms(const fp8_context &c, int32_t max_sms) {
  if (max_sms < 0) fail(FP8_ERR_ARGUMENT, "max_sms is %d, must be >= 0 (0 = the context's)", max_sms);
  return max_sms ? max_sms : c.max_sms;
}

void refuse_delayed(const fp8_recipe &r) {
  if (r.config.preset == FP8_PRESET_TENSOR_DELAYED)
    fail(FP8_ERR_UNSUPPORTED, "the recipe is TENSOR_DELAYED: delayed scaling is not implemented, use TENSOR");
}

const char *role_name(int32_t role) {
  return role == FP8_ROLE_ACTIVATION ? "activation" : role == FP8_ROLE_WEIGHT ? "weight" : "gradient";
}

void check_described(const fp8_recipe &r, int32_t role, const fp8_qtensor &q, int32_t side, const char *name) {
  const int32_t kind = side_kind(q, side), want = side_scaling(r, role, side);
  const char *part = side == FP8_SIDE_ROW ? "row" : "col";
  const bool plain = kind == FP8_SCALING_UNQUANTIZED || kind == FP8_SCALING_COPY;
  if (kind == 0) fail(FP8_ERR_ARGUMENT, "%s has no %s side (%s_kind is 0)", name, part, part);
  if (is_quantized(want) ? kind != want : !plain)
    fail(FP8_ERR_ARGUMENT, "%s.%s_kind is %s, the recipe gives %s for this side of the %s", name, part,
         scaling_name(kind), scaling_name(want), role_name(role));
  const int32_t dtype = side_codes(q, side).dtype;
  if (plain ? dtype != FP8_DTYPE_BF16 && dtype != FP8_DTYPE_F16 : dtype != role_dtype(r, role))
    fail(FP8_ERR_ARGUMENT, "%s.%s.dtype is %s, the recipe gives %s for the %s", name, part, dtype_name(dtype),
         plain ? "BF16 (or F16)" : dtype_name(role_dtype(r, role)), role_name(role));
}

QuantizePlan plan_quantize(const fp8_context &c, const fp8_recipe &r, const fp8_quantize_args &a,
                           const QuantizeNames &n, Mode mode, bool amax_only) {
  if (a.role < FP8_ROLE_ACTIVATION || a.role > FP8_ROLE_GRADIENT)
    fail(FP8_ERR_ARGUMENT, "role is %d, must be FP8_ROLE_ACTIVATION, _WEIGHT or _GRADIENT", a.role);
  const uint32_t unknown = a.flags & ~uint32_t{FP8_AMAX_GIVEN | FP8_ACCUMULATE_DBIAS};
  if (unknown) fail(FP8_ERR_UNSUPPORTED, "flags has unknown bits 0x%x", unknown);
  if (a.reserved) fail(FP8_ERR_UNSUPPORTED, "reserved is %d, must be 0", a.reserved);
  refuse_delayed(r);
  if (a.state)
    fail(FP8_ERR_UNSUPPORTED, "%s is given: it belongs to delayed scaling, which is not implemented", n.state);
  if (amax_only && (a.flags & FP8_AMAX_GIVEN))
    fail(FP8_ERR_ARGUMENT, "FP8_AMAX_GIVEN is set, this call makes the amax");
  if (amax_only && !a.amax && !a.amax_col)
    fail(FP8_ERR_ARGUMENT, "both %s and %s are NULL, there is nothing to write", n.amax, n.amax_col);

  QuantizePlan plan;
  plan.q = *a.q;
  ops::Quantize &op = plan.op;
  op.max_sms = resolve_max_sms(c, a.max_sms);
  check_tensor(*a.x, n.x, {FP8_DTYPE_F32, FP8_DTYPE_F16, FP8_DTYPE_BF16}, 16, mode == Mode::kQuery);
  op.x = matrix(*a.x);
  if (!a.q->row_kind && !a.q->col_kind && !n.sides_optional)
    fail(FP8_ERR_ARGUMENT, "%s has no side: row_kind and col_kind are 0", n.row);
  if (a.q->rows != op.x.rows || a.q->cols != op.x.cols)
    fail(FP8_ERR_ARGUMENT, "%s is %lld x %lld, %s is %lld x %lld", n.row, (long long)a.q->rows, (long long)a.q->cols,
         n.x, (long long)op.x.rows, (long long)op.x.cols);
  op.amax_floor = r.config.amax_floor;
  op.amax_only = amax_only;
  op.round_bf16 =
      a.role == FP8_ROLE_WEIGHT && a.x->dtype == FP8_DTYPE_F32 && r.config.master_rounding == FP8_MASTER_BF16;
  for (int32_t side : kSides) {
    if (!side_kind(*a.q, side)) continue;
    const bool row = side == FP8_SIDE_ROW;
    check_described(r, a.role, *a.q, side, row ? n.row : n.col);
    if (!is_quantized(side_kind(*a.q, side))) {
      if (!amax_only) set_plain_side(a, n, side, mode, plan);
      continue;
    }
    ops::Side &out = row ? op.row.side : op.col.side;
    out = side_view(*a.q, side, row ? n.row : n.col, mode == Mode::kQuery || amax_only);
    out.rule = r.config.scale_rule;
  }
  const bool have_row = op.row.side.scaling != 0, have_col = op.col.side.scaling != 0;
  set_amax(a, n, role_scaling(r, a.role), have_row, have_col, mode, plan);
  if (amax_only) {  // only the sides that are asked for
    if (!op.row.amax.data) op.row = {};
    if (!op.col.amax.data) op.col = {};
  } else {
    if (a.stats) set_stats(*a.stats, n.stats, have_row, have_col, mode, plan);
    if (a.dbias) set_dbias(a, n.dbias, mode, plan);
    if (same_memory(*a.q)) {
      if (op.row.amax.data && op.col.amax.data && op.row.amax.data != op.col.amax.data)
        fail(FP8_ERR_UNSUPPORTED, "%s and %s differ, and %s.col is %s.row: one amax serves both", n.amax, n.amax_col,
             n.col, n.row);
      if (!op.row.amax.data) op.row.amax = op.col.amax, op.row.amax_given = op.col.amax_given;
      if (op.col.stats.data)
        fail(FP8_ERR_UNSUPPORTED, "%s asks for the column side apart, and %s.col is %s.row", n.stats, n.col, n.row);
      op.col = {};
    }
  }
  plan.enqueue = op.row.side.scaling || op.col.side.scaling || op.dbias.data;
  if (plan.enqueue) check(c.api->quantize_workspace(c.self, &op, &plan.workspace));
  return plan;
}

void add_footprints(Footprints &f, const fp8_quantize_args &a, const QuantizePlan &plan, const QuantizeNames &n,
                    bool amax_only) {
  f.in(a.x, n.x);
  const bool given = a.flags & FP8_AMAX_GIVEN;
  if (given) {
    f.in(a.amax, n.amax);
    f.in(a.amax_col, n.amax_col);
  } else {
    f.out(a.amax, n.amax);
    f.out(a.amax_col, n.amax_col);
  }
  if (amax_only) return;
  for (int32_t side : kSides) {
    const int32_t kind = side_kind(*a.q, side);
    const bool row = side == FP8_SIDE_ROW;
    if (kind == FP8_SCALING_COPY) {
      if (row || plan.copy_count == 2 || a.q->row_kind != FP8_SCALING_COPY) f.side_out(*a.q, side, row ? n.row : n.col);
    } else if (is_quantized(kind) && (row || !same_memory(*a.q))) {
      f.side_out(*a.q, side, row ? n.row : n.col);
    }
  }
  f.out(a.stats, n.stats);
  f.out(a.dbias, n.dbias);
}

void run_quantize(const fp8_context &c, QuantizePlan &plan, void *workspace, uint64_t bytes, fp8_stream stream) {
  for (int i = 0; i < plan.copy_count; ++i) check(c.api->cast(c.self, &plan.copies[i], stream));
  if (!plan.enqueue) return;
  if (!plan.op.amax_only && (plan.op.row.side.scaling || plan.op.col.side.scaling))
    count(c, ops::Counters::kQuantizations);
  plan.op.workspace = workspace;
  plan.op.workspace_bytes = bytes;
  check(c.api->quantize(c.self, &plan.op, stream));
}

}  // namespace fp8
