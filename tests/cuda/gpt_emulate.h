// SPDX-License-Identifier: Apache-2.0
// What the GPT example's CUDA kernels use beyond cuda_emulate.h: matrix instructions, whose lanes hand their registers
// to each other, and copies into shared memory, which are done at once.
#pragma once
#include <cstring>

#include "cuda_emulate.h"

struct alignas(8) float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

namespace gpt {

struct Handed {
  uint32_t words[6];
  const void *row;
};
inline Handed *handed() {  // of the calling thread's warp
  static Handed all[fp8::emulate::kMostThreads];
  return all + fp8::emulate::machine().thread / 32 * 32;
}
inline void wait_warp() {
  auto &m = fp8::emulate::machine();
  fp8::emulate::wait(m.warps[m.thread / 32]);
}

template <class... P, class... A>
void launch(const Device *d, int64_t blocks, int threads, void (*kernel)(P...), A... arguments) {
  if (blocks)
    fp8::cuda::launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), d->stream,
                      false, arguments...);
}
inline void read_back(const Device *, void *host, const void *device, size_t bytes) {
  std::memcpy(host, device, bytes);
}

inline float from_bits(uint32_t x) { return fp8::num::float_of(x); }
inline uint32_t pack2(float lo, float hi) {
  return fp8::num::encode_bf16(lo) | static_cast<uint32_t>(fp8::num::encode_bf16(hi)) << 16;
}
inline float exp2_fast(float x) { return std::exp2(x); }
inline float shuffle_xor(float x, int mask) { return fp8::cuda::shuffle_xor(x, mask); }

inline float half_of(uint32_t pair, int half) { return from_bits(half ? pair & 0xffff0000u : pair << 16); }

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Handed *lanes = handed();
  const int lane = fp8::emulate::machine().thread % 32;
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  std::memcpy(lanes[lane].words, own, sizeof own);
  wait_warp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), col = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < 16; ++k)
      c[i] += half_of(lanes[row % 8 * 4 + k % 8 / 2].words[row / 8 + 2 * (k / 8)], k % 2) *
              half_of(lanes[col * 4 + k % 8 / 2].words[4 + k / 8], k % 2);
  }
  wait_warp();
}

inline void load_matrices(uint32_t (&r)[4], const void *row, bool transposed = false) {
  Handed *lanes = handed();
  const int lane = fp8::emulate::machine().thread % 32;
  if (reinterpret_cast<uintptr_t>(row) % 16) __builtin_trap();
  lanes[lane].row = row;
  wait_warp();
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half) {
      const int major = lane / 4, minor = 2 * (lane % 4) + half;
      const bf16 *line = static_cast<const bf16 *>(lanes[8 * i + (transposed ? minor : major)].row);
      const uint32_t value = line[transposed ? major : minor];
      r[i] = half ? r[i] | value << 16 : value;
    }
  wait_warp();
}
inline void load_transposed(uint32_t (&r)[4], const void *row) { load_matrices(r, row, true); }

inline void copy16_async(void *shared, const void *global, bool valid) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 || reinterpret_cast<uintptr_t>(global) % 16) __builtin_trap();
  if (valid)
    std::memcpy(shared, global, 16);
  else
    std::memset(shared, 0, 16);
}
inline void wait_copies() {}

}  // namespace gpt
