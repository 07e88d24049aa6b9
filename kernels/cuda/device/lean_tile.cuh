// SPDX-License-Identifier: Apache-2.0
// A tile of 128 x 128 aligned BF16 elements in the registers of 256 threads, 8 x 8 elements each: its maxima, its codes
// by rows and, through shared memory, by columns.
#pragma once
#include "tile_args.cuh"

namespace fp8::cuda {

constexpr int kLeanThreads = 256;
using LeanTile = PackedTile<8>;

__device__ __forceinline__ float low_float(uint32_t u) { return num::float_of(u << 16); }
__device__ __forceinline__ float high_float(uint32_t u) { return num::float_of(u & 0xffff0000u); }
__device__ __forceinline__ float larger_half(uint32_t m) { return amax1(low_float(m), high_float(m)); }

// Multipliers of a pair of columns: packed BF16 where they are powers of two (the product is then exact, or as
// far below the codes' smallest number as F32's), else F32.
struct PackedPair {
  uint32_t m;
  __device__ __forceinline__ void apply(uint32_t w, float &low, float &high) const {
    const uint32_t y = mul2_bf16(w, m);
    low = low_float(y), high = high_float(y);
  }
};
struct FloatPair {
  float low_m, high_m;
  __device__ __forceinline__ void apply(uint32_t w, float &low, float &high) const {
    low = num::mul_rn(low_float(w), low_m), high = num::mul_rn(high_float(w), high_m);
  }
};

template <class F, class Pair>
__device__ __forceinline__ uint2 row_codes(const uint32_t (&w)[4], const Pair &m) {
  float v[8];
#pragma unroll
  for (int k = 0; k < 4; ++k) m.apply(w[k], v[2 * k], v[2 * k + 1]);
  return make_uint2(encode2<F>(v[0], v[1]) | encode2<F>(v[2], v[3]) << 16,
                    encode2<F>(v[4], v[5]) | encode2<F>(v[6], v[7]) << 16);
}

// Column c's 8-byte unit of row group rg lies at unit c * 16 + (rg ^ swizzle(c / 8)): no bank conflict on either way.
__device__ __forceinline__ uint2 *units_of(uint2 *units, int rg, int cg) {
  return units + 128 * cg + (rg ^ (2 * (cg & 7) | cg >> 3));
}

// Codes of eight rows by four columns, transposed.
__device__ __forceinline__ void stage_block(const uint32_t (&r)[8], uint2 *mine, int half) {
  uint32_t t[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t a = permute_bytes(r[4 * h], r[4 * h + 1], 0x5140),
                   b = permute_bytes(r[4 * h + 2], r[4 * h + 3], 0x5140),
                   c = permute_bytes(r[4 * h], r[4 * h + 1], 0x7362),
                   d = permute_bytes(r[4 * h + 2], r[4 * h + 3], 0x7362);
    t[h][0] = low_halves(a, b), t[h][1] = high_halves(a, b), t[h][2] = low_halves(c, d), t[h][3] = high_halves(c, d);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) mine[16 * (4 * half + j)] = make_uint2(t[0][j], t[1][j]);
}

struct NoCount {
  __device__ __forceinline__ void add(uint32_t, uint32_t) {}
};
// Codes of the k-th pair of columns.
template <class F, class Pair, class Count = NoCount>
__device__ __forceinline__ void stage_pair(const LeanTile &x, int k, const Pair &m, uint2 *mine, Count &&count = {}) {
  float v[2][8];
#pragma unroll
  for (int i = 0; i < 8; ++i) m.apply(x.w[i][k], v[0][i], v[1][i]);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint2 u = make_uint2(encode2<F>(v[j][0], v[j][1]) | encode2<F>(v[j][2], v[j][3]) << 16,
                               encode2<F>(v[j][4], v[j][5]) | encode2<F>(v[j][6], v[j][7]) << 16);
    mine[16 * (2 * k + j)] = u;
    count.add(u.x, u.y);
  }
}

// A thread takes 16 rows of a column at a time, columns t / 8, t / 8 + 32, ...
template <bool kStreaming = true>
__device__ __forceinline__ void write_units(const TileArgs &a, const uint2 *units, int t, int64_t row0, int64_t col0) {
  const ops::Matrix &codes = a.col.side.codes;
  const int part = t & 7, column = t >> 3, which = part ^ (t >> 6);
  const int rows = left_of(a.rows - row0 - 16 * part, 16), columns = left_of(a.cols - col0, kTile);
  uint8_t *p = static_cast<uint8_t *>(codes.data) + (col0 + column) * codes.lead_stride[0] + row0 + 16 * part;
#pragma unroll
  for (int pass = 0; pass < 4; ++pass, p += 32 * codes.lead_stride[0]) {
    if (column + 32 * pass >= columns) break;
    uint4 v = load16(units + (column + 32 * pass) * 16 + 2 * (which ^ (4 * (pass & 1))));
    if (pass >= 2) v = make_uint4(v.z, v.w, v.x, v.y);
    if (rows == 16 && kStreaming)
      store16_streaming(p, v);
    else if (rows == 16)
      store16(p, v);
    else if (rows)
      put_16(p, v, rows);
  }
}

// Maxima of the thread's rows: word q holds rows 2 q and 2 q + 1.
__device__ __forceinline__ void pair_rows(const LeanTile &x, uint32_t (&m)[4]) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t r[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) r[i] = amax2_bf16(r[i], x.w[2 * q + i][k]);
    m[q] = amax2_bf16(low_halves(r[0], r[1]), high_halves(r[0], r[1]));
  }
}
__device__ __forceinline__ void pair_columns(const LeanTile &x, uint32_t (&m)[4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    m[k] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) m[k] = amax2_bf16(m[k], x.w[i][k]);
  }
}
__device__ __forceinline__ uint32_t pair_all(const LeanTile &x) {
  uint32_t m[4];
  pair_columns(x, m);
  return amax2_bf16(amax2_bf16(m[0], m[1]), amax2_bf16(m[2], m[3]));
}
// Four words of each lane, over the lanes that differ in bits `high` and `low`: a lane keeps word 2 (lane & high) +
// (lane & low).
__device__ __forceinline__ uint32_t scatter_words(const uint32_t (&m)[4], int lane, int high, int low) {
  const bool up = lane & high, odd = lane & low;
  const uint32_t a = amax2_bf16(up ? m[2] : m[0], shuffle_xor_bits(up ? m[0] : m[2], high)),
                 b = amax2_bf16(up ? m[3] : m[1], shuffle_xor_bits(up ? m[1] : m[3], high));
  return amax2_bf16(odd ? b : a, shuffle_xor_bits(odd ? a : b, low));
}
// A row's maximum over the 16 lanes that share it, from pair_rows(): lane l gets that of the thread's row kept_row(l).
__device__ __forceinline__ int kept_row(int lane) { return 2 * ((lane & 15) >> 2) + (lane & 1); }
__device__ __forceinline__ float row_maximum(const uint32_t (&m)[4], int lane) {
  uint32_t b = scatter_words(m, lane, 8, 4);
  b = amax2_bf16(b, shuffle_xor_bits(b, 2));
  b = amax2_bf16(b, shuffle_xor_bits(b, 1));
  return lane & 1 ? high_float(b) : low_float(b);
}
// To all eight rows of each thread what the lanes above made of their rows.
__device__ __forceinline__ void spread_rows(float kept, int lane, float (&mr)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) mr[i] = shuffle(kept, (lane & 16) | (i & 6) << 1 | (i & 1));
}
// The warp's column maxima, from pair_columns(), to its line of `part`; then a column's over all warps.
using ColumnParts = uint32_t[kLeanThreads / 32][kTile / 2];
__device__ __forceinline__ void put_columns(const uint32_t (&m)[4], uint32_t (&line)[kTile / 2], int lane, int cg) {
  const bool up = lane & 16;
  const uint32_t b = amax2_bf16(up ? m[2] : m[0], shuffle_xor_bits(up ? m[0] : m[2], 16)),
                 c = amax2_bf16(up ? m[3] : m[1], shuffle_xor_bits(up ? m[1] : m[3], 16));
  *reinterpret_cast<uint2 *>(&line[4 * cg + (up ? 2 : 0)]) = make_uint2(b, c);
}
__device__ __forceinline__ float column_maximum(const ColumnParts &part, int column) {
  uint32_t b = 0;
#pragma unroll
  for (int w = 0; w < kLeanThreads / 32; ++w) b = amax2_bf16(b, part[w][column / 2]);
  return column & 1 ? high_float(b) : low_float(b);
}

// E8M0 of a block, its multiplier as BF16.
__device__ __forceinline__ uint32_t code_of(const TileArgs &a, float amax) {
  return num::e8m0_of(a.rule, a.dtype == num::kE4M3 ? num::E4M3::emax : num::E5M2::emax,
                      num::amax_floor(amax, a.floor));
}
__device__ __forceinline__ uint32_t multiplier_of(uint32_t code) {
  return num::bits_of(num::reciprocal_e8m0(uint8_t(code))) >> 16;
}
__device__ __forceinline__ void put_amax(const ops::Scale &s, int64_t r, int64_t c, float amax) {
  static_cast<float *>(s.data)[r * s.row_stride + c * s.col_stride] = amax;
}

}  // namespace fp8::cuda
