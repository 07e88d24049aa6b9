// SPDX-License-Identifier: Apache-2.0
// One tile: amax of its blocks, scales, codes of both sides. Included by one .cu per kind, to compile side by side.
#pragma once
#include "tile.cuh"

namespace fp8::cuda {

enum TileKind : int { kAmaxKnown, kBlock128, kSquare128, kBlock32, kSquare32 };  // known: TENSOR and ROW

struct TileArgs {
  Source source;
  ops::QuantizeSide row, col;  // side.scaling 0 = absent
  int64_t rows, cols, tiles_c;
  float *dbias;                      // [chunks, cols] or NULL
  const float *tensor_amax;          // `parts` partial ones; ROW: NULL
  const float *row_amax, *col_amax;  // ROW kinds, at their strides
  int64_t row_amax_stride, col_amax_stride;
  int32_t parts, dtype, rule, amax_only;
  float floor;
  int32_t row_vector, col_vector;  // 8-byte stores of row codes, 16-byte stores of column codes
  int32_t reversed, any_given;
  int32_t chained;  // directly behind amax_tiles, which has waited for what wrote the input
};

__device__ __forceinline__ void put_scale(const ops::QuantizeSide &s, int32_t amax_only, int64_t r, int64_t c,
                                          float amax, const num::ScaleOf &v) {
  if (s.amax.data && !s.amax_given)
    static_cast<float *>(s.amax.data)[r * s.amax.row_stride + c * s.amax.col_stride] = amax;
  if (amax_only) return;
  const int64_t at = r * s.side.scale.row_stride + c * s.side.scale.col_stride;
  if (s.side.scale.dtype == num::kF32)
    static_cast<float *>(s.side.scale.data)[at] = v.inverse;
  else
    static_cast<uint8_t *>(s.side.scale.data)[at] = v.code;
}

__device__ __forceinline__ float given_or(const ops::QuantizeSide &s, int64_t r, int64_t c, float amax) {
  if (!s.amax_given || r >= s.amax.rows || c >= s.amax.cols) return amax;
  return static_cast<const float *>(s.amax.data)[r * s.amax.row_stride + c * s.amax.col_stride];
}

// Native strides of F32 scales are rounded up to 4: what lies between is zero.
__device__ inline void zero_padding(const ops::Scale &s, int thread, int threads) {
  const bool down = s.row_stride == 1 && s.rows > 0 && s.col_stride > s.rows;
  const bool across = s.col_stride == 1 && s.cols > 0 && s.row_stride > s.cols;
  if (!s.padded || (!down && !across)) return;
  const int64_t line = down ? s.rows : s.cols, lines = down ? s.cols : s.rows,
                stride = down ? s.col_stride : s.row_stride;
  const int64_t pad = stride - line;
  for (int64_t i = thread; i < pad * lines; i += threads) {
    static_cast<float *>(s.data)[i / pad * stride + line + i % pad] = 0.0f;
  }
}

__device__ __forceinline__ void put_bytes(uint8_t *p, int64_t stride, uint32_t low, uint32_t high, int64_t n) {
  uint64_t bytes = uint64_t(high) << 32 | low;
#pragma unroll 1
  for (int j = 0; j < 8 && j < n; ++j, bytes >>= 8) p[j * stride] = uint8_t(bytes);
}

// A lean tile comes with codes of one row stride. Half the threads hold it, in two halves of 64 rows: more bytes in
// flight and narrower barriers.
template <class Tile>
constexpr bool kLean = sizeof(Tile) == sizeof(Bf16Tile);
template <class Tile>
constexpr int kHalves = kLean<Tile> ? 2 : 1;
template <class Tile>
constexpr int kThreads = kTileThreads / kHalves<Tile>;
template <class Tile>
__device__ __forceinline__ int64_t codes_offset(const ops::Matrix &m, int64_t row) {
  if constexpr (kLean<Tile>)
    return row * m.lead_stride[0];
  else
    return offset_of(m, row);
}

template <class F, class Tile>
__device__ __forceinline__ void write_row(const TileArgs &a, const Tile &x, const float (&m)[4], int64_t row,
                                          int64_t col) {
  if (col >= a.cols) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + i >= a.rows) break;
    uint32_t w[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      w[h] = encode2<F>(num::mul_rn(x.at(i, 4 * h), m[i]), num::mul_rn(x.at(i, 4 * h + 1), m[i])) |
             encode2<F>(num::mul_rn(x.at(i, 4 * h + 2), m[i]), num::mul_rn(x.at(i, 4 * h + 3), m[i])) << 16;
    const ops::Matrix &codes = a.row.side.codes;
    uint8_t *p = static_cast<uint8_t *>(codes.data) + codes_offset<Tile>(codes, row + i);
    if (a.row_vector && col + 8 <= a.cols) {
      store8_streaming(p + col, w[0], w[1]);
    } else {
      put_bytes(p + col * codes.col_stride, codes.col_stride, w[0], w[1], a.cols - col);
    }
  }
}

// Column c's word of row group rg lies at c * 32 + (rg ^ 2 (c / 8)): no bank conflict on either way through.
template <class F, class Tile>
__device__ __forceinline__ void stage_col(const Tile &x, const float (&m)[8], uint32_t *words, int rg, int cg) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    words[(8 * cg + j) * 32 + (rg ^ (2 * cg))] =
        encode2<F>(num::mul_rn(x.at(0, j), m[j]), num::mul_rn(x.at(1, j), m[j])) |
        encode2<F>(num::mul_rn(x.at(2, j), m[j]), num::mul_rn(x.at(3, j), m[j])) << 16;
}

template <class Tile>
__device__ __forceinline__ void write_col(const TileArgs &a, const uint32_t *words, int t, int64_t row0, int64_t col0) {
  const ops::Matrix &codes = a.col.side.codes;
#pragma unroll
  for (int pass = 0; pass < kTile * 8 / kThreads<Tile>; ++pass) {
    const int c = t / 8 + kThreads<Tile> / 8 * pass, part = t & 7;
    if (col0 + c >= a.cols) break;
    uint32_t w[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int g = h ^ (c & 1);  // odd columns read their second half first: the other 16 banks
      const uint2 v = *reinterpret_cast<const uint2 *>(words + c * 32 + ((4 * part + 2 * g) ^ (2 * (c / 8))));
      if (g)
        w[2] = v.x, w[3] = v.y;
      else
        w[0] = v.x, w[1] = v.y;
    }
    const int64_t r = row0 + 16 * part;
    uint8_t *p = static_cast<uint8_t *>(codes.data) + codes_offset<Tile>(codes, col0 + c);
    if (a.col_vector && r + 16 <= a.rows) {
      store16_streaming(p + r, make_uint4(w[0], w[1], w[2], w[3]));
    } else {
      put_bytes(p + r * codes.col_stride, codes.col_stride, w[0], w[1], a.rows - r);
      put_bytes(p + (r + 8) * codes.col_stride, codes.col_stride, w[2], w[3], a.rows - r - 8);
    }
  }
}

// values and multipliers: the thread's 4 x 8, copied to local memory in the rare call with statistics.
__device__ __noinline__ inline void count_side(const TileArgs &a, const float *values, const float *multipliers,
                                               const ops::Vector &out, uint32_t *shared, int64_t row, int64_t col) {
  uint32_t n[num::kStats] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 8; ++j)
      if (row + i < a.rows && col + j < a.cols) {
        if (a.dtype == num::kE4M3)
          num::count_element<num::E4M3>(values[8 * i + j], multipliers[8 * i + j], n);
        else
          num::count_element<num::E5M2>(values[8 * i + j], multipliers[8 * i + j], n);
      }
  const int t = threadIdx.x;
  __syncthreads();
  if (t < num::kStats) shared[t] = 0;
  __syncthreads();
  for (int k = 0; k < 6; ++k)
    if (n[k]) atomicAdd(shared + k, n[k]);
  __syncthreads();
  if (t < 6 && shared[t]) atomic_add(static_cast<uint64_t *>(out.data) + t * out.stride, shared[t]);
}

// Each lane of a group of 16 (4) ends with the maximum over the group of one of its four rows: row (cg >> 2) & 3 (cg &
// 3).
template <int kGroup>
__device__ __forceinline__ float scatter_rows(const float (&r)[4], int cg) {
  constexpr int high = kGroup / 2, low = kGroup / 4;
  const bool up = cg & high;
  float a0 = up ? r[2] : r[0], a1 = up ? r[3] : r[1];
  a0 = amax1(a0, shuffle_xor(up ? r[0] : r[2], high));
  a1 = amax1(a1, shuffle_xor(up ? r[1] : r[3], high));
  const bool odd = cg & low;
  float k = amax1(odd ? a1 : a0, shuffle_xor(odd ? a0 : a1, low));
#pragma unroll
  for (int s = low / 2; s; s /= 2) k = amax1(k, shuffle_xor(k, s));
  return k;
}

template <class Tile>
__device__ __forceinline__ void row_maxima(const Tile &x, float (&r)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kLean<Tile>) {
      uint32_t m = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) m = amax2_bf16(m, x.w[i][k]);
      r[i] = amax1(num::float_of(m << 16), num::float_of(m & 0xffff0000u));
    } else {
      r[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; ++j) r[i] = amax1(r[i], x.at(i, j));
    }
  }
}

// Maxima over the warp's 8 rows of kCount tiles, to part[slot][column].
template <int kCount, class Tile>
__device__ __forceinline__ void col_maxima(const Tile *x, float (*part)[kTile], int slot, int lane, int cg) {
  const bool up = lane & 16;
  uint4 *p = reinterpret_cast<uint4 *>(&part[slot][8 * cg + (up ? 4 : 0)]);
  if constexpr (kLean<Tile>) {
    uint32_t c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int h = 0; h < kCount; ++h)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) c[k] = amax2_bf16(c[k], x[h].w[i][k]);
    const uint32_t a = amax2_bf16(up ? c[2] : c[0], shuffle_xor_bits(up ? c[0] : c[2], 16)),
                   b = amax2_bf16(up ? c[3] : c[1], shuffle_xor_bits(up ? c[1] : c[3], 16));
    *p = make_uint4(a << 16, a & 0xffff0000u, b << 16, b & 0xffff0000u);
  } else {
    float c[8], k[4];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      c[j] = 0.0f;
#pragma unroll
      for (int h = 0; h < kCount; ++h)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[j] = amax1(c[j], x[h].at(i, j));
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) k[q] = amax1(up ? c[4 + q] : c[q], shuffle_xor(up ? c[q] : c[4 + q], 16));
    *p = make_uint4(num::bits_of(k[0]), num::bits_of(k[1]), num::bits_of(k[2]), num::bits_of(k[3]));
  }
}

// The E8M0 scales of column c's four blocks: one word where they lie together.
__device__ __forceinline__ void put_codes(const ops::Scale &s, int64_t c, int64_t first, int64_t count,
                                          uint32_t codes) {
  uint8_t *p = static_cast<uint8_t *>(s.data) + c * s.row_stride + first * s.col_stride;
  if (s.col_stride == 1 && count >= 4 && reinterpret_cast<uintptr_t>(p) % 4 == 0)
    *reinterpret_cast<uint32_t *>(p) = codes;
  else
    for (int b = 0; b < 4 && b < count; ++b, codes >>= 8) p[b * s.col_stride] = uint8_t(codes);
}

template <class Tile, int kKind>
__global__ void __launch_bounds__(kThreads<Tile>, kLean<Tile> ? 3 : 1)
    quantize_tiles(const __grid_constant__ TileArgs a) {
  constexpr int kBlock = kKind == kBlock32 || kKind == kSquare32 ? 32 : 128, kBlocks = kTile / kBlock;
  constexpr int kH = kHalves<Tile>, kN = kThreads<Tile>, kWarps = kN / 32;
  __shared__ __align__(16) uint32_t words[kTile * 32];
  __shared__ __align__(16) float part[16][kTile];  // of 8 rows each, or of a warp's
  __shared__ __align__(16) float multiplier[4][kTile];
  __shared__ float square[16][4];
  __shared__ __align__(4) uint8_t codes[kTile][4];
  const int t = threadIdx.x, cg = t & 15, lane = t & 31, warp = t >> 5;
  const int64_t tile = a.reversed ? int64_t(gridDim.x) - 1 - blockIdx.x : blockIdx.x;
  const int64_t tile_r = tile / a.tiles_c, tile_c = tile % a.tiles_c;
  const int64_t row0 = tile_r * kTile, col0 = tile_c * kTile, col = col0 + 8 * cg;
  const bool has_row = a.row.side.scaling != 0, has_col = a.col.side.scaling != 0;
  // half h: row group t / 16 + 32 / kH * h of 4 rows, slot warp + kWarps * h of 8 rows
  const auto group = [&](int h) { return (t >> 4) + 32 / kH * h; };
  const auto row = [&](int h) { return row0 + 4 * group(h); };

  const bool early = kKind == kAmaxKnown && a.chained;
  if (!early) wait_prior();
  Tile x[kH];
#pragma unroll
  for (int h = 0; h < kH; ++h) x[h].load(a.source, row(h), col, a.rows, a.cols);
  if (early) wait_prior();

  bool uniform = kKind == kSquare128 || kKind == kSquare32;  // mr serves the columns too
  float mr[kH][4];
  if constexpr (kKind == kAmaxKnown) {
    if (a.tensor_amax) {
      uniform = true;
      float v = 0.0f;
      for (int i = t; i < a.parts; i += kN) v = amax1(v, a.tensor_amax[i]);
#pragma unroll
      for (int s = 16; s; s /= 2) v = amax1(v, shuffle_xor(v, s));
      if (lane == 0) square[warp][0] = v;
      __syncthreads();
      v = 0.0f;
      for (int w = 0; w < kWarps; ++w) v = amax1(v, square[w][0]);
      if (a.any_given) v = a.tensor_amax[0];
      const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
      for (int i = 0; i < 4 * kH; ++i) mr[i / 4][i % 4] = s.multiplier;
      if (blockIdx.x == 0 && t == 0) {
        if (has_row) put_scale(a.row, a.amax_only, 0, 0, v, s);
        if (has_col) put_scale(a.col, a.amax_only, 0, 0, v, s);
      }
    } else {
      if (has_row) {
#pragma unroll
        for (int h = 0; h < kH; ++h) {
          const int64_t mine = row(h) + ((cg >> 2) & 3);
          const float v = mine < a.rows ? a.row_amax[mine * a.row_amax_stride] : 0.0f;
          const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
          for (int i = 0; i < 4; ++i) mr[h][i] = shuffle(s.multiplier, (lane & 16) | (i << 2));
          if (tile_c == 0 && (cg & 3) == 0 && mine < a.rows) put_scale(a.row, a.amax_only, mine, 0, v, s);
        }
      }
      if (has_col) {
        if (t < kTile) {
          const int64_t mine = col0 + t;
          const float v = mine < a.cols ? a.col_amax[mine * a.col_amax_stride] : 0.0f;
          const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
          multiplier[0][t] = s.multiplier;
          if (tile_r == 0 && mine < a.cols) put_scale(a.col, a.amax_only, mine, 0, v, s);
        }
        __syncthreads();
      }
    }
  } else if constexpr (kKind == kSquare128 || kKind == kSquare32) {
    float best[kH];
#pragma unroll
    for (int h = 0; h < kH; ++h) {
      float r[4];
      row_maxima(x[h], r);
      best[h] = amax1(amax1(amax1(r[0], r[1]), r[2]), r[3]);
      if (kBlock == 128 && h) best[0] = amax1(best[0], best[h]);
    }
#pragma unroll
    for (int h = 0; h < (kBlock == 128 ? 1 : kH); ++h) {
      float v = best[h];
      v = amax1(v, shuffle_xor(v, 1));
      v = amax1(v, shuffle_xor(v, 2));
      v = amax1(v, shuffle_xor(v, 16));
      if constexpr (kBlock == 128) {
        v = amax1(v, shuffle_xor(v, 4));
        v = amax1(v, shuffle_xor(v, 8));
      }
      if (lane < 16 && (lane & 3) == 0) square[warp + kWarps * h][lane >> 2] = v;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kH; ++h) {
      if (kBlock == 128 && h) {
#pragma unroll
        for (int i = 0; i < 4; ++i) mr[h][i] = mr[0][i];
        continue;
      }
      const int br = kBlock == 32 ? (warp + kWarps * h) / 4 : 0, bc = kBlock == 32 ? cg >> 2 : 0;
      float v = 0.0f;
#pragma unroll
      for (int w = 0; w < (kBlock == 32 ? 4 : kWarps); ++w) v = amax1(v, square[br * 4 + w][bc]);
      const int64_t sr = tile_r * kBlocks + br, sc = tile_c * kBlocks + bc;
      if (a.any_given)
        v = has_row && a.row.amax_given ? given_or(a.row, sr, sc, v) : has_col ? given_or(a.col, sc, sr, v) : v;
      const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
      for (int i = 0; i < 4; ++i) mr[h][i] = s.multiplier;
      const bool first = kBlock == 32 ? (group(h) & 7) == 0 && (cg & 3) == 0 : t == 0;
      if (first && sr * kBlock < a.rows && sc * kBlock < a.cols) {
        if (has_row) put_scale(a.row, a.amax_only, sr, sc, v, s);
        if (has_col) put_scale(a.col, a.amax_only, sc, sr, v, s);
      }
    }
  } else {
    if (has_col) {
      if constexpr (kBlock == 128) {
        col_maxima<kH>(x, part, warp, lane, cg);
      } else {
#pragma unroll
        for (int h = 0; h < kH; ++h) col_maxima<1>(x + h, part, warp + kWarps * h, lane, cg);
      }
    }
    if (has_row) {
#pragma unroll
      for (int h = 0; h < kH; ++h) {
        float r[4];
        row_maxima(x[h], r);
        float v = scatter_rows<kBlock / 8>(r, cg);
        const int mine = kBlock == 128 ? (cg >> 2) & 3 : cg & 3;
        const int64_t sr = row(h) + mine, sc = tile_c * kBlocks + (kBlock == 32 ? cg >> 2 : 0);
        if (a.any_given) v = given_or(a.row, sr, sc, v);
        const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mr[h][i] = shuffle(s.multiplier, kBlock == 128 ? (lane & 16) | (i << 2) : (lane & ~3) | i);
        if ((kBlock == 32 || (cg & 3) == 0) && sr < a.rows && sc * kBlock < a.cols)
          put_scale(a.row, a.amax_only, sr, sc, v, s);
      }
    }
    if (has_col) {
      __syncthreads();
      const bool together = kBlock == 32 && a.col.side.scale.dtype != num::kF32;
#pragma unroll
      for (int k = 0; k < (kBlocks * kTile + kN - 1) / kN; ++k) {
        const int b = (t + k * kN) / kTile, c = (t + k * kN) % kTile;
        if (b >= kBlocks) break;
        constexpr int kParts = kBlock == 32 ? 4 : kWarps;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < kParts; ++w) v = amax1(v, part[b * kParts + w][c]);
        const int64_t sc = tile_r * kBlocks + b;
        if (a.any_given) v = given_or(a.col, col0 + c, sc, v);
        const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
        multiplier[b][c] = s.multiplier;
        if (together) codes[c][b] = s.code;
        if (col0 + c < a.cols && sc * kBlock < a.rows)
          put_scale(a.col, a.amax_only || together, col0 + c, sc, v, s);  // together: its amax alone
      }
      __syncthreads();
      if (together && !a.amax_only && t < kTile && col0 + t < a.cols)
        put_codes(a.col.side.scale, col0 + t, tile_r * 4, (a.rows - row0 + 31) / 32,
                  *reinterpret_cast<const uint32_t *>(codes[t]));
    }
  }
  release_next();
  if (a.amax_only) return;

  const bool e4m3 = a.dtype == num::kE4M3;
  if (has_row) {
#pragma unroll
    for (int h = 0; h < kH; ++h) {
      if (e4m3)
        write_row<num::E4M3>(a, x[h], mr[h], row(h), col);
      else
        write_row<num::E5M2>(a, x[h], mr[h], row(h), col);
    }
  }
  const auto col_multipliers = [&](int h, float(&m)[8]) {
    if (uniform) {
#pragma unroll
      for (int j = 0; j < 8; ++j) m[j] = mr[h][0];
      return;
    }
    const float *p = &multiplier[kBlock == 32 ? group(h) >> 3 : 0][8 * cg];
    const uint4 u = load16(p), v = load16(p + 4);
    const uint32_t bits[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) m[j] = num::float_of(bits[j]);
  };
  if (has_col) {
#pragma unroll
    for (int h = 0; h < kH; ++h) {
      float mc[8];
      col_multipliers(h, mc);
      if (e4m3)
        stage_col<num::E4M3>(x[h], mc, words, group(h), cg);
      else
        stage_col<num::E5M2>(x[h], mc, words, group(h), cg);
    }
    __syncthreads();
    write_col<Tile>(a, words, t, row0, col0);
  }
  if constexpr (!kLean<Tile>) {
    __shared__ uint32_t counters[num::kStats];
    if ((has_row && a.row.stats.data) || (has_col && a.col.stats.data)) {
      float values[32], multipliers[32], mc[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
      if (has_col) col_multipliers(0, mc);
#pragma unroll
      for (int k = 0; k < 32; ++k) values[k] = x[0].at(k / 8, k % 8), multipliers[k] = has_row ? mr[0][k / 8] : 0.0f;
      if (has_row && a.row.stats.data) count_side(a, values, multipliers, a.row.stats, counters, row(0), col);
#pragma unroll
      for (int k = 0; k < 32; ++k) multipliers[k] = mc[k % 8];
      if (has_col && a.col.stats.data) count_side(a, values, multipliers, a.col.stats, counters, row(0), col);
    }
  }
  if (a.dbias && t < kTile && col0 + t < a.cols && row0 < a.rows) {  // the tile's lines are in the cache
    float sum = 0.0f;
    const int64_t end = row0 + kTile < a.rows ? row0 + kTile : a.rows;
    if constexpr (kLean<Tile>) {
      const uint16_t *p = static_cast<const uint16_t *>(a.source.x.data) + col0 + t;
#pragma unroll 8
      for (int64_t r = row0; r < end; ++r)
        sum = num::dbias_step(sum, num::decode_bf16(p[r * a.source.x.lead_stride[0]]));
    } else {
#pragma unroll 1
      for (int64_t r = row0; r < end; ++r) sum = num::dbias_step(sum, source_at(a.source, r, col0 + t));
    }
    a.dbias[tile_r * a.cols + col0 + t] = sum;
  }
  if (blockIdx.x == 0) {
    if (has_row) zero_padding(a.row.side.scale, t, kN);
    if (has_col) zero_padding(a.col.side.scale, t, kN);
  }
}

cudaError_t load_known();
cudaError_t load_block128();
cudaError_t load_square128();
cudaError_t load_block32();
cudaError_t load_square32();
cudaError_t tiles_known(const TileArgs &a, bool lean, unsigned grid, cudaStream_t stream);
cudaError_t tiles_block128(const TileArgs &a, bool lean, unsigned grid, cudaStream_t stream);
cudaError_t tiles_square128(const TileArgs &a, bool lean, unsigned grid, cudaStream_t stream);
cudaError_t tiles_block32(const TileArgs &a, bool lean, unsigned grid, cudaStream_t stream);
cudaError_t tiles_square32(const TileArgs &a, bool lean, unsigned grid, cudaStream_t stream);

template <int kKind>
cudaError_t load_tiles() {
  return load_code(&quantize_tiles<Bf16Tile, kKind>, &quantize_tiles<WideTile, kKind>);
}

template <int kKind>
cudaError_t launch_tiles(const TileArgs &a, bool lean, unsigned grid, cudaStream_t stream) {
  return lean ? launch(&quantize_tiles<Bf16Tile, kKind>, dim3(grid), dim3(kThreads<Bf16Tile>), stream, true, a)
              : launch(&quantize_tiles<WideTile, kKind>, dim3(grid), dim3(kThreads<WideTile>), stream, true, a);
}

}  // namespace fp8::cuda
