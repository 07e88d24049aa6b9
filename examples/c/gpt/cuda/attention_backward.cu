// SPDX-License-Identifier: Apache-2.0
// Attention's backward, without atomics: one kernel owns 64 queries and walks over the keys for dq, the other owns 64
// keys and walks over the queries for dk and dv. Both rebuild the probabilities from the saved logarithms of sums.
#include "tile.cuh"

namespace gpt {
namespace {

struct Call {
  int64_t seq, dim, heads, items, tiles;
  const bf16 *qkv, *dout;
  const float *logsum, *mean;  // [items, seq]; mean: <out, dout> of each row
  bf16 *dqkv;
};

struct MeanCall {
  int64_t seq, dim, heads, count;
  const bf16 *out, *dout;
  float *mean;
};

// Eight lanes for each row of a head.
__global__ void means(MeanCall c) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 8;
  const int64_t at = i < c.count ? i : 0, row = at / c.heads, head = at % c.heads;
  const int64_t from = row * c.dim + head * kHead + threadIdx.x % 8 * 8;
  const uint4 a = *reinterpret_cast<const uint4 *>(c.out + from), b = *reinterpret_cast<const uint4 *>(c.dout + from);
  float sum = low(a.x) * low(b.x) + high(a.x) * high(b.x) + low(a.y) * low(b.y) + high(a.y) * high(b.y) +
              low(a.z) * low(b.z) + high(a.z) * high(b.z) + low(a.w) * low(b.w) + high(a.w) * high(b.w);
  for (int mask = 4; mask; mask >>= 1) sum += shuffle_xor(sum, mask);
  if (i < c.count && threadIdx.x % 8 == 0) c.mean[(row / c.seq * c.heads + head) * c.seq + row % c.seq] = sum;
}

constexpr float kFactor = 0.125f, kPower = kFactor * kLog2E;  // 1 / sqrt(64)
constexpr float kNever = 1e30f;                               // a logarithm that leaves no probability

__global__ void __launch_bounds__(kAttentionThreads) backward_queries(Call c) {
  __shared__ __align__(128) uint8_t keys[2][kTileBytes], values[2][kTileBytes];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t item = blockIdx.x % c.items, tile = c.tiles - 1 - blockIdx.x / c.items, stride = 3 * c.dim;
  const int64_t at = item / c.heads * c.seq, column = item % c.heads * kHead;
  const bf16 *q = c.qkv + at * stride + column, *k = q + c.dim, *v = k + c.dim;

  uint32_t queries[4][4], douts[4][4];
  load_tile(keys[1], q, stride, tile * kTile, c.seq);
  load_tile(values[1], c.dout + at * c.dim + column, c.dim, tile * kTile, c.seq);
  load_tile(keys[0], k, stride, 0, c.seq);
  load_tile(values[0], v, stride, 0, c.seq);
  wait_copies();
  __syncthreads();
  load_rows(queries, keys[1], 16 * warp, lane);
  load_rows(douts, values[1], 16 * warp, lane);

  const int64_t first = tile * kTile + 16 * warp;
  float dq[8][4] = {}, logsum[2], mean[2];
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + lane / 4 + 8 * half;
    logsum[half] = row < c.seq ? c.logsum[item * c.seq + row] * kLog2E : kNever;
    mean[half] = row < c.seq ? c.mean[item * c.seq + row] : 0.0f;
  }
  for (int64_t t = 0; t <= tile; ++t) {
    wait_copies();
    __syncthreads();
    if (t < tile) {
      load_tile(keys[(t + 1) & 1], k, stride, (t + 1) * kTile, c.seq);
      load_tile(values[(t + 1) & 1], v, stride, (t + 1) * kTile, c.seq);
    }
#pragma unroll
    for (int from = 0; from < kTile; from += 32) { /* half a tile at a time: fewer registers, more warps */
      float p[4][4], dp[4][4];
      times_rows(p, queries, keys[t & 1], from, lane);
      times_rows(dp, douts, values[t & 1], from, lane);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool seen = t < tile || from + 8 * j + 2 * (lane % 4) + (i & 1) <= 16 * warp + lane / 4 + 8 * (i / 2);
          const float probability = seen ? exp2_fast(p[j][i] * kPower - logsum[i / 2]) : 0.0f;
          dp[j][i] = probability * (dp[j][i] - mean[i / 2]);
        }
      add_product(dq, dp, keys[t & 1], from, lane);
    }
  }
  store_rows(dq, kFactor, kFactor, c.dqkv + at * stride + column, stride, first, c.seq, lane);
}

__global__ void __launch_bounds__(kAttentionThreads) backward_keys(Call c) {
  __shared__ __align__(128) uint8_t queries[2][kTileBytes], douts[2][kTileBytes];
  __shared__ float logsum[2][kTile], mean[2][kTile];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t item = blockIdx.x % c.items, tile = blockIdx.x / c.items, stride = 3 * c.dim;
  const int64_t at = item / c.heads * c.seq, column = item % c.heads * kHead;
  const bf16 *q = c.qkv + at * stride + column, *k = q + c.dim, *v = k + c.dim, *dout = c.dout + at * c.dim + column;

  auto load = [&](int64_t t, int slot) {
    load_tile(queries[slot], q, stride, t * kTile, c.seq);
    load_tile(douts[slot], dout, c.dim, t * kTile, c.seq);
    if (threadIdx.x < kTile) {
      const int64_t row = t * kTile + threadIdx.x;
      logsum[slot][threadIdx.x] = row < c.seq ? c.logsum[item * c.seq + row] * kLog2E : kNever;
      mean[slot][threadIdx.x] = row < c.seq ? c.mean[item * c.seq + row] : 0.0f;
    }
  };
  uint32_t keys[4][4], values[4][4];
  const int start = static_cast<int>(tile & 1);
  load_tile(queries[1 - start], k, stride, tile * kTile, c.seq);
  load_tile(douts[1 - start], v, stride, tile * kTile, c.seq);
  load(tile, start);
  wait_copies();
  __syncthreads();
  load_rows(keys, queries[1 - start], 16 * warp, lane);
  load_rows(values, douts[1 - start], 16 * warp, lane);

  float dk[8][4] = {}, dv[8][4] = {};
  for (int64_t t = tile; t < c.tiles; ++t) {
    const int slot = static_cast<int>(t & 1);
    wait_copies();
    __syncthreads();
    if (t + 1 < c.tiles) load(t + 1, 1 - slot);
#pragma unroll
    for (int from = 0; from < kTile; from += 32) {
      float p[4][4], dp[4][4];  // transposed: rows are keys, columns queries
      times_rows(p, keys, queries[slot], from, lane);
      times_rows(dp, values, douts[slot], from, lane);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int query = from + 8 * j + 2 * (lane % 4) + (i & 1);
          const bool seen = t > tile || query >= 16 * warp + lane / 4 + 8 * (i / 2);
          p[j][i] = seen ? exp2_fast(p[j][i] * kPower - logsum[slot][query]) : 0.0f;
          dp[j][i] = p[j][i] * (dp[j][i] - mean[slot][query]);
        }
      add_product(dv, p, douts[slot], from, lane);
      add_product(dk, dp, queries[slot], from, lane);
    }
  }
  bf16 *dq = c.dqkv + at * stride + column;
  store_rows(dk, kFactor, kFactor, dq + c.dim, stride, tile * kTile + 16 * warp, c.seq, lane);
  store_rows(dv, 1.0f, 1.0f, dq + 2 * c.dim, stride, tile * kTile + 16 * warp, c.seq, lane);
}

}  // namespace
}  // namespace gpt

uint64_t cuda_attention_scratch(const Shape *s) {
  return static_cast<uint64_t>(shape_rows(s) * s->heads) * sizeof(float);
}

void cuda_attention_backward(const Device *d, const Shape *s, const bf16 *qkv, const bf16 *out, const float *logsum,
                             const bf16 *dout, bf16 *dqkv) {
  using namespace gpt;
  const int64_t items = s->batch * s->heads, tiles = blocks_of(s->seq, kTile), count = shape_rows(s) * s->heads;
  float *mean = static_cast<float *>(d->scratch);
  launch(d, blocks_of(8 * count, 256), 256, means, MeanCall{s->seq, s->dim, s->heads, count, out, dout, mean});
  const Call call = {s->seq, s->dim, s->heads, items, tiles, qkv, dout, logsum, mean, dqkv};
  launch(d, items * tiles, kAttentionThreads, backward_keys, call);
  launch(d, items * tiles, kAttentionThreads, backward_queries, call);
}
