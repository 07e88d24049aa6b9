// SPDX-License-Identifier: Apache-2.0
// TENSOR and ROW of a small matrix in one launch: every block reads for itself all that its scales depend on, the whole
// matrix or the rows and columns that cross its tile. Aligned BF16 and aligned codes.
#include "device/lean_tile.cuh"
#include "quantize_amax.h"

namespace fp8::cuda {

// A launch of few bytes is a quicker one.
struct SmallSide {
  uint8_t *codes;
  float *scale, *amax;  // amax NULL = not wanted
  int64_t ld, scale_stride, amax_stride;
};
struct SmallArgs {
  const uint16_t *x;
  int64_t ld;
  SmallSide side[2];
  float *dbias;
  int32_t rows, cols, tiles_c, dtype, rule;
  float floor;
};

// What the lean kernels' parts look at.
__device__ __forceinline__ TileArgs lean_args(const SmallArgs &p) {
  TileArgs a{};
  a.source.x.data = const_cast<uint16_t *>(p.x), a.source.x.lead_stride[0] = p.ld;
  a.rows = p.rows, a.cols = p.cols, a.tiles_c = p.tiles_c;
  a.col.side.codes.data = p.side[1].codes, a.col.side.codes.lead_stride[0] = p.side[1].ld;
  a.dbias = p.dbias;
  return a;
}

__device__ __forceinline__ void put_small(const SmallSide &s, int64_t line, float amax, const num::ScaleOf &v) {
  if (s.amax) s.amax[line * s.amax_stride] = amax;
  s.scale[line * s.scale_stride] = v.inverse;
}

// Registers enough for the block's own tile and the one being read.
template <bool kByRow, int kSides>
__global__ void __launch_bounds__(kLeanThreads, 1) quantize_small(const __grid_constant__ SmallArgs p, unsigned down) {
  constexpr bool has_row = (kSides & 1) != 0, has_col = (kSides & 2) != 0;
  __shared__ __align__(16) uint2 units[kTile * 16];
  __shared__ __align__(16) ColumnParts part;
  __shared__ __align__(16) float multiplier[kTile];  // of columns
  __shared__ float warps[kLeanThreads / 32];
  const TileArgs a = lean_args(p);
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5, rg = t >> 4, cg = t & 15;
  const unsigned across = static_cast<unsigned>(a.tiles_c);
  const unsigned tile_r = blockIdx.x / across, tile_c = blockIdx.x % across;
  const int64_t row0 = int64_t(tile_r) * kTile, col0 = int64_t(tile_c) * kTile;
  const int64_t row = row0 + 8 * rg, col = col0 + 8 * cg;
  const int rows = left_of(a.rows - row0, kTile), cols = left_of(a.cols - col0, kTile);
  const int mine = 8 * cg < cols ? left_of(rows - 8 * rg, 8) : 0;
  const auto load = [&](LeanTile &x, unsigned r, unsigned c) {
    const int64_t y = int64_t(r) * kTile + 8 * rg, z = int64_t(c) * kTile + 8 * cg;
    x.load(a.source, y, z, z < a.cols ? left_of(a.rows - y, 8) : 0);
  };

  wait_prior();
  LeanTile x;
  x.load(a.source, row, col, mine);
  float mr[8] = {}, mc[8] = {};
  if constexpr (!kByRow) {
    uint32_t best = 0;
    const unsigned tiles = across * down;
#pragma unroll 4
    for (unsigned i = 1; i < tiles; ++i) {  // from its own on: not all the same at once
      const unsigned other = blockIdx.x + i < tiles ? blockIdx.x + i : blockIdx.x + i - tiles;
      LeanTile y;
      load(y, other / across, other % across);
      best = amax2_bf16(best, pair_all(y));
    }
    best = amax2_bf16(best, pair_all(x));
    const float v = block_amax<kLeanThreads>(larger_half(best), warps, lane, warp);
    const num::ScaleOf s = num::scale_of(p.dtype, p.rule, v, p.floor);
#pragma unroll
    for (int i = 0; i < 8; ++i) mr[i] = mc[i] = s.multiplier;
    if (blockIdx.x == 0 && t == 0) {
      if (has_row) put_small(p.side[0], 0, v, s);
      if (has_col) put_small(p.side[1], 0, v, s);
    }
  } else {
    if (has_row) {
      uint32_t m[4];
      pair_rows(x, m);
#pragma unroll 4
      for (unsigned i = 1; i < across; ++i) {
        LeanTile y;
        load(y, tile_r, tile_c + i < across ? tile_c + i : tile_c + i - across);
        uint32_t n[4];
        pair_rows(y, n);
#pragma unroll
        for (int q = 0; q < 4; ++q) m[q] = amax2_bf16(m[q], n[q]);
      }
      const float v = row_maximum(m, lane);
      const int line = 8 * rg + kept_row(lane);
      const num::ScaleOf s = num::scale_of(p.dtype, p.rule, v, p.floor);
      spread_rows(s.multiplier, lane, mr);
      if (tile_c == 0 && (cg & 2) == 0 && line < rows) put_small(p.side[0], row0 + line, v, s);
    }
    if (has_col) {
      uint32_t m[4];
      pair_columns(x, m);
#pragma unroll 4
      for (unsigned i = 1; i < down; ++i) {
        LeanTile y;
        load(y, tile_r + i < down ? tile_r + i : tile_r + i - down, tile_c);
        uint32_t n[4];
        pair_columns(y, n);
#pragma unroll
        for (int k = 0; k < 4; ++k) m[k] = amax2_bf16(m[k], n[k]);
      }
      put_columns(m, part[warp], lane, cg);
      __syncthreads();
      if (t < kTile) {
        const float v = column_maximum(part, t);
        const num::ScaleOf s = num::scale_of(p.dtype, p.rule, v, p.floor);
        multiplier[t] = s.multiplier;
        if (tile_r == 0 && t < cols) put_small(p.side[1], col0 + t, v, s);
      }
      __syncthreads();
      load_multipliers(&multiplier[8 * cg], mc);
    }
  }
  release_next();

  const auto put = [&](auto format) {
    using F = decltype(format);
    if constexpr (has_row) {
      uint8_t *to = p.side[0].codes + row * p.side[0].ld + col;
#pragma unroll
      for (int i = 0; i < 8; ++i, to += p.side[0].ld) {
        const uint2 v = row_codes<F>(x.w[i], FloatPair{mr[i], mr[i]});
        if (i < mine) store8_streaming(to, v.x, v.y);
      }
    }
    if constexpr (has_col) {
#pragma unroll
      for (int k = 0; k < 4; ++k) stage_pair<F>(x, k, FloatPair{mc[2 * k], mc[2 * k + 1]}, units_of(units, rg, cg));
    }
  };
  if (p.dtype == num::kE4M3)
    put(num::E4M3{});
  else
    put(num::E5M2{});
  if constexpr (has_col) {
    __syncthreads();
    write_units(a, units, t, row0, col0);
  }
  if (p.dbias && t < kTile) sum_columns(a, true, tile_r, col0 + t);
}

// --------------------------------------------------------------- launchers

bool small_fits(int64_t down, int64_t across, bool by_row, bool has_row, bool has_col) {
  const int64_t tiles = down * across;
  const int64_t reads = by_row ? 1 + (has_row ? across - 1 : 0) + (has_col ? down - 1 : 0) : tiles;
  return reads <= kSmallTiles && tiles <= kSmallGrid;
}

namespace {

SmallSide side_of(const ops::QuantizeSide &s) {
  return {static_cast<uint8_t *>(s.side.codes.data),
          static_cast<float *>(s.side.scale.data),
          static_cast<float *>(s.amax.data),
          s.side.codes.lead_stride[0],
          s.side.scale.row_stride,
          s.amax.row_stride};
}

SmallArgs args_of(const TileArgs &a) {
  return {static_cast<const uint16_t *>(a.source.x.data),
          a.source.x.lead_stride[0],
          {side_of(a.row), side_of(a.col)},
          a.dbias,
          static_cast<int32_t>(a.rows),
          static_cast<int32_t>(a.cols),
          static_cast<int32_t>(a.tiles_c),
          a.dtype,
          a.rule,
          a.floor};
}

template <bool kByRow>
cudaError_t launch_sides(const TileArgs &a, unsigned down, cudaStream_t stream) {
  const SmallArgs p = args_of(a);
  const dim3 blocks(static_cast<unsigned>(a.tiles_c) * down), threads(kLeanThreads);
  if (!a.col.side.scaling) return launch(&quantize_small<kByRow, 1>, blocks, threads, stream, true, p, down);
  if (!a.row.side.scaling) return launch(&quantize_small<kByRow, 2>, blocks, threads, stream, true, p, down);
  return launch(&quantize_small<kByRow, 3>, blocks, threads, stream, true, p, down);
}

}  // namespace

cudaError_t launch_small_tiles(const TileArgs &a, bool by_row, cudaStream_t stream) {
  const unsigned down = static_cast<unsigned>((a.rows + kTile - 1) / kTile);
  return by_row ? launch_sides<true>(a, down, stream) : launch_sides<false>(a, down, stream);
}

cudaError_t load_small_tiles() {
  return load_code(&quantize_small<false, 1>, &quantize_small<false, 2>, &quantize_small<false, 3>,
                   &quantize_small<true, 1>, &quantize_small<true, 2>, &quantize_small<true, 3>);
}

}  // namespace fp8::cuda
