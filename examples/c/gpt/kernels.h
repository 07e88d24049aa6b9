/* SPDX-License-Identifier: Apache-2.0 */
/* What the GPT needs beside its linears, as a table of functions over device memory: one table per device. Activations
 * and their gradients are BF16; the residual stream, statistics, parameters and gradients of parameters are FP32. Every
 * kernel writes the same bits for any number of threads: work is split by outputs, and sums run in a fixed order. */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H
#include "../common/pool.h"
#include "../common/tensor.h"

typedef struct Shape {
  int64_t layers, dim, heads, seq, batch; /* batch: sequences of one micro-batch */
} Shape;

enum { VOCABULARY = 256 }; /* bytes */

static inline int64_t shape_rows(const Shape *s) { return s->batch * s->seq; }

typedef struct Device { /* where kernels run */
  Pool *pool;
  fp8_stream stream;
  void *scratch; /* of scratch_bytes(), for all threads together */
} Device;

typedef struct NormArgs {
  const float *residual_in;
  const bf16 *branch;  /* added to the residual first; NULL = nothing to add */
  float *residual_out; /* unused without a branch */
  const float *gain, *bias;
  bf16 *out;
  float *mean, *scale; /* saved for backward: scale = 1 / standard deviation */
} NormArgs;

typedef struct NormBackwardArgs {
  const bf16 *dout;
  const float *residual, *mean, *scale, *gain;
  float *dresidual; /* this norm's part is added */
  bf16 *dbranch;    /* dresidual rounded: what the branch before sees; may be NULL */
  float *dgain, *dbias;
} NormBackwardArgs;

typedef struct AdamArgs {
  float *master, *grad, *m, *v; /* the flat buffers; grad is zeroed for the next step */
  int64_t begin, end;           /* the part to update: all of it, or a rank's share */
  int64_t decayed;              /* elements before this one decay: matrices come first */
  float rate, beta1, beta2, epsilon, decay;
  float grad_scale; /* undoes the loss scale, clips */
  int64_t step;     /* from 1 */
} AdamArgs;

typedef struct Kernels {
  uint64_t (*scratch_bytes)(const Shape *s, int threads);
  void (*embed)(const Device *d, const Shape *s, const uint8_t *tokens, const float *bytes, const float *positions,
                float *residual);
  void (*embed_backward)(const Device *d, const Shape *s, const uint8_t *tokens, const float *dresidual, float *dbytes,
                         float *dpositions);
  void (*norm)(const Device *d, int64_t rows, int64_t dim, const NormArgs *args);
  void (*norm_backward)(const Device *d, int64_t rows, int64_t dim, const NormBackwardArgs *args);
  void (*gelu)(const Device *d, int64_t count, const bf16 *in, bf16 *out);
  void (*gelu_backward)(const Device *d, int64_t count, const bf16 *in, const bf16 *dout, bf16 *din);
  /* qkv [rows, 3 dim]; out [rows, dim]; logsum [batch, heads, seq] is kept for backward, as out is */
  void (*attention)(const Device *d, const Shape *s, const bf16 *qkv, bf16 *out, float *logsum);
  void (*attention_backward)(const Device *d, const Shape *s, const bf16 *qkv, const bf16 *out, const float *logsum,
                             const bf16 *dout, bf16 *dqkv);
  /* losses [rows]; dlogits = scale * gradient, unless NULL */
  void (*cross_entropy)(const Device *d, int64_t rows, const bf16 *logits, const uint8_t *targets, float scale,
                        float *losses, bf16 *dlogits);
  void (*square_sum)(const Device *d, int64_t count, const float *values, double *sum /* [1] */);
  void (*adamw)(const Device *d, const AdamArgs *args);
  /* own[i] += those of the other ranks, in rank order; parts [ranks, stride], of which row `rank` is not read */
  void (*sum_ranks)(const Device *d, int64_t count, int ranks, int rank, const float *parts, int64_t stride,
                    float *own);
  void (*amplify)(const Device *d, int64_t rows, int64_t dim, float factor,
                  bf16 *values); /* plants outliers, see faults.h */
} Kernels;

extern const Kernels kernels_cpu;
extern const Kernels kernels_cuda; /* where EXAMPLE_CUDA is defined */
#endif
