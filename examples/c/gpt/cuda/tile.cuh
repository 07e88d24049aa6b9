// SPDX-License-Identifier: Apache-2.0
// 64 x 64 BF16 tiles in shared memory, and the fragments that a warp's matrix instructions take from them. Rows are 128
// bytes; the eight 16-byte chunks of a row are permuted by the row, so that eight rows of one chunk meet no bank twice.
#pragma once
#include "device.cuh"

namespace gpt {

constexpr int kTile = 64, kHead = 64, kAttentionThreads = 128;  // four warps of 16 rows each
constexpr int kTileBytes = kTile * kHead * 2;

__device__ __forceinline__ uint8_t *chunk_of(uint8_t *tile, int row, int chunk) {
  return tile + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// Rows first.. of a matrix whose rows lie `stride` elements apart; rows from `limit` on are zeros.
__device__ __forceinline__ void load_tile(uint8_t *tile, const bf16 *matrix, int64_t stride, int64_t first,
                                          int64_t limit) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * 8; i += kAttentionThreads) {
    const int row = i / 8, chunk = i % 8;
    const bool valid = first + row < limit;
    copy16_async(chunk_of(tile, row, chunk), matrix + (valid ? first + row : 0) * stride + chunk * 8, valid);
  }
}

// The warp's 16 rows as left operands, all 64 columns of them.
__device__ __forceinline__ void load_rows(uint32_t (&a)[4][4], uint8_t *tile, int row, int lane) {
#pragma unroll
  for (int k = 0; k < 4; ++k) load_matrices(a[k], chunk_of(tile, row + (lane & 15), 2 * k + (lane >> 4)));
}

// c[16, 8 n] = a . rows^T, rows row.. of the tile; n is even.
template <int n>
__device__ __forceinline__ void times_rows(float (&c)[n][4], const uint32_t (&a)[4][4], uint8_t *tile, int row,
                                           int lane) {
#pragma unroll
  for (int j = 0; j < n; ++j) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      uint32_t b[4];
      load_matrices(b, chunk_of(tile, row + 8 * j + (lane & 7) + (lane >> 4 << 3), 2 * k + (lane >> 3 & 1)));
      mma(c[j], a[k], b[0], b[1]);
      mma(c[j + 1], a[k], b[2], b[3]);
    }
}

// out[16, 64] += p[16, 8 n] . rows row.. of the tile; p is rounded to BF16 on the way.
template <int n>
__device__ __forceinline__ void add_product(float (&out)[8][4], const float (&p)[n][4], uint8_t *tile, int row,
                                            int lane) {
#pragma unroll
  for (int k = 0; k < n; k += 2) {
    const uint32_t a[4] = {pack2(p[k][0], p[k][1]), pack2(p[k][2], p[k][3]), pack2(p[k + 1][0], p[k + 1][1]),
                           pack2(p[k + 1][2], p[k + 1][3])};
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t b[4];
      load_transposed(b, chunk_of(tile, row + 8 * k + (lane & 15), j + (lane >> 4)));
      mma(out[j], a, b[0], b[1]);
      mma(out[j + 1], a, b[2], b[3]);
    }
  }
}

// The warp's 16 rows, times the factor of each half, to BF16 rows that lie `stride` elements apart.
__device__ __forceinline__ void store_rows(const float (&c)[8][4], float upper, float lower, bf16 *matrix,
                                           int64_t stride, int64_t first, int64_t limit, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + lane / 4 + 8 * half;
    const float factor = half ? lower : upper;
    if (row >= limit) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      *reinterpret_cast<uint32_t *>(matrix + row * stride + 8 * j + 2 * (lane % 4)) =
          pack2(c[j][2 * half] * factor, c[j][2 * half + 1] * factor);
  }
}

}  // namespace gpt
