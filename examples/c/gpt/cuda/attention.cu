// SPDX-License-Identifier: Apache-2.0
// Causal self-attention, 64 wide heads: blocks of 64 queries walk over tiles of 64 keys; probabilities never leave
// registers. Scores are kept in units of log 2, so that exponentials are powers of two.
#include "tile.cuh"

namespace gpt {
namespace {

struct Call {
  int64_t seq, dim, heads, items, tiles;
  const bf16 *qkv;
  bf16 *out;
  float *logsum;
};

__device__ __forceinline__ float quad_max(float x) {
  float y = shuffle_xor(x, 1);
  x = y > x ? y : x;
  y = shuffle_xor(x, 2);
  return y > x ? y : x;
}
__device__ __forceinline__ float quad_sum(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}

__global__ void __launch_bounds__(kAttentionThreads) forward(Call c) {
  __shared__ __align__(128) uint8_t keys[2][kTileBytes], values[2][kTileBytes];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t item = blockIdx.x % c.items, tile = c.tiles - 1 - blockIdx.x / c.items;  // the longest ones first
  const int64_t stride = 3 * c.dim;
  const bf16 *q = c.qkv + item / c.heads * c.seq * stride + item % c.heads * kHead, *k = q + c.dim, *v = k + c.dim;

  uint32_t queries[4][4];
  load_tile(keys[1], q, stride, tile * kTile, c.seq);
  load_tile(keys[0], k, stride, 0, c.seq);
  load_tile(values[0], v, stride, 0, c.seq);
  wait_copies();
  __syncthreads();
  load_rows(queries, keys[1], 16 * warp, lane);

  const float factor = kLog2E / 8.0f;  // 8 = sqrt(64)
  float out[8][4] = {}, largest[2] = {-1e30f, -1e30f}, sum[2] = {0.0f, 0.0f};
  for (int64_t t = 0; t <= tile; ++t) {
    wait_copies();
    __syncthreads();
    if (t < tile) {
      load_tile(keys[(t + 1) & 1], k, stride, (t + 1) * kTile, c.seq);
      load_tile(values[(t + 1) & 1], v, stride, (t + 1) * kTile, c.seq);
    }
    float p[8][4];
    times_rows(p, queries, keys[t & 1], 0, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * warp + lane / 4 + 8 * half;
      float most = largest[half];
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const bool seen = t < tile || 8 * j + 2 * (lane % 4) + (i & 1) <= row;
          p[j][i] = seen ? p[j][i] * factor : -1e30f;
          most = p[j][i] > most ? p[j][i] : most;
        }
      most = quad_max(most);
      const float shrink = exp2_fast(largest[half] - most);
      largest[half] = most;
      sum[half] *= shrink;
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          p[j][i] = exp2_fast(p[j][i] - most);
          sum[half] += p[j][i];
          out[j][i] *= shrink;
        }
    }
    add_product(out, p, values[t & 1], 0, lane);
  }
  const int64_t first = tile * kTile + 16 * warp;
  float total[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] = quad_sum(sum[half]);
    const int64_t row = first + lane / 4 + 8 * half;
    if (lane % 4 == 0 && row < c.seq) c.logsum[item * c.seq + row] = largest[half] * kLn2 + logf(total[half]);
  }
  store_rows(out, 1.0f / total[0], 1.0f / total[1], c.out + item / c.heads * c.seq * c.dim + item % c.heads * kHead,
             c.dim, first, c.seq, lane);
}

}  // namespace
}  // namespace gpt

void cuda_attention(const Device *d, const Shape *s, const bf16 *qkv, bf16 *out, float *logsum) {
  using namespace gpt;
  const int64_t items = s->batch * s->heads, tiles = blocks_of(s->seq, kTile);
  REQUIRE(s->dim == s->heads * kHead, "attention on CUDA is written for heads of %d", kHead);
  launch(d, items * tiles, kAttentionThreads, forward, Call{s->seq, s->dim, s->heads, items, tiles, qkv, out, logsum});
}
