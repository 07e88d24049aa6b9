// SPDX-License-Identifier: Apache-2.0
// 1x128 and 1x32, row side alone: no shared memory, a warp takes 512 elements of a row in two loads a thread.
#include "device/tile_args.cuh"
#include "quantize_amax.h"

namespace fp8::cuda {

template <class F>
__device__ __forceinline__ void put_line(uint8_t *p, const uint4 &w, float m) {
  const uint32_t u[4] = {w.x, w.y, w.z, w.w};
  uint32_t h[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    h[i] = encode2<F>(num::mul_rn(num::float_of(u[i] << 16), m), num::mul_rn(num::float_of(u[i] & 0xffff0000u), m));
  store8_streaming(p, h[0] | h[1] << 16, h[2] | h[3] << 16);
}

// tiles_c: segments of 512 columns. Blocks of 8 rows, a row a warp: 8 scales of a column of blocks fill a sector.
template <int kBlock>
__global__ void __launch_bounds__(256, 6) quantize_lines(const __grid_constant__ TileArgs a) {
  constexpr int kGroup = kBlock / 8;  // lanes of a scale block
  const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  const unsigned segments = static_cast<unsigned>(a.tiles_c);
  const int64_t row = int64_t(blockIdx.x / segments) * 8 + warp, col0 = int64_t(blockIdx.x % segments) * 512;
  const int64_t col = col0 + 8 * lane;
  const bool inside[2] = {row < a.rows && col < a.cols, row < a.rows && col + 256 < a.cols};
  const uint16_t *p = static_cast<const uint16_t *>(a.source.x.data) + row * a.source.x.lead_stride[0] + col;
  wait_prior();
  uint4 w[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) w[k] = inside[k] ? load16(p + 256 * k) : make_uint4(0, 0, 0, 0);
  uint32_t m[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < 2; ++k)
    m[k] = amax2_bf16(amax2_bf16(amax2_bf16(amax2_bf16(m[k], w[k].x), w[k].y), w[k].z), w[k].w);
  // both loads' maxima in one word
  uint32_t best = amax2_bf16(low_halves(m[0], m[1]), high_halves(m[0], m[1]));
#pragma unroll
  for (int s = kGroup / 2; s; s /= 2) best = amax2_bf16(best, shuffle_xor_bits(best, s));
  release_next();
  // even lanes make the scales of the first load, odd ones those of the second
  const int mine = lane & 1;
  const float amax = num::float_of(mine ? best & 0xffff0000u : best << 16);
  const num::ScaleOf s = num::scale_of(a.dtype, a.rule, amax, a.floor);
  const float first = shuffle(s.multiplier, lane & ~1), second = shuffle(s.multiplier, lane | 1);
  const int64_t block = col0 + 256 * mine + lane / kGroup * kBlock;
  if (lane % kGroup < 2 && row < a.rows && block < a.cols) put_scale(a.row, 0, row, block / kBlock, amax, s);
  uint8_t *q = static_cast<uint8_t *>(a.row.side.codes.data) + row * a.row.side.codes.lead_stride[0] + col;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (!inside[k]) break;
    if (a.dtype == num::kE4M3)
      put_line<num::E4M3>(q + 256 * k, w[k], k ? second : first);
    else
      put_line<num::E5M2>(q + 256 * k, w[k], k ? second : first);
  }
  if (blockIdx.x == 0) zero_padding(a.row.side.scale, t, 256);
}

cudaError_t launch_lines(const TileArgs &tiles, bool of_32, cudaStream_t stream) {
  TileArgs a = tiles;
  a.tiles_c = (a.cols + 511) / 512;
  const dim3 grid(static_cast<unsigned>((a.rows + 7) / 8 * a.tiles_c));
  return of_32 ? launch(&quantize_lines<32>, grid, dim3(256), stream, true, a)
               : launch(&quantize_lines<128>, grid, dim3(256), stream, true, a);
}

cudaError_t load_lines() { return load_code(&quantize_lines<32>, &quantize_lines<128>); }

}  // namespace fp8::cuda
