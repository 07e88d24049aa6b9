/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW over the flat parameter buffer, and the norm of the flat gradient. */
#include <stdlib.h>

#include "kernels_cpu.h"

enum { CHUNK = 16384 }; /* partial sums per chunk, then in order: the same norm for any number of threads */

typedef struct SquareCall {
  int64_t count;
  const float *values;
  double *partial;
} SquareCall;

SIMD_CLONES static double chunk_square_sum(const float *values, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += (double)values[i] * values[i];
  return sum;
}

static void square_task(void *argument, int64_t begin, int64_t end, int thread) {
  const SquareCall *c = argument;
  (void)thread;
  for (int64_t i = begin; i < end; ++i) {
    int64_t left = c->count - i * CHUNK;
    c->partial[i] = chunk_square_sum(c->values + i * CHUNK, left < CHUNK ? left : CHUNK);
  }
}

void cpu_square_sum(const Device *d, int64_t count, const float *values, double *sum) {
  int64_t chunks = (count + CHUNK - 1) / CHUNK;
  SquareCall call = {count, values, calloc((size_t)chunks + 1, sizeof(double))};
  REQUIRE(call.partial, "out of memory");
  pool_run(d->pool, chunks, square_task, &call);
  *sum = 0.0;
  for (int64_t i = 0; i < chunks; ++i) *sum += call.partial[i];
  free(call.partial);
}

SIMD_CLONES static void update(const AdamArgs *a, int64_t begin, int64_t end, float decay) {
  float correction1 = 1.0f - powf(a->beta1, (float)a->step), correction2 = 1.0f - powf(a->beta2, (float)a->step);
  float rate = a->rate / correction1, inverse = 1.0f / correction2;
  float *restrict w = a->master, *restrict grad = a->grad, *restrict m = a->m, *restrict v = a->v;
  for (int64_t i = begin; i < end; ++i) {
    float g = grad[i] * a->grad_scale;
    m[i] = a->beta1 * m[i] + (1.0f - a->beta1) * g;
    v[i] = a->beta2 * v[i] + (1.0f - a->beta2) * g * g;
    w[i] -= a->rate * decay * w[i] + rate * m[i] / (sqrtf(v[i] * inverse) + a->epsilon);
    grad[i] = 0.0f;
  }
}

static void adam_task(void *argument, int64_t begin, int64_t end, int thread) {
  const AdamArgs *a = argument;
  (void)thread;
  begin += a->begin;
  end += a->begin;
  int64_t middle = a->decayed < begin ? begin : a->decayed > end ? end : a->decayed;
  update(a, begin, middle, a->decay);
  update(a, middle, end, 0.0f);
}

void cpu_adamw(const Device *d, const AdamArgs *args) {
  pool_run(d->pool, args->end - args->begin, adam_task, (void *)args);
}
