// SPDX-License-Identifier: Apache-2.0
// What is counted and summed, and in which order: every backend gives these bits.
#pragma once
#include "numerics/scale.h"

namespace fp8::num {

// Tile of one scale in the side's own orientation; 0 = the whole extent.
FP8_HD int64_t scale_tile_rows(int32_t scaling) {
  return scaling == k128x128 ? 128 : scaling == k32x32 ? 32 : scaling == kTensor ? 0 : 1;
}
FP8_HD int64_t scale_tile_cols(int32_t scaling) {
  return scaling == k1x128 || scaling == k128x128 ? 128 : scaling == k1x32 || scaling == k32x32 ? 32 : 0;
}
// Scales of both sides are one: the column side's codes are the exact transpose of the row side's.
FP8_HD bool symmetric(int32_t scaling) { return scaling == kTensor || scaling == k128x128 || scaling == k32x32; }

// Statistics, exact integers. nonzero, underflow and saturated count finite x only.
constexpr int32_t kCount = 0, kNan = 1, kInf = 2, kNonzero = 3, kUnderflow = 4, kSaturated = 5, kStats = 8;

template <class F, class Int>
FP8_HD void count_element(float x, float multiplier, Int *stats) {
  const uint32_t a = bits_of(x) & kF32Abs;
  const float v = mul_rn(x, multiplier);
  const uint32_t va = bits_of(v) & kF32Abs;
  stats[kCount] += 1;
  stats[kNan] += a > kF32Inf;
  stats[kInf] += a == kF32Inf;
  stats[kNonzero] += a != 0 && a < kF32Inf;
  stats[kUnderflow] += a != 0 && a < kF32Inf && (encode<F>(v) & 0x7fu) == 0;
  stats[kSaturated] += a < kF32Inf && va >= F::saturated_from && va <= kF32Inf;
}

// dbias[c]: rows are cut into chunks of 128 from row 0. Within a chunk the column is summed in F32, sequentially from
// the chunk's first row, starting at +0. The chunks' sums are added in F64, sequentially from chunk 0, and rounded to
// F32 once; with accumulation, dbias = RN32(dbias + that). NaN is the canonical one. A thread may own a column of a
// chunk.
constexpr int64_t kDbiasChunk = 128;
FP8_HD float dbias_step(float sum, float x) { return add_rn(sum, x); }
FP8_HD double dbias_join(double sum, float chunk) { return add_rn64(sum, double(chunk)); }
FP8_HD float dbias_finish(double sum, bool accumulate, float before) {
  const float total = float(sum);
  return canonical(accumulate ? add_rn(before, total) : total);
}

// Measure: sums of x.x, e.e, x.x' and max |e| with e = x - x' in F64 (max ignores NaN). Tiles of 128 x 128 from the
// origin of the rows x cols matrix. In a tile each column is summed sequentially over its rows from 0; absent rows and
// columns add nothing; then the 128 column sums are joined by s[i] += s[i + h] for h = 64, 32, ... 1. Tiles of one band
// of rows are added sequentially from column 0, then the bands sequentially from row 0.
constexpr int64_t kMeasureTile = 128;
struct Sums {
  double xx, ee, xy, worst;
};
FP8_HD void measure_element(Sums *s, float x, float y) {
  const double e = add_rn64(double(x), -double(y));
  const double a = e < 0 ? -e : e;
  s->xx = add_rn64(s->xx, mul_rn64(x, x));
  s->ee = add_rn64(s->ee, mul_rn64(e, e));
  s->xy = add_rn64(s->xy, mul_rn64(x, y));
  if (a > s->worst) s->worst = a;
}
FP8_HD void measure_join(Sums *s, const Sums &t) {
  s->xx = add_rn64(s->xx, t.xx);
  s->ee = add_rn64(s->ee, t.ee);
  s->xy = add_rn64(s->xy, t.xy);
  if (t.worst > s->worst) s->worst = t.worst;
}

}  // namespace fp8::num
