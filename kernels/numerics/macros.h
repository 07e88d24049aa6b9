// SPDX-License-Identifier: Apache-2.0
// What host and device compilers need to agree on the numbers. Compile every includer with -ffp-contract=off and
// without fast math; on a device the intrinsics round once whatever the flags are.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define FP8_HD __host__ __device__ __forceinline__
#else
#define FP8_HD inline
#endif

namespace fp8::num {

FP8_HD uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
#endif
}

FP8_HD float float_of(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
#endif
}

// RN32: one IEEE operation, round to nearest even, subnormals kept, never contracted.
FP8_HD float mul_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

FP8_HD float add_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

FP8_HD float div_rn(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

FP8_HD double mul_rn64(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

FP8_HD double add_rn64(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

constexpr uint32_t kF32Inf = 0x7f800000u, kF32Nan = 0x7fc00000u, kF32Max = 0x7f7fffffu, kF32Abs = 0x7fffffffu;

FP8_HD bool is_nan_bits(uint32_t u) { return (u & kF32Abs) > kF32Inf; }

// Processors disagree on the NaN that an operation makes; the library's results hold this one.
FP8_HD float canonical(float x) { return is_nan_bits(bits_of(x)) ? float_of(kF32Nan) : x; }

}  // namespace fp8::num
