// SPDX-License-Identifier: Apache-2.0
// TENSOR and ROW: amax over more than a tile, then the cast.
#include <algorithm>

#include "device/quantize_tile.cuh"
#include "quantize_amax.h"

namespace fp8::cuda {

// ---------------------------------------------------------------- kernels

__device__ __forceinline__ void load_rows(WideTile &x, const AmaxArgs &a, int64_t row, int64_t col, int64_t end) {
  x.load(a.source, row, col, end, a.cols);
}
__device__ __forceinline__ void load_rows(PackedTile<4> &x, const AmaxArgs &a, int64_t row, int64_t col, int64_t end) {
  x.load(a.source, row, col, col < a.cols ? left_of(end - row, 4) : 0);
}

// TENSOR: partials[block]. ROW: row_amax[band][row] and col_amax[strip][column], or one of a line, zeroed before, by
// atomic maxima of bit patterns (order cannot matter). A unit is a strip of rows of a band of 128 columns: no thread
// waits for another before its end.
template <class Tile>
__global__ void __launch_bounds__(kAmaxThreads, kPacked<Tile> ? kAmaxBlocks : 1)
    amax_strips(const __grid_constant__ AmaxArgs a) {
  constexpr int kWarps = kAmaxThreads / 32, kStep = kAmaxThreads / 4;
  __shared__ __align__(16) float part[kWarps][kTile];
  __shared__ float slots[kWarps];
  const int t = threadIdx.x, cg = t & 15, rg = t >> 4, lane = t & 31, warp = t >> 5;
  const int64_t strips = a.rows && a.cols ? (a.rows + a.strip - 1) / a.strip : 0;
  float best = 0.0f;
  bool waited = !a.chained;
  if (waited) wait_prior();
  for (int64_t unit = blockIdx.x; unit < strips * a.bands; unit += gridDim.x) {
    const int64_t begin = unit / a.bands * a.strip, col0 = unit % a.bands * kTile, col = col0 + 8 * cg;
    const int64_t end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    Columns<Tile> columns;
    Tile x;
    load_rows(x, a, begin + 4 * rg, col, end);
    if (!waited) wait_prior();
    waited = true;
    for (int64_t at = begin; at < end; at += kStep) {
      Tile next;
      load_rows(next, a, at + kStep + 4 * rg, col, end);
      columns.add(x);
      if (a.row_amax) {
        float r[4];
        row_maxima(x, r);
        const float v = scatter_rows<16>(r, cg);
        const int64_t mine = at + 4 * rg + ((cg >> 2) & 3);
        if ((cg & 3) == 0 && mine < end) {
          if (a.split)
            a.row_amax[unit % a.bands * a.rows + mine] = v;
          else
            atomic_amax(a.row_amax + mine, v);
        }
      }
      x = next;
    }
    if (a.partials) best = amax1(best, columns.all());
    if (a.col_amax) {
      columns.put(part, warp, lane, cg);
      __syncthreads();
      if (t < kTile && col0 + t < a.cols) {
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) v = amax1(v, part[w][t]);
        if (a.split)
          a.col_amax[unit / a.bands * a.cols + col0 + t] = v;
        else
          atomic_amax(a.col_amax + col0 + t, v);
      }
      __syncthreads();
    }
  }
  if (!waited) wait_prior();  // what follows may take this kernel's end for its predecessors'
  release_next();
  if (a.partials) {
    best = block_amax<kAmaxThreads>(best, slots, lane, warp);
    if (t == 0) a.partials[blockIdx.x] = best;
  }
}

__global__ void __launch_bounds__(256) zero_lines(uint4 *p, int64_t count) {
  wait_prior();
  release_next();
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256)
    p[i] = make_uint4(0, 0, 0, 0);
}

// ROW, row side alone, a row on chip: kVectors x 256 x 8 elements at most, one read.
template <int kVectors>
__global__ void __launch_bounds__(256) quantize_rows(const __grid_constant__ TileArgs a) {
  __shared__ float part[8];
  const int t = threadIdx.x;
  const int64_t row = blockIdx.x;
  const uint16_t *p = static_cast<const uint16_t *>(a.source.x.data) + row * a.source.x.lead_stride[0];
  uint4 w[kVectors];
  uint32_t best2 = 0;
  wait_prior();
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int64_t c = (int64_t(k) * 256 + t) * 8;
    w[k] = c < a.cols ? load16(p + c) : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    best2 = amax2_bf16(amax2_bf16(amax2_bf16(amax2_bf16(best2, w[k].x), w[k].y), w[k].z), w[k].w);
  float best = amax1(amax1(0.0f, num::float_of(best2 << 16)), num::float_of(best2 & 0xffff0000u));
#pragma unroll
  for (int s = 16; s; s /= 2) best = amax1(best, shuffle_xor(best, s));
  if ((t & 31) == 0) part[t >> 5] = best;
  __syncthreads();
  best = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) best = amax1(best, part[i]);
  release_next();
  const num::ScaleOf s = num::scale_of(a.dtype, a.rule, best, a.floor);
  if (t == 0) put_scale(a.row, 0, row, 0, best, s);
  uint8_t *q = static_cast<uint8_t *>(a.row.side.codes.data) + row * a.row.side.codes.lead_stride[0];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int64_t c = (int64_t(k) * 256 + t) * 8;
    if (c >= a.cols) break;
    const uint32_t u[4] = {w[k].x, w[k].y, w[k].z, w[k].w};
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float lo = num::mul_rn(num::float_of(u[i] << 16), s.multiplier),
                  hi = num::mul_rn(num::float_of(u[i] & 0xffff0000u), s.multiplier);
      h[i] = a.dtype == num::kE4M3 ? encode2<num::E4M3>(lo, hi) : encode2<num::E5M2>(lo, hi);
    }
    store8_streaming(q + c, h[0] | h[1] << 16, h[2] | h[3] << 16);
  }
}

// Column sums alone.
__global__ void __launch_bounds__(kTile) sum_tiles(const __grid_constant__ TileArgs a, unsigned tiles, bool packed) {
  const unsigned across = static_cast<unsigned>(a.tiles_c);
  wait_prior();
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    sum_columns(a, packed, tile / across, int64_t(tile % across) * kTile + threadIdx.x);
}

__global__ void copy_amax(const float *src, ops::Scale dst, int64_t n) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    static_cast<float *>(dst.data)[i * dst.row_stride] = src[i];
}

__global__ void finish_dbias(const float *chunks, int64_t count, ops::Vector out, int32_t accumulate) {
  for (int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; c < out.size; c += int64_t(gridDim.x) * blockDim.x) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) sum = num::dbias_join(sum, chunks[i * out.size + c]);
    float *d = static_cast<float *>(out.data) + c * out.stride;
    *d = num::dbias_finish(sum, accumulate != 0, accumulate ? *d : 0.0f);
  }
}

// --------------------------------------------------------------- launchers

// Strips of a length that gives every block one unit, most often.
AmaxUnits amax_units(int64_t rows, int64_t cols, int64_t blocks) {
  constexpr int64_t kStep = kAmaxThreads / 4;
  AmaxUnits u{};
  u.bands = std::max<int64_t>(1, (cols + kTile - 1) / kTile);
  const int64_t strips = std::max<int64_t>(1, blocks / u.bands);
  u.strip = std::max<int64_t>(1, ((rows + strips - 1) / strips + kStep - 1) / kStep) * kStep;
  u.strips = (rows + u.strip - 1) / u.strip;
  return u;
}

cudaError_t launch_amax(const AmaxArgs &amax, bool lean, int32_t blocks, cudaStream_t stream) {
  AmaxArgs a = amax;
  const AmaxUnits u = amax_units(a.rows, a.cols, blocks);
  a.bands = u.bands, a.strip = u.strip;
  const dim3 grid(static_cast<unsigned>(blocks));
  return lean ? launch(&amax_strips<PackedTile<4>>, grid, dim3(kAmaxThreads), stream, true, a)
              : launch(&amax_strips<WideTile>, grid, dim3(kAmaxThreads), stream, true, a);
}

cudaError_t launch_zero(void *data, int64_t bytes, int32_t most, cudaStream_t stream) {
  const int64_t count = (bytes + 15) / 16, blocks = std::min<int64_t>((count + 255) / 256, most ? most : 128);
  return launch(&zero_lines, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, true, static_cast<uint4 *>(data),
                count);
}

cudaError_t launch_rows(const TileArgs &a, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.rows)), block(256);
  if (a.cols <= 2048) return launch(&quantize_rows<1>, grid, block, stream, true, a);
  if (a.cols <= 4096) return launch(&quantize_rows<2>, grid, block, stream, true, a);
  if (a.cols <= 8192) return launch(&quantize_rows<4>, grid, block, stream, true, a);
  return launch(&quantize_rows<8>, grid, block, stream, true, a);
}

cudaError_t launch_copy_amax(const TileArgs &a, const float *src, const ops::Scale &dst, int64_t n,
                             cudaStream_t stream) {
  if (n <= 0) return cudaSuccess;
  return launch(&copy_amax, dim3(grid_of(a, static_cast<unsigned>((n + 255) / 256))), dim3(256), stream, false, src,
                dst, n);
}

cudaError_t launch_finish_dbias(const TileArgs &a, int64_t count, const ops::Vector &out, int32_t accumulate,
                                cudaStream_t stream) {
  if (out.size <= 0) return cudaSuccess;
  const dim3 grid(grid_of(a, static_cast<unsigned>((out.size + 127) / 128)));
  return launch(&finish_dbias, grid, dim3(128), stream, false, static_cast<const float *>(a.dbias), count, out,
                accumulate);
}

cudaError_t launch_sums(const TileArgs &a, bool packed, unsigned tiles, cudaStream_t stream) {
  return launch(&sum_tiles, dim3(grid_of(a, tiles)), dim3(kTile), stream, true, a, tiles, packed);
}

cudaError_t tiles_known(const TileArgs &a, unsigned tiles, cudaStream_t stream) {
  return launch_tiles<kAmaxKnown>(a, tiles, stream);
}

cudaError_t load_known() {
  const cudaError_t e = load_tiles<kAmaxKnown>();
  return e ? e
           : load_code(&amax_strips<PackedTile<4>>, &amax_strips<WideTile>, &quantize_rows<1>, &quantize_rows<2>,
                       &quantize_rows<4>, &quantize_rows<8>, &sum_tiles, &zero_lines, &copy_amax, &finish_dbias);
}

}  // namespace fp8::cuda
