// SPDX-License-Identifier: Apache-2.0
// Per-target pieces of the blocked CPU GEMMs: decoding of operands into tiles of T (double or float) and the inner
// product of kMr rows with kNr columns. Included once per SIMD target.
#if defined(FP8_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_GEMM_TILE_INL_H
#undef FP8_GEMM_TILE_INL_H
#else
#define FP8_GEMM_TILE_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/gemm_common.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
constexpr int64_t kMr = 12;  // 24 accumulators of 32 registers
#elif HWY_TARGET == HWY_AVX2
constexpr int64_t kMr = 6;  // 12 of 16
#else
constexpr int64_t kMr = 4;
#endif
constexpr int64_t kMaxK = 256;  // longest segment handled at once

template <class T>
constexpr int64_t nr() {
  return 2 * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
}

// FP8 magnitudes by integers: no subnormal operand, whose multiplication is slow on some CPUs.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Fp8ToF32(D df, hn::Vec<hn::Rebind<uint32_t, D>> code, bool e4m3) {
  const hn::Rebind<uint32_t, D> du;
  const hn::Rebind<int32_t, D> di;
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80)));
  const auto mag = hn::And(code, hn::Set(du, 0x7f));
  const auto small = hn::ConvertTo(df, hn::BitCast(di, mag));
  V value;
  if (e4m3) {
    const auto normal = hn::BitCast(df, hn::Add(hn::ShiftLeft<20>(mag), hn::Set(du, 120u << 23)));
    value = hn::IfThenElse(hn::RebindMask(df, hn::Lt(hn::BitCast(di, mag), hn::Set(di, 8))),
                           hn::Mul(small, hn::Set(df, 0x1p-9f)), normal);
    value = hn::IfThenElse(hn::RebindMask(df, hn::Eq(mag, hn::Set(du, 0x7f))),
                           hn::BitCast(df, hn::Set(du, 0x7fc00000u)), value);
  } else {
    const auto normal = hn::BitCast(df, hn::Add(hn::ShiftLeft<21>(mag), hn::Set(du, 112u << 23)));
    value = hn::IfThenElse(hn::RebindMask(df, hn::Lt(hn::BitCast(di, mag), hn::Set(di, 4))),
                           hn::Mul(small, hn::Set(df, 0x1p-16f)), normal);
    const auto special = hn::Or(hn::Set(du, 0x7f800000u), hn::ShiftLeft<21>(hn::And(mag, hn::Set(du, 3))));
    value = hn::IfThenElse(hn::RebindMask(df, hn::Gt(hn::BitCast(di, mag), hn::Set(di, 0x7b))),
                           hn::BitCast(df, special), value);
  }
  return hn::BitCast(df, hn::Or(hn::BitCast(du, value), sign));
}

HWY_INLINE void StoreAs(const float *HWY_RESTRICT from, int64_t n, float *HWY_RESTRICT to) {
  std::copy(from, from + n, to);
}
HWY_INLINE void StoreAs(const float *HWY_RESTRICT from, int64_t n, double *HWY_RESTRICT to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

// n <= kMaxK elements at p (stride in elements) to out.
inline HWY_NOINLINE void DecodeF32(int32_t dtype, const void *p, int64_t stride, int64_t n, float *HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint32_t, decltype(df)> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  if (dtype == FP8_DTYPE_F32) {
    const float *x = static_cast<const float *>(p);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i * stride];
    return;
  }
  if (dtype == FP8_DTYPE_E4M3 || dtype == FP8_DTYPE_E5M2) {
    const hn::Rebind<uint8_t, decltype(df)> d8;
    HWY_ALIGN uint8_t packed[kMaxK + 64];
    const uint8_t *x = static_cast<const uint8_t *>(p);
    if (stride != 1) {
      for (int64_t i = 0; i < n; ++i) packed[i] = x[i * stride];
      x = packed;
    }
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(Fp8ToF32(df, hn::PromoteTo(du, hn::LoadU(d8, x + i)), dtype == FP8_DTYPE_E4M3), df, out + i);
    }
    if (i < n) {
      HWY_ALIGN uint8_t tail[64] = {};
      HWY_ALIGN float values[64];
      std::copy(x + i, x + n, tail);
      hn::Store(Fp8ToF32(df, hn::PromoteTo(du, hn::Load(d8, tail)), dtype == FP8_DTYPE_E4M3), df, values);
      std::copy(values, values + (n - i), out + i);
    }
    return;
  }
  const uint16_t *x = static_cast<const uint16_t *>(p);
  HWY_ALIGN uint32_t bits[kMaxK];
  if (dtype == FP8_DTYPE_BF16) {
    for (int64_t i = 0; i < n; ++i) bits[i] = static_cast<uint32_t>(x[i * stride]) << 16;
    std::memcpy(out, bits, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t h = x[i * stride], mag = h & 0x7fffu;
    const float small = static_cast<float>(static_cast<int32_t>(mag)) * 0x1p-24f;
    uint32_t small_bits;
    std::memcpy(&small_bits, &small, sizeof small);
    const uint32_t value = mag >= 0x7c00u  ? (0x7f800000u | (mag & 0x3ffu) << 13)
                           : mag >= 0x400u ? (mag << 13) + (112u << 23)
                                           : small_bits;
    bits[i] = value | (h & 0x8000u) << 16;
  }
  std::memcpy(out, bits, static_cast<size_t>(n) * sizeof(float));
}

HWY_INLINE int64_t ElementSize(int32_t dtype) {
  return dtype == FP8_DTYPE_F32 ? 4 : dtype == FP8_DTYPE_F16 || dtype == FP8_DTYPE_BF16 ? 2 : 1;
}

HWY_INLINE const void *At(const ops::Matrix &m, int64_t row, int64_t col) {
  return static_cast<const char *>(m.data) + (ops::row_offset(m, row) + col * m.col_stride) * ElementSize(m.dtype);
}

// values *= the scales of this row; k0 is a multiple of every tile, or kc stays inside one.
HWY_INLINE void FoldF32(const ops::Side &s, int64_t row, int64_t k0, int64_t kc, float *HWY_RESTRICT values) {
  const int64_t tile = scaled_at_end(s) ? kc : ops::tile_cols(s.scaling);
  for (int64_t k = 0; k < kc; k += tile) {
    float scale;
    load_scales(s, row, 1, k0 + k, &scale);
    const int64_t end = std::min(kc, k + tile);
    for (int64_t i = k; i < end; ++i) values[i] *= scale;
  }
}

// The operand's rows [row0, row0 + rows) x [k0, k0 + kc) as values; block scales multiplied in when fold.
template <class T>
HWY_INLINE void DecodeRow(const ops::Side &s, int64_t row, int64_t k0, int64_t kc, bool fold, T *HWY_RESTRICT out) {
  HWY_ALIGN float line[sizeof(T) == sizeof(float) ? 1 : kMaxK];
  float *values = sizeof(T) == sizeof(float) ? reinterpret_cast<float *>(out) : line;
  DecodeF32(s.codes.dtype, At(s.codes, row, k0), s.codes.col_stride, kc, values);
  if (fold && !scaled_at_end(s)) FoldF32(s, row, k0, kc, values);
  if (sizeof(T) != sizeof(float)) StoreAs(values, kc, out);
}

// a[rows rounded up to kMr][lda]: rows as they are, the rest zero.
template <class T>
HWY_INLINE void PackA(const ops::Side &s, int64_t row0, int64_t rows, int64_t k0, int64_t kc, bool fold, int64_t lda,
                      T *HWY_RESTRICT a) {
  for (int64_t r = 0; r < rows; ++r) DecodeRow(s, row0 + r, k0, kc, fold, a + r * lda);
  for (int64_t r = rows; r % kMr; ++r) std::fill_n(a + r * lda, kc, T(0));
}

// b[panel][kc][kNr]: the operand's rows are the product's columns, kNr to a panel, the rest zero.
template <class T>
HWY_INLINE void PackB(const ops::Side &s, int64_t row0, int64_t rows, int64_t k0, int64_t kc, bool fold,
                      T *HWY_RESTRICT b) {
  constexpr int64_t kNr = nr<T>();
  const ops::Matrix &m = s.codes;
  const bool down = m.col_stride != 1 && m.lead <= 1 && m.lead_stride[0] == 1 && unquantized(s);
  HWY_ALIGN T lines[kNr * 32];
  for (int64_t j = 0; j < rows; j += kNr, b += kc * kNr) {
    const int64_t count = std::min(kNr, rows - j);
    if (down) {  // consecutive rows lie side by side: no turning
      HWY_ALIGN float values[kMaxK];
      for (int64_t k = 0; k < kc; ++k) {
        DecodeF32(m.dtype, At(m, row0 + j, k0 + k), 1, count, values);
        StoreAs(values, count, b + k * kNr);
        for (int64_t c = count; c < kNr; ++c) b[k * kNr + c] = T(0);
      }
      continue;
    }
    for (int64_t k = 0; k < kc; k += 32) {
      const int64_t width = std::min<int64_t>(32, kc - k);
      for (int64_t c = 0; c < count; ++c) DecodeRow(s, row0 + j + c, k0 + k, width, fold, lines + c * 32);
      for (int64_t c = count; c < kNr; ++c) std::fill_n(lines + c * 32, width, T(0));
      for (int64_t w = 0; w < width; ++w) {
        for (int64_t c = 0; c < kNr; ++c) b[(k + w) * kNr + c] = lines[c * 32 + w];
      }
    }
  }
}

// out[kMr][ldo] (+)= a[kMr][lda] . b[kc][kNr], k increasing, one multiply-add a step.
template <class T>
HWY_NOINLINE void Micro(int64_t kc, const T *HWY_RESTRICT a, int64_t lda, const T *HWY_RESTRICT b, T *HWY_RESTRICT out,
                        int64_t ldo, bool add) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = nr<T>() / 2;
  hn::Vec<decltype(d)> c[kMr][2];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kMr; ++r) {
    c[r][0] = add ? hn::LoadU(d, out + r * ldo) : hn::Zero(d);
    c[r][1] = add ? hn::LoadU(d, out + r * ldo + kLanes) : hn::Zero(d);
  }
  for (int64_t k = 0; k < kc; ++k) {
    const auto b0 = hn::Load(d, b + k * 2 * kLanes);
    const auto b1 = hn::Load(d, b + k * 2 * kLanes + kLanes);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kMr; ++r) {
      const auto x = hn::Set(d, a[r * lda + k]);
      c[r][0] = hn::MulAdd(x, b0, c[r][0]);
      c[r][1] = hn::MulAdd(x, b1, c[r][1]);
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kMr; ++r) {
    hn::StoreU(c[r][0], d, out + r * ldo);
    hn::StoreU(c[r][1], d, out + r * ldo + kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
