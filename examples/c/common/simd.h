/* SPDX-License-Identifier: Apache-2.0 */
/* SIMD_CLONES on a function compiles it once per instruction set and picks one when the program starts: the examples
 * are built for any x86-64 and still use AVX2 or AVX-512 where they run. Elsewhere, and under sanitizers (whose run
 * time is not up yet when the choice is made), the function is compiled once, as usual. */
#ifndef EXAMPLE_SIMD_H
#define EXAMPLE_SIMD_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SIMD_CLONES
#endif

/* e^x to about 2 ulp, written so that compilers vectorise loops around it (a call of libm would not). */
static inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  float y = x * 1.44269504f;               /* x = (n + f) log 2, f in [-1/2, 1/2] */
  int32_t n = (int32_t)(y + 128.5f) - 128; /* rounded: y is above -126 */
  float f = y - (float)n;
  float p = 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  int32_t bits = (n + 127) << 23; /* 2^n */
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}
#endif
