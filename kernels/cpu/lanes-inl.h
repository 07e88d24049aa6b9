// SPDX-License-Identifier: Apache-2.0
// Vectors of elements: any format to F32 and back, as numerics/codec.h defines them. Included once per SIMD target.
#if defined(FP8_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_LANES_INL_H
#undef FP8_LANES_INL_H
#else
#define FP8_LANES_INL_H
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "numerics/block.h"

HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using D16 = hn::Rebind<uint16_t, DF>;
using D8 = hn::Rebind<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using MI = hn::Mask<DI>;

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(DF())); }
HWY_INLINE VI Int(int32_t v) { return hn::Set(DI(), v); }
HWY_INLINE VI Bits(VF v) { return hn::BitCast(DI(), v); }
HWY_INLINE VF Float(VI v) { return hn::BitCast(DF(), v); }
HWY_INLINE VI Magnitude(VI bits) { return hn::And(bits, Int(0x7fffffff)); }
HWY_INLINE MI IsNan(VI magnitude) { return hn::Gt(magnitude, Int(0x7f800000)); }

// Formats by mantissa, bias and the magnitude from which everything is `top` after rounding.
struct LaneE4M3 {
  static constexpr int mantissa = 3, bias = 7, bits = 8;
  static constexpr int32_t saturated = 0x43e00000, unsaturated = 0x43f00000;  // 448; 480 = the NaN code
  static constexpr int32_t tie_to_zero = 0x3a800000, saturated_from = num::E4M3::saturated_from;
};
struct LaneE5M2 {
  static constexpr int mantissa = 2, bias = 15, bits = 8;
  static constexpr int32_t saturated = 0x47600000, unsaturated = 0x47800000;  // 57344; 65536 = the Inf code
  static constexpr int32_t tie_to_zero = 0x37000000, saturated_from = num::E5M2::saturated_from;
};
struct LaneF16 {
  static constexpr int mantissa = 10, bias = 15, bits = 16;
  static constexpr int32_t unsaturated = 0x47800000;
};

// Codes without NaN and sign. Adding 2^(e + 23 - mantissa) rounds to the format's last place at exponent e, to even;
// below the normal range the place stays that of e = 1 - bias, so subnormals need no case of their own.
template <class F>
HWY_INLINE VI EncodeMagnitude(VI magnitude, int32_t limit) {
  constexpr int drop = 23 - F::mantissa;
  constexpr int32_t low = (127 - F::bias + 1) << 23;
  const VI a = hn::Min(magnitude, Int(limit));
  const VI e = hn::Max(hn::And(a, Int(0x7f800000)), Int(low));
  const VF t = hn::Add(Float(a), Float(hn::Add(e, Int(drop << 23))));
  return hn::Add(hn::Sub(Bits(t), e), hn::Add(hn::ShiftRight<drop>(e), Int(-(drop << 23) - (low >> drop))));
}

template <class F>
HWY_INLINE VI Encode(VF v, int32_t limit) {
  const VI bits = Bits(v), a = Magnitude(bits);
  const VI sign = hn::And(hn::ShiftRight<32 - F::bits>(bits), Int(1 << (F::bits - 1)));
  const VI nan = Int(F::bits == 8 ? 0x7f : 0x7e00);
  return hn::IfThenElse(IsNan(a), nan, hn::Or(EncodeMagnitude<F>(a, limit), sign));
}

HWY_INLINE VI EncodeBf16(VF v) {
  const VI u = Bits(v);
  const VI odd = hn::And(hn::ShiftRight<16>(u), Int(1));
  const VI rounded = hn::And(hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, Int(0x7fff)))), Int(0xffff));
  return hn::IfThenElse(IsNan(Magnitude(u)), Int(0x7fc0), rounded);
}

// code (zero-extended) -> F32. Subnormals borrow an implicit one and give it back: no subnormal enters an operation.
template <class F>
HWY_INLINE VF Decode(VI code) {
  constexpr int drop = 23 - F::mantissa;
  constexpr int32_t low = (127 - F::bias + 1) << 23;
  const VI a = hn::And(code, Int((1 << (F::bits - 1)) - 1));
  const VI sign = hn::ShiftLeft<32 - F::bits>(hn::Sub(code, a));
  const MI sub = hn::Lt(a, Int(1 << F::mantissa));
  const VI base = hn::Add(hn::ShiftLeft<drop>(a), hn::IfThenElse(sub, Int(low), Int(low - (1 << 23))));
  VI r = Bits(hn::Sub(Float(base), Float(hn::IfThenElseZero(sub, Int(low)))));
  if (F::mantissa == 3) {
    r = hn::IfThenElse(hn::Eq(a, Int(0x7f)), Int(0x7fc00000), r);
  } else {
    const MI special = hn::Gt(a, Int((31 << F::mantissa) - 1));
    r = hn::IfThenElse(special, hn::Or(hn::ShiftLeft<drop>(a), Int(0x7f800000)), r);
  }
  return Float(hn::Or(r, sign));
}

HWY_INLINE VF Canonical(VF v) { return Float(hn::IfThenElse(IsNan(Magnitude(Bits(v))), Int(0x7fc00000), Bits(v))); }

template <int32_t T>
HWY_INLINE constexpr int64_t Size() {
  return T == num::kF32 ? 4 : T == num::kE4M3 || T == num::kE5M2 ? 1 : 2;
}

// Lanes() elements of format T as F32, exactly.
template <int32_t T>
HWY_INLINE VF Load(const void *p) {
  if constexpr (T == num::kF32) {
    return hn::LoadU(DF(), static_cast<const float *>(p));
  } else if constexpr (Size<T>() == 2) {
    const VI h = hn::PromoteTo(DI(), hn::LoadU(D16(), static_cast<const uint16_t *>(p)));
    if constexpr (T == num::kBF16) {
      return Float(hn::ShiftLeft<16>(h));
    } else {
      return Decode<LaneF16>(h);
    }
  } else {
    const VI c = hn::PromoteTo(DI(), hn::LoadU(D8(), static_cast<const uint8_t *>(p)));
    if constexpr (T == num::kE4M3) {
      return Decode<LaneE4M3>(c);
    } else {
      return Decode<LaneE5M2>(c);
    }
  }
}

// F32 to Lanes() elements of F32, F16 or BF16, one rounding.
template <int32_t T>
HWY_INLINE void Store(VF v, void *p) {
  if constexpr (T == num::kF32) {
    hn::StoreU(Canonical(v), DF(), static_cast<float *>(p));
  } else {
    const VI h = T == num::kBF16 ? EncodeBf16(v) : Encode<LaneF16>(v, LaneF16::unsaturated);
    hn::StoreU(hn::DemoteTo(D16(), h), D16(), static_cast<uint16_t *>(p));
  }
}

// body(pointer to Lanes() elements of T, index, count): whole vectors, then one copied tail whose rest is zero.
template <int32_t T, class Body>
HWY_INLINE void EachVector(const void *line, int64_t n, Body &&body) {
  const char *p = static_cast<const char *>(line);
  const int64_t lanes = Lanes();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(p + i * Size<T>(), i, lanes);
  if (i < n) {
    HWY_ALIGN char tail[HWY_MAX_BYTES] = {};
    std::memcpy(tail, p + i * Size<T>(), static_cast<size_t>((n - i) * Size<T>()));
    body(tail, i, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif  // FP8_LANES_INL_H
