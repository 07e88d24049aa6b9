// SPDX-License-Identifier: Apache-2.0
// Dequantize, transpose, cast and measure.
#include "device/tile.cuh"
#include "launch_cuda.h"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

struct Walk {  // 32 x 32 tiles of a rows x cols matrix, 32 x 8 threads
  int64_t rows, cols, tiles_c;
};

__device__ __forceinline__ float side_value(const ops::Side &s, int32_t tile_rows, int32_t tile_cols, int64_t r,
                                            int64_t c) {
  const int64_t at = offset_of(s.codes, r) + c * s.codes.col_stride;
  if (!s.scale.data) return num::load(s.codes.dtype, s.codes.data, at);  // unquantized
  const uint8_t code = static_cast<const uint8_t *>(s.codes.data)[at];
  const float inverse = num::load(s.scale.dtype == num::kF32 ? num::kF32 : num::kE8M0, s.scale.data,
                                  scale_offset(s.scale, tile_rows, tile_cols, r, c));
  return num::dequantize_element(s.codes.dtype, code, inverse);
}

// Reads along the codes' rows and writes along x's, whichever way round they are.
__global__ void __launch_bounds__(256)
    dequantize_tiles(const __grid_constant__ ops::Dequantize q, const __grid_constant__ Walk n, int32_t tile_rows,
                     int32_t tile_cols) {
  __shared__ float values[32][33];
  const int64_t r0 = blockIdx.x / n.tiles_c * 32, c0 = blockIdx.x % n.tiles_c * 32;  // of the codes
  const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  for (int i = ty; i < 32; i += 8)
    if (r0 + i < n.rows && c0 + tx < n.cols) {
      const float v = side_value(q.side, tile_rows, tile_cols, r0 + i, c0 + tx);
      if (q.is_col)
        values[i][tx] = v;
      else
        num::store(q.x.dtype, q.x.data, offset_of(q.x, r0 + i) + (c0 + tx) * q.x.col_stride, v);
    }
  if (!q.is_col) return;
  __syncthreads();
  for (int i = ty; i < 32; i += 8)
    if (c0 + i < n.cols && r0 + tx < n.rows)
      num::store(q.x.dtype, q.x.data, offset_of(q.x, c0 + i) + (r0 + tx) * q.x.col_stride, values[tx][i]);
}

template <class T>
__global__ void __launch_bounds__(256)
    transpose_tiles(const __grid_constant__ ops::Matrix src, const __grid_constant__ ops::Matrix dst, int64_t tiles_c) {
  __shared__ T values[32][33];
  const int64_t r0 = blockIdx.x / tiles_c * 32, c0 = blockIdx.x % tiles_c * 32;
  const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  for (int i = ty; i < 32; i += 8)
    if (r0 + i < src.rows && c0 + tx < src.cols)
      values[i][tx] = static_cast<const T *>(src.data)[offset_of(src, r0 + i) + (c0 + tx) * src.col_stride];
  __syncthreads();
  for (int i = ty; i < 32; i += 8)
    if (c0 + i < src.cols && r0 + tx < src.rows)
      static_cast<T *>(dst.data)[offset_of(dst, c0 + i) + (r0 + tx) * dst.col_stride] = values[tx][i];
}

// Bytes, 128 x 128, as the quantizers transpose: 16-byte loads and stores.
__global__ void __launch_bounds__(256) transpose_bytes(const uint8_t *src, int64_t src_ld, uint8_t *dst, int64_t dst_ld,
                                                       int64_t rows, int64_t cols, int64_t tiles_c) {
  __shared__ __align__(16) uint32_t words[128 * 32];
  const int t = threadIdx.x, cg = t & 7, rg = t >> 3;  // 16 columns, 4 rows a thread
  const int64_t r0 = blockIdx.x / tiles_c * 128, c0 = blockIdx.x % tiles_c * 128;
  uint32_t w[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (r0 + 4 * rg + i < rows && c0 + 16 * cg < cols) v = load16(src + (r0 + 4 * rg + i) * src_ld + c0 + 16 * cg);
    w[i][0] = v.x, w[i][1] = v.y, w[i][2] = v.z, w[i][3] = v.w;
  }
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const int s = 8 * (j & 3), c = 16 * cg + j;
    const uint32_t v = ((w[0][j / 4] >> s) & 255u) | ((w[1][j / 4] >> s) & 255u) << 8 |
                       ((w[2][j / 4] >> s) & 255u) << 16 | ((w[3][j / 4] >> s) & 255u) << 24;
    words[c * 32 + (rg ^ (4 * cg))] = v;
  }
  __syncthreads();
#pragma unroll
  for (int pass = 0; pass < 4; ++pass) {
    const int c = t / 8 + 32 * pass, part = t & 7;
    const uint4 v = *reinterpret_cast<const uint4 *>(words + c * 32 + ((4 * part) ^ (4 * (c / 16))));
    if (c0 + c < cols && r0 + 16 * part < rows) store16_streaming(dst + (c0 + c) * dst_ld + r0 + 16 * part, v);
  }
}

__global__ void __launch_bounds__(256) cast_elements(const __grid_constant__ ops::Cast c, int64_t blocks_c) {
  const int64_t row = blockIdx.x / blocks_c, col0 = blockIdx.x % blocks_c * 1024;
  const float scale = c.scale ? *c.scale : 1.0f;
  const int64_t from = offset_of(c.src, row), to = offset_of(c.dst, row);
  for (int k = 0; k < 4; ++k) {
    const int64_t col = col0 + k * 256 + threadIdx.x;
    if (col >= c.src.cols) return;
    const float v = num::load(c.src.dtype, c.src.data, from + col * c.src.col_stride);
    num::store(c.dst.dtype, c.dst.data, to + col * c.dst.col_stride, c.scale ? num::mul_rn(v, scale) : v,
               c.saturate != 0);
  }
}

__global__ void __launch_bounds__(128)
    measure_tiles(const __grid_constant__ ops::Measure m, int64_t rows, int64_t cols, int64_t tiles_c,
                  int32_t tile_rows, int32_t tile_cols, num::Sums *out) {
  __shared__ num::Sums sums[num::kMeasureTile];
  const int t = threadIdx.x;
  const int64_t r0 = blockIdx.x / tiles_c * num::kMeasureTile, c = blockIdx.x % tiles_c * num::kMeasureTile + t;
  num::Sums s{0.0, 0.0, 0.0, 0.0};
  if (c < cols)
    for (int64_t r = r0; r < r0 + num::kMeasureTile && r < rows; ++r) {
      const float x = num::load(m.x.dtype, m.x.data, offset_of(m.x, r) + c * m.x.col_stride);
      num::measure_element(
          &s, x,
          m.is_col ? side_value(m.side, tile_rows, tile_cols, c, r) : side_value(m.side, tile_rows, tile_cols, r, c));
    }
  sums[t] = s;
  __syncthreads();
  for (int h = 64; h; h /= 2) {
    if (t < h) num::measure_join(&sums[t], sums[t + h]);
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = sums[0];
}

__global__ void __launch_bounds__(128) measure_bands(num::Sums *tiles, int64_t bands, int64_t tiles_c) {
  const int64_t b = int64_t(blockIdx.x) * 128 + threadIdx.x;
  if (b >= bands) return;
  num::Sums s = tiles[b * tiles_c];
  for (int64_t i = 1; i < tiles_c; ++i) num::measure_join(&s, tiles[b * tiles_c + i]);
  tiles[b * tiles_c] = s;
}

__global__ void measure_total(const num::Sums *tiles, int64_t bands, int64_t tiles_c, ops::Vector out) {
  if (threadIdx.x) return;
  num::Sums s{0.0, 0.0, 0.0, 0.0};
  if (tiles_c)
    for (int64_t b = 0; b < bands; ++b) num::measure_join(&s, tiles[b * tiles_c]);
  double *d = static_cast<double *>(out.data);
  d[0] = s.xx, d[out.stride] = s.ee, d[2 * out.stride] = s.xy, d[3 * out.stride] = s.worst;
}

// --------------------------------------------------------------- launchers

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool fits(int64_t blocks) { return blocks < int64_t{1} << 31; }
int32_t tile_rows(int32_t scaling) { return static_cast<int32_t>(num::scale_tile_rows(scaling)); }
int32_t tile_cols(int32_t scaling) { return static_cast<int32_t>(num::scale_tile_cols(scaling)); }

}  // namespace

cudaError_t launch_dequantize(const ops::Dequantize &q, cudaStream_t stream) {
  const Walk n{q.side.codes.rows, q.side.codes.cols, ceil_div(q.side.codes.cols, 32)};
  const int64_t blocks = ceil_div(n.rows, 32) * n.tiles_c;
  if (!blocks) return cudaSuccess;
  if (!fits(blocks)) return cudaErrorInvalidValue;
  return launch(&dequantize_tiles, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, false, q, n,
                tile_rows(q.side.scaling), tile_cols(q.side.scaling));
}

cudaError_t launch_transpose(const ops::Transpose &t, cudaStream_t stream) {
  const ops::Matrix &s = t.src, &d = t.dst;
  if (!s.rows || !s.cols) return cudaSuccess;
  // values of enum fp8_dtype: I32 8; I64, U64, F64 9 to 11
  const int64_t size = s.dtype >= 9 ? 8 : s.dtype == 8 ? 4 : num::element_size(s.dtype);
  const auto fast = [](const ops::Matrix &m) {
    return m.lead <= 1 && m.col_stride == 1 && m.lead_stride[0] % 16 == 0 && m.cols % 16 == 0 &&
           reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
  };
  if (size == 1 && fast(s) && fast(d)) {
    const int64_t tiles_c = ceil_div(s.cols, 128), blocks = ceil_div(s.rows, 128) * tiles_c;
    if (!fits(blocks)) return cudaErrorInvalidValue;
    return launch(&transpose_bytes, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, false,
                  static_cast<const uint8_t *>(s.data), s.lead_stride[0], static_cast<uint8_t *>(d.data),
                  d.lead_stride[0], s.rows, s.cols, tiles_c);
  }
  const int64_t tiles_c = ceil_div(s.cols, 32), blocks = ceil_div(s.rows, 32) * tiles_c;
  if (!fits(blocks)) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(blocks)), block(256);
  switch (size) {
    case 8:
      return launch(&transpose_tiles<uint64_t>, grid, block, stream, false, s, d, tiles_c);
    case 4:
      return launch(&transpose_tiles<uint32_t>, grid, block, stream, false, s, d, tiles_c);
    case 2:
      return launch(&transpose_tiles<uint16_t>, grid, block, stream, false, s, d, tiles_c);
    default:
      return launch(&transpose_tiles<uint8_t>, grid, block, stream, false, s, d, tiles_c);
  }
}

cudaError_t launch_cast(const ops::Cast &c, cudaStream_t stream) {
  const int64_t blocks_c = ceil_div(c.src.cols, 1024), blocks = c.src.rows * blocks_c;
  if (!blocks) return cudaSuccess;
  if (!fits(blocks)) return cudaErrorInvalidValue;
  return launch(&cast_elements, dim3(static_cast<unsigned>(blocks)), dim3(256), stream, false, c, blocks_c);
}

int64_t measure_bytes(int64_t rows, int64_t cols) {
  return ceil_div(rows, num::kMeasureTile) * ceil_div(cols, num::kMeasureTile) *
         static_cast<int64_t>(sizeof(num::Sums));
}

cudaError_t launch_measure(const ops::Measure &m, void *workspace, cudaStream_t stream) {
  const int64_t rows = m.x.rows, cols = m.x.cols, bands = ceil_div(rows, num::kMeasureTile),
                tiles_c = ceil_div(cols, num::kMeasureTile);
  num::Sums *sums = static_cast<num::Sums *>(workspace);
  if (bands * tiles_c > 0) {
    if (!fits(bands * tiles_c)) return cudaErrorInvalidValue;
    cudaError_t e = launch(&measure_tiles, dim3(static_cast<unsigned>(bands * tiles_c)), dim3(128), stream, false, m,
                           rows, cols, tiles_c, tile_rows(m.side.scaling), tile_cols(m.side.scaling), sums);
    if (e) return e;
    e = launch(&measure_bands, dim3(static_cast<unsigned>(ceil_div(bands, 128))), dim3(128), stream, false, sums, bands,
               tiles_c);
    if (e) return e;
  }
  return launch(&measure_total, dim3(1), dim3(32), stream, false, static_cast<const num::Sums *>(sums), bands, tiles_c,
                m.sums);
}

cudaError_t load_move() {
  return load_code(&dequantize_tiles, &transpose_tiles<uint8_t>, &transpose_tiles<uint16_t>, &transpose_tiles<uint32_t>,
                   &transpose_tiles<uint64_t>, &transpose_bytes, &cast_elements, &measure_tiles, &measure_bands,
                   &measure_total);
}

}  // namespace fp8::cuda
