/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a data-parallel run's gradients. Compiled without reassociation: rank order is a promise. */
#include "kernels_cpu.h"

typedef struct RankCall {
  int ranks, rank;
  const float *parts;
  int64_t stride;
  float *own;
} RankCall;

static void ranks_task(void *argument, int64_t begin, int64_t end, int thread) {
  const RankCall *c = argument;
  (void)thread;
  for (int64_t i = begin; i < end; ++i) {
    float sum = 0.0f; /* in rank order, whoever sums */
    for (int r = 0; r < c->ranks; ++r) sum = sum + (r == c->rank ? c->own[i] : c->parts[r * c->stride + i]);
    c->own[i] = sum;
  }
}

void cpu_sum_ranks(const Device *d, int64_t count, int ranks, int rank, const float *parts, int64_t stride,
                   float *own) {
  RankCall call = {ranks, rank, parts, stride, own};
  pool_run(d->pool, count, ranks_task, &call);
}
