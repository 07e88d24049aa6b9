// SPDX-License-Identifier: Apache-2.0
// Tile functions in plain C++: what the SIMD targets must equal, and the fallback for CPUs without one.
#include "cpu/tile.h"

namespace fp8::cpu {
namespace {

using namespace num;

const void *row_of(const Tile &t, int64_t r) { return static_cast<const char *>(t.data) + r * t.stride; }
float at(const Tile &t, int64_t r, int64_t c) { return load(t.dtype, row_of(t, r), c); }
int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

// f(x, row index of multiplier) over all elements, row by row
template <class Body>
void each_row(const Tile &x, int64_t seg, Body &&body) {
  const int64_t segs = pieces(x.cols, seg);
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t s = 0; s < segs; ++s) {
      const int64_t end = s * seg + seg < x.cols ? s * seg + seg : x.cols;
      for (int64_t c = s * seg; c < end; ++c) body(r, c, at(x, r, c), r * segs + s);
    }
}
template <class Body>
void each_col(const Tile &x, int64_t group, Body &&body) {
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.cols; ++c) body(r, c, at(x, r, c), r / group * x.cols + c);
}

// walk(step): step(row, column, value, which amax) for each element
template <class Walk>
bool amax_of(int64_t n, float *amax, Walk &&walk) {
  for (int64_t i = 0; i < n; ++i) amax[i] = 0;
  bool finite = true;
  walk([&](int64_t, int64_t, float v, int64_t i) {
    amax[i] = amax_step(amax[i], v);
    finite &= (bits_of(v) & kF32Abs) < kF32Inf;
  });
  return finite;
}
bool amax_rows(const Tile &x, int64_t seg, float *amax) {
  return amax_of(x.rows * pieces(x.cols, seg), amax, [&](auto &&step) { each_row(x, seg, step); });
}
bool amax_cols(const Tile &x, int64_t group, float *amax) {
  return amax_of(pieces(x.rows, group) * x.cols, amax, [&](auto &&step) { each_col(x, group, step); });
}

bool amax_both(const Tile &x, int64_t seg, int64_t group, float *rows, float *cols) {
  const bool finite = amax_rows(x, seg, rows);
  return amax_cols(x, group, cols) && finite;
}

void scales(int32_t dtype, int32_t rule, float floor, const float *amax, int64_t n, float *m, float *inverse,
            uint8_t *codes) {
  for (int64_t i = 0; i < n; ++i) {
    const ScaleOf s = scale_of(dtype, rule, amax[i], floor);
    m[i] = s.multiplier;
    if (inverse) inverse[i] = s.inverse;
    if (codes) codes[i] = s.code;
  }
}

void cast_rows(const Tile &x, int32_t dtype, Range range, int64_t seg, const float *m, uint8_t *q, int64_t stride) {
  const bool saturate = range != Range::kOverflow;
  each_row(x, seg, [&](int64_t r, int64_t c, float v, int64_t i) {
    q[r * stride + c] = encode_fp8(dtype, mul_rn(v, m[i]), saturate);
  });
}
void cast_cols(const Tile &x, int32_t dtype, Range range, int64_t group, const float *m, uint8_t *q, int64_t stride) {
  const bool saturate = range != Range::kOverflow;
  each_col(x, group, [&](int64_t r, int64_t c, float v, int64_t i) {
    q[r * stride + c] = encode_fp8(dtype, mul_rn(v, m[i]), saturate);
  });
}

void count(int32_t dtype, float v, float m, uint64_t *stats) {
  if (dtype == kE4M3) {
    count_element<E4M3>(v, m, stats);
  } else {
    count_element<E5M2>(v, m, stats);
  }
}
void count_rows(const Tile &x, int32_t dtype, int64_t seg, const float *m, uint64_t *stats) {
  each_row(x, seg, [&](int64_t, int64_t, float v, int64_t i) { count(dtype, v, m[i], stats); });
}
void count_cols(const Tile &x, int32_t dtype, int64_t group, const float *m, uint64_t *stats) {
  each_col(x, group, [&](int64_t, int64_t, float v, int64_t i) { count(dtype, v, m[i], stats); });
}

void add_cols(const Tile &x, float *sums) {
  each_col(x, x.rows, [&](int64_t, int64_t c, float v, int64_t) { sums[c] = dbias_step(sums[c], v); });
}

void transpose(const uint8_t *src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t *dst, int64_t dst_stride) {
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) dst[c * dst_stride + r] = src[r * src_stride + c];
}

void copy_out(const void *src, int64_t src_stride, int64_t rows, int64_t bytes, void *dst, int64_t dst_stride, bool) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(static_cast<char *>(dst) + r * dst_stride, static_cast<const char *>(src) + r * src_stride,
                size_t(bytes));
}

void convert(const Tile &x, float m, int32_t dtype, void *out, int64_t stride) {
  each_row(x, x.cols, [&](int64_t r, int64_t c, float v, int64_t) {
    store(dtype, static_cast<char *>(out) + r * stride, c, mul_rn(v, m));
  });
}

void decode_rows(const Tile &q, int64_t seg, const float *s, int32_t dtype, void *out, int64_t stride) {
  each_row(q, seg, [&](int64_t r, int64_t c, float v, int64_t i) {
    store(dtype, static_cast<char *>(out) + r * stride, c, canonical(mul_rn(v, s[i])));
  });
}
void decode_cols(const Tile &q, int64_t group, const float *s, int32_t dtype, void *out, int64_t stride) {
  each_col(q, group, [&](int64_t r, int64_t c, float v, int64_t i) {
    store(dtype, static_cast<char *>(out) + r * stride, c, canonical(mul_rn(v, s[i])));
  });
}

}  // namespace

const TileOps *plain_ops() {
  static const TileOps ops = {"plain",    amax_rows, amax_cols, amax_both, scales,  cast_rows,   cast_cols,  count_rows,
                              count_cols, add_cols,  transpose, copy_out,  convert, decode_rows, decode_cols};
  return &ops;
}

}  // namespace fp8::cpu
