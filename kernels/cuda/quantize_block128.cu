// SPDX-License-Identifier: Apache-2.0
// 1x128: scales along the contraction.
#include "device/quantize_tile.cuh"

namespace fp8::cuda {

cudaError_t tiles_block128(const TileArgs &a, unsigned tiles, cudaStream_t stream) {
  return launch_tiles<kBlock128>(a, tiles, stream);
}

cudaError_t load_block128() { return load_tiles<kBlock128>(); }

}  // namespace fp8::cuda
