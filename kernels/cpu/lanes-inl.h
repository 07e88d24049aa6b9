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

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128  // they lack shuffles; tile_plain.cpp serves there
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using D16 = hn::Rebind<uint16_t, DF>;
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
  } else {
    const VI h = hn::PromoteTo(DI(), hn::LoadU(D16(), static_cast<const uint16_t *>(p)));
    return T == num::kBF16 ? Float(hn::ShiftLeft<16>(h)) : Decode<LaneF16>(h);
  }
}

// 2 Lanes() elements go through as those of even and those of odd index: halves of a wider lane take no shuffle.
struct Pair {
  VF even, odd;
};

// 2 Lanes() codes, exactly: as BF16, which holds every one of them, in lanes of 16 bits. NaN is the canonical one.
template <int kMantissa>
HWY_INLINE Pair DecodePair(const uint8_t *p) {
  const DI di;
  const hn::Repartition<int16_t, DI> d;
  const hn::Repartition<uint8_t, DI> bytes;
  constexpr bool kE4m3 = kMantissa == 3;
  constexpr int16_t low = (kE4m3 ? 120 : 112) << 7, nan = kE4m3 ? 0x7f : 0x7d;
  // subnormals by table: low bytes of k = 0 ... 7, then high bytes
  alignas(16) static constexpr uint8_t kE4m3Table[16] = {0, 0,    0x80, 0xc0, 0,    0x20, 0x40, 0x60,
                                                         0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
  alignas(16) static constexpr uint8_t kE5m2Table[16] = {0, 0x80, 0, 0x40, 0, 0, 0, 0, 0, 0x37, 0x38, 0x38, 0, 0, 0, 0};
  const auto table = hn::LoadDup128(bytes, kE4m3 ? kE4m3Table : kE5m2Table);
  const auto c = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, decltype(d)>(), p));
  const auto a = hn::And(c, hn::Set(d, 0x7f)), sign = hn::ShiftLeft<8>(hn::Xor(c, a));
  const auto normal = hn::Add(hn::ShiftLeft<7 - kMantissa>(a), hn::Set(d, low));
  const auto index = hn::Or(hn::Or(a, hn::ShiftLeft<8>(a)), hn::Set(d, 0x0800));
  const auto small = hn::BitCast(d, hn::TableLookupBytes(table, hn::BitCast(bytes, index)));
  auto r = hn::IfThenElse(hn::Lt(a, hn::Set(d, 1 << kMantissa)), small, normal);
  if constexpr (!kE4m3) r = hn::IfThenElse(hn::Eq(a, hn::Set(d, 0x7c)), hn::Set(d, 0x7f80), r);
  r = hn::IfThenElse(hn::Gt(a, hn::Set(d, nan - 1)), hn::Set(d, 0x7fc0), hn::Or(r, sign));
  const VI w = hn::BitCast(di, r);
  return {Float(hn::ShiftLeft<16>(w)), Float(hn::And(w, Int(static_cast<int32_t>(0xffff0000u))))};
}

template <int32_t T>
HWY_INLINE Pair LoadPair(const void *p) {
  const DI di;
  const int32_t *words = static_cast<const int32_t *>(p);
  if constexpr (T == num::kF32) {
    const DF df;
    const VF a = hn::LoadU(df, static_cast<const float *>(p)),
             b = hn::LoadU(df, static_cast<const float *>(p) + Lanes());
    return {hn::ConcatEven(df, b, a), hn::ConcatOdd(df, b, a)};
  } else if constexpr (T == num::kBF16) {
    const VI w = hn::LoadU(di, words);
    return {Float(hn::ShiftLeft<16>(w)), Float(hn::And(w, Int(static_cast<int32_t>(0xffff0000u))))};
  } else if constexpr (T == num::kF16) {
    const VI w = hn::LoadU(di, words);
    const hn::RebindToUnsigned<DI> du;
    return {Decode<LaneF16>(hn::And(w, Int(0xffff))),
            Decode<LaneF16>(hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, w))))};
  } else {
    return DecodePair < T == num::kE4M3 ? 3 : 2 > (static_cast<const uint8_t *>(p));
  }
}

template <class F>
HWY_INLINE void StoreCodes(Pair v, int32_t limit, uint8_t *q) {
  const VI codes = hn::Or(Encode<F>(v.even, limit), hn::ShiftLeft<8>(Encode<F>(v.odd, limit)));
  hn::StoreU(hn::DemoteTo(D16(), codes), D16(), reinterpret_cast<uint16_t *>(q));
}

// Codes of magnitudes that are finite and don't round beyond the largest: EncodeMagnitude's sum, of which the low byte
// is right. The rounding constant's mantissa carries the bias between exponents; it is even, so ties still go to even.
template <class F>
HWY_INLINE VI EncodeTame(VF magnitude) {
  constexpr int drop = 23 - F::mantissa;
  constexpr int32_t low = (127 - F::bias + 1) << 23, shift = -(low >> drop) & 0xff;
  static_assert(shift % 2 == 0, "ties to even");
  const VI e = hn::Max(hn::And(Bits(magnitude), Int(0x7f800000)), Int(low));
  const VF t = hn::Add(magnitude, Float(hn::Add(e, Int((drop << 23) + shift))));
  return hn::Add(Bits(t), hn::ShiftRight<drop>(e));
}

// x * f for finite x, as codes. Signs and bytes of a pair are handled together.
template <int32_t T, class F>
HWY_INLINE void CastTame(const void *p, Pair f, uint8_t *q) {
  const DI di;
  Pair a;
  VI sign;  // at bits 7 and 23
  if constexpr (T == num::kF32) {
    const Pair x = LoadPair<T>(p);
    sign = hn::Or(hn::And(hn::ShiftRight<24>(Bits(x.even)), Int(0x80)),
                  hn::And(hn::ShiftRight<8>(Bits(x.odd)), Int(0x800000)));
    a = {Float(Magnitude(Bits(x.even))), Float(Magnitude(Bits(x.odd)))};
  } else {
    const VI w = hn::LoadU(di, static_cast<const int32_t *>(p)), m = hn::And(w, Int(0x7fff7fff));
    sign = hn::And(hn::ShiftRight<8>(w), Int(0x00800080));
    if constexpr (T == num::kBF16) {
      a = {Float(hn::ShiftLeft<16>(m)), Float(hn::And(m, Int(0x7fff0000)))};
    } else {
      a = {Decode<LaneF16>(hn::And(m, Int(0x7fff))), Decode<LaneF16>(hn::ShiftRight<16>(m))};
    }
  }
  const hn::Repartition<uint16_t, DI> d16;
  const VI even = EncodeTame<F>(hn::Mul(a.even, f.even)), odd = EncodeTame<F>(hn::Mul(a.odd, f.odd));
  const auto both = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(odd)), hn::BitCast(d16, even));
  const VI codes = hn::Or(hn::And(hn::BitCast(di, both), Int(0x007f007f)), sign);
  const hn::Repartition<int16_t, DI> di16;
  const hn::Rebind<uint8_t, decltype(di16)> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di16, codes)), d8, q);
}

// x * 2^k for BF16 x in lanes of 16 bits: the exponents are moved by `base`, and the rounding is that of an integer,
// whose half but one is in `base` already. False: a multiplier that isn't such a power, or one that makes subnormals of
// BF16 normal.
template <class F>
constexpr int16_t kHalf = (1 << (6 - F::mantissa)) - 1;
template <class F>
constexpr int32_t kNarrowBias = 254 - F::bias;
template <class F>
HWY_INLINE bool NarrowBase(float m, int16_t *base) {
  const uint32_t u = num::bits_of(m), e = u >> 23;
  const int32_t b = kNarrowBias<F> - static_cast<int32_t>(e);
  *base = static_cast<int16_t>(b * 128 - kHalf<F>);
  return (u & 0x7fffffu) == 0 && e > 0 && b >= 0;
}

using D16I = hn::Repartition<int16_t, DI>;
using V16 = hn::Vec<D16I>;

// Codes of 16-bit lanes, without sign; *distance: as unsigned small for a result that is subnormal.
template <class F>
HWY_INLINE V16 NarrowCode(V16 w, V16 base, V16 *distance) {
  const D16I d;
  constexpr int drop = 7 - F::mantissa;
  const V16 t = hn::Sub(hn::And(w, hn::Set(d, 0x7fff)), base);
  *distance = hn::Add(t, hn::Set(d, 128 * F::mantissa - 1 - kHalf<F>));  // up to half of the least subnormal: zero
  const V16 u = hn::Max(t, hn::Set(d, kHalf<F>));
  // ties to even; elsewhere one more in the last place changes nothing
  const V16 odd = hn::And(hn::ShiftRight<drop>(u), hn::Set(d, 1));
  return hn::ShiftRight<drop>(hn::Add(u, odd));
}

// Both vectors' lanes, of 0 ... 255, one after the other.
HWY_INLINE void StoreBytes(V16 a, V16 b, uint8_t *q) {
#if HWY_TARGET == HWY_AVX2
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(a.raw, b.raw), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), packed);
#elif HWY_TARGET == HWY_AVX3
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  _mm512_storeu_si512(q, _mm512_permutexvar_epi64(order, _mm512_packus_epi16(a.raw, b.raw)));
#else
  const hn::Rebind<uint8_t, D16I> d8;
  hn::StoreU(hn::DemoteTo(d8, a), d8, q);
  hn::StoreU(hn::DemoteTo(d8, b), d8, q + 2 * Lanes());
#endif
}

// The codes of 4 Lanes() elements as CastTame makes them; false, and nothing written, where one is subnormal.
template <class F>
HWY_INLINE bool CastNarrow(const void *p, V16 base_a, V16 base_b, uint8_t *q) {
  const D16I d;
  const hn::RebindToUnsigned<D16I> du;
  const int16_t *x = static_cast<const int16_t *>(p);
  const V16 a = hn::LoadU(d, x), b = hn::LoadU(d, x + 2 * Lanes()), sign = hn::Set(d, 0x80);
  V16 near_a, near_b;
  const V16 codes_a = NarrowCode<F>(a, base_a, &near_a), codes_b = NarrowCode<F>(b, base_b, &near_b);
  const auto nearest = hn::Min(hn::BitCast(du, near_a), hn::BitCast(du, near_b));
  const auto most = hn::Set(du, 128 * F::mantissa + 127);
  if (HWY_UNLIKELY(!hn::AllTrue(du, hn::Eq(hn::Max(nearest, most), nearest)))) return false;
  StoreBytes(hn::OrAnd(codes_a, hn::ShiftRight<8>(a), sign), hn::OrAnd(codes_b, hn::ShiftRight<8>(b), sign), q);
  return true;
}

// What is known of a code's scale. kFinite: finite and above zero, so the only NaN is that of a code; kExact: a power
// of two that leaves every code's product exact in BF16.
enum class ScaleIs { kAny, kFinite, kExact };

HWY_INLINE ScaleIs Classify(float s) {
  const uint32_t u = num::bits_of(s);
  if (u == 0 || u >= num::kF32Inf) return ScaleIs::kAny;
  return (u & 0x7fffffu) == 0 && u >= (17u << 23) ? ScaleIs::kExact : ScaleIs::kFinite;
}

HWY_INLINE VI RoundBf16(VF v) {  // upper half; not for any NaN but the canonical one
  const VI u = Bits(v);
  return hn::Add(u, hn::Add(hn::And(hn::ShiftRight<16>(u), Int(1)), Int(0x7fff)));
}

// One rounding to F32, F16 or BF16.
template <int32_t T, ScaleIs kScale>
HWY_INLINE void StorePair(Pair v, void *p) {
  const DI di;
  if constexpr (T == num::kF32) {
    if constexpr (kScale == ScaleIs::kAny) v = {Canonical(v.even), Canonical(v.odd)};
    hn::StoreInterleaved2(v.even, v.odd, DF(), static_cast<float *>(p));
  } else if constexpr (T == num::kBF16 && kScale != ScaleIs::kAny) {
    const hn::RebindToUnsigned<DI> du;
    const VI even = kScale == ScaleIs::kExact ? Bits(v.even) : RoundBf16(v.even);
    const VI odd = kScale == ScaleIs::kExact ? Bits(v.odd) : RoundBf16(v.odd);
    const VI low = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, even)));
    hn::StoreU(hn::Or(low, hn::And(odd, Int(static_cast<int32_t>(0xffff0000u)))), di, static_cast<int32_t *>(p));
  } else {
    const VI even = T == num::kBF16 ? EncodeBf16(v.even) : Encode<LaneF16>(v.even, LaneF16::unsaturated);
    const VI odd = T == num::kBF16 ? EncodeBf16(v.odd) : Encode<LaneF16>(v.odd, LaneF16::unsaturated);
    hn::StoreU(hn::Or(even, hn::ShiftLeft<16>(odd)), di, static_cast<int32_t *>(p));
  }
}

// body(pointer to 2 Lanes() elements of T, index, count): whole pairs, then one copied tail whose rest is zero.
template <int32_t T, class Body>
HWY_INLINE void EachPair(const void *line, int64_t n, Body &&body) {
  const char *p = static_cast<const char *>(line);
  const int64_t step = 2 * Lanes();
  int64_t i = 0;
  for (; i + step <= n; i += step) body(p + i * Size<T>(), i, step);
  if (i < n) {
    HWY_ALIGN char tail[2 * HWY_MAX_BYTES] = {};
    std::memcpy(tail, p + i * Size<T>(), static_cast<size_t>((n - i) * Size<T>()));
    body(tail, i, n - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif
#endif  // FP8_LANES_INL_H
