// SPDX-License-Identifier: Apache-2.0
// 32x32 with E8M0 scales.
#include "device/quantize_tile.cuh"

namespace fp8::cuda {

cudaError_t tiles_square32(const TileArgs &a, unsigned tiles, cudaStream_t stream) {
  return launch_tiles<kSquare32>(a, tiles, stream);
}

cudaError_t load_square32() { return load_tiles<kSquare32>(); }

}  // namespace fp8::cuda
