// SPDX-License-Identifier: Apache-2.0
// The quantizer of every input that quantize_lean.cuh leaves. Included by one .cu per kind, to compile side by side.
#pragma once
#include "tile_args.cuh"
#include "tile_maxima.cuh"

namespace fp8::cuda {

enum TileKind : int { kAmaxKnown, kBlock128, kSquare128, kBlock32, kSquare32 };  // known: TENSOR and ROW

template <class F>
__device__ __forceinline__ void write_row(const TileArgs &a, const WideTile &x, const float (&m)[4], int64_t row,
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
    uint8_t *p = static_cast<uint8_t *>(codes.data) + offset_of(codes, row + i);
    if (a.row_vector && col + 8 <= a.cols) {
      store8_streaming(p + col, w[0], w[1]);
    } else {
      put_bytes(p + col * codes.col_stride, codes.col_stride, w[0], w[1], a.cols - col);
    }
  }
}

// Column c's word of row group rg lies at c * 32 + (rg ^ 2 (c / 8)): no bank conflict on either way through.
template <class F>
__device__ __forceinline__ void stage_col(const WideTile &x, const float (&m)[8], uint32_t *words, int rg, int cg) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
    words[(8 * cg + j) * 32 + (rg ^ (2 * cg))] =
        encode2<F>(num::mul_rn(x.at(0, j), m[j]), num::mul_rn(x.at(1, j), m[j])) |
        encode2<F>(num::mul_rn(x.at(2, j), m[j]), num::mul_rn(x.at(3, j), m[j])) << 16;
}

__device__ __forceinline__ void write_col(const TileArgs &a, const uint32_t *words, int t, int64_t row0, int64_t col0) {
  const ops::Matrix &codes = a.col.side.codes;
#pragma unroll
  for (int pass = 0; pass < kTile * 8 / kTileThreads; ++pass) {
    const int c = t / 8 + kTileThreads / 8 * pass, part = t & 7;
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
    uint8_t *p = static_cast<uint8_t *>(codes.data) + offset_of(codes, col0 + c);
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

// Any input, any codes, statistics, amax given or wanted alone. 512 threads: thread (rg, cg) holds rows 4 rg .. 4 rg +
// 3 and columns 8 cg .. 8 cg + 7. A half-warp spans the tile's columns, a warp 8 rows.
template <int kKind>
__device__ __forceinline__ void quantize_tile(const TileArgs &a, unsigned index, unsigned tiles) {
  constexpr int kBlock = kKind == kBlock32 || kKind == kSquare32 ? 32 : 128, kBlocks = kTile / kBlock;
  constexpr int kWarps = kTileThreads / 32;
  __shared__ __align__(16) uint32_t words[kTile * 32];
  __shared__ __align__(16) float part[kWarps][kTile];
  __shared__ __align__(16) float multiplier[4][kTile];
  __shared__ float square[kWarps][4];
  __shared__ __align__(4) uint8_t codes[kTile][4];
  __shared__ uint32_t counters[num::kStats];
  const int t = threadIdx.x, cg = t & 15, rg = t >> 4, lane = t & 31, warp = t >> 5;
  const unsigned tile = a.reversed ? tiles - 1 - index : index, across = static_cast<unsigned>(a.tiles_c);
  const int64_t tile_r = tile / across, tile_c = tile % across;
  const int64_t row0 = tile_r * kTile, col0 = tile_c * kTile, row = row0 + 4 * rg, col = col0 + 8 * cg;
  const bool has_row = a.row.side.scaling != 0, has_col = a.col.side.scaling != 0;

  const bool early = kKind == kAmaxKnown && a.chained;
  if (!early) wait_prior();
  WideTile x;
  x.load(a.source, row, col, a.rows, a.cols);
  if (early) wait_prior();

  const bool e4m3 = a.dtype == num::kE4M3;
  bool uniform = kKind == kSquare128 || kKind == kSquare32;  // mr serves the columns too
  float mr[4];
  if constexpr (kKind == kAmaxKnown) {
    if (a.tensor_amax) {
      uniform = true;
      float v = 0.0f;
      for (int i = t; i < a.parts; i += kTileThreads) v = amax1(v, a.tensor_amax[i]);
      v = block_amax<kTileThreads>(v, square[0], lane, warp);
      if (a.any_given) v = a.tensor_amax[0];
      const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
      for (int i = 0; i < 4; ++i) mr[i] = s.multiplier;
      if (index == 0 && t == 0) {
        if (has_row) put_scale(a.row, a.amax_only, 0, 0, v, s);
        if (has_col) put_scale(a.col, a.amax_only, 0, 0, v, s);
      }
    } else {
      if (t < kTile) {
        const int64_t line = row0 + t;
        if (has_row) multiplier[1][t] = known_line(a, true, line, line < a.rows, tile_c == 0);
      } else if (t < 2 * kTile) {
        const int64_t line = col0 + t - kTile;
        if (has_col) multiplier[0][t - kTile] = known_line(a, false, line, line < a.cols, tile_r == 0);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 4; ++i) mr[i] = multiplier[1][4 * rg + i];
    }
  } else if constexpr (kKind == kSquare128 || kKind == kSquare32) {
    float r[4];
    row_maxima(x, r);
    float v = amax1(amax1(amax1(r[0], r[1]), r[2]), r[3]);
    v = amax1(v, shuffle_xor(v, 1));
    v = amax1(v, shuffle_xor(v, 2));
    v = amax1(v, shuffle_xor(v, 16));
    if constexpr (kBlock == 128) {
      v = amax1(v, shuffle_xor(v, 4));
      v = amax1(v, shuffle_xor(v, 8));
    }
    if (lane < 16 && (lane & 3) == 0) square[warp][lane >> 2] = v;
    __syncthreads();
    const int br = kBlock == 32 ? warp / 4 : 0, bc = kBlock == 32 ? cg >> 2 : 0;
    v = 0.0f;
#pragma unroll
    for (int w = 0; w < (kBlock == 32 ? 4 : kWarps); ++w) v = amax1(v, square[br * 4 + w][bc]);
    const int64_t sr = tile_r * kBlocks + br, sc = tile_c * kBlocks + bc;
    if (a.any_given)
      v = has_row && a.row.amax_given ? given_or(a.row, sr, sc, v) : has_col ? given_or(a.col, sc, sr, v) : v;
    const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
    for (int i = 0; i < 4; ++i) mr[i] = s.multiplier;
    const bool first = kBlock == 32 ? (rg & 7) == 0 && (cg & 3) == 0 : t == 0;
    if (first && sr * kBlock < a.rows && sc * kBlock < a.cols) {
      if (has_row) put_scale(a.row, a.amax_only, sr, sc, v, s);
      if (has_col) put_scale(a.col, a.amax_only, sc, sr, v, s);
    }
  } else {
    if (has_row) {
      float r[4];
      row_maxima(x, r);
      float v = scatter_rows<kBlock / 8>(r, cg);
      const int mine = kBlock == 128 ? (cg >> 2) & 3 : cg & 3;
      const int64_t sr = row + mine, sc = tile_c * kBlocks + (kBlock == 32 ? cg >> 2 : 0);
      if (a.any_given) v = given_or(a.row, sr, sc, v);
      const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mr[i] = shuffle(s.multiplier, kBlock == 128 ? (lane & 16) | (i << 2) : (lane & ~3) | i);
      if ((kBlock == 32 || (cg & 3) == 0) && sr < a.rows && sc * kBlock < a.cols)
        put_scale(a.row, a.amax_only, sr, sc, v, s);
    }
    if (has_col) {
      Columns<WideTile> c;
      c.add(x);
      c.put(part, warp, lane, cg);
      __syncthreads();
      const bool together = kBlock == 32 && a.col.side.scale.dtype != num::kF32;
      const int b = t / kTile, line = t % kTile;
      if (b < kBlocks) {
        constexpr int kParts = kBlock == 32 ? 4 : kWarps;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < kParts; ++w) v = amax1(v, part[b * kParts + w][line]);
        const int64_t sc = tile_r * kBlocks + b;
        if (a.any_given) v = given_or(a.col, col0 + line, sc, v);
        const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
        multiplier[b][line] = s.multiplier;
        if (together) codes[line][b] = s.code;
        if (col0 + line < a.cols && sc * kBlock < a.rows)
          put_scale(a.col, a.amax_only || together, col0 + line, sc, v, s);  // together: its amax alone
      }
      __syncthreads();
      if (together && !a.amax_only && t < kTile && col0 + t < a.cols)
        put_codes(a.col.side.scale, col0 + t, tile_r * 4, (a.rows - row0 + 31) / 32,
                  *reinterpret_cast<const uint32_t *>(codes[t]));
    }
  }
  release_next();
  if (a.amax_only) return;
  if (has_row) {
    if (e4m3)
      write_row<num::E4M3>(a, x, mr, row, col);
    else
      write_row<num::E5M2>(a, x, mr, row, col);
  }
  float mc[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  if (has_col) {
    if (uniform) {
#pragma unroll
      for (int j = 0; j < 8; ++j) mc[j] = mr[0];
    } else {
      load_multipliers(&multiplier[kBlock == 32 ? rg >> 3 : 0][8 * cg], mc);
    }
    if (e4m3)
      stage_col<num::E4M3>(x, mc, words, rg, cg);
    else
      stage_col<num::E5M2>(x, mc, words, rg, cg);
    __syncthreads();
    write_col(a, words, t, row0, col0);
  }
  if ((has_row && a.row.stats.data) || (has_col && a.col.stats.data)) {
    float values[32], multipliers[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) values[k] = x.at(k / 8, k % 8), multipliers[k] = has_row ? mr[k / 8] : 0.0f;
    if (has_row && a.row.stats.data) count_side(a, values, multipliers, a.row.stats, counters, row, col);
#pragma unroll
    for (int k = 0; k < 32; ++k) multipliers[k] = mc[k % 8];
    if (has_col && a.col.stats.data) count_side(a, values, multipliers, a.col.stats, counters, row, col);
  }
  if (a.dbias && t < kTile) sum_columns(a, false, tile_r, col0 + t);  // the tile's lines are in the cache
  if (index == 0) {
    if (has_row) zero_padding(a.row.side.scale, t, kTileThreads);
    if (has_col) zero_padding(a.col.side.scale, t, kTileThreads);
  }
}

template <int kKind>
__global__ void __launch_bounds__(kTileThreads) quantize_tiles(const __grid_constant__ TileArgs a, unsigned tiles) {
  for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x) {
    if (index != blockIdx.x) __syncthreads();
    quantize_tile<kKind>(a, index, tiles);
  }
}

cudaError_t load_known();
cudaError_t load_block128();
cudaError_t load_square128();
cudaError_t load_block32();
cudaError_t load_square32();
cudaError_t tiles_known(const TileArgs &a, unsigned tiles, cudaStream_t stream);
cudaError_t tiles_block128(const TileArgs &a, unsigned tiles, cudaStream_t stream);
cudaError_t tiles_square128(const TileArgs &a, unsigned tiles, cudaStream_t stream);
cudaError_t tiles_block32(const TileArgs &a, unsigned tiles, cudaStream_t stream);
cudaError_t tiles_square32(const TileArgs &a, unsigned tiles, cudaStream_t stream);

template <int kKind>
cudaError_t load_tiles() {
  return load_code(&quantize_tiles<kKind>);
}

template <int kKind>
cudaError_t launch_tiles(const TileArgs &a, unsigned tiles, cudaStream_t stream) {
  return launch(&quantize_tiles<kKind>, dim3(grid_of(a, tiles)), dim3(kTileThreads), stream, true, a, tiles);
}

}  // namespace fp8::cuda
