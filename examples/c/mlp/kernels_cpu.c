/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels.h"

static void relu(fp8_stream stream, int64_t count, bf16 *values) {
  (void)stream;
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] >> 15 ? 0 : values[i]; /* the sign bit */
}

static void relu_backward(fp8_stream stream, int64_t count, const bf16 *activated, bf16 *gradient) {
  (void)stream;
  for (int64_t i = 0; i < count; ++i) gradient[i] = activated[i] ? gradient[i] : 0;
}

static void loss(fp8_stream stream, int64_t rows, const bf16 *logits, const uint8_t *labels, float scale, float *losses,
                 bf16 *gradient) {
  (void)stream;
  for (int64_t i = 0; i < rows; ++i) {
    float p[CLASSES], largest = -INFINITY, total = 0.0f;
    for (int c = 0; c < CLASSES; ++c) p[c] = bf16_to_float(logits[i * CLASSES + c]);
    for (int c = 0; c < CLASSES; ++c) largest = fmaxf(largest, p[c]);
    float own = p[labels[i]] - largest;
    for (int c = 0; c < CLASSES; ++c) total += p[c] = expf(p[c] - largest);
    losses[i] = logf(total) - own;
    for (int c = 0; c < CLASSES; ++c)
      gradient[i * CLASSES + c] = bf16_from_float(scale * (p[c] / total - (c == labels[i])));
  }
}

static void adam(fp8_stream stream, const AdamArgs *a) {
  (void)stream;
  for (int64_t i = 0; i < a->count; ++i) {
    float g = a->grad[i] * a->grad_scale;
    a->m[i] = 0.9f * a->m[i] + 0.1f * g;
    a->v[i] = 0.999f * a->v[i] + 0.001f * g * g;
    a->master[i] -= a->rate * a->m[i] / (sqrtf(a->v[i]) + 1e-8f);
    a->grad[i] = 0.0f;
  }
}

const Kernels kernels_cpu = {relu, relu_backward, loss, adam};
