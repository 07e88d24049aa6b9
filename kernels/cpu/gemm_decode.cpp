// SPDX-License-Identifier: Apache-2.0
// FP8 (and 16-bit) operands as FP32 or BF16, plain or in blocked layouts. FP8 to BF16 with a power-of-two scale is
// integer work on the exponent; a block whose scale leaves BF16's normal range passes only if all its codes are zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_decode.cpp"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#include "hwy/foreach_target.h"
//
#include "cpu/gemm_tile-inl.h"

#ifndef FP8_GEMM_DECODE_ONCE
#define FP8_GEMM_DECODE_ONCE
namespace fp8::cpu {
constexpr int64_t kDecodeRows = 64;  // rows of a part; block_rows is at most this
struct DecodeJob {
  const ops::Side *side;
  const DecodeTo *to;
  int64_t rows_step, parts_k;
  std::atomic<bool> outside;
};
}  // namespace fp8::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

// BF16 of code * 2^e, exact while every nonzero value is normal. mag < first_normal goes through a table of 8.
HWY_INLINE void DecodeBf16(bool e4m3, const uint8_t *HWY_RESTRICT x, int64_t n, int32_t e, uint16_t *HWY_RESTRICT out) {
  const hn::ScalableTag<uint16_t> d;
  const hn::Rebind<int16_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint16_t shift = static_cast<uint16_t>(e * 128);
  // BF16 of 0 .. 7 units: 2^-9 (E4M3), 2^-16 (E5M2)
  HWY_ALIGN static const uint16_t kSmall[2][8] = {{0, 0x3780, 0x3800, 0x3840, 0x3880, 0x38a0, 0x38c0, 0x38e0},
                                                  {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60}};
  HWY_ALIGN static const uint16_t kNotZero[8] = {0, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff};
#if HWY_TARGET != HWY_SCALAR
  const auto table = hn::Add(hn::LoadDup128(d, kSmall[e4m3]), hn::And(hn::LoadDup128(d, kNotZero), hn::Set(d, shift)));
#endif
  const uint16_t bias = static_cast<uint16_t>(((e4m3 ? 120 : 112) << 7) + shift);
  const auto one = [&](hn::Vec<decltype(d)> code) HWY_ATTR {
    const auto mag = hn::And(code, hn::Set(d, 0x7f));
    const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d, 0x80)));
    auto value = hn::Add(e4m3 ? hn::ShiftLeft<4>(mag) : hn::ShiftLeft<5>(mag), hn::Set(d, bias));
#if HWY_TARGET == HWY_SCALAR
    const uint16_t units = hn::GetLane(mag) & 7;
    const auto low = hn::Set(d, static_cast<uint16_t>(kSmall[e4m3][units] + (shift & kNotZero[units])));
#else
    const hn::Rebind<uint8_t, hn::Repartition<uint8_t, decltype(d)> > db;
    const auto index = hn::Add(hn::Add(mag, mag), hn::ShiftLeft<8>(hn::Add(hn::Add(mag, mag), hn::Set(d, 1))));
    const auto low = hn::BitCast(
        d, hn::TableLookupBytes(hn::BitCast(db, table), hn::BitCast(db, hn::And(index, hn::Set(d, 0x0f0f)))));
#endif
    const auto is_low = hn::RebindMask(d, hn::Lt(hn::BitCast(di, mag), hn::Set(di, e4m3 ? 8 : 4)));
    value = hn::IfThenElse(is_low, low, value);
    const auto last = hn::Set(di, e4m3 ? 0x7e : 0x7b);
    const auto special = hn::RebindMask(d, hn::Gt(hn::BitCast(di, mag), last));
    const auto name =
        e4m3 ? hn::Set(d, 0x7fc0) : hn::Or(hn::Set(d, 0x7f80), hn::ShiftLeft<5>(hn::And(mag, hn::Set(d, 3))));
    value = hn::IfThenElse(special, name, value);
    return hn::Or(value, sign);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(one(hn::PromoteTo(d, hn::LoadU(d8, x + i))), d, out + i);
  if (i < n) {
    HWY_ALIGN uint8_t tail[64] = {};
    HWY_ALIGN uint16_t values[64];
    std::copy(x + i, x + n, tail);
    hn::Store(one(hn::PromoteTo(d, hn::Load(d8, tail))), d, values);
    std::copy(values, values + (n - i), out + i);
  }
}

constexpr int32_t kNoExponent = 1000;  // of a NaN
constexpr int32_t LowestExponent(bool e4m3) { return e4m3 ? -117 : -110; }
constexpr int32_t HighestExponent(bool e4m3) { return e4m3 ? 119 : 112; }

// The exponent of a folded scale; false where BF16 would not be exact for every code.
HWY_INLINE bool Exponent(float scale, bool e4m3, int32_t *e) {
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof bits);
  *e = scale == scale ? static_cast<int32_t>(bits >> 23) - 127 : kNoExponent;
  return (bits & 0x807fffffu) == 0 && *e >= LowestExponent(e4m3) && *e <= HighestExponent(e4m3);
}

// kc <= kDecodeK values of one row from k0 (a multiple of every tile) on. False: outside the window.
HWY_INLINE bool RowBf16(const ops::Side &s, int64_t row, int64_t k0, int64_t kc, bool fold,
                        uint16_t *HWY_RESTRICT out) {
  const bool e4m3 = s.codes.dtype == FP8_DTYPE_E4M3;
  const uint8_t *x = static_cast<const uint8_t *>(At(s.codes, row, k0));
  HWY_ALIGN uint8_t packed[kDecodeK];
  if (s.codes.col_stride != 1) {
    for (int64_t k = 0; k < kc; ++k) packed[k] = x[k * s.codes.col_stride];
    x = packed;
  }
  if (!fold) {
    DecodeBf16(e4m3, x, kc, 0, out);
    return true;
  }
  const int64_t tile_k = ops::tile_cols(s.scaling), tile_r = ops::tile_rows(s.scaling);
  const int64_t tile = tile_k ? tile_k : kDecodeK;
  int64_t at = (tile_r ? row / tile_r : 0) * s.scale.row_stride + (tile_k ? k0 / tile_k : 0) * s.scale.col_stride;
  for (int64_t k = 0; k < kc; k += tile, at += s.scale.col_stride) {
    const int64_t n = std::min(tile, kc - k);
    int32_t e;
    bool ok;
    if (s.scale.dtype == FP8_DTYPE_F32) {
      ok = Exponent(static_cast<const float *>(s.scale.data)[at], e4m3, &e);
    } else {
      const uint8_t code = static_cast<const uint8_t *>(s.scale.data)[at];
      e = code == 255 ? kNoExponent : code - 127;
      ok = e >= LowestExponent(e4m3) && e <= HighestExponent(e4m3);
    }
    if (!ok) {
      uint8_t any = 0;
      for (int64_t i = 0; i < n; ++i) any |= x[k + i] & 0x7f;
      if (any || e == kNoExponent) return false;
      e = 0;
    }
    DecodeBf16(e4m3, x + k, n, e, out + k);
  }
  return true;
}

// to[w * rows + r] = from[r * width + w]: 32-bit words, rows and width multiples of 4 or handled one by one.
HWY_INLINE void Turn(const uint32_t *HWY_RESTRICT from, int64_t rows, int64_t width, int64_t from_stride,
                     uint32_t *HWY_RESTRICT to) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<uint32_t> d;
  const hn::Full128<uint64_t> d64;
  if (width % 4 == 0) {
    for (; r + 4 <= rows; r += 4) {
      const uint32_t *x = from + r * from_stride;
      for (int64_t w = 0; w < width; w += 4) {
        const auto a = hn::LoadU(d, x + w), b = hn::LoadU(d, x + from_stride + w);
        const auto c = hn::LoadU(d, x + 2 * from_stride + w), e = hn::LoadU(d, x + 3 * from_stride + w);
        const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)),
                   ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
        const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)),
                   ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
        uint32_t *y = to + w * rows + r;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab0, ce0)), d, y);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab0, ce0)), d, y + rows);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab1, ce1)), d, y + 2 * rows);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab1, ce1)), d, y + 3 * rows);
      }
    }
  }
#endif
  for (; r < rows; ++r) {
    for (int64_t w = 0; w < width; ++w) to[w * rows + r] = from[r * from_stride + w];
  }
}

// Rows [row0, row0 + rows) x k [k0, k0 + kc).
bool DecodePart(const ops::Side &s, const DecodeTo &to, int64_t row0, int64_t rows, int64_t k0, int64_t kc) {
  const bool half = to.dtype == FP8_DTYPE_BF16;
  if (to.block_rows == 0) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = (row0 + r) * to.row_stride + k0;
      if (half) {
        if (!RowBf16(s, row0 + r, k0, kc, to.fold, static_cast<uint16_t *>(to.data) + at)) return false;
      } else {
        DecodeRow(s, row0 + r, k0, kc, false, static_cast<float *>(to.data) + at);
        if (to.fold && !unquantized(s)) FoldF32(s, row0 + r, k0, kc, static_cast<float *>(to.data) + at);
      }
    }
    return true;
  }
  // lines: the part's rows one after another, kDecodeK elements apart, zero beyond the operand
  HWY_ALIGN uint32_t lines[kDecodeRows * kDecodeK];
  const int64_t words = half ? 2 : 1, line = kDecodeK / words;
  const int64_t k_blocks = (kc + to.block_k - 1) / to.block_k;
  for (int64_t r = 0; r < to.block_rows; ++r) {
    uint32_t *at = lines + r * line;
    if (r >= rows) {
      std::fill_n(at, k_blocks * to.block_k / words, 0u);
      continue;
    }
    if (kc < k_blocks * to.block_k) std::fill(at + kc / words, at + k_blocks * to.block_k / words, 0u);
    if (half) {
      if (!RowBf16(s, row0 + r, k0, kc, to.fold, reinterpret_cast<uint16_t *>(at))) return false;
    } else {
      DecodeRow(s, row0 + r, k0, kc, false, reinterpret_cast<float *>(at));
      if (to.fold && !unquantized(s)) FoldF32(s, row0 + r, k0, kc, reinterpret_cast<float *>(at));
    }
  }
  for (int64_t b = 0; b < k_blocks; ++b) {
    const int64_t offset = row0 / to.block_rows * to.row_stride + (k0 / to.block_k + b) * to.k_stride;
    uint32_t *out = reinterpret_cast<uint32_t *>(static_cast<char *>(to.data) + offset * (half ? 2 : 4));
    Turn(lines + b * to.block_k / words, to.block_rows, to.block_k / words, line, out);
  }
  return true;
}

void DecodeParts(void *arg, int64_t begin, int64_t end) {
  DecodeJob &job = *static_cast<DecodeJob *>(arg);
  const ops::Matrix &m = job.side->codes;
  for (int64_t part = begin; part < end && !job.outside.load(std::memory_order_relaxed); ++part) {
    const int64_t row0 = part / job.parts_k * job.rows_step, k0 = part % job.parts_k * kDecodeK;
    if (!DecodePart(*job.side, *job.to, row0, std::min(job.rows_step, m.rows - row0), k0,
                    std::min(kDecodeK, m.cols - k0))) {
      job.outside.store(true, std::memory_order_relaxed);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/simd_choose.h"

namespace fp8::cpu {

namespace {

using PartsFn = void (*)(void *arg, int64_t begin, int64_t end);
PartsFn decode_parts() { FP8_SIMD_CHOOSE(DecodeParts); }

}  // namespace

bool decode_operand(const ops::Side &side, const DecodeTo &to, const GemmPool &pool) {
  const ops::Matrix &m = side.codes;
  if (m.rows == 0 || m.cols == 0) return true;
  DecodeJob job{&side, &to, to.block_rows ? to.block_rows : kDecodeRows, (m.cols + kDecodeK - 1) / kDecodeK, {false}};
  const int64_t parts = (m.rows + job.rows_step - 1) / job.rows_step * job.parts_k;
  pool.run(pool.owner, parts, decode_parts(), &job);
  return !job.outside.load();
}

void finish_part(const ops::Gemm &g, const float *s, int64_t stride, bool scale, int64_t i0, int64_t rows, int64_t j0,
                 int64_t cols) {
  constexpr int64_t kWidth = 512;
  float y[kWidth], sb[kWidth];
  for (int64_t i = i0; i < i0 + rows; ++i) {
    for (int64_t j = j0; j < j0 + cols; j += kWidth) {
      const int64_t n = std::min(kWidth, j0 + cols - j);
      std::copy_n(s + i * stride + j, n, y);
      if (scale) {
        float sa;
        load_scales(g.a, i, 1, 0, &sa);
        load_scales(g.b, j, n, 0, sb);
        for (int64_t c = 0; c < n; ++c) y[c] *= sa * sb[c];
      }
      store_row(g, i, j, n, y);
    }
  }
}

}  // namespace fp8::cpu
#endif
