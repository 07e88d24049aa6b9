// SPDX-License-Identifier: Apache-2.0
// 128x128: one scale for both sides.
#include "device/quantize_tile.cuh"

namespace fp8::cuda {

cudaError_t tiles_square128(const TileArgs &a, unsigned tiles, cudaStream_t stream) {
  return launch_tiles<kSquare128>(a, tiles, stream);
}

cudaError_t load_square128() { return load_tiles<kSquare128>(); }

}  // namespace fp8::cuda
