// SPDX-License-Identifier: Apache-2.0
// Error sums of a quantized side against x; the order of summation is numerics/block.h's.
#include "cpu/access.h"

namespace fp8::cpu {
namespace {

using num::kMeasureTile;
using num::Sums;

// x as F32 for the unquantized side as for x itself
void widen(const TileOps &ops, const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, float *out,
           char *scratch) {
  gather(m, row, col, rows, cols, scratch, cols);
  ops.convert(Tile{scratch, m.dtype, cols * num::element_size(m.dtype), rows, cols}, 1.0f, num::kF32, out, cols * 4);
}

Sums tile_sums(const float *x, const float *y, int64_t rows, int64_t cols) {
  Sums s[kMeasureTile] = {};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) num::measure_element(&s[c], x[r * cols + c], y[r * cols + c]);
  for (int64_t h = kMeasureTile / 2; h > 0; h /= 2)
    for (int64_t i = 0; i < h; ++i) num::measure_join(&s[i], s[i + h]);
  return s[0];
}

}  // namespace

uint64_t measure_workspace(const ops::Measure &m) {
  return uint64_t(ceil_div(m.x.rows, kMeasureTile) * ceil_div(m.x.cols, kMeasureTile)) * sizeof(Sums) + 64;
}

void measure(const ops::Measure &m, const Parallel &parallel) {
  static_assert(kMeasureTile == kTile, "a part is a tile");
  const TileOps &ops = tile_ops();
  const int64_t bands = ceil_div(m.x.rows, kTile), strips = ceil_div(m.x.cols, kTile);
  Sums *tiles = reinterpret_cast<Sums *>((reinterpret_cast<uintptr_t>(m.workspace) + 63) / 64 * 64);
  for_each(parallel, bands * strips, m.x.rows * m.x.cols, [&](int64_t i) {
    alignas(64) float x[kTileElements], y[kTileElements];
    alignas(64) char scratch[kTileElements * 4];
    const int64_t row = i / strips * kTile, col = i % strips * kTile;
    const int64_t rows = std::min(kTile, m.x.rows - row), cols = std::min(kTile, m.x.cols - col);
    widen(ops, m.x, row, col, rows, cols, x, scratch);
    if (m.side.scaling >= num::kTensor && m.side.scaling <= num::k32x32) {
      decode_part(ops, m.side, m.is_col != 0, row, col, rows, cols, num::kF32, y, cols * 4,
                  reinterpret_cast<uint8_t *>(scratch));
    } else {
      ops::Matrix codes = m.side.codes;
      if (m.is_col) {  // stored [cols, rows]
        for (int64_t c = 0; c < cols; ++c)
          for (int64_t r = 0; r < rows; ++r)
            y[r * cols + c] = num::load(codes.dtype, element(codes, col + c, row + r), 0);
      } else {
        widen(ops, codes, row, col, rows, cols, y, scratch);
      }
    }
    tiles[i] = tile_sums(x, y, rows, cols);
  });
  Sums total{};
  for (int64_t b = 0; b < bands; ++b) {
    Sums band{};
    for (int64_t s = 0; s < strips; ++s) num::measure_join(&band, tiles[b * strips + s]);
    num::measure_join(&total, band);
  }
  double *out = static_cast<double *>(m.sums.data);
  const double values[4] = {total.xx, total.ee, total.xy, total.worst};
  for (int i = 0; i < 4; ++i) out[i * m.sums.stride] = values[i];
}

}  // namespace fp8::cpu
