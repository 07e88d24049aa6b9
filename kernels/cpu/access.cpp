// SPDX-License-Identifier: Apache-2.0
#include "cpu/access.h"

#include <cstring>

#include "hwy/cache_control.h"

namespace fp8::cpu {

void streams_done() { hwy::FlushStream(); }

namespace {

template <class T>
void copy_strided(const T *src, int64_t src_row, int64_t src_col, T *dst, int64_t dst_row, int64_t dst_col,
                  int64_t rows, int64_t cols) {
  if (src_col == 1 && dst_col == 1) {
    for (int64_t r = 0; r < rows; ++r) std::memcpy(dst + r * dst_row, src + r * src_row, size_t(cols) * sizeof(T));
  } else {
    for (int64_t r0 = 0; r0 < rows; r0 += 16)  // blocks: one of both sides runs across rows
      for (int64_t c0 = 0; c0 < cols; c0 += 64)
        for (int64_t r = r0; r < std::min(rows, r0 + 16); ++r)
          for (int64_t c = c0; c < std::min(cols, c0 + 64); ++c)
            dst[r * dst_row + c * dst_col] = src[r * src_row + c * src_col];
  }
}

// The rows [row, row + rows) as runs of one stride: body(first row of the run, rows, offset of its first element).
template <class Body>
void each_run(const ops::Matrix &m, int64_t row, int64_t rows, Body &&body) {
  const int64_t inner = m.lead <= 1 ? row + rows : m.lead_shape[m.lead - 1];
  for (int64_t r = row; r < row + rows;) {
    const int64_t n = std::min(row + rows - r, m.lead <= 1 ? rows : inner - r % inner);
    body(r - row, n, ops::row_offset(m, r));
    r += n;
  }
}

template <class T>
void gather_as(const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, void *out, int64_t stride) {
  const int64_t step = m.lead_stride[m.lead <= 1 ? 0 : m.lead - 1];
  each_run(m, row, rows, [&](int64_t r, int64_t n, int64_t offset) {
    copy_strided(static_cast<const T *>(m.data) + offset + col * m.col_stride, step, m.col_stride,
                 static_cast<T *>(out) + r * stride, stride, 1, n, cols);
  });
}
template <class T>
void scatter_as(const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, const void *in,
                int64_t stride) {
  const int64_t step = m.lead_stride[m.lead <= 1 ? 0 : m.lead - 1];
  each_run(m, row, rows, [&](int64_t r, int64_t n, int64_t offset) {
    copy_strided(static_cast<const T *>(in) + r * stride, stride, 1,
                 static_cast<T *>(m.data) + offset + col * m.col_stride, step, m.col_stride, n, cols);
  });
}

// f(unsigned integer of an element's size)
template <class F>
void by_size(int32_t dtype, F &&f) {
  switch (num::element_size(dtype)) {
    case 4:
      return f(uint32_t());
    case 2:
      return f(uint16_t());
    default:
      return f(uint8_t());
  }
}

}  // namespace

void gather(const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, void *out, int64_t stride) {
  by_size(m.dtype, [&](auto t) { gather_as<decltype(t)>(m, row, col, rows, cols, out, stride); });
}

void scatter(const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, const void *in,
             int64_t stride) {
  by_size(m.dtype, [&](auto t) { scatter_as<decltype(t)>(m, row, col, rows, cols, in, stride); });
}

void decode_part(const TileOps &ops, const ops::Side &side, bool is_col, int64_t row, int64_t col, int64_t rows,
                 int64_t cols, int32_t dtype, void *out, int64_t stride_bytes, uint8_t *scratch) {
  // in the side's own orientation
  const int64_t i0 = is_col ? col : row, j0 = is_col ? row : col, is = is_col ? cols : rows, js = is_col ? rows : cols;
  const int64_t tile_rows = num::scale_tile_rows(side.scaling), tile_cols = num::scale_tile_cols(side.scaling);
  const int64_t seg = tile_cols ? tile_cols : std::max(is, js), segs = ceil_div(js, seg);
  float s[kTileElements / 32 + kTile];
  // s[i * line + k * step] of rows i and segments k
  auto read = [&](int64_t line, int64_t step) {
    const bool e8m0 = side.scale.dtype != num::kF32;  // U8 too
    for (int64_t i = 0; i < is; ++i) {
      const int64_t first =
          scale_index(side.scale, tile_rows ? (i0 + i) / tile_rows : 0, tile_cols ? j0 / tile_cols : 0);
      for (int64_t k = 0; k < segs; ++k) {
        const int64_t at = first + k * side.scale.col_stride;
        s[i * line + k * step] = e8m0 ? num::decode_e8m0(static_cast<const uint8_t *>(side.scale.data)[at])
                                      : static_cast<const float *>(side.scale.data)[at];
      }
    }
  };
  if (!is_col) {
    read(segs, 1);
    Tile q{nullptr, side.codes.dtype, 0, rows, cols};
    if (is_plain(side.codes)) {
      q.data = element(side.codes, i0, j0);
      q.stride = row_bytes(side.codes);
    } else {
      gather(side.codes, i0, j0, is, js, scratch, js);
      q.data = scratch;
      q.stride = js;
    }
    ops.decode_rows(q, seg, s, dtype, out, stride_bytes);
    return;
  }
  read(1, is);
  uint8_t compact[kTileElements];
  if (is_plain(side.codes)) {
    ops.copy_out(element(side.codes, i0, j0), row_bytes(side.codes), is, js, compact, js, false);
  } else {
    gather(side.codes, i0, j0, is, js, compact, js);
  }
  ops.transpose(compact, js, is, js, scratch, is);
  ops.decode_cols(Tile{scratch, side.codes.dtype, is, rows, cols}, seg, s, dtype, out, stride_bytes);
}

}  // namespace fp8::cpu
