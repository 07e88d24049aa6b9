// SPDX-License-Identifier: Apache-2.0
// Which memory the calls of a list of params read and write, and the refusal of what is both.
#include "core/overlap.h"
#include "core/param.h"

namespace fp8 {

namespace {

// Both sides are one copy: the column side is the row side with swapped strides, codes and scales.
bool one_copy(int32_t scaling, const ops::ParamItem &m) {
  const auto swapped = [](int64_t rows, int64_t cols, int64_t down, int64_t across, int64_t col_down,
                          int64_t col_across) {
    return (rows <= 1 || down == col_across) && (cols <= 1 || across == col_down);
  };
  const ops::ParamSide &r = m.row, &c = m.col;
  return ops::shares_scale(scaling) && r.codes == c.codes && r.scale == c.scale &&
         swapped(m.rows, m.cols, r.row_stride, r.col_stride, c.row_stride, c.col_stride) &&
         swapped(r.scale_rows, r.scale_cols, r.scale_row_stride, r.scale_col_stride, c.scale_row_stride,
                 c.scale_col_stride);
}

void add_side(ListFootprints &f, const fp8_qtensor &q, const ops::ParamSide &view, int32_t side, int32_t index,
              bool out) {
  const bool row = side == FP8_SIDE_ROW;
  f.add(side_codes(q, side), out, "args.full", index, row ? "row" : "col");
  if (!view.scale) return;
  fp8_tensor scale = side_scale(q, side);
  if (view.padded_rows > view.scale_rows) scale.shape[0] = view.padded_rows;  // the padding is written too
  if (view.padded_cols > view.scale_cols) scale.shape[1] = view.padded_cols;
  f.add(scale, out, "args.full", index, row ? "row_scale" : "col_scale");
}

}  // namespace

void refuse_overlaps(const fp8_param_args &args, const ParamLayout &l, const std::vector<ops::ParamItem> &items,
                     const ParamUse &use) {
  ListFootprints f;
  f.reserve((use.masters ? l.count : 0) + 4 * size_t(use.row || use.col ? l.count : 0) + 5);
  const auto buffer = [&](const fp8_buffer *b, uint64_t bytes, int how, const char *name) {
    if (how && b) f.add(b->data, bytes, how == kWritten, name);
  };
  buffer(args.amax, l.amax_count * dtype_size(l.amax_dtype), use.amax, "args.amax");
  buffer(args.shard, l.row_bytes + l.col_bytes, use.shard, "args.shard");
  buffer(args.gathered, l.world * l.slot_bytes(args.sides), use.gathered, "args.gathered");
  buffer(args.workspace, args.workspace ? args.workspace->bytes : 0, kWritten, "args.workspace");
  if (use.masters && l.rank < 0) f.add(*args.rank, false, "args.rank");
  for (int32_t i = 0; i < l.count; ++i) {
    if (use.masters && args.masters[i]) f.add(*args.masters[i], false, "args.masters", i);
    if (!use.row && !use.col) continue;
    const bool one = use.row && use.col && one_copy(l.scaling, items[i]);
    if (use.row) add_side(f, *args.full[i], items[i].row, FP8_SIDE_ROW, i, use.row == kWritten);
    if (use.col && !one) add_side(f, *args.full[i], items[i].col, FP8_SIDE_COL, i, true);
  }
  f.check();
}

}  // namespace fp8
