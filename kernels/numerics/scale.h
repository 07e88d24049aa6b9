// SPDX-License-Identifier: Apache-2.0
// amax -> scale, the one owner of these formulas. RN32 is one F32 operation.
//   S0  a = max |x| over the block, from +0, NaN ignored; a < floor: a = floor
//   S1  m = RN32(fmax / a), Inf: FLT_MAX; a = 0, Inf or NaN: m = 1;            stored = RN32(1 / m)
//   S2  m = S1's with the mantissa cleared = 2^(127 - c(a)); same exceptions;   stored = 1 / m, exact
//   S3  c(a) = clamp(E - emax + (M > 0x600000), 0, 254); 0: 0, Inf: 254, NaN: 255; stored = c, m = 2^(127 - c)
//   S4  c = clamp(floor(log2 a) - emax + 127, 0, 254); 0: 0, Inf and NaN: 255;  (elements may saturate)
//   S5  q = encode(RN32(x * m))        S6  x' = RN32(decode(q) * stored)
// with a = 2^(E-127) (1 + M/2^23) normalised. The multiplier comes from amax alone; it is never 1 / stored.
// An amax that is written out is the one before the floor.
#pragma once
#include "numerics/codec.h"

namespace fp8::num {

// Same values as enum fp8_scale_rule and enum fp8_scaling.
constexpr int32_t kRuleFp32 = 1, kRulePow2 = 2, kRuleE8m0 = 3, kRuleE8m0Floor = 4;
constexpr int32_t kTensor = 2, kRow = 3, k1x128 = 4, k128x128 = 5, k1x32 = 6, k32x32 = 7;

struct ScaleOf {     // of one block
  float multiplier;  // m of S5
  float inverse;     // stored for F32 scales; its value for E8M0
  uint8_t code;      // stored for E8M0
};

// S0, one step; both are magnitudes or NaN. On a device: bits compare as unsigned integers once NaN is skipped.
FP8_HD float amax_step(float amax, float x) {
  const uint32_t a = bits_of(x) & kF32Abs;
  return a <= kF32Inf && a > bits_of(amax) ? float_of(a) : amax;
}

FP8_HD float amax_floor(float amax, float floor) { return amax < floor ? floor : amax; }

// S3 and S4. A subnormal amax is far below the smallest scale: its exponent field 0 clamps as its true one would.
FP8_HD uint8_t e8m0_of(int32_t rule, int32_t emax, float amax) {
  const uint32_t a = bits_of(amax) & kF32Abs;
  if (a >= kF32Inf) return rule == kRuleE8m0Floor || a > kF32Inf ? 255 : 254;
  const int32_t c = int32_t((a + (rule == kRuleE8m0Floor ? 0u : 0x1fffffu)) >> 23) - emax;
  return uint8_t(c < 0 ? 0 : c);
}

template <class F>
FP8_HD ScaleOf scale_of(int32_t rule, float amax, float floor) {
  const float a = amax_floor(amax, floor);
  const uint32_t u = bits_of(a);
  ScaleOf s{1.0f, 1.0f, 127};
  if (rule == kRuleE8m0 || rule == kRuleE8m0Floor) {
    s.code = e8m0_of(rule, F::emax, a);
    s.multiplier = reciprocal_e8m0(s.code);
    s.inverse = decode_e8m0(s.code);
    return s;
  }
  if (u == 0 || u >= kF32Inf) return s;
  if (rule == kRulePow2) {
    s.code = e8m0_of(rule, F::emax, a);
    s.multiplier = reciprocal_e8m0(s.code);
    s.inverse = decode_e8m0(s.code);
    return s;
  }
  float m = div_rn(F::fmax, a);
  if (bits_of(m) == kF32Inf) m = float_of(kF32Max);
  s.multiplier = m;
  s.inverse = div_rn(1.0f, m);
  return s;
}

FP8_HD ScaleOf scale_of(int32_t dtype, int32_t rule, float amax, float floor) {
  return dtype == kE4M3 ? scale_of<E4M3>(rule, amax, floor) : scale_of<E5M2>(rule, amax, floor);
}

FP8_HD float dequantize_element(int32_t dtype, uint8_t code, float inverse) {
  return canonical(mul_rn(decode_fp8(dtype, code), inverse));
}

}  // namespace fp8::num
