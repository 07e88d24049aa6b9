/* SPDX-License-Identifier: Apache-2.0 */
/* What the classifier needs beside its linears, over device memory: one table per device. */
#ifndef MLP_KERNELS_H
#define MLP_KERNELS_H
#include "../common/tensor.h"

enum { CLASSES = 10 };

typedef struct AdamArgs {
  float *master, *grad, *m, *v; /* grad is zeroed for the next step */
  int64_t count;
  float rate, grad_scale;
} AdamArgs;

typedef struct Kernels {
  void (*relu)(fp8_stream stream, int64_t count, bf16 *values);
  void (*relu_backward)(fp8_stream stream, int64_t count, const bf16 *activated, bf16 *gradient);
  /* Softmax and cross entropy of [rows, CLASSES]; gradient = scale * that of the logits. */
  void (*loss)(fp8_stream stream, int64_t rows, const bf16 *logits, const uint8_t *labels, float scale, float *losses,
               bf16 *gradient);
  void (*adam)(fp8_stream stream, const AdamArgs *args);
} Kernels;

extern const Kernels kernels_cpu;
extern const Kernels kernels_cuda; /* where EXAMPLE_CUDA is defined */
#endif
