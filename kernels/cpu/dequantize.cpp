// SPDX-License-Identifier: Apache-2.0
#include "cpu/access.h"

namespace fp8::cpu {

void dequantize(const ops::Dequantize &d, const Parallel &parallel) {
  const TileOps &ops = tile_ops();
  const ops::Matrix &x = d.x;
  const int64_t height = d.is_col ? kTile : 8, width = kTileElements / height, strips = ceil_div(x.cols, width);
  const int64_t size = num::element_size(x.dtype);
  const bool stream = x.rows * x.cols * size >= kStreamFrom;
  for_each(parallel, ceil_div(x.rows, height) * strips, x.rows * x.cols, [&](int64_t i) {
    alignas(64) char out[kTileElements * 4];
    alignas(64) uint8_t codes[kTileElements];
    const int64_t row = i / strips * height, col = i % strips * width;
    const int64_t rows = std::min(height, x.rows - row), cols = std::min(width, x.cols - col);
    if (is_plain(x) && !stream) {
      decode_part(ops, d.side, d.is_col != 0, row, col, rows, cols, x.dtype, element(x, row, col), row_bytes(x), codes);
    } else {
      decode_part(ops, d.side, d.is_col != 0, row, col, rows, cols, x.dtype, out, cols * size, codes);
      if (is_plain(x)) {
        ops.copy_out(out, cols * size, rows, cols * size, element(x, row, col), row_bytes(x), true);
      } else {
        scatter(x, row, col, rows, cols, out, cols);
      }
    }
  });
}

}  // namespace fp8::cpu
