// SPDX-License-Identifier: Apache-2.0
// AdamW over the flat parameter buffer, and the norm of the flat gradient.
#include <math.h>

#include "device.cuh"

namespace gpt {
namespace {

constexpr int kThreads = 256, kBlocks = 512;  // of the norm: partial sums that the host adds in order

__global__ void __launch_bounds__(kThreads) square_sums(int64_t count, const float *values, double *partial) {
  __shared__ double sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0.0;
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + thread; i < count; i += kBlocks * kThreads)
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  sums[thread] = sum;
  for (int half = kThreads / 2; half; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) partial[blockIdx.x] = sums[0];
}

struct Update {
  AdamArgs a;
  float rate, inverse; /* with the corrections of the first steps */
};

__global__ void __launch_bounds__(kThreads) update(Update u) {
  const AdamArgs &a = u.a;
  const int64_t i = a.begin + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.end) return;
  const float g = a.grad[i] * a.grad_scale, w = a.master[i];
  const float m = a.beta1 * a.m[i] + (1.0f - a.beta1) * g, v = a.beta2 * a.v[i] + (1.0f - a.beta2) * g * g;
  const float decay = i < a.decayed ? a.decay : 0.0f;
  a.m[i] = m;
  a.v[i] = v;
  a.master[i] = w - (a.rate * decay * w + u.rate * m / (sqrtf(v * u.inverse) + a.epsilon));
  a.grad[i] = 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    add_ranks(int64_t count, int ranks, int rank, const float *parts, int64_t stride, float *own) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0f;  // in rank order, whoever sums
  for (int r = 0; r < ranks; ++r) sum += r == rank ? own[i] : parts[r * stride + i];
  own[i] = sum;
}

}  // namespace
}  // namespace gpt

uint64_t cuda_square_scratch(void) { return gpt::kBlocks * sizeof(double); }

void cuda_square_sum(const Device *d, int64_t count, const float *values, double *sum) {
  using namespace gpt;
  static_assert(kBlocks * sizeof(double) <= 4096, "on the stack below");
  double partial[kBlocks];
  launch(d, kBlocks, kThreads, square_sums, count, values, static_cast<double *>(d->scratch));
  read_back(d, partial, d->scratch, sizeof partial);
  *sum = 0.0;
  for (const double part : partial) *sum += part;
}

void cuda_adamw(const Device *d, const AdamArgs *args) {
  using namespace gpt;
  const float correction1 = 1.0f - powf(args->beta1, static_cast<float>(args->step));
  const float correction2 = 1.0f - powf(args->beta2, static_cast<float>(args->step));
  launch(d, blocks_of(args->end - args->begin, kThreads), kThreads, update,
         Update{*args, args->rate / correction1, 1.0f / correction2});
}

void cuda_sum_ranks(const Device *d, int64_t count, int ranks, int rank, const float *parts, int64_t stride,
                    float *own) {
  using namespace gpt;
  launch(d, blocks_of(count, kThreads), kThreads, add_ranks, count, ranks, rank, parts, stride, own);
}
