// SPDX-License-Identifier: Apache-2.0
// What surrounds a cuBLASLt product: padding, repacking, decoding MX to BF16 and the last rounding.
#include "device/tile.cuh"
#include "launch_cuda.h"
#include "swizzle.h"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

__global__ void __launch_bounds__(256)
    pack(const __grid_constant__ ops::Matrix src, void *dst, int32_t dtype, int64_t ld, int64_t blocks_c) {
  const int64_t row = blockIdx.x / blocks_c, col0 = blockIdx.x % blocks_c * 1024;
  for (int k = 0; k < 4; ++k) {
    const int64_t col = col0 + k * 256 + threadIdx.x;
    if (col >= ld) return;
    const int64_t to = row * ld + col;
    const bool inside = row < src.rows && col < src.cols;
    const int64_t from = inside ? offset_of(src, row) + col * src.col_stride : 0;
    if (src.dtype != dtype)
      num::store(dtype, dst, to, inside ? num::load(src.dtype, src.data, from) : 0.0f);
    else if (dtype == num::kF32)
      static_cast<uint32_t *>(dst)[to] = inside ? static_cast<const uint32_t *>(src.data)[from] : 0;
    else if (dtype == num::kBF16 || dtype == num::kF16)
      static_cast<uint16_t *>(dst)[to] = inside ? static_cast<const uint16_t *>(src.data)[from] : uint16_t(0);
    else
      static_cast<uint8_t *>(dst)[to] = inside ? static_cast<const uint8_t *>(src.data)[from] : uint8_t(0);
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    repack(ops::Scale src, T *dst, int64_t row_stride, int64_t col_stride, int64_t size) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= size) return;
  const int64_t r = row_stride == 1 && col_stride != 1 ? i % col_stride : i / row_stride;
  const int64_t c = row_stride == 1 && col_stride != 1 ? i / col_stride : i % row_stride;
  dst[i] =
      r < src.rows && c < src.cols ? static_cast<const T *>(src.data)[r * src.row_stride + c * src.col_stride] : T(0);
}

// Outside BF16's normal range although the code is finite and not zero.
__device__ __forceinline__ bool left_out(float q, float x, uint8_t scale) {
  const uint32_t e = (num::bits_of(x) >> 23) & 255u, a = num::bits_of(q) & num::kF32Abs;
  return a != 0 && a < num::kF32Inf && scale != 255 && (e == 0 || e == 255);
}

__device__ __forceinline__ uint8_t scale_code(const ops::Side &s, int32_t tile_rows, int64_t row, int64_t k) {
  return static_cast<const uint8_t *>(s.scale.data)[row / tile_rows * s.scale.row_stride + k / 32 * s.scale.col_stride];
}

// 16 elements a thread.
__global__ void __launch_bounds__(256) widen(const __grid_constant__ ops::Side s, uint16_t *dst, int64_t dst_rows,
                                             int64_t ld, uint32_t *outside, int32_t vector, int32_t tile_rows) {
  const int64_t per_row = ld / 16, i = int64_t(blockIdx.x) * 256 + threadIdx.x, row = i / per_row,
                col = i % per_row * 16;
  if (row >= dst_rows) return;
  uint32_t out[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  bool flag = false;
  if (row < s.codes.rows && col < s.codes.cols) {
    const uint8_t *p = static_cast<const uint8_t *>(s.codes.data) + offset_of(s.codes, row);
    uint32_t w[4] = {0, 0, 0, 0};
    if (vector && col + 16 <= s.codes.cols) {
      const uint4 v = load16(p + col);
      w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
#pragma unroll
      for (int j = 0; j < 16; ++j)
        if (col + j < s.codes.cols) w[j / 4] |= uint32_t(p[(col + j) * s.codes.col_stride]) << (8 * (j & 3));
    }
    const uint8_t c = scale_code(s, tile_rows, row, col);
    const float scale = num::decode_e8m0(c);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float q = num::decode_fp8(s.codes.dtype, uint8_t(w[j / 4] >> (8 * (j & 3))));
      const float x = num::mul_rn(q, scale);
      const bool out_of_range = left_out(q, x, c);
      flag = flag || out_of_range;
      out[j / 2] |= uint32_t(out_of_range ? uint16_t(0) : num::encode_bf16(x)) << (16 * (j & 1));
    }
  }
  uint16_t *to = dst + row * ld + col;
  *reinterpret_cast<uint4 *>(to) = make_uint4(out[0], out[1], out[2], out[3]);
  *reinterpret_cast<uint4 *>(to + 8) = make_uint4(out[4], out[5], out[6], out[7]);
  if (flag) *outside = 1;  // every writer writes the same
}

// 16 x 16 outputs a block, blocks of 32 along k; most blocks hold nothing left out and are passed over.
__global__ void __launch_bounds__(256)
    add_outside(const __grid_constant__ ops::Side a, const __grid_constant__ ops::Side b,
                const __grid_constant__ ops::Matrix d, const uint32_t *outside, int32_t rows_a, int32_t rows_b) {
  if (*outside == 0) return;
  __shared__ float qa[16][33], qb[16][33];
  __shared__ uint8_t la[16][32], lb[16][32], ca[16], cb[16];
  const int t = threadIdx.x, ti = t >> 4, tj = t & 15;
  const int64_t tiles_n = (d.cols + 15) / 16, tiles = (d.rows + 15) / 16 * tiles_n, k_end = a.codes.cols;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t i0 = tile / tiles_n * 16, j0 = tile % tiles_n * 16;
    float sum = 0.0f;
    bool any = false;
    for (int64_t k0 = 0; k0 < k_end; k0 += 32) {
      int mine = 0;
      for (int half = 0; half < 2; ++half) {
        const ops::Side &s = half ? b : a;
        const int32_t tile_rows = half ? rows_b : rows_a;
        const int64_t first = half ? j0 : i0;
        for (int e = t; e < 512; e += 256) {
          const int r = e >> 5, k = e & 31;
          float q = 0.0f;
          bool left = false;
          if (first + r < s.codes.rows && k0 + k < k_end) {
            const uint8_t c = scale_code(s, tile_rows, first + r, k0);
            q = num::decode_fp8(s.codes.dtype,
                                static_cast<const uint8_t *>(
                                    s.codes.data)[offset_of(s.codes, first + r) + (k0 + k) * s.codes.col_stride]);
            left = left_out(q, num::mul_rn(q, num::decode_e8m0(c)), c);
            if (k == 0) (half ? cb : ca)[r] = c;
          }
          (half ? qb : qa)[r][k] = q;
          (half ? lb : la)[r][k] = left;
          mine |= left;
        }
      }
      if (!__syncthreads_or(mine)) continue;
      if (i0 + ti < d.rows && j0 + tj < d.cols) {
        float p = 0.0f;
        for (int k = 0; k < 32; ++k)
          if (la[ti][k] || lb[tj][k]) p = num::add_rn(p, num::mul_rn(qa[ti][k], qb[tj][k])), any = true;
        // the two powers of two as one: neither overflows alone
        if (p != 0.0f) sum = num::add_rn(sum, ldexpf(p, int(ca[ti]) + int(cb[tj]) - 254));
      }
      __syncthreads();
    }
    if (any) {
      const int64_t at = offset_of(d, i0 + ti) + (j0 + tj) * d.col_stride;
      num::store(d.dtype, d.data, at, num::add_rn(num::load(d.dtype, d.data, at), sum));
    }
  }
}

__global__ void __launch_bounds__(256)
    finish(const __grid_constant__ ops::Gemm g, const float *y, int64_t ld, int64_t blocks_c) {
  const int64_t row = blockIdx.x / blocks_c, col0 = blockIdx.x % blocks_c * 1024;
  const int64_t to = offset_of(g.d, row);
  for (int k = 0; k < 4; ++k) {
    const int64_t col = col0 + k * 256 + threadIdx.x;
    if (col >= g.d.cols) return;
    float v = y ? y[row * ld + col] : 0.0f;
    if (g.bias.data) v = num::add_rn(v, num::load(g.bias.dtype, g.bias.data, col * g.bias.stride));
    const int64_t at = to + col * g.d.col_stride;
    if (g.accumulate) v = num::add_rn(num::load(g.d.dtype, g.d.data, at), v);
    num::store(g.d.dtype, g.d.data, at, v);
  }
}

__global__ void __launch_bounds__(256) swizzle(ops::Scale s, int64_t rows, int64_t blocks, int32_t tile_rows,
                                               int32_t tile_blocks, uint8_t *dst, int64_t bytes) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= bytes) return;
  const int64_t tiles_k = (blocks + 3) / 4, tile = i / 512, w = i % 512;
  const int64_t row = tile / tiles_k * 128 + w / 16 + w % 16 / 4 * 32, block = tile % tiles_k * 4 + w % 4;
  uint8_t code = 0;
  if (row < rows && block < blocks) {
    const int64_t at = row / tile_rows * s.row_stride + block / tile_blocks * s.col_stride;
    code = s.dtype == num::kF32 ? e8m0_of_pow2(static_cast<const float *>(s.data)[at])
                                : static_cast<const uint8_t *>(s.data)[at];
  }
  dst[i] = code;
}

__global__ void __launch_bounds__(256) noise(void *dst, int64_t count, int32_t dtype) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= count) return;
  uint64_t h = (uint64_t(i) + 1) * 0x9e3779b97f4a7c15ull;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
  h ^= h >> 31;
  float v = 0.0f;  // sum of four uniforms, about normal
  for (int k = 0; k < 4; ++k) v += float(int(h >> (16 * k) & 0xffff) - 32768) * (1.0f / 32768.0f);
  if (dtype == num::kE4M3 || dtype == num::kE5M2) v *= 100.0f;
  num::store(dtype, dst, i, v);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One-dimensional grids of 256 threads over `n` items.
bool grid_of(int64_t n, dim3 *grid) {
  *grid = dim3(static_cast<unsigned>(ceil_div(n, 256)));
  return ceil_div(n, 256) < int64_t{1} << 31;
}

}  // namespace

// --------------------------------------------------------------- launchers

cudaError_t launch_pack(const ops::Matrix &src, void *dst, int32_t dst_dtype, int64_t dst_rows, int64_t ld,
                        cudaStream_t stream) {
  const int64_t blocks_c = ceil_div(ld, 1024), blocks = dst_rows * blocks_c;
  if (!blocks) return cudaSuccess;
  if (blocks >= int64_t{1} << 31) return cudaErrorInvalidValue;
  return launch(&pack, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, false, src, dst, dst_dtype, ld,
                blocks_c);
}

cudaError_t launch_repack(const ops::Scale &src, void *dst, int64_t row_stride, int64_t col_stride, int64_t size,
                          cudaStream_t stream) {
  dim3 grid;
  if (!size) return cudaSuccess;
  if (!grid_of(size, &grid)) return cudaErrorInvalidValue;
  if (src.dtype == num::kF32)
    return launch(&repack<float>, grid, dim3(256), stream, false, src, static_cast<float *>(dst), row_stride,
                  col_stride, size);
  return launch(&repack<uint8_t>, grid, dim3(256), stream, false, src, static_cast<uint8_t *>(dst), row_stride,
                col_stride, size);
}

cudaError_t launch_widen(const ops::Side &side, void *dst, int64_t dst_rows, int64_t ld, uint32_t *outside,
                         cudaStream_t stream) {
  dim3 grid;
  if (!dst_rows || !ld) return cudaSuccess;
  if (!grid_of(dst_rows * (ld / 16), &grid)) return cudaErrorInvalidValue;
  bool vector = side.codes.col_stride == 1 && reinterpret_cast<uintptr_t>(side.codes.data) % 16 == 0;
  for (int i = 0; i < (side.codes.lead > 1 ? side.codes.lead : 1); ++i)
    vector = vector && side.codes.lead_stride[i] % 16 == 0;
  return launch(&widen, grid, dim3(256), stream, false, side, static_cast<uint16_t *>(dst), dst_rows, ld, outside,
                int32_t{vector}, side.scaling == num::k32x32 ? 32 : 1);
}

cudaError_t launch_outside(const ops::Side &a, const ops::Side &b, const ops::Matrix &d, const uint32_t *outside,
                           int32_t sms, cudaStream_t stream) {
  if (!d.rows || !d.cols) return cudaSuccess;
  return launch(&add_outside, dim3(static_cast<unsigned>(sms * 2)), dim3(256), stream, false, a, b, d, outside,
                a.scaling == num::k32x32 ? 32 : 1, b.scaling == num::k32x32 ? 32 : 1);
}

cudaError_t launch_finish(const ops::Gemm &g, const float *y, int64_t ld, cudaStream_t stream) {
  const int64_t blocks_c = ceil_div(g.d.cols, 1024), blocks = g.d.rows * blocks_c;
  if (!blocks) return cudaSuccess;
  if (blocks >= int64_t{1} << 31) return cudaErrorInvalidValue;
  return launch(&finish, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, false, g, y, ld, blocks_c);
}

cudaError_t launch_swizzle(const ops::Side &side, void *dst, cudaStream_t stream) {
  const int64_t rows = side.codes.rows, blocks = ceil_div(side.codes.cols, 32), bytes = swizzle_bytes(rows, blocks);
  dim3 grid;
  if (!bytes) return cudaSuccess;
  if (!grid_of(bytes, &grid)) return cudaErrorInvalidValue;
  const int32_t tile_rows = static_cast<int32_t>(num::scale_tile_rows(side.scaling)),
                tile_blocks = static_cast<int32_t>(num::scale_tile_cols(side.scaling) / 32);
  return launch(&swizzle, grid, dim3(256), stream, false, side.scale, rows, blocks, tile_rows, tile_blocks,
                static_cast<uint8_t *>(dst), bytes);
}

cudaError_t launch_noise(void *dst, int64_t count, int32_t dtype, cudaStream_t stream) {
  dim3 grid;
  if (!count) return cudaSuccess;
  if (!grid_of(count, &grid)) return cudaErrorInvalidValue;
  return launch(&noise, grid, dim3(256), stream, false, dst, count, dtype);
}

cudaError_t load_gemm_support() {
  return load_code(&pack, &repack<float>, &repack<uint8_t>, &widen, &add_outside, &finish, &swizzle);
}

}  // namespace fp8::cuda
