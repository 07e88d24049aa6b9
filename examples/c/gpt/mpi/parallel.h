/* SPDX-License-Identifier: Apache-2.0 */
/* What the trainer itself says over MPI: gradients, FP32 values, losses. All sums run in rank order, so that a run
 * repeats bit for bit. (FP8 and BF16 weights travel through libfp8.) */
#ifndef GPT_PARALLEL_H
#define GPT_PARALLEL_H
#include "../parameters.h"

enum { EXCHANGE = 1 << 16 }; /* elements of one message of gradients */

typedef struct Parallel {
  int rank, world;
  fp8_comm *comm;
  float *parts;              /* [world, EXCHANGE] */
  uint64_t reduced_bytes;    /* that this rank took from its peers: gradients */
  uint64_t replicated_bytes; /* FP32 values */
} Parallel;

void parallel_open(Parallel *parallel);
void parallel_close(Parallel *parallel);
/* Each rank's share of the flat gradient becomes the sum over all ranks; the rest of it is left as it was. */
void parallel_reduce_scatter(Parallel *parallel, float *grad, int64_t size);
/* Elements [first, last) of the flat order, from the shares of all ranks. */
void parallel_replicate(Parallel *parallel, const float *share, int64_t size, int64_t first, int64_t last,
                        float *values);
double parallel_sum(const Parallel *parallel, double own);
/* Micro-batches are shared out as the flat order is; all[0, count) on every rank, from each rank's own. */
void parallel_losses(const Parallel *parallel, const double *own, int64_t count, double *all);
#endif
