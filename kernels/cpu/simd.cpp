// SPDX-License-Identifier: Apache-2.0
#include "cpu/simd.h"

#include <atomic>

namespace fp8::cpu {

namespace {

std::atomic<int32_t> limit{static_cast<int32_t>(Simd::kAvx512)};

Simd detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (avx2 && avx512) return Simd::kAvx512;
  if (avx2) return Simd::kAvx2;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt")) return Simd::kSse4;
#endif
  return Simd::kBase;
}

}  // namespace

Simd simd() {
  static const Simd best = detect();
  const int32_t most = limit.load(std::memory_order_relaxed);
  return static_cast<int32_t>(best) < most ? best : static_cast<Simd>(most);
}

void force_simd(Simd most) { limit.store(static_cast<int32_t>(most), std::memory_order_relaxed); }

const char *simd_name(Simd s) {
  switch (s) {
    case Simd::kAvx512:
      return "avx512";
    case Simd::kAvx2:
      return "avx2";
    case Simd::kSse4:
      return "sse4";
    default:
      return "base";
  }
}

}  // namespace fp8::cpu
