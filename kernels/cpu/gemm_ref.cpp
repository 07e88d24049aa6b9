// SPDX-License-Identifier: Apache-2.0
// The oracle (S7). Products and partial sums of FP8 values are exact in FP64: E4M3 is a multiple of 2^-9 below 2^9, so
// 128 products stay below 2^43 units; E5M2 is a multiple of 2^-16 below 2^16, and a block whose values span more than
// 2^28 is cut at 1 into two operands whose sums are exact each and are added as integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_ref.cpp"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#include "hwy/foreach_target.h"
//
#include "cpu/gemm_tile-inl.h"

#ifndef FP8_GEMM_REF_ONCE
#define FP8_GEMM_REF_ONCE
namespace fp8::cpu {
constexpr int64_t kRefK = 128;  // K packed at a time: a multiple of every block
constexpr int64_t kRefRows = 96, kRefCols = 128;

// Scratch of one tile, at most mc x nc (multiples of 24 and 32).
struct RefScratch {
  double *a, *b, *low, *acc64;
  float *acc, *sa, *sb, *y;
  uint64_t bytes;
  RefScratch(const ops::Gemm &g, int64_t mc, int64_t nc, void *base) {
    const int64_t mp = (mc + 23) / 24 * 24, np = (nc + 31) / 32 * 32;
    const bool plain = unquantized(g.a), mixed = g.a.codes.dtype != g.b.codes.dtype && !plain;
    char *start = static_cast<char *>(base), *at = start;
    const auto take = [&](uint64_t count, uint64_t size) {
      void *piece = at;
      at += aligned_bytes(count * size);
      return piece;
    };
    a = static_cast<double *>(take(mp * kRefK, sizeof(double)));
    b = static_cast<double *>(take(np * kRefK, sizeof(double)));
    low = static_cast<double *>(take(mixed ? (mp > np ? mp : np) * kRefK : 0, sizeof(double)));
    acc64 = static_cast<double *>(take(plain ? mp * np : 0, sizeof(double)));
    acc = static_cast<float *>(take(plain ? 0 : mp * np, sizeof(float)));
    sa = static_cast<float *>(take(mp, sizeof(float)));
    sb = static_cast<float *>(take(np, sizeof(float)));
    y = static_cast<float *>(take(np, sizeof(float)));
    bytes = static_cast<uint64_t>(at - start);
  }
};
}  // namespace fp8::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kRefNr = nr<double>();

// Whether 128 products with E4M3 values may not be exact: the segment's finite nonzero E5M2 exponents differ by
// over 25.
bool WideE5m2(const ops::Side &s, int64_t row0, int64_t rows, int64_t k0, int64_t kc) {
  uint8_t most = 0, least = 0x7f;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t *x = static_cast<const uint8_t *>(At(s.codes, row0 + r, k0));
    const int64_t stride = s.codes.col_stride;
    for (int64_t k = 0; k < kc; ++k) {
      const uint8_t mag = x[k * stride] & 0x7f;
      const bool finite = mag < 0x7c;
      most = std::max<uint8_t>(most, finite ? mag : 0);
      least = std::min<uint8_t>(least, finite && mag ? mag : 0x7f);
    }
  }
  return (most >> 2) - std::max(least >> 2, 1) > 25;
}

// values = those of at least 1, Inf and NaN; low = the rest.
void CutAtOne(int64_t n, double *HWY_RESTRICT values, double *HWY_RESTRICT low) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = values[i];
    const bool small = v > -1.0 && v < 1.0;
    low[i] = small ? v : 0.0;
    values[i] = small ? 0.0 : v;
  }
}

// RN32 of the exact sum of two partial sums: integers of 2^-25 below 2^58.
float RoundedSum(double high, double low) {
  const double sum = high + low;
  if (!(sum > -0x1p40 && sum < 0x1p40)) return static_cast<float>(sum);  // Inf, NaN
  const int64_t units = static_cast<int64_t>(high * 0x1p25) + static_cast<int64_t>(low * 0x1p25);
  return static_cast<float>(units) * 0x1p-25f;
}

// acc[rows][ldc] = RN32(acc + RN32(RN32(p * sa) * sb)); without scales RN32(acc + p).
void AddBlock(int64_t rows, const double *HWY_RESTRICT p, const float *sa, const float *HWY_RESTRICT sb,
              float *HWY_RESTRICT acc, int64_t ldc, bool scaled) {
  for (int64_t r = 0; r < rows; ++r) {
    const double *from = p + r * kRefNr;
    float *to = acc + r * ldc;
    if (scaled) {
      const float s = sa[r];
      for (int64_t c = 0; c < kRefNr; ++c) to[c] = to[c] + (static_cast<float>(from[c]) * s) * sb[c];
    } else {
      for (int64_t c = 0; c < kRefNr; ++c) to[c] = to[c] + static_cast<float>(from[c]);
    }
  }
}

void RefTile(const ops::Gemm &g, int64_t i0, int64_t mc, int64_t j0, int64_t nc, void *scratch) {
  const RefScratch s(g, mc, nc, scratch);
  const int64_t k = g.a.codes.cols, kb = k_block(g), ldc = (nc + 31) / 32 * 32;
  const bool plain = unquantized(g.a), at_end = !plain && scaled_at_end(g.a) && scaled_at_end(g.b);
  const bool mixed = !plain && g.a.codes.dtype != g.b.codes.dtype;
  const bool a_is_e5m2 = mixed && g.a.codes.dtype == FP8_DTYPE_E5M2;
  const int64_t mp = (mc + kMr - 1) / kMr * kMr, np = (nc + kRefNr - 1) / kRefNr * kRefNr;
  HWY_ALIGN double p[kMr * kRefNr], p_low[kMr * kRefNr];
  if (!plain) std::fill_n(s.acc, mp * ldc, 0.0f);
  if (plain && k == 0) std::fill_n(s.acc64, mp * ldc, 0.0);
  for (int64_t k0 = 0; k0 < k; k0 += kRefK) {
    const int64_t kc = std::min(kRefK, k - k0);
    PackA(g.a, i0, mc, k0, kc, false, kRefK, s.a);
    PackB(g.b, j0, nc, k0, kc, false, s.b);
    if (plain) {
      for (int64_t j = 0; j < np; j += kRefNr) {
        for (int64_t i = 0; i < mp; i += kMr) {
          Micro(kc, s.a + i * kRefK, kRefK, s.b + j * kc, s.acc64 + i * ldc + j, ldc, k0 > 0);
        }
      }
      continue;
    }
    const bool wide = mixed && (a_is_e5m2 ? WideE5m2(g.a, i0, mc, k0, kc) : WideE5m2(g.b, j0, nc, k0, kc));
    if (wide && a_is_e5m2) {
      for (int64_t i = 0; i < mp; ++i) CutAtOne(kc, s.a + i * kRefK, s.low + i * kRefK);
    } else if (wide) {
      CutAtOne(np * kc, s.b, s.low);
    }
    for (int64_t sub = 0; sub < kc; sub += kb) {
      const int64_t n = std::min(kb, kc - sub);
      if (!at_end) {
        load_scales(g.a, i0, mc, k0 + sub, s.sa);
        load_scales(g.b, j0, nc, k0 + sub, s.sb);
        std::fill(s.sb + nc, s.sb + np, 0.0f);
      }
      for (int64_t j = 0; j < np; j += kRefNr) {
        for (int64_t i = 0; i < mp; i += kMr) {
          const int64_t at_a = i * kRefK + sub, at_b = j * kc + sub * kRefNr;
          Micro(n, s.a + at_a, kRefK, s.b + at_b, p, kRefNr, false);
          if (wide) {
            Micro(n, a_is_e5m2 ? s.low + at_a : s.a + at_a, kRefK, a_is_e5m2 ? s.b + at_b : s.low + at_b, p_low, kRefNr,
                  false);
            for (int64_t c = 0; c < kMr * kRefNr; ++c) p[c] = RoundedSum(p[c], p_low[c]);
          }
          AddBlock(std::min(kMr, mc - i), p, s.sa + i, s.sb + j, s.acc + i * ldc + j, ldc, !at_end);
        }
      }
    }
  }
  if (at_end && k > 0) {
    load_scales(g.a, i0, mc, 0, s.sa);
    load_scales(g.b, j0, nc, 0, s.sb);
  }
  for (int64_t i = 0; i < mc; ++i) {
    for (int64_t j = 0; j < nc; ++j) {
      s.y[j] = plain ? static_cast<float>(s.acc64[i * ldc + j]) : s.acc[i * ldc + j];
    }
    if (at_end && k > 0) {
      for (int64_t j = 0; j < nc; ++j) s.y[j] = s.y[j] * (s.sa[i] * s.sb[j]);
    }
    store_row(g, i0 + i, j0, nc, s.y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/simd_choose.h"

namespace fp8::cpu {

namespace {

TileFn ref_tile() { FP8_SIMD_CHOOSE(RefTile); }

}  // namespace

uint64_t gemm_ref_scratch(const ops::Gemm &g, int32_t threads) {
  const Tiles t = plan_tiles(g.d.rows, g.d.cols, kRefRows, kRefCols, threads);
  return t.parts ? t.parts * RefScratch(g, t.mc, t.nc, nullptr).bytes + kScratchAlign : 0;
}

void gemm_ref(const ops::Gemm &g, const GemmPool &pool, void *scratch) {
  const Tiles t = plan_tiles(g.d.rows, g.d.cols, kRefRows, kRefCols, pool.threads);
  if (t.parts) run_tiles(g, t, pool, ref_tile(), scratch, RefScratch(g, t.mc, t.nc, nullptr).bytes);
}

}  // namespace fp8::cpu
#endif
