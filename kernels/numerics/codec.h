// SPDX-License-Identifier: Apache-2.0
// Element formats: encode (round to nearest even) and decode with integer arithmetic.
//            E4M3            E5M2
//   max      448 = 0x7e      57344 = 0x7b
//   min      2^-9 = 0x01     2^-16 = 0x01
//   Inf      none            0x7c, 0xfc
//   NaN      0x7f, 0xff      0x7d-0x7f, 0xfd-0xff      written: 0x7f always, whatever the sign
// Saturating: what rounds beyond max, and Inf, becomes +-max. Otherwise E4M3 gives NaN with the sign kept (0x7f, 0xff),
// E5M2 gives +-Inf. -0 stays -0.
#pragma once
#include "numerics/macros.h"

namespace fp8::num {

// Same values as enum fp8_dtype.
constexpr int32_t kF32 = 1, kF16 = 2, kBF16 = 3, kE4M3 = 4, kE5M2 = 5, kE8M0 = 6;

struct E4M3 {
  static constexpr int32_t dtype = kE4M3, mantissa = 3, bias = 7, emax = 8;
  static constexpr uint32_t max_code = 0x7e, overflow_code = 0x7f, last_finite = 0x7e;
  static constexpr uint32_t saturated_from = 0x43e80001u;  // bits of |x * m|: above 464, which ties to 448
  static constexpr float fmax = 448.0f, quantum = 0x1p-9f;
};

struct E5M2 {
  static constexpr int32_t dtype = kE5M2, mantissa = 2, bias = 15, emax = 15;
  static constexpr uint32_t max_code = 0x7b, overflow_code = 0x7c, last_finite = 0x7b;
  static constexpr uint32_t saturated_from = 0x47700000u;  // 61440 ties to Inf
  static constexpr float fmax = 57344.0f, quantum = 0x1p-16f;
};

template <class F>
FP8_HD uint8_t encode(float x, bool saturate = true) {
  const uint32_t u = bits_of(x), sign = (u >> 24) & 0x80u, a = u & kF32Abs;
  if (a > kF32Inf) return 0x7f;
  constexpr uint32_t drop = 23 - F::mantissa;                         // mantissa bits lost in the normal range
  constexpr uint32_t min_normal = uint32_t(127 - F::bias + 1) << 23;  // 2^(1-bias)
  uint32_t code;
  if (a >= min_normal) {
    const uint32_t rounded = a + ((1u << (drop - 1)) - 1) + ((a >> drop) & 1);
    code = (rounded >> drop) - (uint32_t(127 - F::bias) << F::mantissa);
    if (code > F::max_code) code = saturate ? F::max_code : F::overflow_code;
  } else {
    const uint32_t shift = (127 - F::bias + 1) + drop - (a >> 23);  // |x| / quantum = significand >> shift
    if (shift > 24) return uint8_t(sign);                           // below half a quantum
    const uint32_t s = (a & 0x7fffffu) | 0x800000u;
    code = (s + ((1u << (shift - 1)) - 1) + ((s >> shift) & 1)) >> shift;
  }
  return uint8_t(sign | code);
}

template <class F>
FP8_HD bool is_nan_code(uint8_t code) {
  return (code & 0x7fu) > (F::dtype == kE4M3 ? 0x7eu : 0x7cu);
}

template <class F>
FP8_HD float decode(uint8_t code) {
  const uint32_t sign = uint32_t(code & 0x80u) << 24, a = code & 0x7fu;
  const uint32_t e = a >> F::mantissa, m = a & ((1u << F::mantissa) - 1);
  if (is_nan_code<F>(code)) return float_of(kF32Nan | sign);
  if (F::dtype == kE5M2 && a == 0x7cu) return float_of(kF32Inf | sign);
  if (e == 0) return float_of(bits_of(float(m) * F::quantum) | sign);
  return float_of(sign | ((e + 127 - F::bias) << 23) | (m << (23 - F::mantissa)));
}

FP8_HD uint8_t encode_fp8(int32_t dtype, float x, bool saturate = true) {
  return dtype == kE4M3 ? encode<E4M3>(x, saturate) : encode<E5M2>(x, saturate);
}
FP8_HD float decode_fp8(int32_t dtype, uint8_t code) {
  return dtype == kE4M3 ? decode<E4M3>(code) : decode<E5M2>(code);
}

// 16-bit formats: IEEE, overflow gives Inf; NaN is written as the positive quiet NaN.
FP8_HD float decode_bf16(uint16_t h) { return float_of(uint32_t(h) << 16); }

FP8_HD uint16_t encode_bf16(float x) {
  const uint32_t u = bits_of(x);
  if (is_nan_bits(u)) return 0x7fc0;
  return uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

FP8_HD float decode_f16(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, e = (h >> 10) & 0x1fu, m = h & 0x3ffu;
  if (e == 0x1f) return float_of(sign | kF32Inf | (m << 13));
  if (e == 0) return float_of(bits_of(float(m) * 0x1p-24f) | sign);
  return float_of(sign | ((e + 112) << 23) | (m << 13));
}

FP8_HD uint16_t encode_f16(float x) {
  const uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, a = u & kF32Abs;
  if (a > kF32Inf) return 0x7e00;
  if (a >= 0x38800000u) {  // 2^-14
    const uint32_t code = ((a + 0xfffu + ((a >> 13) & 1)) >> 13) - (112u << 10);
    return uint16_t(sign | (code > 0x7c00u ? 0x7c00u : code));
  }
  const uint32_t shift = 126 - (a >> 23);
  if (shift > 24) return uint16_t(sign);
  const uint32_t s = (a & 0x7fffffu) | 0x800000u;
  return uint16_t(sign | ((s + ((1u << (shift - 1)) - 1) + ((s >> shift) & 1)) >> shift));
}

// Scales. value = 2^(c-127), its reciprocal 2^(127-c); both ends are F32 subnormals (0x00400000); 255 is NaN.
FP8_HD float decode_e8m0(uint8_t c) { return float_of(c == 255 ? kF32Nan : c == 0 ? 0x00400000u : uint32_t(c) << 23); }
FP8_HD float reciprocal_e8m0(uint8_t c) {
  return float_of(c == 255 ? kF32Nan : c == 254 ? 0x00400000u : uint32_t(254 - c) << 23);
}

// Any element to F32, exactly.
FP8_HD float load(int32_t dtype, const void *p, int64_t i) {
  switch (dtype) {
    case kF32:
      return static_cast<const float *>(p)[i];
    case kF16:
      return decode_f16(static_cast<const uint16_t *>(p)[i]);
    case kBF16:
      return decode_bf16(static_cast<const uint16_t *>(p)[i]);
    case kE8M0:
      return decode_e8m0(static_cast<const uint8_t *>(p)[i]);
    default:
      return decode_fp8(dtype, static_cast<const uint8_t *>(p)[i]);
  }
}

// F32 to any element, one rounding. `saturate` rules FP8 alone.
FP8_HD void store(int32_t dtype, void *p, int64_t i, float x, bool saturate = true) {
  switch (dtype) {
    case kF32:
      static_cast<float *>(p)[i] = canonical(x);
      break;
    case kF16:
      static_cast<uint16_t *>(p)[i] = encode_f16(x);
      break;
    case kBF16:
      static_cast<uint16_t *>(p)[i] = encode_bf16(x);
      break;
    default:
      static_cast<uint8_t *>(p)[i] = encode_fp8(dtype, x, saturate);
  }
}

FP8_HD int64_t element_size(int32_t dtype) { return dtype == kF32 ? 4 : dtype == kF16 || dtype == kBF16 ? 2 : 1; }

}  // namespace fp8::num
