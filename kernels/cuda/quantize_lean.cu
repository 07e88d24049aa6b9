// SPDX-License-Identifier: Apache-2.0
#include "device/quantize_lean.cuh"
#include "quantize_amax.h"

namespace fp8::cuda {

cudaError_t launch_lean_tiles(const TileArgs &a, int kind, unsigned grid, cudaStream_t stream) {
  switch (kind) {
    case num::kTensor:
      return launch_lean<kLeanTensor>(a, grid, stream);
    case num::kRow:
      return launch_lean<kLeanRow>(a, grid, stream);
    case num::k1x128:
      return launch_lean<kLean128>(a, grid, stream);
    case num::k128x128:
      return launch_lean<kLeanSquare128>(a, grid, stream);
    case num::k1x32:
      return launch_lean<kLean32>(a, grid, stream);
    default:
      return launch_lean<kLeanSquare32>(a, grid, stream);
  }
}

cudaError_t load_lean_tiles() {
  cudaError_t e = cudaSuccess;
  for (cudaError_t (*loads)() : {load_lean<kLeanTensor>, load_lean<kLeanRow>, load_lean<kLean128>,
                                 load_lean<kLeanSquare128>, load_lean<kLean32>, load_lean<kLeanSquare32>})
    if (!e) e = loads();
  return e;
}

}  // namespace fp8::cuda
