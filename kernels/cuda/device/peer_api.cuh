// SPDX-License-Identifier: Apache-2.0
// What kernels that meet across devices need, behind names that a host emulation supplies too.
#pragma once
#ifdef FP8_CUDA_EMULATE
#include <thread>
#endif

#include "cuda_api.cuh"

namespace fp8::cuda {

#ifndef FP8_CUDA_EMULATE
constexpr int kPeerLanes = 32;

__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long *p) {
  unsigned long long v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(unsigned long long *p, unsigned long long v) {
  asm volatile("fence.acq_rel.sys;\n\tst.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// The first lane's answer, to the whole warp, which then sees what that lane has seen.
__device__ __forceinline__ bool first_lane(bool answer) {
  answer = __shfl_sync(0xffffffffu, answer, 0);
  __syncwarp();
  return answer;
}
__device__ __forceinline__ void meet_warp() { __syncwarp(); }
// What another device may have written: never from this processor's own cache.
template <class T>
__device__ __forceinline__ T load_fresh(const T *p) {
  return __ldcg(p);
}
#else
constexpr int kPeerLanes = 1;  // a warp is a thread of the host

inline unsigned long long load_acquire(const unsigned long long *p) {
  std::this_thread::yield();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline void store_release(unsigned long long *p, unsigned long long v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
inline bool first_lane(bool answer) { return answer; }
inline void meet_warp() {}
template <class T>
inline T load_fresh(const T *p) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(T)) __builtin_trap();
  return *p;
}
#endif

}  // namespace fp8::cuda
