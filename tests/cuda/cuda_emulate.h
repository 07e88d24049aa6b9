// SPDX-License-Identifier: Apache-2.0
// The kernels' device features on the host: a block's threads are fibers in turn, barriers and shuffles switch between
// them. Arithmetic, indices and barriers are tested so without a GPU; races, memory order and speed are not.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "numerics/scale.h"

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
using cudaStream_t = void *;
inline cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t) {
  return std::memset(p, value, n), cudaSuccess;
}

// longjmp itself, not the checked form of hardened builds, which refuses to change stacks
extern "C" [[noreturn]] void fp8_emulate_jump(jmp_buf, int) __asm__("_longjmp");

namespace fp8::emulate {

constexpr int kMostThreads = 512;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStack = 512 << 10;  // whose redzones take much of it
#else
constexpr size_t kStack = 64 << 10;
#endif

struct Barrier {
  int arrived = 0, live = 0;
  unsigned generation = 0;
  bool any = false, result = false;
};

struct Machine {
  jmp_buf scheduler, fibers[kMostThreads];
  std::vector<char> stacks = std::vector<char>(kMostThreads * kStack);
  bool started[kMostThreads] = {}, done[kMostThreads];
  Barrier block, warps[kMostThreads / 32];
  float lanes[kMostThreads];
  int thread = 0;
  unsigned block_index = 0, grid = 1, threads = 1;
  bool idle = false;  // launches run nothing
  unsigned most = 0;  // blocks of the largest grid so far
  void (*body)(void *) = nullptr;
  void *argument = nullptr;
};
inline Machine &machine() {
  static Machine m;
  return m;
}

inline void fiber();

// A fiber starts once and then runs its thread of every block; swapcontext at each switch would cost a system call.
__attribute__((noinline)) inline void resume(int t) {
  Machine &m = machine();
  m.thread = t;
  if (_setjmp(m.scheduler)) return;
  if (m.started[t]) fp8_emulate_jump(m.fibers[t], 1);
  m.started[t] = true;
  ucontext_t first;
  getcontext(&first);
  first.uc_stack.ss_sp = m.stacks.data() + t * kStack;
  first.uc_stack.ss_size = kStack;
  first.uc_link = nullptr;
  makecontext(&first, fiber, 0);
  setcontext(&first);
}
__attribute__((noinline)) inline void yield() {
  Machine &m = machine();
  if (!_setjmp(m.fibers[m.thread])) fp8_emulate_jump(m.scheduler, 1);
}
inline void release(Barrier &b) {
  b.arrived = 0;
  b.result = b.any;
  b.any = false;
  ++b.generation;
}
inline bool wait(Barrier &b, bool vote = false) {
  b.any = b.any || vote;
  const unsigned mine = b.generation;
  if (++b.arrived == b.live) release(b);
  while (b.generation == mine) yield();
  return b.result;
}
inline void leave(Barrier &b) {
  if (--b.live > 0 && b.arrived == b.live) release(b);
}
inline void fiber() {
  Machine &m = machine();
  for (;;) {
    m.body(m.argument);
    const int t = m.thread;
    m.done[t] = true;
    leave(m.block);
    leave(m.warps[t / 32]);
    yield();
  }
}

inline void run_block(unsigned block_index) {
  Machine &m = machine();
  m.block_index = block_index;
  const int n = static_cast<int>(m.threads);
  m.block = Barrier();
  m.block.live = n;
  for (int w = 0; w * 32 < n; ++w) m.warps[w] = Barrier(), m.warps[w].live = std::min(32, n - w * 32);
  std::fill_n(m.done, n, false);
  for (int left = n; left;) {
    left = 0;
    for (int t = 0; t < n; ++t)
      if (!m.done[t]) {
        resume(t);
        left += !m.done[t];
      }
  }
}

inline float exchange(float x, int source) {
  Machine &m = machine();
  const int t = m.thread;
  m.lanes[t] = x;
  wait(m.warps[t / 32]);
  const float y = m.lanes[t / 32 * 32 + source];
  wait(m.warps[t / 32]);
  return y;
}

}  // namespace fp8::emulate

namespace fp8::cuda {

template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t, bool, A &&...arguments) {
  auto &m = emulate::machine();
  struct Call {
    void (*kernel)(P...);
    std::tuple<std::decay_t<P>...> arguments;
  } call{kernel, std::tuple<std::decay_t<P>...>(std::decay_t<P>(arguments)...)};
  m.grid = grid.x;
  m.most = std::max(m.most, grid.x);
  m.threads = block.x;
  m.argument = &call;
  m.body = [](void *p) {
    Call &c = *static_cast<Call *>(p);
    std::apply(c.kernel, c.arguments);
  };
  for (unsigned b = 0; b < grid.x && !m.idle; ++b) emulate::run_block(b);
  return cudaSuccess;
}

template <class... K>
cudaError_t load_code(K...) {
  return cudaSuccess;
}
inline void wait_prior() {}
inline void release_next() {}
template <class F>
uint32_t encode2(float lo, float hi) {
  return num::encode<F>(lo) | uint32_t(num::encode<F>(hi)) << 8;
}
inline float amax1(float amax, float x) { return std::fmax(amax, std::fabs(x)); }
inline uint32_t amax2_bf16(uint32_t amax, uint32_t x) {
  auto one = [](uint32_t a, uint32_t b) {
    return num::bits_of(amax1(num::float_of(a << 16), num::float_of(b << 16))) >> 16;
  };
  return one(amax & 0xffff, x & 0xffff) | one(amax >> 16, x >> 16) << 16;
}
inline float shuffle(float x, int lane) { return emulate::exchange(x, lane); }
inline float shuffle_xor(float x, int mask) { return emulate::exchange(x, (emulate::machine().thread & 31) ^ mask); }
inline uint32_t shuffle_xor_bits(uint32_t x, int mask) { return num::bits_of(shuffle_xor(num::float_of(x), mask)); }
inline uint32_t shuffle_bits(uint32_t x, int lane) { return num::bits_of(shuffle(num::float_of(x), lane)); }
inline uint32_t warp_max(uint32_t x) {
  emulate::Machine &m = emulate::machine();
  const int first = m.thread / 32 * 32;
  m.lanes[m.thread] = num::float_of(x);
  emulate::wait(m.warps[first / 32]);
  for (int i = first; i < first + 32; ++i) x = std::max(x, num::bits_of(m.lanes[i]));
  emulate::wait(m.warps[first / 32]);
  return x;
}
inline void sync_warp() { emulate::wait(emulate::machine().warps[emulate::machine().thread / 32]); }
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = uint64_t(b) << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) r |= uint32_t(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return r;
}
inline uint32_t max_bytes(uint32_t a, uint32_t b) {
  uint32_t r = 0;
  for (int i = 0; i < 32; i += 8) r |= std::max(a >> i & 0xff, b >> i & 0xff) << i;
  return r;
}
inline uint32_t pack2_bf16(float lo, float hi) { return num::encode_bf16(lo) | uint32_t(num::encode_bf16(hi)) << 16; }
template <class T>
inline T load_streaming(const T *p) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(T)) __builtin_trap();
  return *p;
}
inline uint32_t spread2(uint32_t w, int h) { return w >>= 16 * h, (w & 0xff) << 8 | (w & 0xff00) << 16; }
inline uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; }
inline uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
inline uint32_t mul2_bf16(uint32_t a, uint32_t b) {
  auto one = [](uint32_t x, uint32_t y) {
    return uint32_t(num::encode_bf16(num::float_of(x << 16) * num::float_of(y << 16)));
  };
  return one(a & 0xffff, b & 0xffff) | one(a >> 16, b >> 16) << 16;
}
inline uint2 load8(const void *p) {
  if (reinterpret_cast<uintptr_t>(p) % 8) __builtin_trap();
  return *static_cast<const uint2 *>(p);
}
inline uint4 load16(const void *p) {
  if (reinterpret_cast<uintptr_t>(p) % 16) __builtin_trap();
  return *static_cast<const uint4 *>(p);
}
inline void store8_streaming(void *p, uint32_t a, uint32_t b) {
  if (reinterpret_cast<uintptr_t>(p) % 8) __builtin_trap();
  static_cast<uint32_t *>(p)[0] = a, static_cast<uint32_t *>(p)[1] = b;
}
inline void store16_streaming(void *p, uint4 v) {
  if (reinterpret_cast<uintptr_t>(p) % 16) __builtin_trap();
  *static_cast<uint4 *>(p) = v;
}
inline void store8(void *p, uint32_t a, uint32_t b) { store8_streaming(p, a, b); }
inline void store16(void *p, uint4 v) { store16_streaming(p, v); }
inline void store4_lasting(void *p, uint32_t v) {
  if (reinterpret_cast<uintptr_t>(p) % 4) __builtin_trap();
  *static_cast<uint32_t *>(p) = v;
}
inline void atomic_amax(float *p, float v) { *p = std::fmax(*p, v); }
inline void atomic_add(uint64_t *p, uint64_t v) { *p += v; }

}  // namespace fp8::cuda

inline uint32_t atomicAdd(uint32_t *p, uint32_t v) { return *p += v, *p - v; }
inline void __syncthreads() { fp8::emulate::wait(fp8::emulate::machine().block); }
inline int __syncthreads_or(int vote) { return fp8::emulate::wait(fp8::emulate::machine().block, vote != 0); }

// last: the standard library uses some of these names
#define threadIdx dim3(static_cast<unsigned>(::fp8::emulate::machine().thread))
#define blockIdx dim3(::fp8::emulate::machine().block_index)
#define gridDim dim3(::fp8::emulate::machine().grid)
#define blockDim dim3(::fp8::emulate::machine().threads)
#define __global__
#define __host__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
