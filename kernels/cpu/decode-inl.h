// SPDX-License-Identifier: Apache-2.0
// Codes and values to values. Included once per SIMD target.
#if defined(FP8_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_DECODE_INL_H
#undef FP8_DECODE_INL_H
#else
#define FP8_DECODE_INL_H
#endif

#include <algorithm>

#include "cpu/lines-inl.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

template <int32_t C, int32_t T, bool kPerColumn, ScaleIs kScale>
HWY_INLINE void DecodeLine(const char *line, int64_t n, const float *s, char *out) {
  EachPair<C>(line, n, [&](const char *p, int64_t i, int64_t count) HWY_ATTR {
    const Pair x = LoadPair<C>(p), f = Factor<kPerColumn>(s, i);
    HWY_ALIGN char rest[2 * HWY_MAX_BYTES];
    char *to = count == 2 * Lanes() ? out + i * Size<T>() : rest;
    StorePair<T, kScale>({hn::Mul(x.even, f.even), hn::Mul(x.odd, f.odd)}, to);
    if (count != 2 * Lanes()) std::memcpy(out + i * Size<T>(), rest, static_cast<size_t>(count * Size<T>()));
  });
}

template <int32_t C, int32_t T, bool kPerColumn>
HWY_INLINE void DecodeLineAs(ScaleIs scale, const char *line, int64_t n, const float *s, char *out) {
  if (scale == ScaleIs::kAny || T == num::kF16) {
    DecodeLine<C, T, kPerColumn, ScaleIs::kAny>(line, n, s, out);
  } else if (scale == ScaleIs::kFinite || T == num::kF32) {
    DecodeLine<C, T, kPerColumn, ScaleIs::kFinite>(line, n, s, out);
  } else {
    DecodeLine<C, T, kPerColumn, ScaleIs::kExact>(line, n, s, out);
  }
}

template <int32_t C, int32_t T>
void DecodeRowsAs(const Tile &q, int64_t seg, const float *s, char *out, int64_t stride) {
  EachSegment(q.rows, q.cols, seg, s, [&](int64_t r, int64_t c, int64_t n, const float *one) {
    DecodeLineAs<C, T, false>(Classify(*one), Line(q, r) + c, n, one, out + r * stride + c * Size<T>());
  });
}

template <int32_t C, int32_t T>
void DecodeColsAs(const Tile &q, int64_t group, const float *s, char *out, int64_t stride) {
  ScaleIs scale = ScaleIs::kExact;
  for (int64_t i = 0; i < Pieces(q.rows, group) * q.cols; ++i) scale = std::min(scale, Classify(s[i]));
  EachGroup(q.rows, q.cols, group, s, [&](int64_t r, const float *paired) {
    DecodeLineAs<C, T, true>(scale, Line(q, r), q.cols, paired, out + r * stride);
  });
}

template <int32_t X, int32_t T>
void ConvertAs(const Tile &x, float m, char *out, int64_t stride) {
  for (int64_t r = 0; r < x.rows; ++r) DecodeLine<X, T, false, ScaleIs::kAny>(Line(x, r), x.cols, &m, out + r * stride);
}

void Convert(const Tile &x, float m, int32_t dtype, void *out, int64_t stride) {
  ForValues(x.dtype, [&](auto from) {
    ForValues(dtype, [&](auto to) {
      ConvertAs<decltype(from)::value, decltype(to)::value>(x, m, static_cast<char *>(out), stride);
    });
  });
}

void DecodeRows(const Tile &q, int64_t seg, const float *s, int32_t dtype, void *out, int64_t stride) {
  ForCodes(q.dtype, [&](auto c) {
    ForValues(dtype, [&](auto t) {
      DecodeRowsAs<decltype(c)::value, decltype(t)::value>(q, seg, s, static_cast<char *>(out), stride);
    });
  });
}

void DecodeCols(const Tile &q, int64_t group, const float *s, int32_t dtype, void *out, int64_t stride) {
  ForCodes(q.dtype, [&](auto c) {
    ForValues(dtype, [&](auto t) {
      DecodeColsAs<decltype(c)::value, decltype(t)::value>(q, group, s, static_cast<char *>(out), stride);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif
#endif  // FP8_DECODE_INL_H
