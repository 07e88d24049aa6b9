// SPDX-License-Identifier: Apache-2.0
// The FP32 GEMM that needs nothing but this library: the last resort.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_portable.cpp"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#include "hwy/foreach_target.h"
//
#include "cpu/gemm_tile-inl.h"

#ifndef FP8_GEMM_PORTABLE_ONCE
#define FP8_GEMM_PORTABLE_ONCE
namespace fp8::cpu {
constexpr int64_t kPortableK = 256, kPortableRows = 192, kPortableCols = 192;

struct PortableScratch {
  float *a, *b, *acc, *sa, *sb;
  uint64_t bytes;
  PortableScratch(int64_t mc, int64_t nc, void *base) {
    const int64_t mp = (mc + 23) / 24 * 24, np = (nc + 31) / 32 * 32;
    char *start = static_cast<char *>(base), *at = start;
    const auto take = [&](uint64_t count) {
      void *piece = at;
      at += aligned_bytes(count * sizeof(float));
      return static_cast<float *>(piece);
    };
    a = take(mp * kPortableK);
    b = take(np * kPortableK);
    acc = take(mp * np);
    sa = take(mp);
    sb = take(np);
    bytes = static_cast<uint64_t>(at - start);
  }
};
}  // namespace fp8::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

void PortableTile(const ops::Gemm &g, int64_t i0, int64_t mc, int64_t j0, int64_t nc, void *scratch) {
  constexpr int64_t kNr = nr<float>();
  const PortableScratch s(mc, nc, scratch);
  const int64_t k = g.a.codes.cols, ldc = (nc + 31) / 32 * 32;
  const int64_t mp = (mc + kMr - 1) / kMr * kMr, np = (nc + kNr - 1) / kNr * kNr;
  if (k == 0) std::fill_n(s.acc, mp * ldc, 0.0f);
  for (int64_t k0 = 0; k0 < k; k0 += kPortableK) {
    const int64_t kc = std::min(kPortableK, k - k0);
    PackA(g.a, i0, mc, k0, kc, true, kPortableK, s.a);
    PackB(g.b, j0, nc, k0, kc, true, s.b);
    for (int64_t j = 0; j < np; j += kNr) {
      for (int64_t i = 0; i < mp; i += kMr) {
        Micro(kc, s.a + i * kPortableK, kPortableK, s.b + j * kc, s.acc + i * ldc + j, ldc, k0 > 0);
      }
    }
  }
  const bool at_end = !unquantized(g.a) && scaled_at_end(g.a) && scaled_at_end(g.b) && k > 0;
  if (at_end) {
    load_scales(g.a, i0, mc, 0, s.sa);
    load_scales(g.b, j0, nc, 0, s.sb);
  }
  for (int64_t i = 0; i < mc; ++i) {
    float *y = s.acc + i * ldc;
    if (at_end) {
      const float scale = s.sa[i];
      for (int64_t j = 0; j < nc; ++j) y[j] = y[j] * (scale * s.sb[j]);
    }
    store_row(g, i0 + i, j0, nc, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/simd_choose.h"

namespace fp8::cpu {

namespace {

TileFn portable_tile() { FP8_SIMD_CHOOSE(PortableTile); }

}  // namespace

uint64_t gemm_portable_scratch(const ops::Gemm &g, int32_t threads) {
  const Tiles t = plan_tiles(g.d.rows, g.d.cols, kPortableRows, kPortableCols, threads);
  return t.parts ? t.parts * PortableScratch(t.mc, t.nc, nullptr).bytes + kScratchAlign : 0;
}

void gemm_portable(const ops::Gemm &g, const GemmPool &pool, void *scratch) {
  const Tiles t = plan_tiles(g.d.rows, g.d.cols, kPortableRows, kPortableCols, pool.threads);
  if (t.parts) run_tiles(g, t, pool, portable_tile(), scratch, PortableScratch(t.mc, t.nc, nullptr).bytes);
}

}  // namespace fp8::cpu
#endif
