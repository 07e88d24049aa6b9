// SPDX-License-Identifier: Apache-2.0
// Partial amax of one rank's elements, for a whole list in one launch; and the maximum over ranks' arrays.
#include "device/partial.cuh"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

__device__ __forceinline__ float rounded(const ops::ParamList &p, uint32_t bits) {
  return p.round_bf16 ? decode_bf16(encode_bf16(float_of(bits))) : float_of(bits);
}

__device__ __forceinline__ uint8_t code_of(const ops::ParamList &p, uint32_t bits) {
  return scale_of(p.dtype, p.rule, rounded(p, bits), p.amax_floor).code;
}

__device__ __forceinline__ void raise(const ops::ParamList &p, int64_t index, uint32_t bits) {
  if (bits) atomicMax(static_cast<unsigned *>(p.amax) + index, bits_of(rounded(p, bits)));
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

}  // namespace

// ---------------------------------------------------------------- launchers

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

cudaError_t load_partial_amax() {
  return load_code(&amax_units<float>, &amax_units<uint16_t>, &reduce_units<float>, &reduce_units<uint8_t>,
                   &upload_chunk);
}

}  // namespace fp8::cuda
