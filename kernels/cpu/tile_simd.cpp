// SPDX-License-Identifier: Apache-2.0
// The tables of tile functions, one per SIMD target. tile_plain.cpp is the definition.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile_simd.cpp"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#include "hwy/foreach_target.h"
//
#include "cpu/amax-inl.h"
#include "cpu/cast-inl.h"
#include "cpu/decode-inl.h"
#include "cpu/scales-inl.h"
#include "cpu/tile.h"

// the scalar target is tile_plain.cpp
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

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
  static const TileOps ops = {kName,     AmaxRows, AmaxCols,  AmaxBoth, Scales,  CastRows,   CastCols,  CountRows,
                              CountCols, AddCols,  Transpose, CopyOut,  Convert, DecodeRows, DecodeCols};
  return &ops;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#else
namespace fp8::cpu {
namespace HWY_NAMESPACE {
const TileOps *Table() { return plain_ops(); }
}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
#endif

#if HWY_ONCE
#include "cpu/simd_choose.h"

namespace fp8::cpu {

static decltype(&plain_ops) table() { FP8_SIMD_CHOOSE(Table); }
const TileOps &tile_ops() { return *table()(); }

}  // namespace fp8::cpu
#endif
