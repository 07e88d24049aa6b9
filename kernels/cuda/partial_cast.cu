// SPDX-License-Identifier: Apache-2.0
// Partial amax and cast of one rank's elements, for a whole list in one launch. A block takes a 128 x 128 tile of a
// weight, a warp 32 of its rows, a lane every 32nd column: a 1 x 32 block is one register across the warp, and any cut
// reads in whole sectors.
#include "device/param.cuh"

namespace fp8::cuda {
namespace {

using namespace num;

// ---------------------------------------------------------------- kernels

struct Args {
  ops::ParamList p;  // items and pieces are the device's
  const DeviceItem *items;
  const ops::ParamPiece *pieces;
};

struct Unit {
  const ops::ParamItem *item;
  ops::ParamPiece own;
  int64_t row0, col0;
  bool any;
};

__device__ __forceinline__ Unit find_unit(const Args &a) {
  const int i = find_item(a.items, a.p.count, blockIdx.x);
  const int rank = a.p.rank >= 0 ? a.p.rank : *a.p.rank_data;
  Unit u;
  u.item = &a.items[i].item;
  u.own = a.pieces[int64_t{i} * a.p.world + rank];
  const int64_t across = units(u.item->cols, kSquare), index = blockIdx.x - a.items[i].first;
  u.any = u.own.count > 0;
  u.row0 = u.col0 = 0;
  if (!u.any) return u;
  u.row0 = (u.own.begin / u.item->cols / kSquare + index / across) * kSquare;
  u.col0 = index % across * kSquare;
  u.any = u.row0 < u.item->rows && u.row0 * u.item->cols < u.own.begin + u.own.count;
  return u;
}

// Offsets into the owned elements of this lane's four columns in `row`; -1 where another rank, or nobody, owns them.
struct Line {
  int64_t at[4];
};
__device__ __forceinline__ Line line_of(const Unit &u, int64_t row, int lane) {
  Line l;
  const int64_t start = row * u.item->cols - u.own.begin;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t col = u.col0 + lane + 32 * i, at = start + col;
    l.at[i] = row < u.item->rows && col < u.item->cols && at >= 0 && at < u.own.count ? at : -1;
  }
  return l;
}

template <class T>
__device__ __forceinline__ float value_at(const void *master, int64_t at) {
  if (at < 0) return 0.0f;
  if constexpr (sizeof(T) == 4)
    return __ldcs(static_cast<const float *>(master) + at);
  else
    return decode_bf16(__ldcs(static_cast<const unsigned short *>(master) + at));
}

__device__ __forceinline__ uint32_t magnitude(float x) {
  const uint32_t a = bits_of(x) & kF32Abs;
  return a <= kF32Inf ? a : 0;
}

__device__ __forceinline__ float rounded(const ops::ParamList &p, uint32_t bits) {
  return p.round_bf16 ? decode_bf16(encode_bf16(float_of(bits))) : float_of(bits);
}

__device__ __forceinline__ uint8_t code_of(const ops::ParamList &p, uint32_t bits) {
  return scale_of(p.dtype, p.rule, rounded(p, bits), p.amax_floor).code;
}

__device__ __forceinline__ void raise(const ops::ParamList &p, int64_t index, uint32_t bits) {
  if (bits) atomicMax(static_cast<unsigned *>(p.amax) + index, bits_of(rounded(p, bits)));
}

// A tile that this rank owns whole, in rows that start at a multiple of four elements: a lane takes four neighbours.
template <class T>
__device__ __forceinline__ bool is_whole(const Unit &u) {
  const ops::ParamItem &m = *u.item;
  const int64_t first = u.row0 * m.cols + u.col0 - u.own.begin;
  return u.row0 + kSquare <= m.rows && u.col0 + kSquare <= m.cols && first >= 0 &&
         first + (kSquare - 1) * m.cols + kSquare <= u.own.count && m.cols % 4 == 0 && (u.own.begin + first) % 4 == 0 &&
         first % 4 == 0 && reinterpret_cast<uintptr_t>(m.master) % (4 * sizeof(T)) == 0;
}

template <class T>
__device__ __forceinline__ void load_four(const void *master, int64_t at, float (&x)[4]) {
  if constexpr (sizeof(T) == 4) {
    const float4 v = __ldcs(reinterpret_cast<const float4 *>(static_cast<const float *>(master) + at));
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  } else {
    const uint2 v = __ldcs(reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(master) + at));
    x[0] = float_of(v.x << 16), x[1] = float_of(v.x & 0xffff0000u);
    x[2] = float_of(v.y << 16), x[3] = float_of(v.y & 0xffff0000u);
  }
}

// Where a lane's column i lies in the tile, either way of reading.
__device__ __forceinline__ int column_of(bool whole, int lane, int i) { return whole ? 4 * lane + i : lane + 32 * i; }

// To BF16 and back. Any NaN stays one, which is all that a cast looks at.
__device__ __forceinline__ void round_four(float (&x)[4]) {
  uint32_t low, high;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(x[1]), "f"(x[0]));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(x[3]), "f"(x[2]));
  x[0] = float_of(low << 16), x[1] = float_of(low & 0xffff0000u);
  x[2] = float_of(high << 16), x[3] = float_of(high & 0xffff0000u);
}

template <class T>
__global__ void __launch_bounds__(128) amax_units(const __grid_constant__ Args a) {
  __shared__ uint32_t cols[4][kSquare], square[4];
  const ops::ParamList &p = a.p;
  const Unit u = find_unit(a);
  if (!u.any) return;
  const ops::ParamItem &m = *u.item;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int64_t warp_row = u.row0 + 32 * warp, tile_col = u.col0 / kSquare, tile_col32 = u.col0 / 32;
  const bool both = !ops::shares_scale(p.scaling), row_side = !both || (p.sides & 1), col_side = both && (p.sides & 2);
  const int64_t across = units(m.cols, kSquare), across32 = units(m.cols, 32);
  uint32_t col[4] = {0, 0, 0, 0}, of_row = 0, of_row32[4] = {0, 0, 0, 0};
  const bool whole = is_whole<T>(u);
  if (whole) {
    const int64_t start = warp_row * m.cols + u.col0 + 4 * lane - u.own.begin;
    for (int r = 0; r < 32; r += 8) {
      float x[8][4];
#pragma unroll
      for (int k = 0; k < 8; ++k) load_four<T>(m.master, start + (r + k) * m.cols, x[k]);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        uint32_t all = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t v = magnitude(x[k][i]);
          col[i] = max(col[i], v);
          all = max(all, v);
        }
        if (p.scaling == k1x32) {  // eight lanes a block of 32; lane r + k keeps this row's four maxima
          all = max(all, __shfl_xor_sync(~0u, all, 1));
          all = max(all, __shfl_xor_sync(~0u, all, 2));
          all = max(all, __shfl_xor_sync(~0u, all, 4));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint32_t w = __shfl_sync(~0u, all, 8 * i);
            if (lane == r + k) of_row32[i] = w;
          }
        } else if (p.scaling == kRow || p.scaling == k1x128) {
          const uint32_t w = __reduce_max_sync(~0u, all);
          if (lane == r + k) of_row = w;
        }
      }
    }
  }
  for (int r = 0; !whole && r < 32; r += 4) {
    float x[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const Line l = line_of(u, warp_row + r + k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[k][i] = value_at<T>(m.master, l.at[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t v[4], all = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = magnitude(x[k][i]);
        col[i] = max(col[i], v[i]);
        all = max(all, v[i]);
      }
      if (p.scaling == k1x32) {  // lane r + k keeps this row's four maxima
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t w = __reduce_max_sync(~0u, v[i]);
          if (lane == r + k) of_row32[i] = w;
        }
      } else if (p.scaling == kRow || p.scaling == k1x128) {
        const uint32_t w = __reduce_max_sync(~0u, all);
        if (lane == r + k) of_row = w;
      }
    }
  }
  if (p.scaling == k32x32 || col_side) {
#pragma unroll
    for (int i = 0; i < 4; ++i) cols[warp][column_of(whole, lane, i)] = col[i];
    __syncwarp();
  }
  const int64_t row = warp_row + lane;
  if (row_side && row < m.rows) {
    if (p.scaling == kRow) raise(p, m.amax_row + row, of_row);
    if (p.scaling == k1x128) raise(p, m.amax_row + row * across + tile_col, of_row);
    if (p.scaling == k1x32) {
      uint8_t *codes = static_cast<uint8_t *>(p.amax) + m.amax_row + row * across32 + tile_col32;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (tile_col32 + i < across32) codes[i] = code_of(p, of_row32[i]);
    }
  }
  if (p.scaling == k32x32) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = __reduce_max_sync(~0u, cols[warp][lane + 32 * i]);
    if (lane < 4 && warp_row < m.rows && tile_col32 + lane < across32)
      static_cast<uint8_t *>(p.amax)[m.amax_row + warp_row / 32 * across32 + tile_col32 + lane] =
          code_of(p, lane == 0   ? w[0]
                     : lane == 1 ? w[1]
                     : lane == 2 ? w[2]
                                 : w[3]);
  }
  if (p.scaling == kTensor || p.scaling == k128x128) {
    const uint32_t w = __reduce_max_sync(~0u, max(max(col[0], col[1]), max(col[2], col[3])));
    if (lane == 0) square[warp] = w;
    __syncthreads();
    if (threadIdx.x == 0)
      raise(p, m.amax_row + (p.scaling == kTensor ? 0 : u.row0 / kSquare * across + tile_col),
            max(max(square[0], square[1]), max(square[2], square[3])));
  }
  if (!col_side) return;
  __syncthreads();
  const int c = threadIdx.x;
  const int64_t column = u.col0 + c, down32 = units(m.rows, 32), row32 = u.row0 / 32;
  if (column >= m.cols) return;
  if (p.scaling == k1x32) {
    uint8_t *codes = static_cast<uint8_t *>(p.amax) + m.amax_col + column * down32 + row32;
    uint8_t byte[4];
#pragma unroll
    for (int g = 0; g < 4; ++g) byte[g] = code_of(p, cols[g][c]);
    if (row32 + 4 <= down32 && reinterpret_cast<uintptr_t>(codes) % 4 == 0) {
      *reinterpret_cast<uchar4 *>(codes) = make_uchar4(byte[0], byte[1], byte[2], byte[3]);
    } else {
#pragma unroll
      for (int g = 0; g < 4; ++g)
        if (row32 + g < down32) codes[g] = byte[g];
    }
    return;
  }
  const uint32_t w = max(max(cols[0][c], cols[1][c]), max(cols[2][c], cols[3][c]));
  raise(p, m.amax_col + (p.scaling == kRow ? column : column * units(m.rows, kSquare) + u.row0 / kSquare), w);
}

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

template <class T, class F>
__global__ void __launch_bounds__(128) cast_units(const __grid_constant__ Args a) {
  const ops::ParamList &p = a.p;
  const Unit u = find_unit(a);
  if (!u.any) return;
  const ops::ParamItem &m = *u.item;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int64_t warp_row = u.row0 + 32 * warp, tile_col = u.col0 / kSquare, tile_col32 = u.col0 / 32;
  const bool both = !ops::shares_scale(p.scaling), row_side = !both || (p.sides & 1), col_side = both && (p.sides & 2);
  const int64_t across = units(m.cols, kSquare), across32 = units(m.cols, 32), my_row = warp_row + lane;
  uint8_t *row_piece = static_cast<uint8_t *>(p.shard) + p.row_part + u.own.row_at;
  uint8_t *col_piece = static_cast<uint8_t *>(p.shard) + p.col_part + u.own.col_at;
  // Multipliers: of the tile, of each row, of the lane's own columns.
  __shared__ float4 of_rows[4][32];
  float flat[4] = {1, 1, 1, 1}, col[4] = {1, 1, 1, 1};
  const bool whole = is_whole<T>(u), by_row = p.scaling == kRow || p.scaling == k1x128 || p.scaling == k1x32;
  if (row_side && !by_row && warp_row < m.rows) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (p.scaling == k32x32) {
        if (tile_col32 + i < across32) flat[i] = multiplier(p, m.amax_row + warp_row / 32 * across32 + tile_col32 + i);
      } else {
        flat[i] =
            i ? flat[0] : multiplier(p, m.amax_row + (p.scaling == kTensor ? 0 : u.row0 / kSquare * across + tile_col));
      }
    }
    if (whole) flat[0] = lane < 8 ? flat[0] : lane < 16 ? flat[1] : lane < 24 ? flat[2] : flat[3];
  }
  if (row_side && by_row) {
    float mine[4] = {1, 1, 1, 1};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (my_row >= m.rows) continue;
      if (p.scaling == k1x32) {
        if (tile_col32 + i < across32) mine[i] = multiplier(p, m.amax_row + my_row * across32 + tile_col32 + i);
      } else {
        mine[i] = i ? mine[0] : multiplier(p, m.amax_row + (p.scaling == kRow ? my_row : my_row * across + tile_col));
      }
    }
    of_rows[warp][lane] = make_float4(mine[0], mine[1], mine[2], mine[3]);
    __syncwarp();
  }
  if (col_side && warp_row < m.rows) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t column = u.col0 + column_of(whole, lane, i);
      if (column >= m.cols) continue;
      const int64_t at = p.scaling == kRow    ? column
                         : p.scaling == k1x32 ? column * units(m.rows, 32) + warp_row / 32
                                              : column * units(m.rows, kSquare) + u.row0 / kSquare;
      col[i] = multiplier(p, m.amax_col + at);
    }
  }
  const bool round = p.round_bf16 && sizeof(T) == 4;
  if (whole) {
    const int64_t start = warp_row * m.cols + u.col0 + 4 * lane - u.own.begin;
    for (int r = 0; r < 32; r += 8) {
      float x[8][4];
#pragma unroll
      for (int k = 0; k < 8; ++k) load_four<T>(m.master, start + (r + k) * m.cols, x[k]);
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
    float x[4][4];
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

// 16-bit weights: the owned elements, rounded.
template <class T>
__global__ void __launch_bounds__(256) copy_units(const __grid_constant__ Args a) {
  const ops::ParamList &p = a.p;
  const int i = find_item(a.items, p.count, blockIdx.x);
  const ops::ParamPiece own = a.pieces[int64_t{i} * p.world + (p.rank >= 0 ? p.rank : *p.rank_data)];
  const int64_t begin = (blockIdx.x - a.items[i].first) * kFlat, end = min(own.count, begin + kFlat);
  uint16_t *out = reinterpret_cast<uint16_t *>(static_cast<uint8_t *>(p.shard) + p.row_part + own.row_at);
  for (int64_t at = begin + threadIdx.x; at < end; at += blockDim.x) {
    if constexpr (sizeof(T) == 2)
      out[at] = static_cast<const uint16_t *>(a.items[i].item.master)[at];
    else
      out[at] = encode_bf16(static_cast<const float *>(a.items[i].item.master)[at]);
  }
}

struct Sources {
  const void *at[64];
  int count;
};

template <class T>
__global__ void __launch_bounds__(256) reduce_units(T *dst, const __grid_constant__ Sources s, int64_t size) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < size; i += gridDim.x * int64_t{256}) {
    T best = dst[i];
    for (int k = 0; k < s.count; ++k) best = max(best, static_cast<const T *>(s.at[k])[i]);
    dst[i] = best;
  }
}

// ---------------------------------------------------------------- launchers

// Units of an item for one rank, or for whichever rank it turns out to be.
int64_t units_of(const ops::ParamList &p, int32_t i) {
  const ops::ParamItem &m = p.items[i];
  int64_t most = 0;
  for (int32_t r = 0; r < p.world; ++r) {
    if (p.rank >= 0 && r != p.rank) continue;
    const ops::ParamPiece &own = p.pieces[int64_t{i} * p.world + r];
    if (own.count == 0) continue;
    const int64_t n = plain_copy(p.scaling)
                          ? units(own.count, kFlat)
                          : ((own.begin + own.count - 1) / m.cols / kSquare - own.begin / m.cols / kSquare + 1) *
                                units(m.cols, kSquare);
    most = std::max(most, n);
  }
  return most;
}

// One launch a master dtype (a list has one, most often). A known rank's pieces go up as a world of one.
template <class Launch>
cudaError_t over_masters(const ops::ParamList &p, cudaStream_t stream, int32_t *launches, Launch &&launch_one) {
  std::vector<ops::ParamPiece> own;
  ops::ParamList list = p;
  if (p.rank >= 0) {
    for (int32_t i = 0; i < p.count; ++i) own.push_back(p.pieces[int64_t{i} * p.world + p.rank]);
    list.pieces = own.data();
    list.world = 1;
    list.rank = 0;
  }
  for (const int32_t dtype : {int32_t{kF32}, int32_t{kBF16}}) {
    std::vector<DeviceItem> items;
    int64_t grid = 0;
    for (int32_t i = 0; i < p.count; ++i) {
      items.push_back({grid, p.items[i]});
      if (p.items[i].master_dtype == dtype) grid += units_of(list, i);
    }
    if (grid == 0) continue;
    // an item without units shares `first` with the next one, and find_item takes the last of equals
    const cudaError_t e = upload(items, list, true, stream, launches);
    if (e != cudaSuccess) return e;
    const Args args{list, device_items(list), device_pieces(list)};
    launch_one(args, static_cast<unsigned>(grid), dtype);
    ++*launches;
    const cudaError_t f = cudaGetLastError();
    if (f != cudaSuccess) return f;
  }
  return cudaSuccess;
}

}  // namespace

int64_t param_table_bytes(const ops::ParamList &p) { return items_bytes(p) + pieces_bytes(p); }

cudaError_t launch_param_amax(const ops::ParamList &p, cudaStream_t stream, int32_t *launches) {
  if (plain_copy(p.scaling) || p.amax_count == 0) return cudaSuccess;
  const cudaError_t e = cudaMemsetAsync(p.amax, 0, p.amax_count * (p.amax_dtype == kF32 ? 4 : 1), stream);
  if (e != cudaSuccess) return e;
  return over_masters(p, stream, launches, [&](const Args &args, unsigned grid, int32_t dtype) {
    if (dtype == kF32)
      amax_units<float><<<grid, 128, 0, stream>>>(args);
    else
      amax_units<uint16_t><<<grid, 128, 0, stream>>>(args);
  });
}

cudaError_t launch_param_cast(const ops::ParamList &p, cudaStream_t stream, int32_t *launches) {
  return over_masters(p, stream, launches, [&](const Args &args, unsigned grid, int32_t dtype) {
    if (plain_copy(p.scaling)) {
      if (dtype == kF32)
        copy_units<float><<<grid, 256, 0, stream>>>(args);
      else
        copy_units<uint16_t><<<grid, 256, 0, stream>>>(args);
    } else if (p.dtype == kE4M3) {
      if (dtype == kF32)
        cast_units<float, E4M3><<<grid, 128, 0, stream>>>(args);
      else
        cast_units<uint16_t, E4M3><<<grid, 128, 0, stream>>>(args);
    } else {
      if (dtype == kF32)
        cast_units<float, E5M2><<<grid, 128, 0, stream>>>(args);
      else
        cast_units<uint16_t, E5M2><<<grid, 128, 0, stream>>>(args);
    }
  });
}

cudaError_t launch_reduce_max(const ops::ReduceMax &r, cudaStream_t stream, int32_t *launches) {
  for (int32_t at = 0; at < r.count; at += 64) {
    Sources s{};
    for (int32_t k = at; k < std::min(r.count, at + 64); ++k)
      if (r.sources[k] != r.dst) s.at[s.count++] = r.sources[k];
    const unsigned grid = static_cast<unsigned>(std::min<int64_t>(units(r.size, 256), 4096));
    if (grid == 0 || s.count == 0) continue;
    if (r.dtype == kF32)
      reduce_units<float><<<grid, 256, 0, stream>>>(static_cast<float *>(r.dst), s, r.size);
    else
      reduce_units<uint8_t><<<grid, 256, 0, stream>>>(static_cast<uint8_t *>(r.dst), s, r.size);
    ++*launches;
    const cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

}  // namespace fp8::cuda
