// SPDX-License-Identifier: Apache-2.0
// The few device features the kernels use, behind names that a host emulation (tests/unit/cuda) can supply too, so that
// the kernels' arithmetic is tested without a GPU.
#pragma once
#ifdef FP8_CUDA_EMULATE
#include "cuda_emulate.h"
#else
#include <cuda_runtime.h>
#endif

#include <cstdint>

#include "numerics/block.h"

namespace fp8::cuda {

#ifndef FP8_CUDA_EMULATE
// Grid up to 2^31-1 blocks in x. `overlap` lets the kernel start while its predecessor drains; it then calls
// wait_prior().
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, bool overlap, A &&...arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, P(arguments)...);
}

// Loads the kernels' code, which otherwise waits for their first launch: too late inside a stream capture.
template <class... K>
cudaError_t load_code(K... kernels) {
  cudaError_t error = cudaSuccess;
  cudaFuncAttributes attributes;
  ((error = error ? error : cudaFuncGetAttributes(&attributes, kernels)), ...);
  return error;
}

__device__ __forceinline__ void wait_prior() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Saturating, round to nearest even, NaN = 0x7f: equal to num::encode for every float. `lo` is the lower byte.
template <class F>
__device__ __forceinline__ uint32_t encode2(float lo, float hi) {
  uint16_t r;
  if constexpr (F::dtype == num::kE4M3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
}

// Bytes 2 h and 2 h + 1 of w as the upper bytes of two halves.
__device__ __forceinline__ uint32_t spread2(uint32_t w, int h) { return __byte_perm(w, 0, h ? 0x3424 : 0x1404); }
__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

// Products of packed BF16, rounded once; subnormals stay. Adding -0 keeps a zero's sign.
__device__ __forceinline__ uint32_t mul2_bf16(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
  return r;
}

// |x| maximum of packed BF16, NaN ignored.
__device__ __forceinline__ uint32_t amax2_bf16(uint32_t amax, uint32_t x) {
  uint32_t r;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(amax), "r"(x & 0x7fff7fffu));
  return r;
}

__device__ __forceinline__ float amax1(float amax, float x) { return fmaxf(amax, fabsf(x)); }  // NaN ignored

__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ uint32_t shuffle_xor_bits(uint32_t x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ uint2 load8(const void *p) { return *static_cast<const uint2 *>(p); }
__device__ __forceinline__ uint4 load16(const void *p) { return *static_cast<const uint4 *>(p); }
__device__ __forceinline__ void store8_streaming(void *p, uint32_t a, uint32_t b) {
  __stcs(static_cast<uint2 *>(p), make_uint2(a, b));
}
__device__ __forceinline__ void store16_streaming(void *p, uint4 v) { __stcs(static_cast<uint4 *>(p), v); }
__device__ __forceinline__ void store8(void *p, uint32_t a, uint32_t b) { *static_cast<uint2 *>(p) = make_uint2(a, b); }
__device__ __forceinline__ void store16(void *p, uint4 v) { *static_cast<uint4 *>(p) = v; }
// A piece of a sector that other blocks complete: L2 keeps it longest, to write the sector once.
__device__ __forceinline__ void store4_lasting(void *p, uint32_t v) {
  uint64_t last;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(p), "r"(v), "l"(last) : "memory");
}
__device__ __forceinline__ void atomic_amax(float *p, float v) {  // magnitudes compare as integers
  atomicMax(reinterpret_cast<unsigned *>(p), __float_as_uint(v));
}
__device__ __forceinline__ void atomic_add(uint64_t *p, uint64_t v) {
  atomicAdd(reinterpret_cast<unsigned long long *>(p), static_cast<unsigned long long>(v));
}
#endif

// One-dimensional grids over `blocks` blocks of work, at most `most` of them where that is not 0. False: more than a
// grid may have.
inline bool grid_of(int64_t blocks, int32_t most, dim3 *grid) {
  *grid = dim3(static_cast<unsigned>(most > 0 && most < blocks ? most : blocks));
  return blocks < int64_t{1} << 31;
}

// body(block) of every block of work. kFew: by a grid with fewer blocks, since a call leaves multiprocessors to others;
// a kernel of its own, because the loop takes registers.
template <bool kFew, class Body>
__device__ __forceinline__ void each_block(unsigned blocks, Body &&body) {
  if constexpr (kFew) {
    for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x) {
      if (block != blockIdx.x) __syncthreads();  // all have read what the last one left in shared memory
      body(block);
    }
  } else {
    body(blockIdx.x);
  }
}

// The kernel for the grid that `most` leaves.
template <class... P, class... A>
cudaError_t launch_blocks(void (*whole)(P...), void (*few)(P...), int64_t blocks, int32_t most, dim3 block,
                          cudaStream_t stream, A &&...arguments) {
  dim3 grid;
  if (!blocks) return cudaSuccess;
  if (!grid_of(blocks, most, &grid)) return cudaErrorInvalidValue;
  return launch(grid.x < blocks ? few : whole, grid, block, stream, false, arguments...);
}

}  // namespace fp8::cuda
