// SPDX-License-Identifier: Apache-2.0
// GELU, the loss, and the factor that plants outliers.
#include "device.cuh"

namespace gpt {
namespace {

constexpr int kThreads = 256;

// GELU in its tanh form: x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
__device__ __forceinline__ float sigmoid2(float x) {
  return 1.0f / (1.0f + exp2_fast(-2.0f * kLog2E * 0.79788456f * (x + 0.044715f * x * x * x)));
}
__device__ __forceinline__ float gelu_of(float x) { return x * sigmoid2(x); }
__device__ __forceinline__ float gelu_slope(float x) {
  const float s = sigmoid2(x), du = 0.79788456f * (1.0f + 0.134145f * x * x);
  return s + 2.0f * x * s * (1.0f - s) * du;
}

__device__ __forceinline__ uint32_t gelu2(uint32_t x) { return pack2(gelu_of(low(x)), gelu_of(high(x))); }
__device__ __forceinline__ uint32_t slope2(uint32_t x, uint32_t d) {
  return pack2(low(d) * gelu_slope(low(x)), high(d) * gelu_slope(high(x)));
}

__global__ void __launch_bounds__(kThreads) gelu(int64_t vectors, const uint4 *in, uint4 *out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const uint4 x = in[i];
  out[i] = make_uint4(gelu2(x.x), gelu2(x.y), gelu2(x.z), gelu2(x.w));
}

__global__ void __launch_bounds__(kThreads)
    gelu_backward(int64_t vectors, const uint4 *in, const uint4 *dout, uint4 *din) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const uint4 x = in[i], d = dout[i];
  din[i] = make_uint4(slope2(x.x, d.x), slope2(x.y, d.y), slope2(x.z, d.z), slope2(x.w, d.w));
}

// A warp has a row of 256 logits, eight a lane.
__global__ void __launch_bounds__(kThreads)
    cross_entropy(int64_t rows, const bf16 *logits, const uint8_t *targets, float scale, float *losses, bf16 *dlogits) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const uint4 x = *reinterpret_cast<const uint4 *>(logits + row * VOCABULARY + 8 * lane);
  float p[8] = {low(x.x), high(x.x), low(x.y), high(x.y), low(x.z), high(x.z), low(x.w), high(x.w)};
  float largest = p[0];
  for (int i = 1; i < 8; ++i) largest = p[i] > largest ? p[i] : largest;
  largest = warp_max(largest);
  const int target = targets[row];
  float own = 0.0f, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    own += 8 * lane + i == target ? p[i] - largest : 0.0f;
    p[i] = exp2_fast((p[i] - largest) * kLog2E);
    sum += p[i];
  }
  sum = warp_sum(sum);
  own = warp_sum(own);
  if (lane == 0) losses[row] = logf(sum) - own;
  if (!dlogits) return;
  const float factor = scale / sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) p[i] = factor * (8 * lane + i == target ? p[i] - sum : p[i]);
  *reinterpret_cast<uint4 *>(dlogits + row * VOCABULARY + 8 * lane) =
      make_uint4(pack2(p[0], p[1]), pack2(p[2], p[3]), pack2(p[4], p[5]), pack2(p[6], p[7]));
}

__global__ void amplify(int64_t rows, int64_t dim, float factor, bf16 *values) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, across = dim / 32;
  if (i >= rows * across) return;
  bf16 *at = values + i / across * dim + i % across * 32;
  *at = static_cast<bf16>(pack2(factor * low(*at), 0.0f));
}

}  // namespace
}  // namespace gpt

void cuda_gelu(const Device *d, int64_t count, const bf16 *in, bf16 *out) {
  using namespace gpt;
  launch(d, blocks_of(count / 8, kThreads), kThreads, gelu, count / 8, reinterpret_cast<const uint4 *>(in),
         reinterpret_cast<uint4 *>(out));
}

void cuda_gelu_backward(const Device *d, int64_t count, const bf16 *in, const bf16 *dout, bf16 *din) {
  using namespace gpt;
  launch(d, blocks_of(count / 8, kThreads), kThreads, gelu_backward, count / 8, reinterpret_cast<const uint4 *>(in),
         reinterpret_cast<const uint4 *>(dout), reinterpret_cast<uint4 *>(din));
}

void cuda_cross_entropy(const Device *d, int64_t rows, const bf16 *logits, const uint8_t *targets, float scale,
                        float *losses, bf16 *dlogits) {
  using namespace gpt;
  launch(d, blocks_of(rows, kThreads / 32), kThreads, cross_entropy, rows, logits, targets, scale, losses, dlogits);
}

void cuda_amplify(const Device *d, int64_t rows, int64_t dim, float factor, bf16 *values) {
  using namespace gpt;
  launch(d, blocks_of(rows * (dim / 32), kThreads), kThreads, amplify, rows, dim, factor, values);
}
