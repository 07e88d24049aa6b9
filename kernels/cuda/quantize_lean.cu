// SPDX-License-Identifier: Apache-2.0
#include "device/quantize_lean.cuh"
#include "quantize_amax.h"

namespace fp8::cuda {

cudaError_t launch_lean_tiles(const TileArgs &a, int kind, unsigned grid, cudaStream_t stream) {
  return launch_lean_kind<false>(a, kind, grid, stream);
}
cudaError_t load_lean_tiles() { return load_lean_kinds<false>(); }

}  // namespace fp8::cuda
