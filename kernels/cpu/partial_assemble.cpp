// SPDX-License-Identifier: Apache-2.0
// From gathered slots to the sides of whole weights: flat copies for what travelled in its own order, transposes for
// the column side, scales from the reduced amax.
#include <cstring>

#include "cpu/partial.h"

namespace fp8::cpu {
namespace {

using namespace num;

constexpr int64_t kFlat = int64_t{1} << 16;
constexpr int64_t kScaleRows = 64;  // scale rows of a unit

// Elements [begin, end) of an item in flat order, piece by piece: body(source bytes, flat begin, count).
template <class Body>
void each_run(const ops::ParamList &p, int32_t i, bool col_part, int64_t size, int64_t begin, int64_t end,
              Body &&body) {
  const ops::ParamPiece *pieces = &piece(p, i, 0);
  const auto after = [](int64_t flat, const ops::ParamPiece &q) { return flat < q.begin + q.count; };
  const ops::ParamPiece *own = std::upper_bound(pieces, pieces + p.world, begin, after);
  for (; begin < end; ++own) {
    if (own->count == 0) continue;
    const int64_t n = std::min(end, own->begin + own->count) - begin;
    const int64_t rank = own - pieces, at = own->at + (col_part ? p.col_part : p.row_part + p.row_shift[rank]);
    body(static_cast<const char *>(p.slots[rank]) + at + (begin - own->begin) * size, begin, n);
    begin += n;
  }
}

void put_run(const ops::ParamSide &side, int64_t cols, int64_t size, const char *from, int64_t flat, int64_t n) {
  char *codes = static_cast<char *>(side.codes);
  if (side.col_stride == 1 && side.row_stride == cols) {
    std::memcpy(codes + flat * size, from, n * size);
    return;
  }
  while (n > 0) {
    const int64_t r = flat / cols, c = flat % cols, part = std::min(n, cols - c);
    char *out = codes + (r * side.row_stride + c * side.col_stride) * size;
    if (side.col_stride == 1) {
      std::memcpy(out, from, part * size);
    } else {
      for (int64_t k = 0; k < part; ++k) std::memcpy(out + k * side.col_stride * size, from + k * size, size);
    }
    from += part * size;
    flat += part;
    n -= part;
  }
}

// One 128 x 128 tile of the column side, from the gathered bytes or from the item's own row side.
void transpose_tile(const ops::ParamList &p, int32_t i, int64_t index) {
  const ops::ParamItem &item = p.items[i];
  const int64_t across = tiles(item.cols, kTile), row0 = index / across * kTile, col0 = index % across * kTile;
  const int64_t rows = std::min(kTile, item.rows - row0), cols = std::min(kTile, item.cols - col0);
  alignas(64) uint8_t in[kTileElements], out[kTileElements];
  const uint8_t *src = in;
  int64_t stride = kTile;
  if (!p.slots && item.row.col_stride == 1) {
    src = static_cast<const uint8_t *>(item.row.codes) + row0 * item.row.row_stride + col0;
    stride = item.row.row_stride;
  } else {
    const bool col_part = !ops::shares_scale(p.scaling);
    for (int64_t r = 0; r < rows; ++r) {
      uint8_t *line = in + r * kTile;
      const int64_t begin = (row0 + r) * item.cols + col0;
      if (p.slots) {
        each_run(p, i, col_part, 1, begin, begin + cols,
                 [&](const char *from, int64_t flat, int64_t n) { std::memcpy(line + (flat - begin), from, n); });
      } else {
        const uint8_t *from = static_cast<const uint8_t *>(item.row.codes) + (row0 + r) * item.row.row_stride;
        for (int64_t c = 0; c < cols; ++c) line[c] = from[(col0 + c) * item.row.col_stride];
      }
    }
  }
  uint8_t *dst = static_cast<uint8_t *>(item.col.codes) + col0 * item.col.row_stride + row0 * item.col.col_stride;
  if (item.col.col_stride == 1) return tile_ops().transpose(src, stride, rows, cols, dst, item.col.row_stride);
  tile_ops().transpose(src, stride, rows, cols, out, kTile);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) dst[c * item.col.row_stride + r * item.col.col_stride] = out[c * kTile + r];
}

// Scale rows of one side; `amax` its first tile. Padding of native strides becomes zero.
void scales(const ops::ParamList &p, const ops::ParamItem &item, bool is_col, int64_t begin) {
  const ops::ParamSide &side = is_col ? item.col : item.row;
  const bool swapped = is_col && ops::shares_scale(p.scaling);  // one array of tiles serves both sides
  const int64_t first = is_col ? ops::amax_col(p.scaling, item) : item.amax,
                amax_stride = swapped ? side.scale_rows : side.scale_cols;
  const bool from_amax = p.slots || p.row_ready;
  const int64_t end = std::min(begin + kScaleRows, side.padded_rows);
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < side.padded_cols; ++j) {
      const int64_t at = i * side.scale_row_stride + j * side.scale_col_stride;
      const bool inside = i < side.scale_rows && j < side.scale_cols;
      const int64_t tile = first + (swapped ? j * amax_stride + i : i * amax_stride + j);
      if (p.amax_dtype == kF32) {
        float s = 0;
        if (inside && from_amax)
          s = scale_of(p.dtype, p.rule, static_cast<const float *>(p.amax)[tile], p.amax_floor).inverse;
        else if (inside)
          s = static_cast<const float *>(item.row.scale)[j * item.row.scale_row_stride + i * item.row.scale_col_stride];
        static_cast<float *>(side.scale)[at] = s;
      } else {
        uint8_t s = 0;
        if (inside && from_amax)
          s = static_cast<const uint8_t *>(p.amax)[tile];
        else if (inside)
          s = static_cast<const uint8_t *>(
              item.row.scale)[j * item.row.scale_row_stride + i * item.row.scale_col_stride];
        static_cast<uint8_t *>(side.scale)[at] = s;
      }
    }
}

}  // namespace

void param_assemble(const ops::ParamList &p, const Parallel &parallel) {
  const bool plain = unquantized(p), row = p.sides & 1, col = p.sides & 2;
  const int64_t size = plain ? 2 : 1;
  // Units of an item: runs of the row side (of a 16-bit copy: of the one view asked for), tiles of the column side,
  // scales.
  const auto runs = [&](const ops::ParamItem &m) {
    return (row || plain) && p.slots ? tiles(m.rows * m.cols, kFlat) : 0;
  };
  const auto flips = [&](const ops::ParamItem &m) {
    return col && !plain ? tiles(m.rows, kTile) * tiles(m.cols, kTile) : 0;
  };
  const auto row_scales = [&](const ops::ParamItem &m) {
    return row && !plain && (p.slots || p.row_ready) ? tiles(m.row.padded_rows, kScaleRows) : 0;
  };
  const auto col_scales = [&](const ops::ParamItem &m) {
    return col && !plain ? tiles(m.col.padded_rows, kScaleRows) : 0;
  };
  each_unit(
      parallel, p.count, static_cast<int64_t *>(p.workspace),
      [&](int32_t i) {
        const ops::ParamItem &m = p.items[i];
        return runs(m) + flips(m) + row_scales(m) + col_scales(m);
      },
      [&](int32_t i, int64_t u) {
        const ops::ParamItem &m = p.items[i];
        if (u < runs(m)) {
          const int64_t begin = u * kFlat, end = std::min(begin + kFlat, m.rows * m.cols);
          return each_run(p, i, false, size, begin, end, [&](const char *from, int64_t flat, int64_t n) {
            if (row) put_run(m.row, m.cols, size, from, flat, n);
            if (!plain || !col || (row && m.col.codes == m.row.codes)) return;
            ops::ParamSide view = m.col;  // [cols, rows], written through its strides as rows x cols
            std::swap(view.row_stride, view.col_stride);
            put_run(view, m.cols, size, from, flat, n);
          });
        }
        u -= runs(m);
        if (u < flips(m)) return transpose_tile(p, i, u);
        u -= flips(m);
        if (u < row_scales(m)) return scales(p, m, false, u * kScaleRows);
        scales(p, m, true, (u - row_scales(m)) * kScaleRows);
      });
}

}  // namespace fp8::cpu
