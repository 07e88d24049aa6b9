// SPDX-License-Identifier: Apache-2.0
// Quantized tensors: checks of a side, bytes, placement, slices.
#include <algorithm>

#include "core/tensor.h"

namespace fp8 {

int32_t side_kind(const fp8_qtensor &q, int32_t side) { return side == FP8_SIDE_ROW ? q.row_kind : q.col_kind; }
const fp8_tensor &side_codes(const fp8_qtensor &q, int32_t side) { return side == FP8_SIDE_ROW ? q.row : q.col; }
const fp8_tensor &side_scale(const fp8_qtensor &q, int32_t side) {
  return side == FP8_SIDE_ROW ? q.row_scale : q.col_scale;
}

namespace {

const char *side_name(int32_t side) { return side == FP8_SIDE_ROW ? "row" : "col"; }

void check_extent(const fp8_qtensor &q, const char *name) {
  if (q.rows < 0) fail(FP8_ERR_ARGUMENT, "%s.rows is %lld, must be >= 0", name, static_cast<long long>(q.rows));
  if (q.cols < 0) fail(FP8_ERR_ARGUMENT, "%s.cols is %lld, must be >= 0", name, static_cast<long long>(q.cols));
}

void check_shape(const fp8_tensor &t, const Label &label, int64_t rows, int64_t cols) {
  const int64_t r = tensor_rows(t), c = tensor_cols(t);
  if (r != rows || c != cols)
    fail(FP8_ERR_ARGUMENT, "%s has shape %lld x %lld, must be %lld x %lld", label.text().c_str(),
         static_cast<long long>(r), static_cast<long long>(c), static_cast<long long>(rows),
         static_cast<long long>(cols));
}

// 1-D [n] is a column of n rows; one element may have any number of dimensions.
void check_scale_shape(const fp8_tensor &t, const Label &label, const int64_t shape[2]) {
  const ops::Scale s = scale_view(t);
  if (t.ndim > 2 || s.rows != shape[0] || s.cols != shape[1])
    fail(FP8_ERR_ARGUMENT, "%s has shape %lld x %lld, must be %lld x %lld", label.text().c_str(),
         static_cast<long long>(s.rows), static_cast<long long>(s.cols), static_cast<long long>(shape[0]),
         static_cast<long long>(shape[1]));
}

// What looks like padding in a slice's scales may be its neighbours' scales. A stride that scales leave unused says so.
constexpr int kSliceMark = 3;

bool is_padded(const fp8_tensor &t, const ops::Scale &s, int32_t scaling, int64_t rows, int64_t cols) {
  if (scaling != FP8_SCALING_1X128 && scaling != FP8_SCALING_128X128) return false;
  int64_t native[2];
  native_scale_strides(scaling, rows, cols, native);
  return t.stride[kSliceMark] == 0 && s.row_stride == native[0] && s.col_stride == native[1];
}

}  // namespace

ops::Side side_view(const fp8_qtensor &q, int32_t side, const char *name, bool shape_only) {
  check_extent(q, name);
  const int32_t kind = side_kind(q, side);
  const Label label(name, side_name(side), "");
  if (kind < 0 || kind > FP8_SCALING_COPY)
    fail(FP8_ERR_ARGUMENT, "%s_kind is %d, not an enum fp8_scaling", label.text().c_str(), kind);
  if (kind == 0)
    fail(FP8_ERR_ARGUMENT, "%s side is absent (%s_kind is 0) and this call reads or writes it", label.text().c_str(),
         label.text().c_str());
  const int64_t rows = side == FP8_SIDE_ROW ? q.rows : q.cols, cols = side == FP8_SIDE_ROW ? q.cols : q.rows;
  const fp8_tensor &codes = side_codes(q, side);
  ops::Side view{};
  view.scaling = kind;
  if (!is_quantized(kind)) {
    check_tensor(codes, label, {FP8_DTYPE_BF16, FP8_DTYPE_F16}, 16, shape_only);
    check_shape(codes, label, rows, cols);
    view.codes = matrix(codes);
    return view;
  }
  check_tensor(codes, label, {FP8_DTYPE_E4M3, FP8_DTYPE_E5M2}, 16, shape_only);
  check_shape(codes, label, rows, cols);
  const fp8_tensor &scale = side_scale(q, side);
  const Label scale_label(name, side_name(side), "_scale");
  if (kind == FP8_SCALING_1X32 || kind == FP8_SCALING_32X32) {
    check_tensor(scale, scale_label, {FP8_DTYPE_E8M0, FP8_DTYPE_U8}, 0, shape_only);
  } else {
    check_tensor(scale, scale_label, {FP8_DTYPE_F32}, 0, shape_only);
  }
  int64_t shape[2];
  scale_shape(kind, rows, cols, shape);
  check_scale_shape(scale, scale_label, shape);
  view.codes = matrix(codes);
  view.scale = scale_view(scale);
  view.scale.padded = is_padded(scale, view.scale, kind, rows, cols);
  return view;
}

namespace {

constexpr uint64_t kPart = 256;  // each part starts at a multiple of this from the first

uint64_t part(uint64_t bytes) { return (bytes + kPart - 1) / kPart * kPart; }

// Bytes of a side's scales, native padding included.
uint64_t scale_bytes(int32_t kind, const fp8_tensor &t) {
  const ops::Scale s = scale_view(t);
  if (s.rows <= 0 || s.cols <= 0) return 0;
  uint64_t elements = uint64_t(s.rows - 1) * s.row_stride + uint64_t(s.cols - 1) * s.col_stride + 1;
  if (kind == FP8_SCALING_1X128 && s.row_stride == 1)
    elements = std::max<uint64_t>(elements, uint64_t(s.cols) * s.col_stride);
  if (kind == FP8_SCALING_128X128 && s.col_stride == 1)
    elements = std::max<uint64_t>(elements, uint64_t(s.rows) * s.row_stride);
  return elements * dtype_size(t.dtype);
}

struct Parts {
  uint64_t codes = 0, scale = 0;
  bool memory = false;  // an UNQUANTIZED or absent side has none
};

Parts side_parts(const fp8_qtensor &q, int32_t side) {
  const ops::Side view = side_view(q, side, "q", true);
  Parts p;
  p.memory = view.scaling != FP8_SCALING_UNQUANTIZED;
  if (!p.memory) return p;
  p.codes = tensor_span(side_codes(q, side));
  if (is_quantized(view.scaling)) p.scale = scale_bytes(view.scaling, side_scale(q, side));
  return p;
}

bool one_copy(const fp8_qtensor &q, uint32_t sides) {
  return (sides & FP8_SIDE_BOTH) == FP8_SIDE_BOTH && q.row_kind == FP8_SCALING_COPY && q.col_kind == FP8_SCALING_COPY;
}

void check_sides(uint32_t sides) {
  if (!(sides & FP8_SIDE_BOTH) || (sides & ~uint32_t(FP8_SIDE_BOTH | FP8_SIDE_COPY)))
    fail(FP8_ERR_ARGUMENT, "sides is 0x%x, must hold FP8_SIDE_ROW or FP8_SIDE_COL", sides);
}

// Lays out the parts of the sides; at(side, codes offset, scale offset).
template <class At>
uint64_t layout(const fp8_qtensor &q, uint32_t sides, At &&at) {
  check_sides(sides);
  uint64_t used = 0;
  for (int32_t side : {int32_t{FP8_SIDE_ROW}, int32_t{FP8_SIDE_COL}}) {
    if (!(sides & side)) continue;
    const Parts p = side_parts(q, side);
    if (!p.memory) continue;
    if (side == FP8_SIDE_COL && one_copy(q, sides)) {
      at(side, uint64_t{0}, uint64_t{0}, p);
      continue;
    }
    const uint64_t codes = used, scale = codes + part(p.codes);
    used = scale + part(p.scale);
    at(side, codes, scale, p);
  }
  return used;
}

}  // namespace

uint64_t qtensor_bytes(const fp8_qtensor &q, uint32_t sides) {
  return layout(q, sides, [](int32_t, uint64_t, uint64_t, const Parts &) {});
}

void place(fp8_qtensor &q, uint32_t sides, const fp8_buffer &memory) {
  const uint64_t bytes = qtensor_bytes(q, sides);
  if (memory.bytes < bytes)
    fail(FP8_ERR_ARGUMENT, "memory.bytes is %llu, %llu are needed", static_cast<unsigned long long>(memory.bytes),
         static_cast<unsigned long long>(bytes));
  if (bytes && !memory.data)
    fail(FP8_ERR_ARGUMENT, "memory.data is NULL, %llu bytes are needed", static_cast<unsigned long long>(bytes));
  if (reinterpret_cast<uintptr_t>(memory.data) % 16)
    fail(FP8_ERR_ARGUMENT, "memory.data is %p, must be aligned to 16 bytes", memory.data);
  char *base = static_cast<char *>(memory.data);
  layout(q, sides, [&](int32_t side, uint64_t codes, uint64_t scale, const Parts &p) {
    fp8_tensor &c = side == FP8_SIDE_ROW ? q.row : q.col, &s = side == FP8_SIDE_ROW ? q.row_scale : q.col_scale;
    c.data = p.codes ? base + codes : nullptr;
    if (is_quantized(side_kind(q, side))) s.data = p.scale ? base + scale : nullptr;
  });
}

namespace {

void advance(fp8_tensor &t, int64_t elements) {
  if (t.data) t.data = static_cast<char *>(t.data) + elements * dtype_size(t.dtype);
}

// Cuts [first, first + rows) out of dimension 0 (row side) or 1 (col side) of codes and scale.
void slice_side(const fp8_qtensor &q, int32_t side, int64_t first, int64_t rows, fp8_tensor &codes, fp8_tensor &scale) {
  const ops::Side view = side_view(q, side, "q", true);
  const int dim = side == FP8_SIDE_ROW ? 0 : 1;
  if (view.codes.lead > 1)
    fail(FP8_ERR_ARGUMENT, "q.%s has leading dimensions that do not flatten to one stride: slice the source instead",
         side_name(side));
  const int64_t stride[] = {view.codes.lead_stride[0], view.codes.col_stride};
  fp8_tensor flat{};
  flat.data = codes.data;
  flat.dtype = codes.dtype;
  flat.ndim = 2;
  flat.shape[0] = view.codes.rows;
  flat.shape[1] = view.codes.cols;
  for (int i = 0; i < 2; ++i) flat.stride[i] = stride[i];
  codes = flat;
  codes.shape[dim] = rows;
  advance(codes, first * stride[dim]);
  if (!is_quantized(view.scaling)) return;
  const int64_t tile = dim == 0 ? ops::tile_rows(view.scaling) : ops::tile_cols(view.scaling);
  if (tile == 0) return;     // one scale over all rows
  if (rows && first % tile)  // an empty slice starts anywhere
    fail(FP8_ERR_ARGUMENT, "first is %lld, must be a multiple of %lld: q.%s has %s tiles along rows",
         static_cast<long long>(first), static_cast<long long>(tile), side_name(side), scaling_name(view.scaling));
  if (rows < q.rows) scale.stride[kSliceMark] = 1;
  scale.shape[dim] = ceil_div(rows, tile);
  advance(scale, first / tile * scale.stride[dim]);
}

}  // namespace

fp8_qtensor slice(const fp8_qtensor &q, int64_t first, int64_t rows) {
  check_extent(q, "q");
  if (first < 0 || first > q.rows)
    fail(FP8_ERR_ARGUMENT, "first is %lld, must be 0 to q.rows (%lld)", static_cast<long long>(first),
         static_cast<long long>(q.rows));
  if (rows < 0 || rows > q.rows - first)
    fail(FP8_ERR_ARGUMENT, "rows is %lld, must be 0 to %lld: q has %lld rows", static_cast<long long>(rows),
         static_cast<long long>(q.rows - first), static_cast<long long>(q.rows));
  fp8_qtensor s = q;
  s.rows = rows;
  if (q.row_kind) slice_side(q, FP8_SIDE_ROW, first, rows, s.row, s.row_scale);
  if (q.col_kind) slice_side(q, FP8_SIDE_COL, first, rows, s.col, s.col_scale);
  return s;
}

}  // namespace fp8
