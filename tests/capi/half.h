/* SPDX-License-Identifier: Apache-2.0 */
/* FP32 to the 16-bit formats and back. */
#ifndef FP8_TESTS_CAPI_HALF_H
#define FP8_TESTS_CAPI_HALF_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t to_bf16(float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float v;
  memcpy(&v, &u, 4);
  return v;
}

static inline float from_f16(uint16_t h) {
  const int e = (h >> 10) & 31, m = h & 1023;
  const float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
  return h & 0x8000 ? -v : v;
}

static inline uint16_t to_f16(float v) { /* round to nearest even; finite values of moderate size only */
  const uint16_t sign = signbit(v) ? 0x8000 : 0;
  int e;
  float a = fabsf(v), scaled;
  if (a == 0) return sign;
  frexpf(a, &e);
  if (e < -13) e = -13;
  scaled = rintf(ldexpf(a, 11 - e)); /* 11 significant bits, or fewer below 2^-14 */
  if (e == -13 && scaled < 1024) return (uint16_t)(sign | (uint16_t)scaled);
  return (uint16_t)(sign + ((e + 13) << 10) + (uint16_t)scaled);
}
#endif
