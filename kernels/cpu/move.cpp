// SPDX-License-Identifier: Apache-2.0
// Transpose and cast: no scales but a multiplier.
#include "cpu/access.h"

namespace fp8::cpu {
namespace {

int64_t bytes_of(int32_t dtype) {
  return dtype >= 9 ? 8 : dtype == 8 || dtype == num::kF32 ? 4 : dtype == num::kF16 || dtype == num::kBF16 ? 2 : 1;
}

template <class T>
void transpose_as(const ops::Transpose &t, const Parallel &parallel) {
  const ops::Matrix &s = t.src, &d = t.dst;
  constexpr int64_t kSide = 64;
  const int64_t strips = ceil_div(s.cols, kSide);
  for_each(parallel, ceil_div(s.rows, kSide) * strips, s.rows * s.cols, [&](int64_t i) {
    const int64_t r0 = i / strips * kSide, c0 = i % strips * kSide;
    const int64_t r1 = std::min(s.rows, r0 + kSide), c1 = std::min(s.cols, c0 + kSide);
    const T *src[kSide];
    for (int64_t r = r0; r < r1; ++r) src[r - r0] = static_cast<const T *>(s.data) + ops::row_offset(s, r);
    for (int64_t c = c0; c < c1; ++c) {
      T *dst = static_cast<T *>(d.data) + ops::row_offset(d, c);
      for (int64_t r = r0; r < r1; ++r) dst[r * d.col_stride] = src[r - r0][c * s.col_stride];
    }
  });
}

void transpose_bytes(const ops::Transpose &t, const Parallel &parallel) {
  const TileOps &ops = tile_ops();
  const ops::Matrix &s = t.src, &d = t.dst;
  const int64_t strips = ceil_div(s.cols, kTile);
  const bool stream = s.rows * s.cols >= kStreamFrom;
  for_each(parallel, ceil_div(s.rows, kTile) * strips, s.rows * s.cols, [&](int64_t i) {
    const int64_t r0 = i / strips * kTile, c0 = i % strips * kTile;
    const int64_t rows = std::min(kTile, s.rows - r0), cols = std::min(kTile, s.cols - c0);
    alignas(64) uint8_t in[kTileElements], out[kTileElements];
    auto at = [](const ops::Matrix &m, int64_t row, int64_t col) {
      return static_cast<uint8_t *>(m.data) + row * m.lead_stride[0] + col;
    };
    ops.copy_out(at(s, r0, c0), s.lead_stride[0], rows, cols, in, cols, false);
    ops.transpose(in, cols, rows, cols, out, rows);
    ops.copy_out(out, rows, cols, rows, at(d, c0, r0), d.lead_stride[0], stream);
  });
}

}  // namespace

void transpose(const ops::Transpose &t, const Parallel &parallel) {
  switch (bytes_of(t.src.dtype)) {
    case 8:
      return transpose_as<uint64_t>(t, parallel);
    case 4:
      return transpose_as<uint32_t>(t, parallel);
    case 2:
      return transpose_as<uint16_t>(t, parallel);
    default:
      return is_plain(t.src) && is_plain(t.dst) ? transpose_bytes(t, parallel) : transpose_as<uint8_t>(t, parallel);
  }
}

void cast(const ops::Cast &c, const Parallel &parallel) {
  const TileOps &ops = tile_ops();
  const ops::Matrix &s = c.src, &d = c.dst;
  const float scale = c.scale ? *c.scale : 1.0f;
  const int64_t height = 8, width = kTileElements / height, strips = ceil_div(s.cols, width);
  const bool from_fp8 = s.dtype >= num::kE4M3, to_fp8 = d.dtype >= num::kE4M3;
  for_each(parallel, ceil_div(s.rows, height) * strips, s.rows * s.cols, [&](int64_t i) {
    alignas(64) char in[kTileElements * 4];
    alignas(64) char out[kTileElements * 4];
    const int64_t row = i / strips * height, col = i % strips * width;
    const int64_t rows = std::min(height, s.rows - row), cols = std::min(width, s.cols - col);
    float m[height];
    std::fill(m, m + height, scale);
    Tile x{nullptr, s.dtype, 0, rows, cols};
    if (is_plain(s)) {
      x.data = element(s, row, col);
      x.stride = row_bytes(s);
    } else {
      gather(s, row, col, rows, cols, in, cols);
      x.data = in;
      x.stride = cols * num::element_size(s.dtype);
    }
    const bool direct = is_plain(d);
    char *to = direct ? element(d, row, col) : out;
    const int64_t stride = direct ? row_bytes(d) : cols * num::element_size(d.dtype);
    if (!from_fp8 && to_fp8) {
      ops.cast_rows(x, d.dtype, c.saturate ? Range::kSaturate : Range::kOverflow, cols, m,
                    reinterpret_cast<uint8_t *>(to), stride);
    } else if (from_fp8 && !to_fp8) {
      ops.decode_rows(x, cols, m, d.dtype, to, stride);
    } else if (!from_fp8) {
      ops.convert(x, scale, d.dtype, to, stride);
    } else {  // one FP8 format to another
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < cols; ++k)
          num::store(d.dtype, to + r * stride, k,
                     num::mul_rn(num::load(x.dtype, static_cast<const char *>(x.data) + r * x.stride, k), scale),
                     c.saturate != 0);
    }
    if (!direct) scatter(d, row, col, rows, cols, out, cols);
  });
}

}  // namespace fp8::cpu
