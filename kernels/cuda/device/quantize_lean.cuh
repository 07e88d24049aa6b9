// SPDX-License-Identifier: Apache-2.0
// The fast quantizer, one kernel a kind and side. Aligned BF16 and aligned codes.
#pragma once
#include <type_traits>

#include "lean_stats.cuh"

namespace fp8::cuda {

enum LeanKind : int {  // first two: amax known
  kLeanTensor,
  kLeanRow,
  kLean128,
  kLeanSquare128,
  kLean32,
  kLeanSquare32
};

// What 1x32 or ROW needs for both sides is more than a fourth of the registers.
template <int kKind, int kSides>
constexpr int kLeanBlocks = kSides == 3 && (kKind == kLean32 || kKind == kLeanRow || kKind == kLean128) ? 3 : 4;

constexpr unsigned kCachedTiles = 1024;  // 32 MiB

struct LeanShared {
  uint2 units[kTile * 16];
  ColumnParts part;
  float multiplier[2][kTile];  // of rows, of columns
  float warps[kLeanThreads / 32];
  uint32_t codes[2][kTile];  // 1x32: four scales of a row, of a column
};
struct LeanCounters {
  uint32_t of[2 * num::kStats];  // of rows, of columns
};

template <int kKind, int kSides, bool kStats>
__global__ void __launch_bounds__(kLeanThreads, kStats ? 3 : kLeanBlocks<kKind, kSides>)
    quantize_lean(const __grid_constant__ TileArgs a) {
  constexpr bool has_row = (kSides & 1) != 0, has_col = (kSides & 2) != 0;
  constexpr bool of_32 = kKind == kLean32 || kKind == kLeanSquare32;
  constexpr bool uniform = kKind == kLeanTensor || kKind == kLeanSquare128 || kKind == kLeanSquare32;
  constexpr bool known = kKind == kLeanTensor || kKind == kLeanRow;
  __shared__ __align__(16) LeanShared shared;
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  // a warp spans 16 x 128 elements, or 32 x 64 where that is whole blocks
  const int rg = of_32 ? (warp >> 1) * 4 + (lane >> 3) : t >> 4, cg = of_32 ? (warp & 1) * 8 + (lane & 7) : t & 15;
  const unsigned tile = a.reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x, across = static_cast<unsigned>(a.tiles_c);
  // columns' codes alone: down the columns, whose codes are then written in order
  constexpr bool downwards = kSides == 2 && !known;
  const unsigned lines = downwards ? gridDim.x / across : across, slow = tile / lines, fast = tile - slow * lines;
  const unsigned tile_r = downwards ? fast : slow, tile_c = downwards ? slow : fast;
  const int64_t row0 = int64_t(tile_r) * kTile, col0 = int64_t(tile_c) * kTile, row = row0 + 8 * rg,
                col = col0 + 8 * cg;
  // of the tile; of the thread's rows
  const int rows = left_of(a.rows - row0, kTile), cols = left_of(a.cols - col0, kTile);
  const int mine = 8 * cg < cols ? left_of(rows - 8 * rg, 8) : 0;

  const bool early = known && a.chained;
  if (!early) wait_prior();
  LeanTile x;
  // What the first pass left in L2 is read for the last time; evict-first loads of the rest would be slower.
  if (known && blockIdx.x < kCachedTiles)
    x.load<true>(a.source, row, col, mine);
  else
    x.load(a.source, row, col, mine);
  if (early) wait_prior();
  std::conditional_t<kStats, CodeCount, NoCount> row_count, col_count;
  InputCount inputs;
  SideCount row_side;
  if constexpr (kStats) inputs.add(x);

  // mr of rows and mc of columns; of_32: packed pairs in wr (rows 2 q, 2 q + 1) and wc (columns 2 k, 2 k + 1);
  // uniform: mr[0], or wr[0] with equal halves
  float mr[8] = {}, mc[8] = {};
  uint32_t wr[4] = {}, wc[4] = {};
  const auto codes_of_row = [&](auto format, int i) {
    using F = decltype(format);
    if constexpr (uniform && of_32)
      return row_codes<F>(x.w[i], PackedPair{wr[0]});
    else if constexpr (of_32)
      return row_codes<F>(x.w[i], PackedPair{i & 1 ? high_halves(wr[i / 2], wr[i / 2])  //
                                                   : low_halves(wr[i / 2], wr[i / 2])});
    else
      return row_codes<F>(x.w[i], FloatPair{mr[uniform ? 0 : i], mr[uniform ? 0 : i]});
  };
  const auto row_multiplier = [&](int i) {
    if constexpr (of_32) {
      const uint32_t w = wr[uniform ? 0 : i / 2];
      return i & 1 ? high_float(w) : low_float(w);
    } else {
      return mr[uniform ? 0 : i];
    }
  };
  const auto col_multiplier = [&](int j) {
    if constexpr (uniform)
      return row_multiplier(0);
    else if constexpr (of_32)
      return j & 1 ? high_float(wc[j / 2]) : low_float(wc[j / 2]);
    else
      return mc[j];
  };
  const auto row_address = [&] {
    return static_cast<uint8_t *>(a.row.side.codes.data) + row * a.row.side.codes.lead_stride[0] + col;
  };
  const auto put_row = [](uint8_t *p, uint2 v) {
    if constexpr (known)
      store8_streaming(p, v.x, v.y);
    else
      store8(p, v.x, v.y);
  };
  const auto emit_rows = [&](auto format) {
    uint8_t *p = row_address();
#pragma unroll
    for (int i = 0; i < 8; ++i, p += a.row.side.codes.lead_stride[0]) {
      const uint2 v = codes_of_row(format, i);
      if (i < mine) put_row(p, v);
      row_count.add(v.x, v.y);
    }
  };
  const bool e4m3 = a.dtype == num::kE4M3;
  // After the codes of rows, or of columns, are counted.
  const auto count_side = [&](const auto &codes, bool by_row) {
    uint32_t m[4];
    bool exactly;
    if (by_row) {
      pair_rows(x, m);
      exactly = inputs.nonfinite || saturates(m, row_multiplier, e4m3);
    } else {
      pair_columns(x, m);
      exactly = inputs.nonfinite || saturates(m, col_multiplier, e4m3);
    }
    return exactly ? count_exactly(x, mine, e4m3, row_multiplier, col_multiplier, by_row)
                   : count_quickly(inputs, codes);
  };
  const auto write_rows = [&] {
    if (e4m3)
      emit_rows(num::E4M3{});
    else
      emit_rows(num::E5M2{});
    if constexpr (kStats) row_side = count_side(row_count, true);
  };

  if constexpr (kKind == kLeanTensor) {
    float v = 0.0f;
    for (int i = t; i < a.parts; i += kLeanThreads) v = amax1(v, a.tensor_amax[i]);
    v = block_amax<kLeanThreads>(v, shared.warps, lane, warp);
    if (a.any_given) v = a.tensor_amax[0];
    const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
    mr[0] = s.multiplier;
    if (blockIdx.x == 0 && t == 0) {
      if (has_row) put_scale(a.row, 0, 0, 0, v, s);
      if (has_col) put_scale(a.col, 0, 0, 0, v, s);
    }
  } else if constexpr (kKind == kLeanRow) {
    const int line = t & (kTile - 1);
    if (t < kTile) {
      if (has_row) shared.multiplier[0][line] = known_line(a, true, row0 + line, line < rows, tile_c == 0);
    } else if (has_col) {
      shared.multiplier[1][line] = known_line(a, false, col0 + line, line < cols, tile_r == 0);
    }
    __syncthreads();
    if (has_row) load_multipliers(&shared.multiplier[0][8 * rg], mr);
  } else if constexpr (kKind == kLeanSquare128) {
    const float v = block_amax<kLeanThreads>(larger_half(pair_all(x)), shared.warps, lane, warp);
    const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
    mr[0] = s.multiplier;
    if (t == 0) {
      if (has_row) put_scale(a.row, 0, tile_r, tile_c, v, s);
      if (has_col) put_scale(a.col, 0, tile_c, tile_r, v, s);
    }
  } else if constexpr (kKind == kLeanSquare32) {
    uint32_t b = pair_all(x);
#pragma unroll
    for (int s = 16; s; s /= 2)
      if (s != 4) b = amax2_bf16(b, shuffle_xor_bits(b, s));
    const float v = larger_half(b);
    num::ScaleOf s{};
    s.code = uint8_t(code_of(a, v));
    wr[0] = multiplier_of(s.code) * 0x10001u;
    if ((lane & 27) == 0 && mine) {
      const int64_t br = 4 * int64_t(tile_r) + (rg >> 2), bc = 4 * int64_t(tile_c) + (cg >> 2);
      if (has_row) put_scale(a.row, 0, br, bc, v, s);
      if (has_col) put_scale(a.col, 0, bc, br, v, s);
    }
  } else if constexpr (kKind == kLean128) {
    if (has_col) {
      uint32_t m[4];
      pair_columns(x, m);
      put_columns(m, shared.part[warp], lane, cg);
    }
    if (has_row) {
      uint32_t m[4];
      pair_rows(x, m);
      const float v = row_maximum(m, lane);
      const int line = 8 * rg + kept_row(lane);
      const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
      spread_rows(s.multiplier, lane, mr);
      if ((cg & 2) == 0 && line < rows) put_scale(a.row, 0, row0 + line, tile_c, v, s);
      write_rows();
    }
    if (has_col) {
      __syncthreads();
      if (t < kTile) {
        const float v = column_maximum(shared.part, t);
        const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
        shared.multiplier[1][t] = s.multiplier;
        if (t < cols) put_scale(a.col, 0, col0 + t, tile_r, v, s);
      }
    }
  } else {  // 1x32: the scales' bytes are gathered, to leave four at a time
    const auto scale_two = [&](uint32_t b, int side, int line, int block, bool inside) {  // lines `line` and the next
      const uint32_t low = code_of(a, low_float(b)), high = code_of(a, high_float(b));
      reinterpret_cast<uint8_t *>(&shared.codes[side][line])[block] = uint8_t(low);
      reinterpret_cast<uint8_t *>(&shared.codes[side][line + 1])[block] = uint8_t(high);
      const ops::Scale &out = side ? a.col.amax : a.row.amax;
      if (out.data && inside) {
        const int64_t at = (side ? col0 : row0) + line, c = 4 * int64_t(side ? tile_r : tile_c) + block;
        const int lines = side ? cols : rows;
        if (line < lines) put_amax(out, at, c, low_float(b));
        if (line + 1 < lines) put_amax(out, at + 1, c, high_float(b));
      }
      return multiplier_of(low) | multiplier_of(high) << 16;
    };
    if (has_col) {
      uint32_t m[4];
      pair_columns(x, m);
      const int q = lane >> 3, block = warp >> 1;  // holds word q of its column group
      const uint32_t w = scale_two(scatter_words(m, lane, 16, 8), 1, 8 * cg + 2 * q, block, 32 * block < rows);
#pragma unroll
      for (int k = 0; k < 4; ++k) wc[k] = shuffle_bits(w, k << 3 | (lane & 7));
    }
    if (has_row) {
      uint32_t m[4];
      pair_rows(x, m);
      const int q = lane & 3, block = cg >> 2;  // holds rows 2 q and 2 q + 1
      const uint32_t w = scale_two(scatter_words(m, lane, 2, 1), 0, 8 * rg + 2 * q, block, 32 * block < cols);
#pragma unroll
      for (int k = 0; k < 4; ++k) wr[k] = shuffle_bits(w, (lane & ~3) | k);
      write_rows();
    }
  }
  release_next();
  if constexpr (has_row && kKind != kLean128 && kKind != kLean32 && !(uniform && has_col)) write_rows();
  if constexpr (has_col) {
    if constexpr (kKind == kLean128) __syncthreads();
    if constexpr (kKind == kLean128 || kKind == kLeanRow) load_multipliers(&shared.multiplier[1][8 * cg], mc);
    uint2 *units = units_of(shared.units, rg, cg);
    const auto stage = [&](auto format) {
      using F = decltype(format);
      if constexpr (uniform && has_row) {  // the columns' codes are the rows'
        uint32_t left[8], right[8];
        uint8_t *p = row_address();
#pragma unroll
        for (int i = 0; i < 8; ++i, p += a.row.side.codes.lead_stride[0]) {
          const uint2 v = codes_of_row(format, i);
          if (i < mine) put_row(p, v);
          row_count.add(v.x, v.y);
          left[i] = v.x, right[i] = v.y;
        }
        stage_block(left, units, 0);
        stage_block(right, units, 1);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if constexpr (of_32)
            stage_pair<F>(x, k, PackedPair{uniform ? wr[0] : wc[k]}, units, col_count);
          else
            stage_pair<F>(x, k, FloatPair{uniform ? mr[0] : mc[2 * k], uniform ? mr[0] : mc[2 * k + 1]}, units,
                          col_count);
        }
      }
    };
    if (e4m3)
      stage(num::E4M3{});
    else
      stage(num::E5M2{});
    __syncthreads();
    write_units<known>(a, shared.units, t, row0, col0);
  }
  if constexpr (kStats) {
    __shared__ LeanCounters counters;
    __syncthreads();
    if (t < 2 * num::kStats) counters.of[t] = 0;
    SideCount col_side;
    if constexpr (uniform && has_row && has_col)
      col_side = row_side = count_side(row_count, true);
    else if constexpr (has_col)
      col_side = count_side(col_count, false);
    __syncthreads();
    if (has_row) add_warp(row_side, counters.of, lane);
    if (has_col) add_warp(col_side, counters.of + num::kStats, lane);
    __syncthreads();
    if (has_row) add_block(a.row.stats, counters.of, t, rows * cols);
    if (has_col) add_block(a.col.stats, counters.of + num::kStats, t, rows * cols);
  }
  if constexpr (kKind == kLean32) {
    if (!has_col) __syncthreads();
    if (t < kTile) {
      if (has_row && t < rows)
        put_codes(a.row.side.scale, row0 + t, 4 * int64_t(tile_c), (cols + 31) / 32, shared.codes[0][t]);
    } else if (has_col && t - kTile < cols) {
      put_codes(a.col.side.scale, col0 + t - kTile, 4 * int64_t(tile_r), (rows + 31) / 32, shared.codes[1][t - kTile]);
    }
  }
  if (a.dbias && t < kTile) sum_columns(a, true, tile_r, col0 + t);  // the tile's lines are in the cache
  if (blockIdx.x == 0) {
    if (has_row) zero_padding(a.row.side.scale, t, kLeanThreads);
    if (has_col) zero_padding(a.col.side.scale, t, kLeanThreads);
  }
}

template <int kKind, bool kStats>
cudaError_t load_lean() {
  return load_code(&quantize_lean<kKind, 1, kStats>, &quantize_lean<kKind, 2, kStats>,
                   &quantize_lean<kKind, 3, kStats>);
}

template <int kKind, bool kStats>
cudaError_t launch_lean(const TileArgs &a, unsigned grid, cudaStream_t stream) {
  const dim3 blocks(grid), threads(kLeanThreads);
  if (!a.col.side.scaling) return launch(&quantize_lean<kKind, 1, kStats>, blocks, threads, stream, true, a);
  if (!a.row.side.scaling) return launch(&quantize_lean<kKind, 2, kStats>, blocks, threads, stream, true, a);
  return launch(&quantize_lean<kKind, 3, kStats>, blocks, threads, stream, true, a);
}

template <bool kStats>
cudaError_t launch_lean_kind(const TileArgs &a, int kind, unsigned grid, cudaStream_t stream) {
  switch (kind) {
    case num::kTensor:
      return launch_lean<kLeanTensor, kStats>(a, grid, stream);
    case num::kRow:
      return launch_lean<kLeanRow, kStats>(a, grid, stream);
    case num::k1x128:
      return launch_lean<kLean128, kStats>(a, grid, stream);
    case num::k128x128:
      return launch_lean<kLeanSquare128, kStats>(a, grid, stream);
    case num::k1x32:
      return launch_lean<kLean32, kStats>(a, grid, stream);
    default:
      return launch_lean<kLeanSquare32, kStats>(a, grid, stream);
  }
}

template <bool kStats>
cudaError_t load_lean_kinds() {
  cudaError_t e = cudaSuccess;
  for (cudaError_t (*loads)() :
       {load_lean<kLeanTensor, kStats>, load_lean<kLeanRow, kStats>, load_lean<kLean128, kStats>,
        load_lean<kLeanSquare128, kStats>, load_lean<kLean32, kStats>, load_lean<kLeanSquare32, kStats>})
    if (!e) e = loads();
  return e;
}

}  // namespace fp8::cuda
