// SPDX-License-Identifier: Apache-2.0
// Dequantize, transpose, cast and measure.
#include "device/tile.cuh"
#include "launch_cuda.h"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

struct Walk {  // square tiles of a rows x cols matrix
  int64_t rows, cols;
  unsigned tiles_c, tiles;
  __device__ __forceinline__ int64_t row(unsigned tile, int side) const { return int64_t(tile / tiles_c) * side; }
  __device__ __forceinline__ int64_t col(unsigned tile, int side) const { return int64_t(tile % tiles_c) * side; }
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

// Reads along the codes' rows and writes along x's, whichever way round they are. 32 x 8 threads.
__device__ __forceinline__ void dequantize_tile(const ops::Dequantize &q, const Walk &n, int32_t tile_rows,
                                                int32_t tile_cols, unsigned tile, float (&values)[32][33]) {
  const int64_t r0 = n.row(tile, 32), c0 = n.col(tile, 32);  // of the codes
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

template <bool kFew>
__global__ void __launch_bounds__(256, 5)
    dequantize_tiles(const __grid_constant__ ops::Dequantize q, const __grid_constant__ Walk n, int32_t tile_rows,
                     int32_t tile_cols) {
  __shared__ float values[32][33];
  each_block<kFew>(n.tiles, [&](unsigned tile) { dequantize_tile(q, n, tile_rows, tile_cols, tile, values); });
}

template <class T>
__device__ __forceinline__ void transpose_tile(const ops::Matrix &src, const ops::Matrix &dst, const Walk &n,
                                               unsigned tile, T (&values)[32][33]) {
  const int64_t r0 = n.row(tile, 32), c0 = n.col(tile, 32);
  const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  for (int i = ty; i < 32; i += 8)
    if (r0 + i < src.rows && c0 + tx < src.cols)
      values[i][tx] = static_cast<const T *>(src.data)[offset_of(src, r0 + i) + (c0 + tx) * src.col_stride];
  __syncthreads();
  for (int i = ty; i < 32; i += 8)
    if (c0 + i < src.cols && r0 + tx < src.rows)
      static_cast<T *>(dst.data)[offset_of(dst, c0 + i) + (r0 + tx) * dst.col_stride] = values[tx][i];
}

template <class T, bool kFew>
__global__ void __launch_bounds__(256)
    transpose_tiles(const __grid_constant__ ops::Matrix src, const __grid_constant__ ops::Matrix dst, const Walk n) {
  __shared__ T values[32][33];
  each_block<kFew>(n.tiles, [&](unsigned tile) { transpose_tile(src, dst, n, tile, values); });
}

// Bytes, 128 x 128, as the quantizers transpose: 16-byte loads and stores.
__device__ __forceinline__ void transpose_square(const uint8_t *src, int64_t src_ld, uint8_t *dst, int64_t dst_ld,
                                                 const Walk &n, unsigned tile, uint32_t *words) {
  const int t = threadIdx.x, cg = t & 7, rg = t >> 3;  // 16 columns, 4 rows a thread
  const int64_t r0 = n.row(tile, 128), c0 = n.col(tile, 128);
  uint32_t w[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (r0 + 4 * rg + i < n.rows && c0 + 16 * cg < n.cols) v = load16(src + (r0 + 4 * rg + i) * src_ld + c0 + 16 * cg);
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
    if (c0 + c < n.cols && r0 + 16 * part < n.rows) store16_streaming(dst + (c0 + c) * dst_ld + r0 + 16 * part, v);
  }
}

template <bool kFew>
__global__ void __launch_bounds__(256)
    transpose_bytes(const uint8_t *src, int64_t src_ld, uint8_t *dst, int64_t dst_ld, const Walk n) {
  __shared__ __align__(16) uint32_t words[128 * 32];
  each_block<kFew>(n.tiles, [&](unsigned tile) { transpose_square(src, src_ld, dst, dst_ld, n, tile, words); });
}

__device__ __forceinline__ void cast_block(const ops::Cast &c, int64_t row, int64_t col0) {
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

template <bool kFew>
__global__ void __launch_bounds__(256)
    cast_elements(const __grid_constant__ ops::Cast c, unsigned blocks_c, unsigned blocks) {
  each_block<kFew>(blocks, [&](unsigned block) { cast_block(c, block / blocks_c, int64_t(block % blocks_c) * 1024); });
}

__device__ __forceinline__ void measure_tile(const ops::Measure &m, const Walk &n, int32_t tile_rows, int32_t tile_cols,
                                             unsigned tile, num::Sums *sums, num::Sums *out) {
  const int t = threadIdx.x;
  const int64_t r0 = n.row(tile, num::kMeasureTile), c = n.col(tile, num::kMeasureTile) + t;
  num::Sums s{0.0, 0.0, 0.0, 0.0};
  if (c < n.cols)
    for (int64_t r = r0; r < r0 + num::kMeasureTile && r < n.rows; ++r) {
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
  if (t == 0) out[tile] = sums[0];
}

template <bool kFew>
__global__ void __launch_bounds__(128, 9)
    measure_tiles(const __grid_constant__ ops::Measure m, const __grid_constant__ Walk n, int32_t tile_rows,
                  int32_t tile_cols, num::Sums *out) {
  __shared__ num::Sums sums[num::kMeasureTile];
  each_block<kFew>(n.tiles, [&](unsigned tile) { measure_tile(m, n, tile_rows, tile_cols, tile, sums, out); });
}

__global__ void __launch_bounds__(128) measure_bands(num::Sums *tiles, int64_t bands, int64_t tiles_c) {
  for (int64_t b = int64_t(blockIdx.x) * 128 + threadIdx.x; b < bands; b += int64_t(gridDim.x) * 128) {
    num::Sums s = tiles[b * tiles_c];
    for (int64_t i = 1; i < tiles_c; ++i) num::measure_join(&s, tiles[b * tiles_c + i]);
    tiles[b * tiles_c] = s;
  }
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
int64_t tiles_of(int64_t rows, int64_t cols, int64_t side) { return ceil_div(rows, side) * ceil_div(cols, side); }
Walk walk_of(int64_t rows, int64_t cols, int64_t side) {  // where tiles_of() are no more than a grid may have
  return {rows, cols, static_cast<unsigned>(ceil_div(cols, side)), static_cast<unsigned>(tiles_of(rows, cols, side))};
}
int32_t tile_rows(int32_t scaling) { return static_cast<int32_t>(num::scale_tile_rows(scaling)); }
int32_t tile_cols(int32_t scaling) { return static_cast<int32_t>(num::scale_tile_cols(scaling)); }

}  // namespace

cudaError_t launch_dequantize(const ops::Dequantize &q, int32_t most, cudaStream_t stream) {
  const ops::Matrix &m = q.side.codes;
  return launch_blocks(&dequantize_tiles<false>, &dequantize_tiles<true>, tiles_of(m.rows, m.cols, 32), most, 256,
                       stream, q, walk_of(m.rows, m.cols, 32), tile_rows(q.side.scaling), tile_cols(q.side.scaling));
}

template <class T>
static cudaError_t launch_transpose_of(const ops::Transpose &t, int32_t most, cudaStream_t stream) {
  return launch_blocks(&transpose_tiles<T, false>, &transpose_tiles<T, true>, tiles_of(t.src.rows, t.src.cols, 32),
                       most, 256, stream, t.src, t.dst, walk_of(t.src.rows, t.src.cols, 32));
}

cudaError_t launch_transpose(const ops::Transpose &t, int32_t most, cudaStream_t stream) {
  const ops::Matrix &s = t.src, &d = t.dst;
  // values of enum fp8_dtype: I32 8; I64, U64, F64 9 to 11
  const int64_t size = s.dtype >= 9 ? 8 : s.dtype == 8 ? 4 : num::element_size(s.dtype);
  const auto fast = [](const ops::Matrix &m) {
    return m.lead <= 1 && m.col_stride == 1 && m.lead_stride[0] % 16 == 0 && m.cols % 16 == 0 &&
           reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
  };
  if (size == 1 && fast(s) && fast(d))
    return launch_blocks(&transpose_bytes<false>, &transpose_bytes<true>, tiles_of(s.rows, s.cols, 128), most, 256,
                         stream, static_cast<const uint8_t *>(s.data), s.lead_stride[0], static_cast<uint8_t *>(d.data),
                         d.lead_stride[0], walk_of(s.rows, s.cols, 128));
  switch (size) {
    case 8:
      return launch_transpose_of<uint64_t>(t, most, stream);
    case 4:
      return launch_transpose_of<uint32_t>(t, most, stream);
    case 2:
      return launch_transpose_of<uint16_t>(t, most, stream);
    default:
      return launch_transpose_of<uint8_t>(t, most, stream);
  }
}

cudaError_t launch_cast(const ops::Cast &c, int32_t most, cudaStream_t stream) {
  const int64_t blocks_c = ceil_div(c.src.cols, 1024), blocks = c.src.rows * blocks_c;
  return launch_blocks(&cast_elements<false>, &cast_elements<true>, blocks, most, 256, stream, c,
                       static_cast<unsigned>(blocks_c), static_cast<unsigned>(blocks));
}

int64_t measure_bytes(int64_t rows, int64_t cols) {
  return tiles_of(rows, cols, num::kMeasureTile) * static_cast<int64_t>(sizeof(num::Sums));
}

cudaError_t launch_measure(const ops::Measure &m, void *workspace, int32_t most, cudaStream_t stream) {
  const int64_t bands = ceil_div(m.x.rows, num::kMeasureTile), tiles_c = ceil_div(m.x.cols, num::kMeasureTile);
  num::Sums *sums = static_cast<num::Sums *>(workspace);
  if (bands * tiles_c > 0) {
    cudaError_t e = launch_blocks(&measure_tiles<false>, &measure_tiles<true>, bands * tiles_c, most, 128, stream, m,
                                  walk_of(m.x.rows, m.x.cols, num::kMeasureTile), tile_rows(m.side.scaling),
                                  tile_cols(m.side.scaling), sums);
    if (e) return e;
    dim3 grid;
    grid_of(ceil_div(bands, 128), most, &grid);
    e = launch(&measure_bands, grid, dim3(128), stream, false, sums, bands, tiles_c);
    if (e) return e;
  }
  return launch(&measure_total, dim3(1), dim3(32), stream, false, static_cast<const num::Sums *>(sums), bands, tiles_c,
                m.sums);
}

template <bool kFew>
static cudaError_t load_blocks() {
  return load_code(&dequantize_tiles<kFew>, &transpose_tiles<uint8_t, kFew>, &transpose_tiles<uint16_t, kFew>,
                   &transpose_tiles<uint32_t, kFew>, &transpose_tiles<uint64_t, kFew>, &transpose_bytes<kFew>,
                   &cast_elements<kFew>, &measure_tiles<kFew>);
}

cudaError_t load_move() {
  cudaError_t e = load_code(&measure_bands, &measure_total);
  if (!e) e = load_blocks<false>();
  return e ? e : load_blocks<true>();
}

}  // namespace fp8::cuda
