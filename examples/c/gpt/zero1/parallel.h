/* SPDX-License-Identifier: Apache-2.0 */
/* What the trainer itself says to other ranks: gradients, FP32 values, losses. All sums run in rank order, so that a
 * run repeats bit for bit. (FP8 and BF16 weights travel through libfp8.) */
#ifndef GPT_PARALLEL_H
#define GPT_PARALLEL_H
#include "transport.h"

typedef struct Parallel {
  Transport *transport;
  int rank, world;
  fp8_comm *comm;
  const Kernels *kernels;
  Device device;
  Memory memory;
  int64_t piece;      /* elements of one message of gradients */
  float *parts;       /* device memory, [world, piece] */
  fp8_buffer staging; /* of parallel_all() */
  Message *messages;
  uint64_t reduced_bytes;    /* that this rank took from its peers: gradients */
  uint64_t replicated_bytes; /* FP32 values */
} Parallel;

void parallel_open(Parallel *parallel, const Session *session, Transport *transport);
void parallel_close(Parallel *parallel);
/* Until all ranks' part of what is enqueued is done. A rank that died or stalls: ends the program, with FP8_ERR_COMM,
 * once the transport's time is over. Call it before the host waits for the stream. */
void parallel_wait(Parallel *parallel);
void parallel_exchange(Parallel *parallel); /* parallel->messages, which are cleared afterwards */
/* Each rank's share of the flat gradient becomes the sum over all ranks; the rest of it is left as it was. */
void parallel_reduce_scatter(Parallel *parallel, float *grad, int64_t size);
/* Elements [first, last) of the flat order, from the shares of all ranks. */
void parallel_replicate(Parallel *parallel, const float *share, int64_t size, int64_t first, int64_t last,
                        float *values);
void parallel_all(Parallel *parallel, const void *own, int64_t bytes, void *all); /* host memory, [world, bytes] */
double parallel_sum(Parallel *parallel, double own);
/* Micro-batches are shared out as the flat order is; all[0, count) on every rank, from each rank's own. */
void parallel_losses(Parallel *parallel, const double *own, int64_t count, double *all);
#endif
