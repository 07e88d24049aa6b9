// SPDX-License-Identifier: Apache-2.0
// Tile functions, once per SIMD target. tile_plain.cpp is the definition.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_simd.cpp"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "cpu/lanes-inl.h"
#include "cpu/tile.h"
#include "hwy/cache_control.h"

// the scalar target is tile_plain.cpp
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE const char *Line(const Tile &t, int64_t r) { return static_cast<const char *>(t.data) + r * t.stride; }
HWY_INLINE int64_t Pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

HWY_INLINE void Ahead(const Tile &x, int64_t r, int64_t bytes) {
  for (int64_t i = 0; i < x.ahead; i += 64) hwy::Prefetch(Line(x, r) + bytes + i);
}

// f(integral_constant<dtype>)
template <class F>
HWY_INLINE void ForValues(int32_t dtype, F &&f) {
  if (dtype == num::kF32) {
    f(std::integral_constant<int32_t, num::kF32>());
  } else if (dtype == num::kBF16) {
    f(std::integral_constant<int32_t, num::kBF16>());
  } else {
    f(std::integral_constant<int32_t, num::kF16>());
  }
}
template <class F>
HWY_INLINE void ForCodes(int32_t dtype, F &&f) {
  if (dtype == num::kE4M3) {
    f(std::integral_constant<int32_t, num::kE4M3>());
  } else {
    f(std::integral_constant<int32_t, num::kE5M2>());
  }
}
template <int32_t T>
using Format = std::conditional_t<T == num::kE4M3, LaneE4M3, LaneE5M2>;

// Magnitudes compare as integers of the element's own width; NaN counts as zero.
template <int32_t T>
using Raw = std::conditional_t<T == num::kF32, int32_t, int16_t>;
template <int32_t T>
constexpr Raw<T> kInfBits = T == num::kF32    ? 0x7f800000
                            : T == num::kBF16 ? 0x7f80
                                              : 0x7c00;
template <int32_t T>
constexpr Raw<T> kAbsBits = T == num::kF32 ? 0x7fffffff : 0x7fff;

template <int32_t T>
HWY_INLINE float Value(Raw<T> bits) {
  return num::load(T, &bits, 0);
}

template <int32_t T, class D>
HWY_INLINE hn::Vec<D> RawMagnitude(D d, hn::Vec<D> v) {
  return hn::And(v, hn::Set(d, kAbsBits<T>));
}
template <int32_t T>
HWY_INLINE Raw<T> RawAt(const char *line, int64_t i) {
  return reinterpret_cast<const Raw<T> *>(line)[i] & kAbsBits<T>;
}

// max of v over 128-bit blocks, in the lowest block
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 4>> FoldBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return FoldBlocks(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    (void)d;
    return v;
  }
}

// Greatest magnitudes of n elements as one vector of 32-bit lanes; n is a multiple of a vector's. NaN is the greatest.
template <int32_t T>
HWY_INLINE VI RawMax(const char *line, int64_t n) {
  const hn::ScalableTag<Raw<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Raw<T> *p = reinterpret_cast<const Raw<T> *>(line);
  auto a = RawMagnitude<T>(d, hn::LoadU(d, p)), b = a;
  int64_t i = lanes;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Max(a, RawMagnitude<T>(d, hn::LoadU(d, p + i)));
    b = hn::Max(b, RawMagnitude<T>(d, hn::LoadU(d, p + i + lanes)));
  }
  if (i < n) a = hn::Max(a, RawMagnitude<T>(d, hn::LoadU(d, p + i)));
  a = hn::Max(a, b);
  if constexpr (T == num::kF32) {
    return a;
  } else {  // adjacent halves
    const VI w = hn::BitCast(DI(), a);
    return hn::Max(hn::ShiftRight<16>(w), hn::And(w, Int(0xffff)));
  }
}

// Four of RawMax's vectors to their four maxima.
HWY_INLINE void MaxOfFour(VI a, VI b, VI c, VI d, int32_t *out) {
  const DI di;
  const hn::Repartition<int64_t, DI> d64;
  const VI ab = hn::Max(hn::InterleaveLower(di, a, b), hn::InterleaveUpper(di, a, b));
  const VI cd = hn::Max(hn::InterleaveLower(di, c, d), hn::InterleaveUpper(di, c, d));
  const auto low = hn::InterleaveLower(d64, hn::BitCast(d64, ab), hn::BitCast(d64, cd));
  const auto high = hn::InterleaveUpper(d64, hn::BitCast(d64, ab), hn::BitCast(d64, cd));
  const hn::CappedTag<int32_t, 4> d4;
  hn::StoreU(FoldBlocks(di, hn::Max(hn::BitCast(di, low), hn::BitCast(di, high))), d4, out);
}

// Any length; NaN ignored.
template <int32_t T>
float AmaxLine(const char *line, int64_t n, bool *finite) {
  Raw<T> most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Raw<T> v = RawAt<T>(line, i);
    if (v >= kInfBits<T>) *finite = false;
    if (v <= kInfBits<T> && v > most) most = v;
  }
  return Value<T>(most);
}

bool AmaxRows(const Tile &x, int64_t seg, float *amax) {
  const int64_t segs = Pieces(x.cols, seg);
  bool finite = true;
  ForValues(x.dtype, [&](auto t) {
    constexpr int32_t T = decltype(t)::value;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Raw<T>>()));
    auto exact = [&](const char *line, int64_t n, const VI &v) HWY_ATTR {  // one segment, whose whole vectors gave v
      const int64_t whole = n / lanes * lanes;
      const Raw<T> most = whole ? static_cast<Raw<T>>(hn::GetLane(hn::MaxOfLanes(DI(), v))) : Raw<T>(0);
      if (most >= kInfBits<T>) return AmaxLine<T>(line, n, &finite);
      return std::max(Value<T>(most), AmaxLine<T>(line + whole * Size<T>(), n - whole, &finite));
    };
    for (int64_t r = 0; r < x.rows; ++r, amax += segs) {
      Ahead(x, r, x.cols * Size<T>());
      const char *line = Line(x, r);
      int64_t s = 0;
      for (; (s + 4) * seg <= x.cols && seg % lanes == 0; s += 4) {
        const char *p = line + s * seg * Size<T>();
        const int64_t step = seg * Size<T>();
        int32_t four[4];
        MaxOfFour(RawMax<T>(p, seg), RawMax<T>(p + step, seg), RawMax<T>(p + 2 * step, seg),
                  RawMax<T>(p + 3 * step, seg), four);
        for (int k = 0; k < 4; ++k)
          amax[s + k] =
              four[k] < kInfBits<T> ? Value<T>(static_cast<Raw<T>>(four[k])) : AmaxLine<T>(p + k * step, seg, &finite);
      }
      for (; s < segs; ++s) {
        const int64_t n = std::min(seg, x.cols - s * seg);
        const char *p = line + s * seg * Size<T>();
        amax[s] = exact(p, n, n >= lanes ? RawMax<T>(p, n / lanes * lanes) : Int(0));
      }
    }
  });
  return finite;
}

bool AmaxCols(const Tile &x, int64_t group, float *amax) {
  bool finite = true;
  ForValues(x.dtype, [&](auto t) {
    constexpr int32_t T = decltype(t)::value;
    const hn::ScalableTag<Raw<T>> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    HWY_ALIGN Raw<T> best[HWY_MAX_BYTES / sizeof(Raw<T>)];
    for (int64_t r0 = 0; r0 < x.rows; r0 += group, amax += x.cols) {
      const int64_t end = std::min(x.rows, r0 + group);
      auto exact = [&](int64_t c) HWY_ATTR {
        Raw<T> most = 0;
        for (int64_t r = r0; r < end; ++r) {
          const Raw<T> v = RawAt<T>(Line(x, r), c);
          if (v >= kInfBits<T>) finite = false;
          if (v <= kInfBits<T> && v > most) most = v;
        }
        return Value<T>(most);
      };
      int64_t c = 0;
      for (; c + lanes <= x.cols; c += lanes) {
        auto a = hn::Zero(d);
        for (int64_t r = r0; r < end; ++r)
          a = hn::Max(a, RawMagnitude<T>(d, hn::LoadU(d, reinterpret_cast<const Raw<T> *>(Line(x, r)) + c)));
        hn::Store(a, d, best);
        for (int64_t i = 0; i < lanes; ++i) amax[c + i] = best[i] < kInfBits<T> ? Value<T>(best[i]) : exact(c + i);
      }
      for (; c < x.cols; ++c) amax[c] = exact(c);
    }
  });
  return finite;
}

// Multipliers of a line: one for all, or one a column, there laid out as pairs are (Paired).
template <bool kPerColumn>
HWY_INLINE Pair Factor(const float *m, int64_t i) {
  const DF df;
  if constexpr (kPerColumn) {
    return {hn::LoadU(df, m + i), hn::LoadU(df, m + i + Lanes())};
  } else {
    const VF one = hn::Set(df, *m);
    return {one, one};
  }
}

// Column multipliers in the order of pairs: of each 2 Lanes() the even ones first; the last block is filled up.
struct Paired {
  HWY_ALIGN float m[kTileElements / kTile + 2 * HWY_MAX_BYTES];
  Paired(const float *from, int64_t cols) {
    const int64_t lanes = Lanes();
    for (int64_t i = 0; i < cols; i += 2 * lanes)
      for (int64_t k = 0; k < lanes; ++k) {
        m[i + k] = i + 2 * k < cols ? from[i + 2 * k] : 0;
        m[i + lanes + k] = i + 2 * k + 1 < cols ? from[i + 2 * k + 1] : 0;
      }
  }
};

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

// line(row, first column, columns, multipliers) over rows and their segments
template <class Line>
HWY_INLINE void EachSegment(int64_t rows, int64_t cols, int64_t seg, const float *m, Line &&line) {
  const int64_t segs = Pieces(cols, seg);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < segs; ++s) line(r, s * seg, std::min(seg, cols - s * seg), m + r * segs + s);
}
// line(row, multipliers in pairs): groups of rows share them
template <class Line>
HWY_INLINE void EachGroup(int64_t rows, int64_t cols, int64_t group, const float *m, Line &&line) {
  for (int64_t r0 = 0; r0 < rows; r0 += group, m += cols) {
    const Paired paired(m, cols);
    for (int64_t r = r0; r < std::min(rows, r0 + group); ++r) line(r, paired.m);
  }
}

template <int32_t T, class F, bool kTame>
void CastRowsAs(const Tile &x, int32_t limit, int64_t seg, const float *m, uint8_t *q, int64_t stride) {
  EachSegment(x.rows, x.cols, seg, m, [&](int64_t r, int64_t c, int64_t n, const float *one) {
    if (c == 0) Ahead(x, r, x.cols * Size<T>());
    CastLine<T, F, false, kTame>(Line(x, r) + c * Size<T>(), n, one, limit, q + r * stride + c);
  });
}

void CastRows(const Tile &x, int32_t dtype, Range range, int64_t seg, const float *m, uint8_t *q, int64_t stride) {
  ForValues(x.dtype, [&](auto t) {
    ForCodes(dtype, [&](auto u) {
      constexpr int32_t T = decltype(t)::value;
      using F = Format<decltype(u)::value>;
      const int32_t limit = range == Range::kOverflow ? F::unsaturated : F::saturated;
      (range == Range::kTame ? CastRowsAs<T, F, true> : CastRowsAs<T, F, false>)(x, limit, seg, m, q, stride);
    });
  });
}

template <int32_t T, class F, bool kTame>
void CastColsAs(const Tile &x, int32_t limit, int64_t group, const float *m, uint8_t *q, int64_t stride) {
  EachGroup(x.rows, x.cols, group, m, [&](int64_t r, const float *paired) {
    CastLine<T, F, true, kTame>(Line(x, r), x.cols, paired, limit, q + r * stride);
  });
}

void CastCols(const Tile &x, int32_t dtype, Range range, int64_t group, const float *m, uint8_t *q, int64_t stride) {
  ForValues(x.dtype, [&](auto t) {
    ForCodes(dtype, [&](auto u) {
      constexpr int32_t T = decltype(t)::value;
      using F = Format<decltype(u)::value>;
      const int32_t limit = range == Range::kOverflow ? F::unsaturated : F::saturated;
      (range == Range::kTame ? CastColsAs<T, F, true> : CastColsAs<T, F, false>)(x, limit, group, m, q, stride);
    });
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
  ForValues(x.dtype, [&](auto t) {
    ForCodes(dtype, [&](auto u) {
      constexpr int32_t T = decltype(t)::value;
      using F = Format<decltype(u)::value>;
      EachSegment(x.rows, x.cols, seg, m, [&](int64_t r, int64_t c, int64_t n, const float *one) {
        CountLine<T, F, false>(Line(x, r) + c * Size<T>(), n, one, stats);
      });
    });
  });
}

void CountCols(const Tile &x, int32_t dtype, int64_t group, const float *m, uint64_t *stats) {
  ForValues(x.dtype, [&](auto t) {
    ForCodes(dtype, [&](auto u) {
      using F = Format<decltype(u)::value>;
      EachGroup(x.rows, x.cols, group, m, [&](int64_t r, const float *paired) {
        CountLine<decltype(t)::value, F, true>(Line(x, r), x.cols, paired, stats);
      });
    });
  });
}

void AddCols(const Tile &x, float *sums) {
  const DF df;
  ForValues(x.dtype, [&](auto t) {
    constexpr int32_t T = decltype(t)::value;
    int64_t c = 0;
    for (; c + Lanes() <= x.cols; c += Lanes()) {
      VF sum = hn::LoadU(df, sums + c);
      for (int64_t r = 0; r < x.rows; ++r) sum = hn::Add(sum, Load<T>(Line(x, r) + c * Size<T>()));
      hn::StoreU(sum, df, sums + c);
    }
    for (; c < x.cols; ++c)
      for (int64_t r = 0; r < x.rows; ++r) sums[c] = num::dbias_step(sums[c], num::load(T, Line(x, r), c));
  });
}

template <int32_t C, int32_t T, bool kPerColumn>
HWY_INLINE void DecodeLine(const char *line, int64_t n, const float *s, char *out) {
  EachPair<C>(line, n, [&](const char *p, int64_t i, int64_t count) HWY_ATTR {
    const Pair x = LoadPair<C>(p), f = Factor<kPerColumn>(s, i);
    const Pair v = {hn::Mul(x.even, f.even), hn::Mul(x.odd, f.odd)};
    if (count == 2 * Lanes()) {
      StorePair<T>(v, out + i * Size<T>());
    } else {
      HWY_ALIGN char rest[2 * HWY_MAX_BYTES];
      StorePair<T>(v, rest);
      std::memcpy(out + i * Size<T>(), rest, static_cast<size_t>(count * Size<T>()));
    }
  });
}

void DecodeRows(const Tile &q, int64_t seg, const float *s, int32_t dtype, void *out, int64_t stride) {
  ForCodes(q.dtype, [&](auto k) {
    ForValues(dtype, [&](auto t) {
      constexpr int32_t T = decltype(t)::value;
      EachSegment(q.rows, q.cols, seg, s, [&](int64_t r, int64_t c, int64_t n, const float *one) {
        DecodeLine<decltype(k)::value, T, false>(Line(q, r) + c, n, one,
                                                 static_cast<char *>(out) + r * stride + c * Size<T>());
      });
    });
  });
}

void DecodeCols(const Tile &q, int64_t group, const float *s, int32_t dtype, void *out, int64_t stride) {
  ForCodes(q.dtype, [&](auto k) {
    ForValues(dtype, [&](auto t) {
      EachGroup(q.rows, q.cols, group, s, [&](int64_t r, const float *paired) {
        DecodeLine<decltype(k)::value, decltype(t)::value, true>(Line(q, r), q.cols, paired,
                                                                 static_cast<char *>(out) + r * stride);
      });
    });
  });
}

// 16 x 16 bytes: four rounds of interleaving row i with row i + 8.
HWY_INLINE void Transpose16(const uint8_t *src, int64_t src_stride, uint8_t *dst, int64_t dst_stride) {
  const hn::CappedTag<uint8_t, 16> d;
  hn::Vec<decltype(d)> a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = hn::LoadU(d, src + i * src_stride);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = hn::InterleaveLower(d, a[i], a[i + 8]);
      b[2 * i + 1] = hn::InterleaveUpper(d, a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = hn::InterleaveLower(d, b[i], b[i + 8]);
      a[2 * i + 1] = hn::InterleaveUpper(d, b[i], b[i + 8]);
    }
  }
  for (int i = 0; i < 16; ++i) hn::StoreU(a[i], d, dst + i * dst_stride);
}

void Transpose(const uint8_t *src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t *dst, int64_t dst_stride) {
  const int64_t r16 = rows / 16 * 16, c16 = cols / 16 * 16;
  for (int64_t c = 0; c < c16; c += 16)
    for (int64_t r = 0; r < r16; r += 16)
      Transpose16(src + r * src_stride + c, src_stride, dst + c * dst_stride + r, dst_stride);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = c < c16 ? r16 : 0; r < rows; ++r) dst[c * dst_stride + r] = src[r * src_stride + c];
}

void CopyOut(const void *src, int64_t src_stride, int64_t rows, int64_t bytes, void *dst, int64_t dst_stride,
             bool stream) {
  const hn::CappedTag<uint8_t, 16> d;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t *from = static_cast<const uint8_t *>(src) + r * src_stride;
    uint8_t *to = static_cast<uint8_t *>(dst) + r * dst_stride;
    int64_t i = 0;
    if (stream && reinterpret_cast<uintptr_t>(to) % 16 == 0)
      for (; i + 16 <= bytes; i += 16) hn::Stream(hn::LoadU(d, from + i), d, to + i);
    std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
  }
  if (stream) hwy::FlushStream();
}

#if HWY_TARGET == HWY_AVX3
constexpr const char *kName = "avx512";
#elif HWY_TARGET == HWY_AVX2
constexpr const char *kName = "avx2";
#elif HWY_TARGET == HWY_SSE4
constexpr const char *kName = "sse4";
#else
constexpr const char *kName = "baseline";
#endif

const TileOps *Table() {
  static const TileOps ops = {kName,     AmaxRows, AmaxCols,  CastRows, CastCols,   CountRows,
                              CountCols, AddCols,  Transpose, CopyOut,  DecodeRows, DecodeCols};
  return &ops;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace fp8::cpu {

const TileOps &tile_ops() {
  switch (simd()) {
#if HWY_TARGETS & HWY_AVX3
    case Simd::kAvx512:
      return *N_AVX3::Table();
#endif
#if HWY_TARGETS & HWY_AVX2
    case Simd::kAvx2:
      return *N_AVX2::Table();
#endif
#if HWY_TARGETS & HWY_SSE4
    case Simd::kSse4:
      return *N_SSE4::Table();
#endif
    default:
#if HWY_STATIC_TARGET == HWY_SCALAR || HWY_STATIC_TARGET == HWY_EMU128
      return *plain_ops();
#else
      return *HWY_STATIC_DISPATCH(Table)();
#endif
  }
}

}  // namespace fp8::cpu
#endif
