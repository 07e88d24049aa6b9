// SPDX-License-Identifier: Apache-2.0
// One thread an element or a picture: these are small. Sums run in one thread, so runs repeat bit for bit.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

extern "C" {
#include "kernels.h"
}

namespace {

constexpr int kThreads = 256;

__device__ int64_t index() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ float widen(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x) << 16); }
__device__ bf16 narrow(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

__global__ void relu_kernel(int64_t count, bf16 *values) {
  const int64_t i = index();
  if (i < count && values[i] >> 15) values[i] = 0;  // the sign bit
}

__global__ void relu_backward_kernel(int64_t count, const bf16 *activated, bf16 *gradient) {
  const int64_t i = index();
  if (i < count && !activated[i]) gradient[i] = 0;
}

__global__ void loss_kernel(int64_t rows, const bf16 *logits, const uint8_t *labels, float scale, float *losses,
                            bf16 *gradient) {
  const int64_t i = index();
  if (i >= rows) return;
  float p[CLASSES], largest = -INFINITY, total = 0.0f;
#pragma unroll
  for (int c = 0; c < CLASSES; ++c) largest = fmaxf(largest, p[c] = widen(logits[i * CLASSES + c]));
  float own = 0.0f;
#pragma unroll
  for (int c = 0; c < CLASSES; ++c) {
    own += c == labels[i] ? p[c] - largest : 0.0f;
    total += p[c] = expf(p[c] - largest);
  }
  losses[i] = logf(total) - own;
#pragma unroll
  for (int c = 0; c < CLASSES; ++c)
    gradient[i * CLASSES + c] = narrow(scale * (p[c] / total - (c == labels[i] ? 1.0f : 0.0f)));
}

__global__ void adam_kernel(AdamArgs a) {
  const int64_t i = index();
  if (i >= a.count) return;
  const float g = a.grad[i] * a.grad_scale;
  const float m = a.m[i] = 0.9f * a.m[i] + 0.1f * g, v = a.v[i] = 0.999f * a.v[i] + 0.001f * g * g;
  a.master[i] -= a.rate * m / (sqrtf(v) + 1e-8f);
  a.grad[i] = 0.0f;
}

template <class... P, class... A>
void launch(fp8_stream stream, int64_t items, void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((items + kThreads - 1) / kThreads));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, P(arguments)...);
  if (error != cudaSuccess) fail("a kernel of the classifier was not started: %s", cudaGetErrorString(error));
}

void relu(fp8_stream stream, int64_t count, bf16 *values) { launch(stream, count, relu_kernel, count, values); }

void relu_backward(fp8_stream stream, int64_t count, const bf16 *activated, bf16 *gradient) {
  launch(stream, count, relu_backward_kernel, count, activated, gradient);
}

void loss(fp8_stream stream, int64_t rows, const bf16 *logits, const uint8_t *labels, float scale, float *losses,
          bf16 *gradient) {
  launch(stream, rows, loss_kernel, rows, logits, labels, scale, losses, gradient);
}

void adam(fp8_stream stream, const AdamArgs *args) { launch(stream, args->count, adam_kernel, *args); }

}  // namespace

const Kernels kernels_cuda = {relu, relu_backward, loss, adam};
