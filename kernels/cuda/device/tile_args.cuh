// SPDX-License-Identifier: Apache-2.0
// What the kernels that take a matrix by tiles share: their arguments, maxima, scales.
#pragma once
#include "tile.cuh"

namespace fp8::cuda {

struct TileArgs {
  Source source;
  ops::QuantizeSide row, col;  // side.scaling 0 = absent
  int64_t rows, cols, tiles_c;
  float *dbias;                      // [chunks, cols] or NULL
  const float *tensor_amax;          // `parts` partial ones; ROW: NULL
  const float *row_amax, *col_amax;  // ROW kinds, at their strides; of each line row_parts, col_parts partial ones
  int64_t row_amax_stride, col_amax_stride;
  int32_t row_parts, col_parts;  // 0 = 1; the others follow in rows, cols steps
  int32_t parts, dtype, rule, amax_only;
  float floor;
  int32_t row_vector, col_vector;  // 8-byte stores of row codes, 16-byte stores of column codes
  int32_t reversed, any_given;
  int32_t chained;  // directly behind amax_strips, which has waited for what wrote the input
  int32_t most;     // blocks of a grid, where multiprocessors are left to others; 0 = one a tile
};

inline unsigned grid_of(const TileArgs &a, unsigned blocks) {
  return a.most && static_cast<unsigned>(a.most) < blocks ? static_cast<unsigned>(a.most) : blocks;
}

__device__ __forceinline__ void put_scale(const ops::QuantizeSide &s, int32_t amax_only, int64_t r, int64_t c,
                                          float amax, const num::ScaleOf &v) {
  if (s.amax.data && !s.amax_given)
    static_cast<float *>(s.amax.data)[r * s.amax.row_stride + c * s.amax.col_stride] = amax;
  if (amax_only) return;
  const int64_t at = r * s.side.scale.row_stride + c * s.side.scale.col_stride;
  if (s.side.scale.dtype == num::kF32)
    static_cast<float *>(s.side.scale.data)[at] = v.inverse;
  else
    static_cast<uint8_t *>(s.side.scale.data)[at] = v.code;
}

__device__ __forceinline__ float given_or(const ops::QuantizeSide &s, int64_t r, int64_t c, float amax) {
  if (!s.amax_given || r >= s.amax.rows || c >= s.amax.cols) return amax;
  return static_cast<const float *>(s.amax.data)[r * s.amax.row_stride + c * s.amax.col_stride];
}

// Native strides of F32 scales are rounded up to 4: what lies between is zero.
__device__ inline void zero_padding(const ops::Scale &s, int thread, int threads) {
  const bool down = s.row_stride == 1 && s.rows > 0 && s.col_stride > s.rows;
  const bool across = s.col_stride == 1 && s.cols > 0 && s.row_stride > s.cols;
  if (!s.padded || (!down && !across)) return;
  const int64_t line = down ? s.rows : s.cols, lines = down ? s.cols : s.rows,
                stride = down ? s.col_stride : s.row_stride;
  for (int64_t i = thread; i < lines; i += threads)
#pragma unroll 1
    for (int64_t j = line; j < stride; ++j) static_cast<float *>(s.data)[i * stride + j] = 0.0f;
}

__device__ __forceinline__ void put_bytes(uint8_t *p, int64_t stride, uint32_t low, uint32_t high, int64_t n) {
  uint64_t bytes = uint64_t(high) << 32 | low;
#pragma unroll 1
  for (int j = 0; j < 8 && j < n; ++j, bytes >>= 8) p[j * stride] = uint8_t(bytes);
}

__device__ __noinline__ inline void put_16(uint8_t *p, uint4 v, int n) {  // the ragged end of a column
  put_bytes(p, 1, v.x, v.y, n);
  put_bytes(p + 8, 1, v.z, v.w, n - 8);
}

// ROW: the multiplier of a line from its amax; the `first` tile writes the scale.
__device__ __forceinline__ float known_line(const TileArgs &a, bool of_row, int64_t line, bool inside, bool first) {
  const ops::QuantizeSide &side = of_row ? a.row : a.col;
  const float *amax = of_row ? a.row_amax : a.col_amax;
  const int64_t lines = of_row ? a.rows : a.cols;
  const int32_t parts = of_row ? a.row_parts : a.col_parts;
  float v = inside ? amax[line * (of_row ? a.row_amax_stride : a.col_amax_stride)] : 0.0f;
  if (parts > 1 && inside) {
    amax += line;
#pragma unroll 8
    for (int i = 1; i < parts; ++i) v = amax1(v, amax[i * lines]);
  }
  const num::ScaleOf s = num::scale_of(a.dtype, a.rule, v, a.floor);
  if (first && inside) put_scale(side, a.amax_only, line, 0, v, s);
  return s.multiplier;
}

// The E8M0 scales of column c's four blocks: one word where they lie together.
__device__ __forceinline__ void put_codes(const ops::Scale &s, int64_t c, int64_t first, int64_t count,
                                          uint32_t codes) {
  uint8_t *p = static_cast<uint8_t *>(s.data) + c * s.row_stride + first * s.col_stride;
  if (s.col_stride == 1 && count >= 4 && reinterpret_cast<uintptr_t>(p) % 4 == 0)
    store4_lasting(p, codes);
  else
    for (int b = 0; b < 4 && b < count; ++b, codes >>= 8) p[b * s.col_stride] = uint8_t(codes);
}

// The eight multipliers of a thread's columns.
__device__ __forceinline__ void load_multipliers(const float *p, float (&m)[8]) {
  const uint4 u = load16(p), v = load16(p + 4);
  const uint32_t bits[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
  for (int j = 0; j < 8; ++j) m[j] = num::float_of(bits[j]);
}

// Maximum over a block of kN threads; `slots` holds one a warp.
template <int kN>
__device__ __forceinline__ float block_amax(float v, float *slots, int lane, int warp) {
#pragma unroll
  for (int s = 16; s; s /= 2) v = amax1(v, shuffle_xor(v, s));
  if (lane == 0) slots[warp] = v;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kN / 32; ++w) v = amax1(v, slots[w]);
  return v;
}

// Sums of the tile's columns, rows in order, by one thread a column.
__device__ __forceinline__ void sum_columns(const TileArgs &a, bool packed, int64_t tile_r, int64_t col) {
  const int64_t begin = tile_r * kTile, end = begin + kTile < a.rows ? begin + kTile : a.rows;
  if (col >= a.cols || begin >= end) return;
  float sum = 0.0f;
  if (packed) {
    const uint16_t *p = static_cast<const uint16_t *>(a.source.x.data) + begin * a.source.x.lead_stride[0] + col;
#pragma unroll 8
    for (int64_t r = begin; r < end; ++r, p += a.source.x.lead_stride[0])
      sum = num::dbias_step(sum, num::decode_bf16(*p));
  } else {
#pragma unroll 1
    for (int64_t r = begin; r < end; ++r) sum = num::dbias_step(sum, source_at(a.source, r, col));
  }
  a.dbias[tile_r * a.cols + col] = sum;
}

}  // namespace fp8::cuda
