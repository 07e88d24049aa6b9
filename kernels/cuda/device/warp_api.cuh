// SPDX-License-Identifier: Apache-2.0
// More device features behind names that the host emulation supplies too.
#pragma once
#include "cuda_api.cuh"

#ifndef FP8_CUDA_EMULATE
namespace fp8::cuda {

__device__ __forceinline__ uint32_t shuffle_bits(uint32_t x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ uint32_t warp_max(uint32_t x) { return __reduce_max_sync(0xffffffffu, x); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
// Each byte's maximum.
__device__ __forceinline__ uint32_t max_bytes(uint32_t a, uint32_t b) { return __vmaxu4(a, b); }
// Packed BF16, rounded to nearest even; any NaN stays one.
__device__ __forceinline__ uint32_t pack2_bf16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
// Loads of what is read once.
template <class T>
__device__ __forceinline__ T load_streaming(const T *p) {
  return __ldcs(p);
}

}  // namespace fp8::cuda
#endif
