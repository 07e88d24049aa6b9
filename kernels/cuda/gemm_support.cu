// SPDX-License-Identifier: Apache-2.0
// What surrounds a cuBLASLt product: padding, repacking, decoding MX to BF16 and the last rounding.
#include "device/tile.cuh"
#include "launch_cuda.h"
#include "swizzle.h"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

__device__ __forceinline__ void pack_block(const ops::Matrix &src, void *dst, int32_t dtype, int64_t ld, int64_t row,
                                           int64_t col0) {
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

// A grid may be smaller than the work: the multiprocessors that a call leaves to others.
__global__ void __launch_bounds__(256) pack(const __grid_constant__ ops::Matrix src, void *dst, int32_t dtype,
                                            int64_t ld, unsigned blocks_c, unsigned blocks) {
  for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x)
    pack_block(src, dst, dtype, ld, block / blocks_c, int64_t(block % blocks_c) * 1024);
}

template <class T>
__global__ void __launch_bounds__(256)
    repack(ops::Scale src, T *dst, int64_t row_stride, int64_t col_stride, int64_t size) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < size; i += int64_t(gridDim.x) * 256) {
    const int64_t r = row_stride == 1 && col_stride != 1 ? i % col_stride : i / row_stride;
    const int64_t c = row_stride == 1 && col_stride != 1 ? i / col_stride : i % row_stride;
    dst[i] =
        r < src.rows && c < src.cols ? static_cast<const T *>(src.data)[r * src.row_stride + c * src.col_stride] : T(0);
  }
}

// Outside BF16's normal range although the code is finite and not zero.
__device__ __forceinline__ bool left_out(float q, float x, uint8_t scale) {
  const uint32_t e = (num::bits_of(x) >> 23) & 255u, a = num::bits_of(q) & num::kF32Abs;
  return a != 0 && a < num::kF32Inf && scale != 255 && (e == 0 || e == 255);
}

__device__ __forceinline__ uint8_t scale_code(const ops::Side &s, int32_t tile_rows, int64_t row, int64_t k) {
  return static_cast<const uint8_t *>(s.scale.data)[row / tile_rows * s.scale.row_stride + k / 32 * s.scale.col_stride];
}

struct WidenSide {
  ops::Side s;
  uint16_t *dst;
  int64_t rows, ld;
  uint32_t segments, blocks;  // of 1024 columns; of 8 rows, a segment of a row a warp
  int32_t vector, tile_rows;
};
struct WidenArgs {
  WidenSide side[2];
  uint8_t *outside;  // one a block of work
};

// Eight codes of one scale block, whatever they are.
__device__ __noinline__ uint4 widen_any(int32_t dtype, uint2 w, uint8_t c, uint32_t *outside) {
  const float scale = num::decode_e8m0(c);
  uint32_t out[4] = {0, 0, 0, 0};
  bool flag = false;
  for (int j = 0; j < 8; ++j) {
    const float q = num::decode_fp8(dtype, uint8_t((j < 4 ? w.x : w.y) >> (8 * (j & 3))));
    const float x = num::mul_rn(q, scale);
    const bool left = left_out(q, x, c);
    flag = flag || left;
    out[j / 2] |= uint32_t(left ? uint16_t(0) : num::encode_bf16(x)) << (16 * (j & 1));
  }
  if (flag) *outside = 1;  // every writer writes the same
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// A code's exponent and mantissa, put where BF16's are, are its value / 2^kUp, subnormal codes too: two exact products.
// Between the scale codes kLow and kHigh every finite one stays in BF16's normal range.
template <class F>
__device__ __forceinline__ uint4 widen8(uint2 w, uint8_t c, uint32_t *outside) {
  constexpr bool e4m3 = F::dtype == num::kE4M3;
  constexpr int kShift = e4m3 ? 4 : 3, kUp = e4m3 ? 120 : 112, kLow = e4m3 ? 10 : 17, kHigh = e4m3 ? 246 : 239;
  // carries into a byte's top bit where the code is NaN (E4M3), NaN or Inf (E5M2)
  constexpr uint32_t kCarry = e4m3 ? 0x01010101u : 0x04040404u, kAbs = 0x7f7f7f7fu;
  const uint32_t special = ((w.x & kAbs) + kCarry) | ((w.y & kAbs) + kCarry);
  const bool zero = ((w.x | w.y) & kAbs) == 0 && c != 255;
  if ((special & ~kAbs) || !((c >= kLow && c <= kHigh) || zero)) return widen_any(F::dtype, w, c, outside);
  const uint32_t up = uint32_t(127 + kUp) * 0x00800080u, scale = uint32_t(c) * 0x00800080u;
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t v = spread2(i < 2 ? w.x : w.y, i & 1);
    const uint32_t bits = (v & 0x80008000u) | ((v >> kShift) & (e4m3 ? 0x07f007f0u : 0x0fe00fe0u));
    out[i] = mul2_bf16(mul2_bf16(bits, up), scale);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

__device__ __forceinline__ void widen_block(const WidenArgs &p, unsigned at, uint32_t *outside) {
  const bool second = at >= p.side[0].blocks;
  const WidenSide &a = p.side[second ? 1 : 0];
  const ops::Side &s = a.s;
  const unsigned block = at - (second ? p.side[0].blocks : 0);
  const int64_t row = int64_t(block / a.segments) * 8 + (threadIdx.x >> 5);
  const int64_t col0 = int64_t(block % a.segments) * 1024 + 8 * (threadIdx.x & 31);
  if (row < a.rows) {
    const uint8_t *codes = static_cast<const uint8_t *>(s.codes.data) + offset_of(s.codes, row);
    const uint8_t *scales = static_cast<const uint8_t *>(s.scale.data) + row / a.tile_rows * s.scale.row_stride;
    uint2 w[4];
    uint8_t c[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t col = col0 + 256 * k;
      w[k] = make_uint2(0, 0);
      c[k] = 127;
      if (col >= s.codes.cols) continue;
      c[k] = scales[col / 32 * s.scale.col_stride];
      if (a.vector && col + 8 <= s.codes.cols) {
        w[k] = load8(codes + col);
      } else {
        uint64_t v = 0;
#pragma unroll 1
        for (int j = 0; j < 8 && col + j < s.codes.cols; ++j)
          v |= uint64_t(codes[(col + j) * s.codes.col_stride]) << (8 * j);
        w[k] = make_uint2(uint32_t(v), uint32_t(v >> 32));
      }
    }
    uint16_t *to = a.dst + row * a.ld + col0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (col0 + 256 * k >= a.ld) break;
      *reinterpret_cast<uint4 *>(to + 256 * k) =
          s.codes.dtype == num::kE4M3 ? widen8<num::E4M3>(w[k], c[k], outside) : widen8<num::E5M2>(w[k], c[k], outside);
    }
  }
}

__global__ void __launch_bounds__(256) widen(const __grid_constant__ WidenArgs p) {
  __shared__ uint32_t outside;
  wait_prior();
  for (unsigned block = blockIdx.x; block < p.side[0].blocks + p.side[1].blocks; block += gridDim.x) {
    if (threadIdx.x == 0) outside = 0;
    __syncthreads();
    widen_block(p, block, &outside);
    __syncthreads();
    if (threadIdx.x == 0) p.outside[block] = uint8_t(outside);
  }
}

// 16 x 16 outputs a block, blocks of 32 along k; most blocks hold nothing left out and are passed over.
__global__ void __launch_bounds__(256)
    add_outside(const __grid_constant__ ops::Side a, const __grid_constant__ ops::Side b,
                const __grid_constant__ ops::Matrix d, const uint8_t *outside, int64_t flags, int32_t rows_a,
                int32_t rows_b) {
  wait_prior();
  uint32_t flagged = 0;
  for (int64_t i = int64_t(threadIdx.x) * 16; i < flags; i += 256 * 16) {
    if (i + 16 <= flags) {
      const uint4 f = load16(outside + i);
      flagged |= f.x | f.y | f.z | f.w;
    } else {
      for (int64_t j = i; j < flags; ++j) flagged |= outside[j];
    }
  }
  if (!__syncthreads_or(flagged != 0)) return;
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

__device__ __forceinline__ void finish_block(const ops::Gemm &g, const float *y, int64_t ld, int64_t row,
                                             int64_t col0) {
  const int64_t to = offset_of(g.d, row);
  float v[4], old[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {  // every load before the first store
    const int64_t col = col0 + k * 256;
    v[k] = y && col < g.d.cols ? y[row * ld + col] : 0.0f;
    old[k] = g.accumulate && col < g.d.cols ? num::load(g.d.dtype, g.d.data, to + col * g.d.col_stride) : 0.0f;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t col = col0 + k * 256;
    if (col >= g.d.cols) return;
    if (g.bias.data) v[k] = num::add_rn(v[k], num::load(g.bias.dtype, g.bias.data, col * g.bias.stride));
    if (g.accumulate) v[k] = num::add_rn(old[k], v[k]);
    num::store(g.d.dtype, g.d.data, to + col * g.d.col_stride, v[k]);
  }
}

__global__ void __launch_bounds__(256)
    finish(const __grid_constant__ ops::Gemm g, const float *y, int64_t ld, unsigned blocks_c, unsigned blocks) {
  wait_prior();
  for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x)
    finish_block(g, y, ld, block / blocks_c, int64_t(block % blocks_c) * 1024 + threadIdx.x);
}

__global__ void __launch_bounds__(256) swizzle(ops::Scale s, int64_t rows, int64_t blocks, int32_t tile_rows,
                                               int32_t tile_blocks, uint8_t *dst, int64_t bytes) {
  const int64_t tiles_k = (blocks + 3) / 4;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < bytes; i += int64_t(gridDim.x) * 256) {
    const int64_t tile = i / 512, w = i % 512;
    const int64_t row = tile / tiles_k * 128 + w / 16 + w % 16 / 4 * 32, block = tile % tiles_k * 4 + w % 4;
    uint8_t code = 0;
    if (row < rows && block < blocks) {
      const int64_t at = row / tile_rows * s.row_stride + block / tile_blocks * s.col_stride;
      code = s.dtype == num::kF32 ? e8m0_of_pow2(static_cast<const float *>(s.data)[at])
                                  : static_cast<const uint8_t *>(s.data)[at];
    }
    dst[i] = code;
  }
}

__global__ void __launch_bounds__(256) noise(void *dst, int64_t count, int32_t dtype) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256) {
    uint64_t h = (uint64_t(i) + 1) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    h ^= h >> 31;
    float v = 0.0f;  // sum of four uniforms, about normal
    for (int k = 0; k < 4; ++k) v += float(int(h >> (16 * k) & 0xffff) - 32768) * (1.0f / 32768.0f);
    if (dtype == num::kE4M3 || dtype == num::kE5M2) v *= 100.0f;
    num::store(dtype, dst, i, v);
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

// --------------------------------------------------------------- launchers

cudaError_t launch_pack(const ops::Matrix &src, void *dst, int32_t dst_dtype, int64_t dst_rows, int64_t ld,
                        int32_t most, cudaStream_t stream) {
  const int64_t blocks_c = ceil_div(ld, 1024), blocks = dst_rows * blocks_c;
  dim3 grid;
  if (!blocks) return cudaSuccess;
  if (!grid_of(blocks, most, &grid)) return cudaErrorInvalidValue;
  return launch(&pack, grid, dim3(256), stream, false, src, dst, dst_dtype, ld, static_cast<unsigned>(blocks_c),
                static_cast<unsigned>(blocks));
}

cudaError_t launch_repack(const ops::Scale &src, void *dst, int64_t row_stride, int64_t col_stride, int64_t size,
                          int32_t most, cudaStream_t stream) {
  dim3 grid;
  if (!size) return cudaSuccess;
  if (!grid_of(ceil_div(size, 256), most, &grid)) return cudaErrorInvalidValue;
  if (src.dtype == num::kF32)
    return launch(&repack<float>, grid, dim3(256), stream, false, src, static_cast<float *>(dst), row_stride,
                  col_stride, size);
  return launch(&repack<uint8_t>, grid, dim3(256), stream, false, src, static_cast<uint8_t *>(dst), row_stride,
                col_stride, size);
}

cudaError_t launch_widen(const Widened &a, const Widened &b, uint8_t *outside, int32_t most, cudaStream_t stream) {
  WidenArgs p{};
  dim3 grid;
  p.outside = outside;
  int64_t blocks = 0;
  for (int i = 0; i < 2; ++i) {
    const Widened &from = i ? b : a;
    const ops::Matrix &codes = from.side->codes;
    const int64_t segments = ceil_div(from.ld, 1024), mine = widen_flags(from.rows, from.ld);
    bool vector = codes.col_stride == 1 && reinterpret_cast<uintptr_t>(codes.data) % 8 == 0;
    for (int l = 0; l < (codes.lead > 1 ? codes.lead : 1); ++l) vector = vector && codes.lead_stride[l] % 8 == 0;
    blocks += mine;
    if (blocks >= int64_t{1} << 31) return cudaErrorInvalidValue;
    p.side[i] = {*from.side,      static_cast<uint16_t *>(from.dst),         from.rows,
                 from.ld,         static_cast<uint32_t>(segments),           static_cast<uint32_t>(mine),
                 int32_t{vector}, from.side->scaling == num::k32x32 ? 32 : 1};
  }
  if (!blocks) return cudaSuccess;
  grid_of(blocks, most, &grid);
  return launch(&widen, grid, dim3(256), stream, true, p);
}

cudaError_t launch_outside(const ops::Side &a, const ops::Side &b, const ops::Matrix &d, const uint8_t *outside,
                           int64_t flags, int32_t blocks, cudaStream_t stream) {
  if (!d.rows || !d.cols) return cudaSuccess;
  return launch(&add_outside, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, true, a, b, d, outside, flags,
                a.scaling == num::k32x32 ? 32 : 1, b.scaling == num::k32x32 ? 32 : 1);
}

cudaError_t launch_finish(const ops::Gemm &g, const float *y, int64_t ld, int32_t most, cudaStream_t stream) {
  const int64_t blocks_c = ceil_div(g.d.cols, 1024), blocks = g.d.rows * blocks_c;
  dim3 grid;
  if (!blocks) return cudaSuccess;
  if (!grid_of(blocks, most, &grid)) return cudaErrorInvalidValue;
  return launch(&finish, grid, dim3(256), stream, true, g, y, ld, static_cast<unsigned>(blocks_c),
                static_cast<unsigned>(blocks));
}

cudaError_t launch_swizzle(const ops::Side &side, void *dst, int32_t most, cudaStream_t stream) {
  const int64_t rows = side.codes.rows, blocks = ceil_div(side.codes.cols, 32), bytes = swizzle_bytes(rows, blocks);
  dim3 grid;
  if (!bytes) return cudaSuccess;
  if (!grid_of(ceil_div(bytes, 256), most, &grid)) return cudaErrorInvalidValue;
  const int32_t tile_rows = static_cast<int32_t>(num::scale_tile_rows(side.scaling)),
                tile_blocks = static_cast<int32_t>(num::scale_tile_cols(side.scaling) / 32);
  return launch(&swizzle, grid, dim3(256), stream, false, side.scale, rows, blocks, tile_rows, tile_blocks,
                static_cast<uint8_t *>(dst), bytes);
}

cudaError_t launch_noise(void *dst, int64_t count, int32_t dtype, int32_t most, cudaStream_t stream) {
  dim3 grid;
  if (!count) return cudaSuccess;
  if (!grid_of(ceil_div(count, 256), most, &grid)) return cudaErrorInvalidValue;
  return launch(&noise, grid, dim3(256), stream, false, dst, count, dtype);
}

cudaError_t load_gemm_support() {
  return load_code(&pack, &repack<float>, &repack<uint8_t>, &widen, &add_outside, &finish, &swizzle);
}

}  // namespace fp8::cuda
