// SPDX-License-Identifier: Apache-2.0
// Elements of a tile of 128 x 128 in the registers of threads.
#pragma once
#include "ops/quantize.h"
#include "warp_api.cuh"

namespace fp8::cuda {

constexpr int kTile = 128, kTileThreads = 512;

// Everything to F32, from any view: x, or codes and their scale (requantization).
struct Source {
  ops::Matrix x;                 // of the rows x cols matrix
  ops::Scale scale;              // data NULL = x is not codes
  int32_t tile_rows, tile_cols;  // of the scale in the source side's orientation; 0 = whole
  int32_t transposed;            // x is stored [cols, rows]
  int32_t round_bf16;
  int32_t vector;  // 16-byte loads of 8 (4) elements are legal where all lie inside
};

__device__ __forceinline__ int64_t scale_offset(const ops::Scale &s, int32_t tile_rows, int32_t tile_cols, int64_t row,
                                                int64_t col) {
  return (tile_rows ? row / tile_rows : 0) * s.row_stride + (tile_cols ? col / tile_cols : 0) * s.col_stride;
}

// The rare paths are calls: inlined at every element they would be most of the code.
__device__ __noinline__ inline int64_t offset_of_leads(const ops::Matrix &m, int64_t row) {
  int64_t offset = 0;
  for (int i = m.lead - 1; i > 0; --i) {
    offset += (row % m.lead_shape[i]) * m.lead_stride[i];
    row /= m.lead_shape[i];
  }
  return offset + row * m.lead_stride[0];
}
__device__ __forceinline__ int64_t offset_of(const ops::Matrix &m, int64_t row) {
  return m.lead <= 1 ? row * m.lead_stride[0] : offset_of_leads(m, row);
}

__device__ __noinline__ inline float source_at(const Source &s, int64_t row, int64_t col) {
  if (s.scale.data) {
    const int64_t r = s.transposed ? col : row, c = s.transposed ? row : col;
    const uint8_t code = static_cast<const uint8_t *>(s.x.data)[offset_of(s.x, r) + c * s.x.col_stride];
    const float inverse = num::load(s.scale.dtype == num::kF32 ? num::kF32 : num::kE8M0, s.scale.data,
                                    scale_offset(s.scale, s.tile_rows, s.tile_cols, r, c));
    return num::dequantize_element(s.x.dtype, code, inverse);
  }
  const float v = num::load(s.x.dtype, s.x.data, offset_of(s.x, row) + col * s.x.col_stride);
  return s.round_bf16 ? num::decode_bf16(num::encode_bf16(v)) : v;
}

// 4 x 8 elements, absent ones +0.
struct WideTile {  // any source
  float v[4][8];

  __device__ __forceinline__ void load(const Source &s, int64_t row, int64_t col, int64_t rows, int64_t cols) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = row + i < rows;
      if (inside && s.vector && col + 8 <= cols) {
        const int64_t at = offset_of(s.x, row + i) + col;
        if (s.x.dtype == num::kF32) {
          const float *p = static_cast<const float *>(s.x.data) + at;
          const uint4 a = load16(p), b = load16(p + 4);
          const uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
          for (int j = 0; j < 8; ++j) v[i][j] = num::float_of(w[j]);
        } else {
          const uint4 a = load16(static_cast<const uint16_t *>(s.x.data) + at);
          const uint32_t w[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const uint16_t h = uint16_t(w[j / 2] >> (16 * (j & 1)));
            v[i][j] = s.x.dtype == num::kBF16 ? num::decode_bf16(h) : num::decode_f16(h);
          }
        }
        if (s.round_bf16) {
#pragma unroll
          for (int j = 0; j < 8; ++j) v[i][j] = num::decode_bf16(num::encode_bf16(v[i][j]));
        }
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) v[i][j] = inside && col + j < cols ? source_at(s, row + i, col + j) : 0.0f;
      }
    }
  }
  __device__ __forceinline__ float at(int i, int j) const { return v[i][j]; }
};

// 0 <= the result <= most
__device__ __forceinline__ int left_of(int64_t n, int most) { return n < 0 ? 0 : n < most ? int(n) : most; }

template <int kRows>
struct PackedTile {  // kRows x 8, aligned BF16 of one row stride; the pairs of columns stay packed
  uint32_t w[kRows][4];

  // The first `rows` rows are there. kLast: nothing reads the matrix after this.
  template <bool kLast = false>
  __device__ __forceinline__ void load(const Source &s, int64_t row, int64_t col, int rows) {
    const uint16_t *p = static_cast<const uint16_t *>(s.x.data) + row * s.x.lead_stride[0] + col;
#pragma unroll
    for (int i = 0; i < kRows; ++i, p += s.x.lead_stride[0]) {
      uint4 a = make_uint4(0, 0, 0, 0);
      if (i < rows) a = kLast ? load_streaming(reinterpret_cast<const uint4 *>(p)) : load16(p);
      w[i][0] = a.x, w[i][1] = a.y, w[i][2] = a.z, w[i][3] = a.w;
    }
  }
  __device__ __forceinline__ float at(int i, int j) const {
    const uint32_t u = w[i][j / 2];
    return num::float_of(j & 1 ? u & 0xffff0000u : u << 16);
  }
};

}  // namespace fp8::cuda
