/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT: byte and position embeddings, pre-norm blocks, a head. The four linears of each block run in the recipe; the
 * head's products run in BF16, through a linear of preset NONE. Embeddings, norms, attention, residual stream and
 * optimizer stay in high precision. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H
#include "../common/layer.h"
#include "parameters.h"

typedef struct ModelConfig {
  const fp8_context *context;
  fp8_stream stream;
  const Kernels *kernels; /* of the context's device */
  Pool *pool;
  Shape shape;
  int64_t micro_batches;
  int32_t preset;
  const char *recipe; /* its text, if it is more than a preset */
  uint64_t seed;      /* of the initial weights */
  enum Fault fault;
  float outlier;       /* factor on some channels of the norms' outputs; 1 = none */
  int save_projection; /* see Options */
  int rank, world;     /* of a data-parallel run; 0, 0 = alone */
  /* If given: the block weights' column sides share one buffer, and this makes the one that backward needs next. */
  void (*make_columns)(void *user, int64_t block, enum LinearKind kind);
  void *user;
} ModelConfig;

typedef struct Block {
  Layer layers[LINEAR_KINDS];
  float *residual[2], *mean[2], *scale[2]; /* what the two norms read, and their statistics */
  bf16 *normed[2], *qkv, *attended, *up, *activated;
  float *logsum;
} Block;

typedef struct Model {
  ModelConfig config;
  Device device;
  Memory memory;
  Parameters parameters;
  fp8_recipe *recipe, *head_recipe;
  fp8_linear *plans[LINEAR_KINDS], *head_plan;
  Block *blocks;
  Layer head;
  fp8_buffer workspace, columns;
  Counts *counts;                 /* [LINEAR_KINDS][x, w, dy] */
  float *residual, *mean, *scale; /* of the final norm */
  bf16 *normed, *logits, *branch;
  bf16 *dlogits, *dnormed, *dqkv, *dwide, *dup, *dbranch; /* transient gradients */
  float *dresidual, *losses;
  uint8_t *tokens, *targets;
  int64_t step;
  int counting, frozen;
} Model;

typedef struct SavedBytes { /* for backward, per token, of one linear of each kind */
  double linear[LINEAR_KINDS];
  double projection_passed; /* when the projection is passed attention's BF16 output: nothing beside it */
} SavedBytes;

void model_create(Model *model, const ModelConfig *config);
void model_quantize_weights(Model *model); /* once per optimizer step; rounds the biases too */
void model_round_biases(Model *model);
/* Mean loss of one micro-batch; `training` keeps what backward needs. [waits] */
double model_forward(Model *model, const uint8_t *tokens, const uint8_t *targets, int training);
void model_backward(Model *model);             /* of the last forward; gradients accumulate */
double model_update(Model *model, float rate); /* AdamW with clipping; returns the norm of the gradient */
/* The same in two parts: the sum of squares of the gradient of this rank's share, and AdamW on that share, given the
 * sum over all shares. */
double model_square_sum(const Model *model);
double model_step(Model *model, float rate, double square_sum);
void model_counts(const Model *model, Counts totals[3]); /* of x, w, dy, over all linears */
void model_saved_bytes(const Model *model, SavedBytes *bytes);
uint64_t model_weight_bytes(
    const Model *model); /* of the linears' weights, as the GEMMs read them; not what is shared */
void model_destroy(Model *model);
#endif
