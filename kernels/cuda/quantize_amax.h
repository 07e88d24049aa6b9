// SPDX-License-Identifier: Apache-2.0
// Between the launchers of quantize.cu and the kernels of quantize_known.cu and quantize_lines.cu.
#pragma once
#include "device/tile_args.cuh"

namespace fp8::cuda {

struct AmaxArgs {
  Source source;
  int64_t rows, cols;
  float *partials, *row_amax, *col_amax;  // NULL = not wanted
  int64_t bands, strip;                   // launch_amax's
  int32_t split;                          // row_amax[band][row], col_amax[strip][column]
  int32_t chained;                        // after launch_zero: the input is ready already
};
struct AmaxUnits {
  int64_t bands, strips, strip;  // of 128 columns, of `strip` rows
};
AmaxUnits amax_units(int64_t rows, int64_t cols, int64_t blocks);  // pure
constexpr int kAmaxThreads = 256, kAmaxBlocks = 4;                 // of a multiprocessor
// ROW in two passes, no zeroing before: of so many tiles at most, partial maxima of a line that the second reads. A
// launch less, which the host takes 4 us for, but on an H200, both sides, us on the GPU split and zeroed: 16 tiles 5.5
// and 4.8, 64 6.2 and 5.2, 128 7.2 and 6.0.
constexpr int64_t kSplitTiles = 64, kSplitParts = 32;
// `bytes` from an address aligned to 16, rounded up to 16: a kernel, since nothing overlaps with a memset.
cudaError_t launch_zero(void *data, int64_t bytes, int32_t most, cudaStream_t stream);
cudaError_t launch_amax(const AmaxArgs &a, bool lean, int32_t blocks, cudaStream_t stream);

// One launch for TENSOR and ROW while a block reads few tiles of 128 x 128, in a grid of few blocks. On an H200, both
// sides, us of one launch and of two: TENSOR of 4 tiles 2.8 and 3.4, 8 3.9 and 3.6, 12 5.6 and 3.6; ROW of 7 tiles 4.7
// and 5.1, 8 5.0 and 5.3, 11 6.5 and 5.7. A launch takes the host 4 us.
constexpr int64_t kSmallTiles = 8, kSmallGrid = 128;
bool small_fits(int64_t down, int64_t across, bool by_row, bool has_row, bool has_col);  // pure
cudaError_t launch_small_tiles(const TileArgs &a, bool by_row, cudaStream_t stream);
cudaError_t load_small_tiles();

cudaError_t launch_lean_tiles(const TileArgs &a, int kind, unsigned grid, cudaStream_t stream);
cudaError_t launch_lean_stats(const TileArgs &a, int kind, unsigned grid, cudaStream_t stream);
cudaError_t load_lean_tiles();
cudaError_t load_lean_stats();
cudaError_t launch_sums(const TileArgs &a, bool packed, unsigned tiles, cudaStream_t stream);  // of columns
cudaError_t launch_rows(const TileArgs &a, cudaStream_t stream);
cudaError_t launch_lines(const TileArgs &a, bool of_32, cudaStream_t stream);
cudaError_t load_lines();
cudaError_t launch_copy_amax(const TileArgs &a, const float *src, const ops::Scale &dst, int64_t n,
                             cudaStream_t stream);
cudaError_t launch_finish_dbias(const TileArgs &a, int64_t count, const ops::Vector &out, int32_t accumulate,
                                cudaStream_t stream);

}  // namespace fp8::cuda
