// SPDX-License-Identifier: Apache-2.0
// Layer normalisation with the residual addition before it, and its backward. A warp has a row, two columns a lane;
// rows of up to 1024 columns stay in registers, wider ones are read again.
#include "device.cuh"

namespace gpt {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kKept = 16;  // pairs of columns that a lane keeps
constexpr int kChunk = 128;                                        // rows of one partial sum over rows

struct Forward {
  int64_t rows, dim;
  NormArgs a;
};
struct Backward {
  int64_t rows, dim;
  NormBackwardArgs a;
  float *partial;  // [chunks, 2, dim]
};

__device__ __forceinline__ float2 load2(const float *p) { return *reinterpret_cast<const float2 *>(p); }
__device__ __forceinline__ void store2(float *p, float2 v) { *reinterpret_cast<float2 *>(p) = v; }
__device__ __forceinline__ uint32_t load_pair(const bf16 *p) { return *reinterpret_cast<const uint32_t *>(p); }
__device__ __forceinline__ void store_pair(bf16 *p, float lo, float hi) {
  *reinterpret_cast<uint32_t *>(p) = pack2(lo, hi);
}

// Calls visit(step, column) for this lane's pairs of columns; kSteps of them, if that is known: then loads go out
// together.
template <int kSteps, class F>
__device__ __forceinline__ void columns(int64_t dim, int lane, F visit) {
  if constexpr (kSteps != 0) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) visit(step, step * 64 + 2 * lane);
  } else {
#pragma unroll
    for (int step = 0; step < kKept; ++step)
      if (step * 64 < dim) visit(step, step * 64 + 2 * lane);
    for (int64_t step = kKept; step * 64 < dim; ++step) visit(kKept, step * 64 + 2 * lane);
  }
}

template <int kSteps>
__global__ void __launch_bounds__(kThreads, 3) forward(Forward c) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= c.rows) return;
  const float *in = c.a.residual_in + row * c.dim;
  float *sum = c.a.residual_out + row * c.dim;
  const bf16 *branch = c.a.branch ? c.a.branch + row * c.dim : nullptr;
  float2 kept[kKept + 1] = {};
  auto read = [&](int step, int64_t j) { return step < kKept ? kept[step] : load2((branch ? sum : in) + j); };
  float mean = 0.0f, variance = 0.0f;
  uint32_t added[kSteps + 1] = {};
  if constexpr (kSteps != 0) {
    columns<kSteps>(c.dim, lane, [&](int step, int64_t j) { kept[step] = load2(in + j); });
    if (branch) columns<kSteps>(c.dim, lane, [&](int step, int64_t j) { added[step] = load_pair(branch + j); });
  }
  columns<kSteps>(c.dim, lane, [&](int step, int64_t j) {
    float2 x = kSteps ? kept[step] : load2(in + j);
    if (branch) {
      const uint32_t b = kSteps ? added[kSteps ? step : 0] : load_pair(branch + j);
      x.x += low(b), x.y += high(b);
      store2(sum + j, x);
    }
    kept[step] = x;
    mean += x.x + x.y;
  });
  mean = warp_sum(mean) / static_cast<float>(c.dim);
  columns<kSteps>(c.dim, lane, [&](int step, int64_t j) {
    const float2 x = read(step, j);
    variance += (x.x - mean) * (x.x - mean) + (x.y - mean) * (x.y - mean);
  });
  const float scale = 1.0f / sqrtf(warp_sum(variance) / static_cast<float>(c.dim) + 1e-5f);
  columns<kSteps>(c.dim, lane, [&](int step, int64_t j) {
    const float2 x = read(step, j), gain = load2(c.a.gain + j), bias = load2(c.a.bias + j);
    store_pair(c.a.out + row * c.dim + j, (x.x - mean) * scale * gain.x + bias.x,
               (x.y - mean) * scale * gain.y + bias.y);
  });
  if (lane == 0) c.a.mean[row] = mean, c.a.scale[row] = scale;
}

// What is loaded is kept as it came: in few registers, so that two blocks share a multiprocessor.
template <int kSteps>
__global__ void __launch_bounds__(kThreads, 2) backward_rows(Backward c) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= c.rows) return;
  const float *x = c.a.residual + row * c.dim, mean = c.a.mean[row], scale = c.a.scale[row];
  const bf16 *dout = c.a.dout + row * c.dim;
  float *dx = c.a.dresidual + row * c.dim;
  float2 kept_x[kKept + 1] = {}, kept_d[kSteps + 1] = {};
  uint32_t kept_g[kKept + 1] = {};
  auto gradient = [&](uint32_t d, int64_t j) {
    const float2 gain = load2(c.a.gain + j);
    return make_float2(low(d) * gain.x, high(d) * gain.y);
  };
  float sum = 0.0f, dot = 0.0f;
  if constexpr (kSteps != 0) {
    columns<kSteps>(c.dim, lane,
                    [&](int step, int64_t j) { kept_g[step] = load_pair(dout + j), kept_x[step] = load2(x + j); });
    columns<kSteps>(c.dim, lane, [&](int step, int64_t j) { kept_d[kSteps ? step : 0] = load2(dx + j); });
  }
  columns<kSteps>(c.dim, lane, [&](int step, int64_t j) {
    if (kSteps == 0) kept_g[step] = load_pair(dout + j), kept_x[step] = load2(x + j);
    const float2 g = gradient(kept_g[step], j), v = kept_x[step];
    sum += g.x + g.y;
    dot += g.x * (v.x - mean) + g.y * (v.y - mean);
  });
  sum = warp_sum(sum) / static_cast<float>(c.dim);
  dot = warp_sum(dot) * scale * scale / static_cast<float>(c.dim);
  columns<kSteps>(c.dim, lane, [&](int step, int64_t j) {
    const float2 g = gradient(step < kKept ? kept_g[step] : load_pair(dout + j), j);
    const float2 v = step < kKept ? kept_x[step] : load2(x + j);
    float2 d = kSteps ? kept_d[kSteps ? step : 0] : load2(dx + j);
    d.x += scale * (g.x - sum - (v.x - mean) * dot);
    d.y += scale * (g.y - sum - (v.y - mean) * dot);
    store2(dx + j, d);
    if (c.a.dbranch) store_pair(c.a.dbranch + row * c.dim + j, d.x, d.y);
  });
}

// Gradients of gain and bias sum over rows: 64 columns of 128 rows a block, eight rows at a time.
__global__ void __launch_bounds__(kThreads) backward_columns(Backward c) {
  __shared__ float sums[kWarps][4][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t across = c.dim / 64, chunk = blockIdx.x / across, j = blockIdx.x % across * 64 + 2 * lane;
  const int64_t last = (chunk + 1) * kChunk < c.rows ? (chunk + 1) * kChunk : c.rows;
  float2 gain = make_float2(0.0f, 0.0f), bias = make_float2(0.0f, 0.0f);
#pragma unroll 4
  for (int64_t row = chunk * kChunk + warp; row < last; row += kWarps) {
    const uint32_t d = load_pair(c.a.dout + row * c.dim + j);
    const float2 x = load2(c.a.residual + row * c.dim + j);
    const float mean = c.a.mean[row], scale = c.a.scale[row];
    gain.x += low(d) * (x.x - mean) * scale;
    gain.y += high(d) * (x.y - mean) * scale;
    bias.x += low(d);
    bias.y += high(d);
  }
  sums[warp][0][lane] = gain.x, sums[warp][1][lane] = gain.y;
  sums[warp][2][lane] = bias.x, sums[warp][3][lane] = bias.y;
  __syncthreads();
  if (warp >= 4) return;
  float total = 0.0f;
  for (int w = 0; w < kWarps; ++w) total += sums[w][warp][lane];
  c.partial[(2 * chunk + warp / 2) * c.dim + j + warp % 2] = total;
}

// 32 of the 2 dim sums a block; the chunks in eight groups, then the groups in order.
__global__ void __launch_bounds__(kThreads) add_chunks(Backward c, int64_t chunks) {
  __shared__ float sums[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float total = 0.0f;
#pragma unroll 4
  for (int64_t chunk = warp; chunk < chunks; chunk += kWarps) total += c.partial[chunk * 2 * c.dim + i];
  sums[warp][lane] = total;
  __syncthreads();
  if (warp) return;
  for (int w = 1; w < kWarps; ++w) total += sums[w][lane];
  if (i < c.dim)
    c.a.dgain[i] += total;
  else
    c.a.dbias[i - c.dim] += total;
}

}  // namespace
}  // namespace gpt

uint64_t cuda_norm_scratch(int64_t rows, int64_t dim) {
  return static_cast<uint64_t>(gpt::blocks_of(rows, gpt::kChunk) * 2 * dim) * sizeof(float);
}

void cuda_norm(const Device *d, int64_t rows, int64_t dim, const NormArgs *args) {
  using namespace gpt;
  const auto kernel = dim == 768 ? forward<12> : dim == 256 ? forward<4> : forward<0>;
  launch(d, blocks_of(rows, kWarps), kThreads, kernel, Forward{rows, dim, *args});
}

void cuda_norm_backward(const Device *d, int64_t rows, int64_t dim, const NormBackwardArgs *args) {
  using namespace gpt;
  const Backward call = {rows, dim, *args, static_cast<float *>(d->scratch)};
  const int64_t chunks = blocks_of(rows, kChunk);
  launch(d, chunks * (dim / 64), kThreads, backward_columns, call);
  launch(d, 2 * dim / 32, kThreads, add_chunks, call, chunks);
  const auto kernel = dim == 768 ? backward_rows<12> : dim == 256 ? backward_rows<4> : backward_rows<0>;
  launch(d, blocks_of(rows, kWarps), kThreads, kernel, call);
}
