// SPDX-License-Identifier: Apache-2.0
// 1x32 with E8M0 scales.
#include "device/quantize_tile.cuh"

namespace fp8::cuda {

cudaError_t tiles_block32(const TileArgs &a, unsigned tiles, cudaStream_t stream) {
  return launch_tiles<kBlock32>(a, tiles, stream);
}

cudaError_t load_block32() { return load_tiles<kBlock32>(); }

}  // namespace fp8::cuda
