// SPDX-License-Identifier: Apache-2.0
// How the tile functions walk: by dtype, by rows and segments, by groups of rows; and the moves of bytes. Included once
// per SIMD target.
#if defined(FP8_LINES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_LINES_INL_H
#undef FP8_LINES_INL_H
#else
#define FP8_LINES_INL_H
#endif

#include <algorithm>

#include "cpu/lanes-inl.h"
#include "cpu/tile.h"
#include "hwy/cache_control.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE const char *Line(const Tile &t, int64_t r) { return static_cast<const char *>(t.data) + r * t.stride; }
HWY_INLINE int64_t Pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

HWY_INLINE void Ahead(const Tile &x, int64_t r) {
  if (r >= x.ahead_rows) return;
  const char *p = x.ahead + r * x.ahead_stride;
  for (int64_t i = 0; i < x.ahead_bytes; i += 64) hwy::Prefetch(p + i);
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
  HWY_ALIGN float m[kWideElements / kTile + 2 * HWY_MAX_BYTES];
  Paired(const float *from, int64_t cols) {
    const int64_t lanes = Lanes();
    for (int64_t i = 0; i < cols; i += 2 * lanes)
      for (int64_t k = 0; k < lanes; ++k) {
        m[i + k] = i + 2 * k < cols ? from[i + 2 * k] : 0;
        m[i + lanes + k] = i + 2 * k + 1 < cols ? from[i + 2 * k + 1] : 0;
      }
  }
};

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
  const hn::CappedTag<uint8_t, 64> wide;  // whole lines leave the core at once
  const hn::CappedTag<uint8_t, 16> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t *from = static_cast<const uint8_t *>(src) + r * src_stride;
    uint8_t *to = static_cast<uint8_t *>(dst) + r * dst_stride;
    int64_t i = 0;
    if (stream && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      if (reinterpret_cast<uintptr_t>(to) % 64 == 0)
        for (; i + step <= bytes; i += step) hn::Stream(hn::LoadU(wide, from + i), wide, to + i);
      for (; i + 16 <= bytes; i += 16) hn::Stream(hn::LoadU(d, from + i), d, to + i);
    }
    std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif
#endif  // FP8_LINES_INL_H
