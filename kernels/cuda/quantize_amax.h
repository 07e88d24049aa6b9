// SPDX-License-Identifier: Apache-2.0
// Between the launchers of quantize.cu and the kernels of quantize_known.cu and quantize_lines.cu.
#pragma once
#include "device/quantize_tile.cuh"

namespace fp8::cuda {

struct AmaxArgs {
  Source source;
  int64_t rows, cols, tiles, tiles_c;
  float *partials, *row_amax, *col_amax;  // NULL = not wanted
};
cudaError_t launch_amax(const AmaxArgs &a, bool lean, unsigned grid, cudaStream_t stream);
cudaError_t launch_rows(const TileArgs &a, cudaStream_t stream);
cudaError_t launch_lines(const TileArgs &a, bool of_32, cudaStream_t stream);
cudaError_t load_lines();
cudaError_t launch_copy_amax(const float *src, const ops::Scale &dst, int64_t n, cudaStream_t stream);
cudaError_t launch_finish_dbias(const float *chunks, int64_t count, const ops::Vector &out, int32_t accumulate,
                                cudaStream_t stream);

}  // namespace fp8::cuda
