// SPDX-License-Identifier: Apache-2.0
// The few device features that these kernels use, behind names that a host emulation supplies too: so their indices and
// sums are tested without a GPU.
#pragma once
#include "kernels_cuda.h"
#ifdef FP8_CUDA_EMULATE
#include "gpt_emulate.h"
#else
#include <cuda_runtime.h>
#endif

namespace gpt {

#ifndef FP8_CUDA_EMULATE
template <class... P, class... A>
void launch(const Device *d, int64_t blocks, int threads, void (*kernel)(P...), A... arguments) {
  if (blocks == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(d->stream);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, P(arguments)...);
  if (error != cudaSuccess) fail("a kernel of the GPT was not started: %s", cudaGetErrorString(error));
}

inline void read_back(const Device *d, void *host, const void *device, size_t bytes) {  // waits for the stream
  const cudaStream_t stream = static_cast<cudaStream_t>(d->stream);
  cudaError_t error = cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) fail("the GPT's kernels failed: %s", cudaGetErrorString(error));
}

__device__ __forceinline__ float from_bits(uint32_t x) { return __uint_as_float(x); }
__device__ __forceinline__ uint32_t pack2(float lo, float hi) {  // to BF16, to nearest even
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
__device__ __forceinline__ float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

// c[16, 8] += a[16, 16] b[16, 8], one warp: rows lane / 4 and + 8, columns 2 (lane % 4) and + 1.
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 matrices of BF16; lane 8 i + j gives the address of row j of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// 16 bytes on their way to shared memory, zeros where there is nothing to read.
__device__ __forceinline__ void copy16_async(void *shared, const void *global, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(global), "r"(valid ? 16 : 0)
      : "memory");
}
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}
#endif

__device__ __forceinline__ float low(uint32_t pair) { return from_bits(pair << 16); }
__device__ __forceinline__ float high(uint32_t pair) { return from_bits(pair & 0xffff0000u); }

__device__ __forceinline__ float warp_sum(float x) {  // the same order everywhere: results repeat
  for (int mask = 16; mask; mask >>= 1) x += shuffle_xor(x, mask);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
  for (int mask = 16; mask; mask >>= 1) {
    const float y = shuffle_xor(x, mask);
    x = y > x ? y : x;
  }
  return x;
}

inline int64_t blocks_of(int64_t items, int64_t per_block) { return (items + per_block - 1) / per_block; }
constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

}  // namespace gpt
