/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation with the residual addition before it, and its backward. */
#include "kernels_cpu.h"

typedef struct Call {
  int64_t rows, dim;
  const NormArgs *forward;
  const NormBackwardArgs *backward;
} Call;

SIMD_CLONES static void forward_rows(const Call *call, int64_t begin, int64_t end) {
  const NormArgs *a = call->forward;
  int64_t dim = call->dim;
  for (int64_t i = begin; i < end; ++i) {
    const float *x = a->residual_in + i * dim;
    if (a->branch) {
      float *sum = a->residual_out + i * dim;
      for (int64_t j = 0; j < dim; ++j) sum[j] = x[j] + bf16_to_float(a->branch[i * dim + j]);
      x = sum;
    }
    float mean = 0.0f, variance = 0.0f;
    for (int64_t j = 0; j < dim; ++j) mean += x[j];
    mean /= (float)dim;
    for (int64_t j = 0; j < dim; ++j) variance += (x[j] - mean) * (x[j] - mean);
    float scale = 1.0f / sqrtf(variance / (float)dim + 1e-5f);
    for (int64_t j = 0; j < dim; ++j)
      a->out[i * dim + j] = bf16_from_float((x[j] - mean) * scale * a->gain[j] + a->bias[j]);
    a->mean[i] = mean;
    a->scale[i] = scale;
  }
}

SIMD_CLONES static void backward_rows(const Call *call, int64_t begin, int64_t end) {
  const NormBackwardArgs *a = call->backward;
  int64_t dim = call->dim;
  for (int64_t i = begin; i < end; ++i) {
    const float *x = a->residual + i * dim;
    const bf16 *dout = a->dout + i * dim;
    float *dx = a->dresidual + i * dim, mean = a->mean[i], scale = a->scale[i], sum = 0.0f, dot = 0.0f;
    for (int64_t j = 0; j < dim; ++j) {
      float g = bf16_to_float(dout[j]) * a->gain[j];
      sum += g;
      dot += g * (x[j] - mean);
    }
    sum /= (float)dim;
    dot *= scale * scale / (float)dim;
    for (int64_t j = 0; j < dim; ++j)
      dx[j] += scale * (bf16_to_float(dout[j]) * a->gain[j] - sum - (x[j] - mean) * dot);
    if (a->dbranch)
      for (int64_t j = 0; j < dim; ++j) a->dbranch[i * dim + j] = bf16_from_float(dx[j]);
  }
}

/* Gains and biases sum over rows, so threads share the columns instead. */
SIMD_CLONES static void backward_columns(const Call *call, int64_t begin, int64_t end) {
  const NormBackwardArgs *a = call->backward;
  for (int64_t i = 0; i < call->rows; ++i) {
    const float *x = a->residual + i * call->dim, mean = a->mean[i], scale = a->scale[i];
    const bf16 *dout = a->dout + i * call->dim;
    for (int64_t j = begin; j < end; ++j) {
      float g = bf16_to_float(dout[j]);
      a->dgain[j] += g * (x[j] - mean) * scale;
      a->dbias[j] += g;
    }
  }
}

static void forward_task(void *argument, int64_t begin, int64_t end, int thread) {
  (void)thread;
  forward_rows(argument, begin, end);
}
static void rows_task(void *argument, int64_t begin, int64_t end, int thread) {
  (void)thread;
  backward_rows(argument, begin, end);
}
static void columns_task(void *argument, int64_t begin, int64_t end, int thread) {
  (void)thread;
  backward_columns(argument, begin, end);
}

void cpu_norm(const Device *d, int64_t rows, int64_t dim, const NormArgs *args) {
  Call call = {rows, dim, args, NULL};
  pool_run(d->pool, rows, forward_task, &call);
}

void cpu_norm_backward(const Device *d, int64_t rows, int64_t dim, const NormBackwardArgs *args) {
  Call call = {rows, dim, NULL, args};
  pool_run(d->pool, dim, columns_task, &call);
  pool_run(d->pool, rows, rows_task, &call);
}
