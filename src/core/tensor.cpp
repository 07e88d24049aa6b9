// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <algorithm>

namespace fp8 {

const char *dtype_name(int32_t dtype) {
  static const char *const names[] = {"NONE", "F32", "F16", "BF16", "E4M3", "E5M2",
                                      "E8M0", "U8",  "I32", "I64",  "U64",  "F64"};
  return dtype >= 0 && dtype < int32_t(sizeof names / sizeof *names) ? names[dtype] : "unknown";
}

int64_t dtype_size(int32_t dtype) {
  static const int8_t sizes[] = {0, 4, 2, 2, 1, 1, 1, 1, 4, 8, 8, 8};
  return dtype >= 0 && dtype < int32_t(sizeof sizes) ? sizes[dtype] : 0;
}

const char *scaling_name(int32_t scaling) {
  static const char *const names[] = {"absent",  "unquantized", "tensor", "row", "1x128",
                                      "128x128", "1x32",        "32x32",  "copy"};
  return scaling >= 0 && scaling < int32_t(sizeof names / sizeof *names) ? names[scaling] : "unknown";
}

bool is_fp8(int32_t dtype) { return dtype == FP8_DTYPE_E4M3 || dtype == FP8_DTYPE_E5M2; }

void check_tensor(const fp8_tensor &t, const Label &label, std::initializer_list<int32_t> dtypes, int64_t align,
                  bool shape_only) {
  if (std::find(dtypes.begin(), dtypes.end(), t.dtype) == dtypes.end()) {
    std::string want;
    for (int32_t d : dtypes) want += (want.empty() ? "" : " or ") + std::string(dtype_name(d));
    fail(FP8_ERR_ARGUMENT, "%s.dtype is %s (%d), must be %s", label.text().c_str(), dtype_name(t.dtype), t.dtype,
         want.c_str());
  }
  if (t.ndim < 0 || t.ndim > 4) fail(FP8_ERR_ARGUMENT, "%s.ndim is %d, must be 0 to 4", label.text().c_str(), t.ndim);
  const int64_t size = dtype_size(t.dtype);
  int64_t count = 1, reach = 0;
  bool empty = false;  // strides of no elements say nothing
  for (int i = 0; i < t.ndim; ++i) empty = empty || t.shape[i] == 0;
  for (int i = 0; i < t.ndim; ++i) {
    const long long extent = t.shape[i], stride = t.stride[i];
    if (extent < 0) fail(FP8_ERR_ARGUMENT, "%s.shape[%d] is %lld, must be >= 0", label.text().c_str(), i, extent);
    if (stride < 0) fail(FP8_ERR_ARGUMENT, "%s.stride[%d] is %lld, must be >= 0", label.text().c_str(), i, stride);
    if (stride == 0 && extent > 1 && !empty)
      fail(FP8_ERR_ARGUMENT, "%s.stride[%d] is 0 with shape[%d] %lld: strides are explicit and broadcasts are refused",
           label.text().c_str(), i, i, extent);
    int64_t step;
    if (__builtin_mul_overflow(count, t.shape[i], &count) ||
        (extent > 1 &&
         (__builtin_mul_overflow(t.shape[i] - 1, t.stride[i], &step) || __builtin_add_overflow(reach, step, &reach))))
      fail(FP8_ERR_ARGUMENT, "%s.shape[%d] is %lld: the tensor is too large to address", label.text().c_str(), i,
           extent);
  }
  if (count > INT64_MAX / 8 || reach > INT64_MAX / 8 - 1)
    fail(FP8_ERR_ARGUMENT, "%s is too large to address", label.text().c_str());
  if (shape_only || count == 0) return;
  if (!t.data) fail(FP8_ERR_ARGUMENT, "%s.data is NULL", label.text().c_str());
  const int64_t unit = align ? align : size;
  if (reinterpret_cast<uintptr_t>(t.data) & uintptr_t(unit - 1))  // a power of two
    fail(FP8_ERR_ARGUMENT, "%s.data is %p, must be aligned to %lld bytes", label.text().c_str(), t.data,
         static_cast<long long>(unit));
}

int64_t tensor_cols(const fp8_tensor &t) { return t.ndim ? t.shape[t.ndim - 1] : 1; }

int64_t tensor_rows(const fp8_tensor &t) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < t.ndim; ++i) rows *= t.shape[i];
  return rows;
}

ops::Matrix matrix(const fp8_tensor &t) {
  ops::Matrix m{};
  m.data = t.data;
  m.dtype = t.dtype;
  m.rows = tensor_rows(t);
  m.cols = tensor_cols(t);
  m.col_stride = t.ndim && m.cols > 1 ? t.stride[t.ndim - 1] : 1;
  m.lead = 1;
  m.lead_shape[0] = m.rows;
  if (m.rows == 0 || t.ndim < 2) return m;
  // Innermost first: a dimension merges into the one below when it continues its walk.
  int64_t shape[3], stride[3];
  int n = 0;
  for (int i = t.ndim - 2; i >= 0; --i) {
    if (t.shape[i] == 1) continue;
    if (n && t.stride[i] == shape[n - 1] * stride[n - 1]) {
      shape[n - 1] *= t.shape[i];
    } else {
      shape[n] = t.shape[i];
      stride[n++] = t.stride[i];
    }
  }
  m.lead = std::max(n, 1);
  for (int i = 0; i < n; ++i) {
    m.lead_shape[i] = shape[n - 1 - i];
    m.lead_stride[i] = stride[n - 1 - i];
  }
  return m;
}

ops::Vector vector(const fp8_tensor &t) {
  ops::Vector v{};
  v.data = t.data;
  v.dtype = t.dtype;
  v.size = 1;
  v.stride = 1;
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] == 1) continue;
    v.size = t.shape[i];
    v.stride = t.stride[i];
  }
  return v;
}

ops::Scale scale_view(const fp8_tensor &t) {
  ops::Scale s{};
  s.data = t.data;
  s.dtype = t.dtype == FP8_DTYPE_U8 ? int32_t{FP8_DTYPE_E8M0} : t.dtype;
  s.rows = t.ndim ? t.shape[0] : 1;
  s.cols = t.ndim > 1 ? t.shape[1] : 1;
  s.row_stride = t.ndim ? t.stride[0] : 1;
  s.col_stride = t.ndim > 1 ? t.stride[1] : 1;
  return s;
}

uint64_t tensor_span(const fp8_tensor &t) {
  uint64_t last = 0;
  for (int i = 0; i < t.ndim; ++i) {
    if (t.shape[i] <= 0) return 0;
    last += uint64_t(t.shape[i] - 1) * uint64_t(t.stride[i]);
  }
  return (last + 1) * uint64_t(dtype_size(t.dtype));
}

Stripes stripes_of(const fp8_tensor &t) {
  Stripes s{};
  const uint64_t bytes = t.data ? tensor_span(t) : 0;
  if (!bytes) return s;
  s.begin = reinterpret_cast<uintptr_t>(t.data);
  s.end = s.begin + bytes;
  const ops::Matrix m = matrix(t);
  if (m.lead != 1) return s;
  int64_t rows = m.rows, cols = m.cols, down = m.lead_stride[0], across = m.col_stride;
  if (rows == 1 ? across > 1 : cols > 1 && down < across) {  // a row is what lies close together
    std::swap(rows, cols);
    std::swap(down, across);
  }
  const int64_t size = dtype_size(t.dtype), width = ((cols - 1) * across + 1) * size;
  if (rows > 1 && width > down * size) return s;
  s.rows = rows;
  s.step = down * size;
  s.width = width;
  return s;
}

// Rows of equal byte stride, each shorter than it: column slices of one buffer lie between each other.
bool meet(const Stripes &a, const Stripes &b) {
  if (a.begin >= b.end || b.begin >= a.end) return false;
  if (!a.rows || !b.rows || (a.rows == 1 && b.rows == 1)) return true;
  const int64_t step = a.rows > 1 ? a.step : b.step;
  if ((a.rows > 1 && b.rows > 1 && a.step != b.step) || a.width > step || b.width > step) return true;
  // row i of a meets row i - k of b where distance - a.width < k * step < distance + b.width
  const int64_t distance = static_cast<int64_t>(b.begin - a.begin), low = distance - a.width;
  int64_t k = low / step - (low % step < 0) + 1;
  if (k < 1 - b.rows) k = 1 - b.rows;
  return k < a.rows && k * step < distance + b.width;
}

bool overlap(const fp8_tensor &a, const fp8_tensor &b) { return meet(stripes_of(a), stripes_of(b)); }

void refuse_overlap(const fp8_tensor &out, const char *out_name, const fp8_tensor &in, const char *in_name) {
  if (overlap(out, in)) fail(FP8_ERR_ARGUMENT, "%s (%p) overlaps %s (%p)", out_name, out.data, in_name, in.data);
}

void scale_shape(int32_t scaling, int64_t rows, int64_t cols, int64_t shape[2]) {
  const auto blocks = [](int64_t n, int64_t tile) {  // constants: divisions by variables are slow
    return tile == 128 ? ceil_div(n, 128) : tile == 32 ? ceil_div(n, 32) : tile ? n : 1;
  };
  shape[0] = blocks(rows, ops::tile_rows(scaling));
  shape[1] = blocks(cols, ops::tile_cols(scaling));
}

void native_scale_strides(int32_t scaling, int64_t rows, int64_t cols, int64_t stride[2]) {
  int64_t shape[2];
  scale_shape(scaling, rows, cols, shape);
  switch (scaling) {
    case FP8_SCALING_1X128:
      stride[0] = 1;
      stride[1] = std::max<int64_t>(round_up(shape[0], 4), 4);
      break;
    case FP8_SCALING_128X128:
      stride[0] = std::max<int64_t>(round_up(shape[1], 4), 4);
      stride[1] = 1;
      break;
    case FP8_SCALING_1X32:
    case FP8_SCALING_32X32:
      stride[0] = std::max<int64_t>(shape[1], 1);
      stride[1] = 1;
      break;
    default:
      stride[0] = stride[1] = 1;
  }
}

}  // namespace fp8
