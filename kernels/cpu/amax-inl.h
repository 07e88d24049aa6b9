// SPDX-License-Identifier: Apache-2.0
// Greatest magnitudes of a tile's rows and columns. Included once per SIMD target.
#if defined(FP8_AMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_AMAX_INL_H
#undef FP8_AMAX_INL_H
#else
#define FP8_AMAX_INL_H
#endif

#include <algorithm>

#include "cpu/lines-inl.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

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

constexpr int64_t kMostColumns = 1024;  // of a tile whose rows and columns are walked at once

// max of v over 128-bit blocks, in the lowest block
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<hn::TFromD<D>, 16 / sizeof(hn::TFromD<D>)>> FoldBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) {
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
      Ahead(x, r);
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

// Eight rows at a time, elements of 16 bits, whole segments of whole vectors. False: something is not finite.
template <int32_t T>
bool AmaxBothNarrow(const Tile &x, int64_t seg, int64_t group, float *rows, float *cols) {
  const hn::ScalableTag<int16_t> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), segs = x.cols / seg;
  HWY_ALIGN int16_t best[kMostColumns];
  V most = hn::Zero(d);
  const auto pair = [&](V a, V b)
                        HWY_ATTR { return hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  for (int64_t r0 = 0; r0 < x.rows; r0 += group, cols += x.cols) {
    std::fill(best, best + x.cols, int16_t{0});
    for (int64_t r = r0; r < std::min(x.rows, r0 + group); r += 8) {
      for (int k = 0; k < 8; ++k) Ahead(x, r + k);
      const int16_t *line = reinterpret_cast<const int16_t *>(Line(x, r));
      const int64_t stride = x.stride / 2;
      for (int64_t s = 0; s < segs; ++s) {
        V v[8] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d),
                  hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
        for (int64_t c = s * seg; c < s * seg + seg; c += lanes) {
          V down = hn::Load(d, best + c);
          for (int k = 0; k < 8; ++k) {
            const V a = RawMagnitude<T>(d, hn::LoadU(d, line + k * stride + c));
            v[k] = hn::Max(v[k], a);
            down = hn::Max(down, a);
          }
          hn::Store(down, d, best + c);
        }
        const V a = pair(pair(v[0], v[4]), pair(v[2], v[6])), b = pair(pair(v[1], v[5]), pair(v[3], v[7]));
        alignas(16) int16_t eight[8];
        hn::Store(FoldBlocks(d, pair(a, b)), hn::CappedTag<int16_t, 8>(), eight);
        for (int k = 0; k < 8; ++k) rows[(r + k) * segs + s] = Value<T>(eight[k]);
      }
    }
    for (int64_t c = 0; c < x.cols; c += lanes) most = hn::Max(most, hn::Load(d, best + c));
    for (int64_t c = 0; c < x.cols; ++c) cols[c] = Value<T>(best[c]);
  }
  return hn::AllTrue(d, hn::Lt(most, hn::Set(d, kInfBits<T>)));
}

bool AmaxBoth(const Tile &x, int64_t seg, int64_t group, float *rows, float *cols) {
  const int64_t lanes = 2 * Lanes();
  const bool whole = x.rows % 8 == 0 && (group % 8 == 0 || group >= x.rows) && seg % lanes == 0 && x.cols % seg == 0 &&
                     x.cols <= kMostColumns;
  if (whole && x.dtype == num::kBF16 && AmaxBothNarrow<num::kBF16>(x, seg, group, rows, cols)) return true;
  if (whole && x.dtype == num::kF16 && AmaxBothNarrow<num::kF16>(x, seg, group, rows, cols)) return true;
  const bool finite = AmaxRows(x, seg, rows);
  return AmaxCols(x, group, cols) && finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif
#endif  // FP8_AMAX_INL_H
