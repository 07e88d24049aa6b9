// SPDX-License-Identifier: Apache-2.0
// A small MX product on a device without 1x32 scaling, whole in one kernel: below a few million multiplications the
// launches of decoding, multiplying and adding what was left out cost more than the arithmetic.
#include "device/tile.cuh"
#include "launch_cuda.h"

namespace fp8::cuda {
namespace {

constexpr int kSide = 16, kStep = 64, kLd = kStep + 4;  // + 4: rows 16 bytes apart in the banks

struct SmallArgs {
  ops::Gemm g;
  int32_t vector[2], tile_rows[2];
};

// Eight codes of one row, zero beyond k_end.
__device__ __forceinline__ uint2 codes8(const uint8_t *from, int64_t stride, bool vector, int k, int k_end) {
  if (k >= k_end) return make_uint2(0, 0);
  if (vector && k + 8 <= k_end) return load8(from + k);
  uint64_t v = 0;
#pragma unroll 1
  for (int j = 0; j < 8 && k + j < k_end; ++j) v |= uint64_t(from[(k + j) * stride]) << (8 * j);
  return make_uint2(uint32_t(v), uint32_t(v >> 32));
}

// A code's exponent and mantissa, put where BF16's are, are its value / 2^120 (E5M2: 2^112), subnormal codes too.
__device__ __forceinline__ uint32_t decode(int32_t dtype, uint32_t code) {
  const bool e4m3 = dtype == num::kE4M3;
  if ((code & 0x7f) >= (e4m3 ? 0x7fu : 0x7cu)) return num::bits_of(num::decode_fp8(dtype, uint8_t(code)));
  const uint32_t v = code << 8, bits = (v & 0x8000) | ((v >> (e4m3 ? 4 : 3)) & (e4m3 ? 0x07f0u : 0x0fe0u));
  return num::bits_of(num::mul_rn(num::float_of(bits << 16), num::float_of((e4m3 ? 247u : 239u) << 23)));
}

// 16 x 16 outputs a block, one a thread; 64 along k at a time, the next ones under way.
__global__ void __launch_bounds__(256) small_product(const __grid_constant__ SmallArgs p) {
  __shared__ __align__(16) uint32_t q[2][kSide][kLd];
  __shared__ uint8_t scale[2][kSide][2];
  wait_prior();
  const ops::Matrix &d = p.g.d;
  const int t = threadIdx.x, ti = t >> 4, tj = t & 15;
  const int half = t >> 7, row = (t >> 3) & 15, col = 8 * (t & 7);  // as loaded
  const ops::Side &s = half ? p.g.b : p.g.a;
  const bool vector = p.vector[half] != 0;
  const int64_t tiles_n = (d.cols + kSide - 1) / kSide, tiles = (d.rows + kSide - 1) / kSide * tiles_n;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t i0 = tile / tiles_n * kSide, j0 = tile % tiles_n * kSide, mine = (half ? j0 : i0) + row;
    const int k_all = int(s.codes.cols), k_end = mine < s.codes.rows ? k_all : 0;
    const uint8_t *from = static_cast<const uint8_t *>(s.codes.data) + (k_end ? offset_of(s.codes, mine) : 0);
    const uint8_t *scales = static_cast<const uint8_t *>(s.scale.data) + mine / p.tile_rows[half] * s.scale.row_stride;
    float sum = 0.0f;
    uint2 w = codes8(from, s.codes.col_stride, vector, col, k_end);
    uint8_t c = col < k_end ? scales[col / 32 * s.scale.col_stride] : uint8_t(127);
    for (int k0 = 0; k0 < k_all; k0 += kStep) {
      uint32_t x[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        x[j] = decode(s.codes.dtype, ((j < 4 ? w.x : w.y) >> (8 * (j & 3))) & 0xff);
        if (c == 255) x[j] = 0x7fc00000u;
      }
      uint4 *to = reinterpret_cast<uint4 *>(&q[half][row][col]);
      to[0] = make_uint4(x[0], x[1], x[2], x[3]);
      to[1] = make_uint4(x[4], x[5], x[6], x[7]);
      if (col % 32 == 0) scale[half][row][col / 32] = c;
      const int next = k0 + kStep + col;
      w = codes8(from, s.codes.col_stride, vector, next, k_end);
      c = next < k_end ? scales[next / 32 * s.scale.col_stride] : uint8_t(127);
      __syncthreads();
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        float part = 0.0f;  // of codes: exact products, no scale can push them out of range
#pragma unroll
        for (int k = 32 * block; k < 32 * block + 32; k += 4) {
          const uint4 a = load16(&q[0][ti][k]), b = load16(&q[1][tj][k]);
          part = fmaf(num::float_of(a.x), num::float_of(b.x), part);
          part = fmaf(num::float_of(a.y), num::float_of(b.y), part);
          part = fmaf(num::float_of(a.z), num::float_of(b.z), part);
          part = fmaf(num::float_of(a.w), num::float_of(b.w), part);
        }
        // the two powers of two as one: neither overflows alone
        if (part != 0.0f)
          sum = num::add_rn(sum, ldexpf(part, int(scale[0][ti][block]) + int(scale[1][tj][block]) - 254));
      }
      __syncthreads();
    }
    const int64_t i = i0 + ti, j = j0 + tj;
    if (i < d.rows && j < d.cols) {
      const int64_t at = offset_of(d, i) + j * d.col_stride;
      if (p.g.bias.data) sum = num::add_rn(sum, num::load(p.g.bias.dtype, p.g.bias.data, j * p.g.bias.stride));
      if (p.g.accumulate) sum = num::add_rn(num::load(d.dtype, d.data, at), sum);
      num::store(d.dtype, d.data, at, sum);
    }
  }
}

}  // namespace

cudaError_t launch_small(const ops::Gemm &g, int32_t most, cudaStream_t stream) {
  const int64_t tiles = (g.d.rows + kSide - 1) / kSide * ((g.d.cols + kSide - 1) / kSide);
  if (!tiles) return cudaSuccess;
  SmallArgs p{};
  p.g = g;
  for (int i = 0; i < 2; ++i) {
    const ops::Side &s = i ? g.b : g.a;
    bool vector = s.codes.col_stride == 1 && reinterpret_cast<uintptr_t>(s.codes.data) % 8 == 0;
    for (int l = 0; l < (s.codes.lead > 1 ? s.codes.lead : 1); ++l) vector = vector && s.codes.lead_stride[l] % 8 == 0;
    p.vector[i] = vector;
    p.tile_rows[i] = s.scaling == num::k32x32 ? 32 : 1;
  }
  return launch(&small_product, dim3(static_cast<unsigned>(tiles < most ? tiles : most)), dim3(256), stream, true, p);
}

cudaError_t load_gemm_small() { return load_code(&small_product); }

}  // namespace fp8::cuda
