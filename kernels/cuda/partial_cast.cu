// SPDX-License-Identifier: Apache-2.0
// Cast of one rank's elements, for a whole list in one launch. Codes of other ranks' elements are never written.
#include "device/partial.cuh"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

__device__ __forceinline__ float multiplier(const ops::ParamList &p, int64_t index) {
  if (p.amax_dtype == kF32)
    return scale_of(p.dtype, p.rule, static_cast<const float *>(p.amax)[index], p.amax_floor).multiplier;
  return reciprocal_e8m0(static_cast<const uint8_t *>(p.amax)[index]);
}

template <class F>
__device__ __forceinline__ void store_line(uint8_t *piece, const Line &l, const float (&x)[4], const float (&m)[4]) {
  const uint32_t low = encode2<F>(mul_rn(x[0], m[0]), mul_rn(x[1], m[1]));
  const uint32_t high = encode2<F>(mul_rn(x[2], m[2]), mul_rn(x[3], m[3]));
  if (l.at[0] >= 0) piece[l.at[0]] = uint8_t(low);
  if (l.at[1] >= 0) piece[l.at[1]] = uint8_t(low >> 8);
  if (l.at[2] >= 0) piece[l.at[2]] = uint8_t(high);
  if (l.at[3] >= 0) piece[l.at[3]] = uint8_t(high >> 8);
}

// Of one side's tile, for this thread's rows or columns: four codes that lie together, of which `count` exist.
__device__ __forceinline__ float4 four_multipliers(const ops::ParamList &p, int64_t index, int64_t count) {
  const uint8_t *codes = static_cast<const uint8_t *>(p.amax) + index;
  uint32_t word = 0;
  if (count >= 4 && reinterpret_cast<uintptr_t>(codes) % 4 == 0) {
    word = *reinterpret_cast<const uint32_t *>(codes);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < count) word |= uint32_t(codes[i]) << 8 * i;
  }
  return make_float4(reciprocal_e8m0(uint8_t(word)), reciprocal_e8m0(uint8_t(word >> 8)),
                     reciprocal_e8m0(uint8_t(word >> 16)), reciprocal_e8m0(uint8_t(word >> 24)));
}

// kMx: 1 x 32 blocks; else every other scaling. of_rows, of_cols: multipliers of each row (one, or one of each 32
// columns) and, MX, of each column in this warp's 32 rows.
template <class T, class F, bool kMx>
__device__ __forceinline__ void cast_unit(const Args &a, unsigned unit, float4 (&of_rows)[4][32],
                                          float (&of_cols)[kMx ? 4 : 1][kSquare]) {
  const ops::ParamList &p = a.p;
  const Unit u = find_unit(a, unit);
  if (!u.any) return;
  const MasterItem &m = u.m;
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
  const int64_t warp_row = u.row0 + 32 * warp, tile_col = u.col0 / kSquare, tile_col32 = u.col0 / 32;
  const bool both = kMx || !ops::shares_scale(p.scaling), row_side = !both || (p.sides & 1),
             col_side = both && (p.sides & 2), by_row = kMx || p.scaling == kRow || p.scaling == k1x128;
  const int64_t across = units(m.cols, kSquare), across32 = units(m.cols, 32), my_row = warp_row + lane;
  uint8_t *row_piece = static_cast<uint8_t *>(p.shard) + p.row_part + table_at<int64_t>(a, u.rank * 8) + u.own.at;
  uint8_t *col_piece = static_cast<uint8_t *>(p.shard) + p.col_part + u.own.at;
  const bool whole = is_whole<T>(u);
  const int64_t start = warp_row * m.cols + u.col0 + 4 * lane - u.own.begin;
  float x[8][4];
  if (whole) {  // under way while the multipliers are made
#pragma unroll
    for (int k = 0; k < 8; ++k) load_four<T>(m.master, start + k * m.cols, x[k]);
  }
  float flat[4] = {1, 1, 1, 1}, col[4] = {1, 1, 1, 1};
  if (kMx) {
    if (row_side && my_row < m.rows)
      of_rows[warp][lane] = four_multipliers(p, m.amax + my_row * across32 + tile_col32, across32 - tile_col32);
    const int64_t column = u.col0 + int(threadIdx.x), down32 = units(m.rows, 32), row32 = u.row0 / 32;
    if (col_side && column < m.cols) {
      const float4 v = four_multipliers(p, m.amax + m.rows * across32 + column * down32 + row32, down32 - row32);
      of_cols[0][threadIdx.x] = v.x;
      of_cols[kMx ? 1 : 0][threadIdx.x] = v.y;
      of_cols[kMx ? 2 : 0][threadIdx.x] = v.z;
      of_cols[kMx ? 3 : 0][threadIdx.x] = v.w;
    }
    __syncthreads();
    if (col_side) {
#pragma unroll
      for (int i = 0; i < 4; ++i) col[i] = of_cols[warp][column_of(whole, lane, i)];
    }
  } else {
    if (row_side && !by_row && warp_row < m.rows) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (p.scaling == k32x32) {
          if (tile_col32 + i < across32) flat[i] = multiplier(p, m.amax + warp_row / 32 * across32 + tile_col32 + i);
        } else {
          flat[i] =
              i ? flat[0] : multiplier(p, m.amax + (p.scaling == kTensor ? 0 : u.row0 / kSquare * across + tile_col));
        }
      }
      if (whole) flat[0] = lane < 8 ? flat[0] : lane < 16 ? flat[1] : lane < 24 ? flat[2] : flat[3];
    }
    if (row_side && by_row) {
      float mine = 1;
      if (my_row < m.rows) mine = multiplier(p, m.amax + (p.scaling == kRow ? my_row : my_row * across + tile_col));
      of_rows[warp][lane] = make_float4(mine, mine, mine, mine);
      sync_warp();
    }
    if (col_side && warp_row < m.rows) {
      const int64_t tiles = p.scaling == kRow ? 1 : across, down = units(m.rows, kSquare);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t column = u.col0 + column_of(whole, lane, i);
        if (column >= m.cols) continue;
        col[i] =
            multiplier(p, m.amax + m.rows * tiles + (p.scaling == kRow ? column : column * down + u.row0 / kSquare));
      }
    }
  }
  const bool round = p.round_bf16 && sizeof(T) == 4;
  if (whole) {
    for (int r = 0; r < 32; r += 8) {
      if (r) {
#pragma unroll
        for (int k = 0; k < 8; ++k) load_four<T>(m.master, start + (r + k) * m.cols, x[k]);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int64_t at = start + (r + k) * m.cols;
        if (round) round_four(x[k]);
        if (row_side) {
          const float s = by_row ? reinterpret_cast<const float *>(&of_rows[warp][r + k])[lane >> 3] : flat[0];
          *reinterpret_cast<uint32_t *>(row_piece + at) = encode2<F>(mul_rn(x[k][0], s), mul_rn(x[k][1], s)) |
                                                          encode2<F>(mul_rn(x[k][2], s), mul_rn(x[k][3], s)) << 16;
        }
        if (col_side)
          *reinterpret_cast<uint32_t *>(col_piece + at) = encode2<F>(mul_rn(x[k][0], col[0]), mul_rn(x[k][1], col[1])) |
                                                          encode2<F>(mul_rn(x[k][2], col[2]), mul_rn(x[k][3], col[3]))
                                                              << 16;
      }
    }
    return;
  }
  for (int r = 0; r < 32; r += 4) {
    Line l[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      l[k] = line_of(u, warp_row + r + k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[k][i] = value_at<T>(m.master, l[k].at[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (round) round_four(x[k]);
      if (row_side) {
        const float4 v = by_row ? of_rows[warp][r + k] : make_float4(flat[0], flat[1], flat[2], flat[3]);
        const float s[4] = {v.x, v.y, v.z, v.w};
        store_line<F>(row_piece, l[k], x[k], s);
      }
      if (col_side) store_line<F>(col_piece, l[k], x[k], col);
    }
  }
}

template <class T, class F, bool kMx, bool kFew>
__global__ void __launch_bounds__(128, kMx && sizeof(T) == 4 && !kFew ? 5 : 4)
    cast_units(const __grid_constant__ Args a) {
  __shared__ float4 of_rows[4][32];
  __shared__ float of_cols[kMx ? 4 : 1][kSquare];
  each_block<kFew>(a.units, [&](unsigned unit) { cast_unit<T, F, kMx>(a, unit, of_rows, of_cols); });
}

// 16-bit weights: the owned elements, rounded.
template <class T>
__device__ __forceinline__ void copy_unit(const Args &a, unsigned unit) {
  const ops::ParamList &p = a.p;
  const int i = find_item<MasterItem>(a, unit), rank = p.rank >= 0 ? p.rank : *p.rank_data;
  const MasterItem m = item_at<MasterItem>(a, i);
  const ops::ParamPiece own = piece_at<ops::ParamPiece>(a, i, rank);
  const int64_t begin = (unit - m.first) * kFlat, end = begin + kFlat < own.count ? begin + kFlat : own.count;
  uint16_t *out = reinterpret_cast<uint16_t *>(static_cast<uint8_t *>(p.shard) + p.row_part +
                                               table_at<int64_t>(a, rank * 8) + own.at);
  for (int64_t at = begin + int(threadIdx.x); at < end; at += int(blockDim.x)) {
    if constexpr (sizeof(T) == 2)
      out[at] = static_cast<const uint16_t *>(m.master)[at];
    else
      out[at] = encode_bf16(static_cast<const float *>(m.master)[at]);
  }
}

template <class T, bool kFew>
__global__ void __launch_bounds__(256) copy_units(const __grid_constant__ Args a) {
  each_block<kFew>(a.units, [&](unsigned unit) { copy_unit<T>(a, unit); });
}

}  // namespace

// ---------------------------------------------------------------- launchers

template <class T, bool kFew>
static auto cast_kernel(int32_t dtype, bool mx) {
  return dtype == kE4M3 ? (mx ? cast_units<T, E4M3, true, kFew> : cast_units<T, E4M3, false, kFew>)
                        : (mx ? cast_units<T, E5M2, true, kFew> : cast_units<T, E5M2, false, kFew>);
}

template <class T>
static cudaError_t launch_cast_of(const Args &args, int32_t most, cudaStream_t stream) {
  const ops::ParamList &p = args.p;
  if (plain_copy(p.scaling))
    return launch_blocks(copy_units<T, false>, copy_units<T, true>, args.units, most, 256, stream, args);
  const bool mx = p.scaling == k1x32;
  return launch_blocks(cast_kernel<T, false>(p.dtype, mx), cast_kernel<T, true>(p.dtype, mx), args.units, most, 128,
                       stream, args);
}

cudaError_t launch_param_cast(const ops::ParamList &p, int32_t most, cudaStream_t stream, int32_t *launches) {
  return over_masters(p, stream, launches, [&](const Args &args, int32_t dtype) {
    return dtype == kF32 ? launch_cast_of<float>(args, most, stream) : launch_cast_of<uint16_t>(args, most, stream);
  });
}

template <class T, bool kFew>
static cudaError_t load_cast() {
  return load_code(&cast_units<T, E4M3, false, kFew>, &cast_units<T, E5M2, false, kFew>,
                   &cast_units<T, E4M3, true, kFew>, &cast_units<T, E5M2, true, kFew>, &copy_units<T, kFew>);
}

cudaError_t load_partial_cast() {
  cudaError_t e = load_code(&upload_chunk);
  for (cudaError_t (*loads)() :
       {load_cast<float, false>, load_cast<float, true>, load_cast<uint16_t, false>, load_cast<uint16_t, true>})
    if (!e) e = loads();
  return e;
}

}  // namespace fp8::cuda
