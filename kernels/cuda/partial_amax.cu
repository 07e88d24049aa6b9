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
  if (bits) atomic_amax(static_cast<float *>(p.amax) + index, rounded(p, bits));
}

// v[k] of the eight lanes of a group become one: lane l gets the maximum of v[l % 8].
__device__ __forceinline__ uint32_t max_across(uint32_t (&v)[8], int lane) {
#pragma unroll
  for (int half = 4; half; half /= 2) {
    const bool high = lane & half;
#pragma unroll
    for (int k = 0; k < half; ++k) {
      const uint32_t keep = high ? v[k + half] : v[k], give = high ? v[k] : v[k + half];
      v[k] = larger(keep, shuffle_xor_bits(give, half));
    }
  }
  return v[0];
}

// kMx: 1 x 32 blocks, whose codes are bytes; else every other scaling.
template <class T, bool kMx>
__device__ __forceinline__ void amax_unit(const ops::ParamList &p, const Unit &u, uint32_t (&cols)[4][kSquare],
                                          uint32_t (&square)[4]) {
  const MasterItem &m = u.m;
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
  const int64_t warp_row = u.row0 + 32 * warp, tile_col = u.col0 / kSquare, tile_col32 = u.col0 / 32;
  const bool both = kMx || !ops::shares_scale(p.scaling), row_side = !both || (p.sides & 1),
             col_side = both && (p.sides & 2), by_row = !kMx && (p.scaling == kRow || p.scaling == k1x128);
  const int64_t across = units(m.cols, kSquare), across32 = units(m.cols, 32);
  uint8_t *codes = static_cast<uint8_t *>(p.amax) + m.amax;
  uint32_t col[4] = {0, 0, 0, 0}, of_row = 0, of_row32[4] = {0, 0, 0, 0};
  const bool whole = is_whole<T>(u);
  if (whole) {
    const int64_t start = warp_row * m.cols + u.col0 + 4 * lane - u.own.begin;
    for (int r = 0; r < 32; r += 8) {
      float x[8][4];
      uint32_t all[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) load_four<T>(m.master, start + (r + k) * m.cols, x[k]);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        all[k] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t v = magnitude(x[k][i]);
          col[i] = larger(col[i], v);
          all[k] = larger(all[k], v);
        }
        if (by_row) {
          const uint32_t w = warp_max(all[k]);
          if (lane == r + k) of_row = w;
        }
      }
      if (kMx && row_side) {  // eight lanes a block of 32
        const uint32_t w = max_across(all, lane);
        codes[(warp_row + r + (lane & 7)) * across32 + tile_col32 + (lane >> 3)] = code_of(p, w);
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
        col[i] = larger(col[i], v[i]);
        all = larger(all, v[i]);
      }
      if (kMx) {  // lane r + k keeps this row's four maxima
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t w = warp_max(v[i]);
          if (lane == r + k) of_row32[i] = w;
        }
      } else if (by_row) {
        const uint32_t w = warp_max(all);
        if (lane == r + k) of_row = w;
      }
    }
  }
  if ((!kMx && p.scaling == k32x32) || col_side) {
#pragma unroll
    for (int i = 0; i < 4; ++i) cols[warp][column_of(whole, lane, i)] = col[i];
    sync_warp();
  }
  const int64_t row = warp_row + lane;
  if (row_side && row < m.rows) {
    if (!kMx && p.scaling == kRow) raise(p, m.amax + row, of_row);
    if (!kMx && p.scaling == k1x128) raise(p, m.amax + row * across + tile_col, of_row);
    if (kMx && !whole) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (tile_col32 + i < across32) codes[row * across32 + tile_col32 + i] = code_of(p, of_row32[i]);
    }
  }
  if (!kMx && p.scaling == k32x32) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = warp_max(cols[warp][lane + 32 * i]);
    if (lane < 4 && warp_row < m.rows && tile_col32 + lane < across32)
      codes[warp_row / 32 * across32 + tile_col32 + lane] = code_of(p, lane == 0   ? w[0]
                                                                       : lane == 1 ? w[1]
                                                                       : lane == 2 ? w[2]
                                                                                   : w[3]);
  }
  if (!kMx && (p.scaling == kTensor || p.scaling == k128x128)) {
    const uint32_t w = warp_max(larger(larger(col[0], col[1]), larger(col[2], col[3])));
    if (lane == 0) square[warp] = w;
    __syncthreads();
    if (threadIdx.x == 0)
      raise(p, m.amax + (p.scaling == kTensor ? 0 : u.row0 / kSquare * across + tile_col),
            larger(larger(square[0], square[1]), larger(square[2], square[3])));
  }
  if (!col_side) return;
  __syncthreads();
  const int c = int(threadIdx.x);
  const int64_t column = u.col0 + c, down32 = units(m.rows, 32), row32 = u.row0 / 32;
  if (column >= m.cols) return;
  if (kMx) {
    codes += m.rows * across32 + column * down32 + row32;
    uint32_t word = 0;
#pragma unroll
    for (int g = 0; g < 4; ++g) word |= uint32_t(code_of(p, cols[g][c])) << 8 * g;
    if (row32 + 4 <= down32 && reinterpret_cast<uintptr_t>(codes) % 4 == 0) {
      *reinterpret_cast<uint32_t *>(codes) = word;
    } else {
#pragma unroll
      for (int g = 0; g < 4; ++g)
        if (row32 + g < down32) codes[g] = uint8_t(word >> 8 * g);
    }
    return;
  }
  const uint32_t w = larger(larger(cols[0][c], cols[1][c]), larger(cols[2][c], cols[3][c]));
  raise(p,
        p.scaling == kRow ? m.amax + m.rows + column
                          : m.amax + m.rows * across + column * units(m.rows, kSquare) + u.row0 / kSquare,
        w);
}

template <class T, bool kMx, bool kFew>
__global__ void __launch_bounds__(128) amax_units(const __grid_constant__ Args a) {
  __shared__ uint32_t cols[4][kSquare], square[4];
  if constexpr (kFew) {
    each_block<true>(a.units, [&](unsigned unit) {
      const Unit u = find_unit(a, unit);
      if (u.any) amax_unit<T, kMx>(a.p, u, cols, square);
    });
  } else {  // with an exit of its own: a third more registers through each_block<false>
    const Unit u = find_unit(a, blockIdx.x);
    if (!u.any) return;
    amax_unit<T, kMx>(a.p, u, cols, square);
  }
}

struct Sources {
  const void *at[64];
  int count;
};

__device__ __forceinline__ uint32_t max_of(uint32_t a, uint32_t b, bool bytes) {  // bits of floats, or bytes
  return bytes ? max_bytes(a, b) : larger(a, b);
}

template <bool kBytes>
__global__ void __launch_bounds__(256) reduce_units(uint8_t *dst, const __grid_constant__ Sources s, int64_t size) {
  const int64_t step = int64_t(gridDim.x) * 256, first = int64_t(blockIdx.x) * 256 + int(threadIdx.x);
  uintptr_t ends = reinterpret_cast<uintptr_t>(dst);
  for (int k = 0; k < s.count; ++k) ends |= reinterpret_cast<uintptr_t>(s.at[k]);
  const int64_t vectors = ends % 16 ? 0 : size / 16;
  for (int64_t i = first; i < vectors; i += step) {
    uint4 best = reinterpret_cast<const uint4 *>(dst)[i];
    for (int k = 0; k < s.count; ++k) {
      const uint4 v = static_cast<const uint4 *>(s.at[k])[i];
      best = make_uint4(max_of(best.x, v.x, kBytes), max_of(best.y, v.y, kBytes), max_of(best.z, v.z, kBytes),
                        max_of(best.w, v.w, kBytes));
    }
    reinterpret_cast<uint4 *>(dst)[i] = best;
  }
  using Element = std::conditional_t<kBytes, uint8_t, uint32_t>;
  for (int64_t i = vectors * 16 / int64_t{sizeof(Element)} + first; i < size / int64_t{sizeof(Element)}; i += step) {
    Element best = reinterpret_cast<const Element *>(dst)[i];
    for (int k = 0; k < s.count; ++k) {
      const Element v = static_cast<const Element *>(s.at[k])[i];
      best = v > best ? v : best;
    }
    reinterpret_cast<Element *>(dst)[i] = best;
  }
}

}  // namespace

// ---------------------------------------------------------------- launchers

template <bool kFew>
static auto amax_kernel(int32_t dtype, int32_t scaling) {
  const bool mx = scaling == k1x32;
  return dtype == kF32 ? (mx ? amax_units<float, true, kFew> : amax_units<float, false, kFew>)
                       : (mx ? amax_units<uint16_t, true, kFew> : amax_units<uint16_t, false, kFew>);
}

cudaError_t launch_param_amax(const ops::ParamList &p, int32_t most, cudaStream_t stream, int32_t *launches) {
  if (plain_copy(p.scaling) || p.amax_count == 0) return cudaSuccess;
  const cudaError_t e = cudaMemsetAsync(p.amax, 0, size_t(p.amax_count) * (p.amax_dtype == kF32 ? 4 : 1), stream);
  if (e != cudaSuccess) return e;
  return over_masters(p, stream, launches, [&](const Args &args, int32_t dtype) {
    return launch_blocks(amax_kernel<false>(dtype, p.scaling), amax_kernel<true>(dtype, p.scaling), args.units, most,
                         128, stream, args);
  });
}

cudaError_t launch_reduce_max(const ops::ReduceMax &r, int32_t most, cudaStream_t stream, int32_t *launches) {
  const int64_t size = r.size * (r.dtype == kF32 ? 4 : 1);
  for (int32_t at = 0; at < r.count; at += 64) {
    Sources s{};
    for (int32_t k = at; k < std::min(r.count, at + 64); ++k)
      if (r.sources[k] != r.dst) s.at[s.count++] = r.sources[k];
    if (size == 0 || s.count == 0) continue;
    dim3 grid;
    grid_of(std::min<int64_t>(units(size, 4096), 4096), most, &grid);
    ++*launches;
    const cudaError_t e = launch(r.dtype == kF32 ? reduce_units<false> : reduce_units<true>, grid, 256, stream, false,
                                 static_cast<uint8_t *>(r.dst), s, size);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

template <bool kFew>
static cudaError_t load_amax() {
  return load_code(&amax_units<float, false, kFew>, &amax_units<uint16_t, false, kFew>, &amax_units<float, true, kFew>,
                   &amax_units<uint16_t, true, kFew>);
}

cudaError_t load_partial_amax() {
  cudaError_t e = load_code(&reduce_units<false>, &reduce_units<true>, &upload_chunk);
  if (!e) e = load_amax<false>();
  return e ? e : load_amax<true>();
}

}  // namespace fp8::cuda
