// SPDX-License-Identifier: Apache-2.0
// Tiles to codes, and what is counted on the way. Included once per SIMD target.
#if defined(FP8_CAST_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_CAST_INL_H
#undef FP8_CAST_INL_H
#else
#define FP8_CAST_INL_H
#endif

#include <algorithm>

#include "cpu/lines-inl.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

// g(integral_constant<dtype of values>, format of codes)
template <class G>
HWY_INLINE void EachFormat(int32_t values, int32_t codes, G &&g) {
  ForValues(values, [&](auto t) { ForCodes(codes, [&](auto u) { g(t, Format<decltype(u)::value>()); }); });
}
// g(as above, whether kTame, the magnitude that all beyond it becomes)
template <class G>
HWY_INLINE void EachRange(int32_t values, int32_t codes, Range range, G &&g) {
  EachFormat(values, codes, [&](auto t, auto f) {
    using F = decltype(f);
    const int32_t limit = range == Range::kOverflow ? F::unsaturated : F::saturated;
    if (range == Range::kTame) {
      g(t, f, std::true_type(), limit);
    } else {
      g(t, f, std::false_type(), limit);
    }
  });
}

// kTame apart: with one loop for both the compiler makes constants anew in each round.
template <int32_t T, class F, bool kPerColumn, bool kTame>
HWY_INLINE void CastLine(const char *line, int64_t n, const float *m, int32_t limit, uint8_t *q) {
  EachPair<T>(line, n, [&](const char *p, int64_t i, int64_t count) HWY_ATTR {
    const Pair f = Factor<kPerColumn>(m, i);
    HWY_ALIGN uint8_t rest[HWY_MAX_BYTES];
    uint8_t *to = count == 2 * Lanes() ? q + i : rest;
    if constexpr (kTame) {
      CastTame<T, F>(p, f, to);
    } else {
      const Pair x = LoadPair<T>(p);
      StoreCodes<F>({hn::Mul(x.even, f.even), hn::Mul(x.odd, f.odd)}, limit, to);
    }
    if (count != 2 * Lanes()) std::memcpy(q + i, rest, static_cast<size_t>(count));
  });
}

// Apart, so that its constants take no registers from the loops that seldom call it.
template <class F, bool kPerColumn>
HWY_NOINLINE void CastRest(const char *p, int64_t n, const float *m, uint8_t *q) {
  if constexpr (kPerColumn) {
    const Paired paired(m, n);
    CastLine<num::kBF16, F, true, true>(p, n, paired.m, 0, q);
  } else {
    CastLine<num::kBF16, F, false, true>(p, n, m, 0, q);
  }
}

// BF16 by powers of two, one a column.
template <class F>
HWY_INLINE void CastLineNarrow(const char *line, int64_t n, const float *m, const int16_t *base, uint8_t *q) {
  const D16I d;
  const int64_t half = 2 * Lanes(), step = 2 * half;
  int64_t i = 0;
  for (; i + step <= n; i += step) {
    const char *p = line + i * 2;
    if (HWY_UNLIKELY(!CastNarrow<F>(p, hn::LoadU(d, base + i), hn::LoadU(d, base + i + half), q + i)))
      CastRest<F, true>(p, step, m + i, q + i);
  }
  if (i < n) CastRest<F, true>(line + i * 2, n - i, m + i, q + i);
}

// Whole segments of 1 << shift columns, at least 32, or one segment a row: one loop a row.
template <class F>
void CastRowsNarrow(const Tile &x, int64_t segs, int shift, const float *m, const int16_t *base, uint8_t *q,
                    int64_t stride) {
  const D16I d;
  const int64_t half = 2 * Lanes(), step = 2 * half;
  const auto seg = [&](int64_t i) { return i >> shift; };
  for (int64_t r = 0; r < x.rows; ++r, q += stride, base += segs, m += segs) {
    const char *line = Line(x, r);
    Ahead(x, r);
    int64_t i = 0;
    for (; i + step <= x.cols; i += step) {
      const int64_t a = seg(i), b = seg(i + half);
      if (HWY_UNLIKELY(!CastNarrow<F>(line + i * 2, hn::Set(d, base[a]), hn::Set(d, base[b]), q + i))) {
        CastRest<F, false>(line + i * 2, half, m + a, q + i);
        CastRest<F, false>(line + (i + half) * 2, half, m + b, q + i + half);
      }
    }
    if (i < x.cols) CastRest<F, false>(line + i * 2, x.cols - i, m + seg(i), q + i);  // half of it, of one segment
  }
}

template <class F>
bool AllNarrow(const float *m, int64_t n, int16_t *base) {
  const DI di;
  const hn::Rebind<int16_t, DI> d16;
  VI fraction = hn::Zero(di), below = fraction;
  int64_t i = 0;
  for (; i + Lanes() <= n; i += Lanes()) {  // NarrowBase
    const VI u = Bits(hn::LoadU(DF(), m + i)), e = hn::ShiftRight<23>(u), b = hn::Sub(Int(kNarrowBias<F>), e);
    fraction = hn::Or(fraction, u);
    below = hn::Or(below, hn::Or(hn::Sub(e, Int(1)), b));
    hn::StoreU(hn::DemoteTo(d16, hn::Sub(hn::ShiftLeft<7>(b), Int(kHalf<F>))), d16, base + i);
  }
  const VI wrong = hn::Or(hn::And(fraction, Int(0x7fffff)), hn::ShiftRight<31>(below));
  bool narrow = hn::AllTrue(di, hn::Eq(wrong, hn::Zero(di)));
  for (; i < n; ++i) narrow &= NarrowBase<F>(m[i], base + i);
  return narrow;
}

template <int32_t T, class F, bool kTame>
void CastRowsAs(const Tile &x, int32_t limit, int64_t seg, const float *m, uint8_t *q, int64_t stride) {
  if constexpr (T == num::kBF16 && kTame) {
    int16_t base[kWideElements / 32];
    const int64_t segs = Pieces(x.cols, seg), n = x.rows * segs;
    if ((segs == 1 || ((seg == 32 || seg == 128) && x.cols % seg == 0)) && n <= kWideElements / 32 &&
        2 * Lanes() <= 32 && AllNarrow<F>(m, n, base)) {
      CastRowsNarrow<F>(x, segs, segs == 1 ? 62 : seg == 32 ? 5 : 7, m, base, q, stride);
      return;
    }
  }
  EachSegment(x.rows, x.cols, seg, m, [&](int64_t r, int64_t c, int64_t n, const float *one) {
    if (c == 0) Ahead(x, r);
    CastLine<T, F, false, kTame>(Line(x, r) + c * Size<T>(), n, one, limit, q + r * stride + c);
  });
}

void CastRows(const Tile &x, int32_t dtype, Range range, int64_t seg, const float *m, uint8_t *q, int64_t stride) {
  EachRange(x.dtype, dtype, range, [&](auto t, auto f, auto tame, int32_t limit) {
    CastRowsAs<decltype(t)::value, decltype(f), decltype(tame)::value>(x, limit, seg, m, q, stride);
  });
}

template <int32_t T, class F, bool kTame>
void CastColsAs(const Tile &x, int32_t limit, int64_t group, const float *m, uint8_t *q, int64_t stride) {
  if constexpr (T == num::kBF16 && kTame) {
    int16_t base[kWideElements / 32];
    const int64_t n = Pieces(x.rows, group) * x.cols;
    if (n <= kWideElements / 32 && AllNarrow<F>(m, n, base)) {
      for (int64_t r = 0; r < x.rows; ++r) {
        Ahead(x, r);
        const int64_t first = r / group * x.cols;
        CastLineNarrow<F>(Line(x, r), x.cols, m + first, base + first, q + r * stride);
      }
      return;
    }
  }
  EachGroup(x.rows, x.cols, group, m, [&](int64_t r, const float *paired) {
    Ahead(x, r);
    CastLine<T, F, true, kTame>(Line(x, r), x.cols, paired, limit, q + r * stride);
  });
}

void CastCols(const Tile &x, int32_t dtype, Range range, int64_t group, const float *m, uint8_t *q, int64_t stride) {
  EachRange(x.dtype, dtype, range, [&](auto t, auto f, auto tame, int32_t limit) {
    CastColsAs<decltype(t)::value, decltype(f), decltype(tame)::value>(x, limit, group, m, q, stride);
  });
}

template <class F>
HWY_INLINE void CountVector(VF x, VF factor, uint64_t *stats) {
  const DI di;
  const VI inf = Int(0x7f800000), zero = hn::Zero(di);
  const VI a = Magnitude(Bits(x)), v = Magnitude(Bits(hn::Mul(x, factor)));
  const MI finite = hn::Lt(a, inf), nonzero = hn::And(finite, hn::Gt(a, zero));
  const MI small = hn::Lt(v, Int(F::tie_to_zero + 1));
  const MI large = hn::And(hn::Gt(v, Int(F::saturated_from - 1)), hn::Lt(v, Int(0x7f800001)));
  stats[num::kNan] += hn::CountTrue(di, hn::Gt(a, inf));
  stats[num::kInf] += hn::CountTrue(di, hn::Eq(a, inf));
  stats[num::kNonzero] += hn::CountTrue(di, nonzero);
  stats[num::kUnderflow] += hn::CountTrue(di, hn::And(nonzero, small));
  stats[num::kSaturated] += hn::CountTrue(di, hn::And(finite, large));
}

template <int32_t T, class F, bool kPerColumn>
HWY_INLINE void CountLine(const char *line, int64_t n, const float *m, uint64_t *stats) {
  stats[num::kCount] += static_cast<uint64_t>(n);
  EachPair<T>(line, n, [&](const char *p, int64_t i, int64_t) HWY_ATTR {  // the tail's rest is zero: not counted
    const Pair x = LoadPair<T>(p), f = Factor<kPerColumn>(m, i);
    CountVector<F>(x.even, f.even, stats);
    CountVector<F>(x.odd, f.odd, stats);
  });
}

void CountRows(const Tile &x, int32_t dtype, int64_t seg, const float *m, uint64_t *stats) {
  EachFormat(x.dtype, dtype, [&](auto t, auto f) {
    constexpr int32_t T = decltype(t)::value;
    EachSegment(x.rows, x.cols, seg, m, [&](int64_t r, int64_t c, int64_t n, const float *one) {
      CountLine<T, decltype(f), false>(Line(x, r) + c * Size<T>(), n, one, stats);
    });
  });
}

void CountCols(const Tile &x, int32_t dtype, int64_t group, const float *m, uint64_t *stats) {
  EachFormat(x.dtype, dtype, [&](auto t, auto f) {
    EachGroup(x.rows, x.cols, group, m, [&](int64_t r, const float *paired) {
      CountLine<decltype(t)::value, decltype(f), true>(Line(x, r), x.cols, paired, stats);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif
#endif  // FP8_CAST_INL_H
