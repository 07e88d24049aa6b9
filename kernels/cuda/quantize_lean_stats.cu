// SPDX-License-Identifier: Apache-2.0
#include "device/quantize_lean.cuh"
#include "quantize_amax.h"

namespace fp8::cuda {

cudaError_t launch_lean_stats(const TileArgs &a, int kind, unsigned grid, cudaStream_t stream) {
  return launch_lean_kind<true>(a, kind, grid, stream);
}
cudaError_t load_lean_stats() { return load_lean_kinds<true>(); }

}  // namespace fp8::cuda
