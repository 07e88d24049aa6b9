/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT with a ZeRO-1 optimizer: each rank keeps and steps a share of the flat FP32 masters and moments. What every
 * rank reads is gathered once a step: block weights in FP8 (primary weights: there is no other copy), or in BF16 and
 * then quantized (drop-in FP8); the head in BF16; embeddings, biases and norms in FP32. */
#ifndef GPT_SHARDED_H
#define GPT_SHARDED_H
#include "../train.h"
#include "parallel.h"

enum Gathered { GATHER_FP8, GATHER_BF16, GATHER_BOTH };

/* Where the column side is the exact transpose of the row side, it need not be kept: one buffer serves all weights. */
static inline int transposes(int32_t preset) {
  return preset == FP8_PRESET_TENSOR || preset == FP8_PRESET_BLOCK || preset == FP8_PRESET_MX_W2D;
}

typedef struct Gather { /* one list of weights of one recipe: one all-reduce of amaxes, one all-gather */
  int count;
  uint32_t sides;
  int *items; /* indices into the parameters */
  fp8_param **params;
  fp8_qtensor **full;
  fp8_tensor *masters;
  const fp8_tensor **master_at;
  fp8_buffer amax, shard, workspace;
} Gather;

typedef struct Sharded {
  Model model;
  Parallel *parallel;
  const Session *session;
  int primary; /* the FP8 block weights are gathered; else BF16 ones */
  int late;
  fp8_qtensor *bf16; /* drop-in FP8: the BF16 block weights beside the FP8 ones */
  uint64_t bf16_bytes;
  uint64_t scratch; /* bytes of the gathers beside the gradient's buffer, which serves them where it is large enough */
  Gather blocks, head;
  uint64_t wire; /* bytes of the block weights' collectives, as libfp8 counts them */
} Sharded;

void sharded_create(Sharded *sharded, const Session *session, Parallel *parallel, const Run *run,
                    enum Gathered gathered, int late /* column sides are made when backward needs them */);
void sharded_publish(Sharded *sharded); /* once a step: masters -> what forward reads; clears the gradient */
/* One step on this rank's micro-batches. Returns the loss, the mean over all ranks' micro-batches in their order. */
double sharded_step(Sharded *sharded, uint64_t seed, int64_t step, float rate, double *norm);
int64_t sharded_block_elements(const Sharded *sharded, int64_t *owned); /* of the block weights; of this rank's share */
void sharded_destroy(Sharded *sharded);
#endif
