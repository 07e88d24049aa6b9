/* SPDX-License-Identifier: Apache-2.0 */
/* Forward, backward and update. What the model consists of is made in build.c. */
#include "model.h"

#include <math.h>

static LayerCall layer_call(const Model *m, const fp8_recipe *recipe) {
  LayerCall call = {m->config.context, recipe, m->device.stream, &m->workspace, m->counting, m->frozen};
  return call;
}

static void forward(Model *m, Block *block, enum LinearKind kind, const bf16 *x, bf16 *y, int training) {
  LayerCall call = layer_call(m, m->recipe);
  layer_forward(&call, &block->layers[kind], x, y, training);
}

static void backward(Model *m, Block *block, enum LinearKind kind, const bf16 *x, const bf16 *dy, bf16 *dx) {
  LayerCall call = layer_call(m, m->recipe);
  if (m->config.make_columns) m->config.make_columns(m->config.user, block - m->blocks, kind);
  layer_backward(&call, &block->layers[kind], x, dy, dx);
}

void model_quantize_weights(Model *m) {
  for (int64_t l = 0; l < m->config.shape.layers; ++l)
    for (int k = 0; k < LINEAR_KINDS; ++k) {
      LayerCall call = layer_call(m, m->recipe);
      layer_quantize_weight(&call, &m->blocks[l].layers[k]);
    }
  LayerCall call = layer_call(m, m->head_recipe);
  layer_quantize_weight(&call, &m->head);
}

void model_round_biases(Model *m) {
  LayerCall call = layer_call(m, m->recipe);
  for (int64_t l = 0; l < m->config.shape.layers; ++l)
    for (int k = 0; k < LINEAR_KINDS; ++k) layer_round_bias(&call, &m->blocks[l].layers[k]);
}

/* residual_in + branch -> residual_out -> norm -> out */
static void norm(Model *m, const float *in, const bf16 *branch, float *sum, int gain, int shift, bf16 *out, float *mean,
                 float *scale) {
  const Shape *s = &m->config.shape;
  NormArgs args = {in, branch, sum, value_of(&m->parameters, gain), value_of(&m->parameters, shift), out, mean, scale};
  m->config.kernels->norm(&m->device, shape_rows(s), s->dim, &args);
}

static void outliers(Model *m, bf16 *values) {
  const Shape *s = &m->config.shape;
  if (m->config.outlier != 1.0f)
    m->config.kernels->amplify(&m->device, shape_rows(s), s->dim, m->config.outlier, values);
}

double model_forward(Model *m, const uint8_t *tokens, const uint8_t *targets, int training) {
  const Shape *s = &m->config.shape;
  const Kernels *k = m->config.kernels;
  const Parameters *p = &m->parameters;
  int64_t rows = shape_rows(s);
  memory_write(&m->memory, m->tokens, tokens, (uint64_t)rows);
  memory_write(&m->memory, m->targets, targets, (uint64_t)rows);

  float *stream = m->blocks[0].residual[0]; /* the residual stream, as it stands */
  const bf16 *branch = NULL;                /* what is still to be added to it */
  k->embed(&m->device, s, m->tokens, value_of(p, p->bytes), value_of(p, p->positions), stream);
  for (int64_t l = 0; l < s->layers; ++l) {
    Block *b = &m->blocks[l];
    const BlockParameters *bp = &p->blocks[l];
    norm(m, stream, branch, b->residual[0], bp->gain[0], bp->shift[0], b->normed[0], b->mean[0], b->scale[0]);
    outliers(m, b->normed[0]);
    forward(m, b, QKV, b->normed[0], b->qkv, training);
    k->attention(&m->device, s, b->qkv, b->attended, b->logsum);
    forward(m, b, PROJECTION, b->attended, m->branch, training);
    norm(m, b->residual[0], m->branch, b->residual[1], bp->gain[1], bp->shift[1], b->normed[1], b->mean[1],
         b->scale[1]);
    outliers(m, b->normed[1]);
    forward(m, b, FC1, b->normed[1], b->up, training);
    k->gelu(&m->device, rows * 4 * s->dim, b->up, b->activated);
    forward(m, b, FC2, b->activated, m->branch, training);
    stream = b->residual[1];
    branch = m->branch;
  }
  norm(m, stream, branch, m->residual, p->gain, p->shift, m->normed, m->mean, m->scale);
  LayerCall call = layer_call(m, m->head_recipe);
  layer_forward(&call, &m->head, m->normed, m->logits, training);

  float scale = fault_loss_scale(m->frozen ? m->config.fault : FAULT_NONE) / (float)(rows * m->config.micro_batches);
  k->cross_entropy(&m->device, rows, m->logits, m->targets, scale, m->losses, training ? m->dlogits : NULL);
  float *losses = malloc((size_t)rows * sizeof *losses);
  REQUIRE(losses, "out of memory");
  memory_read(&m->memory, losses, m->losses, (uint64_t)rows * sizeof *losses);
  double sum = 0.0;
  for (int64_t i = 0; i < rows; ++i) sum += losses[i];
  free(losses);
  return sum / (double)rows;
}

static void norm_backward(Model *m, const bf16 *dout, const float *residual, const float *mean, const float *scale,
                          int gain, int shift, bf16 *dbranch) {
  const Shape *s = &m->config.shape;
  const Parameters *p = &m->parameters;
  NormBackwardArgs args = {
      dout, residual, mean, scale, value_of(p, gain), m->dresidual, dbranch, grad_of(p, gain), grad_of(p, shift)};
  m->config.kernels->norm_backward(&m->device, shape_rows(s), s->dim, &args);
}

void model_backward(Model *m) {
  const Shape *s = &m->config.shape;
  const Kernels *k = m->config.kernels;
  const Parameters *p = &m->parameters;
  int64_t rows = shape_rows(s);
  memory_zero(&m->memory, m->dresidual, (uint64_t)(rows * s->dim) * sizeof(float));
  LayerCall call = layer_call(m, m->head_recipe);
  layer_backward(&call, &m->head, m->normed, m->dlogits, m->dnormed);
  norm_backward(m, m->dnormed, m->residual, m->mean, m->scale, p->gain, p->shift, m->dbranch);
  for (int64_t l = s->layers; l-- > 0;) {
    Block *b = &m->blocks[l];
    const BlockParameters *bp = &p->blocks[l];
    backward(m, b, FC2, b->activated, m->dbranch, m->dwide);
    k->gelu_backward(&m->device, rows * 4 * s->dim, b->up, m->dwide, m->dup);
    backward(m, b, FC1, b->normed[1], m->dup, m->dnormed);
    outliers(m, m->dnormed);
    norm_backward(m, m->dnormed, b->residual[1], b->mean[1], b->scale[1], bp->gain[1], bp->shift[1], m->dbranch);
    backward(m, b, PROJECTION, b->attended, m->dbranch, m->dnormed);
    k->attention_backward(&m->device, s, b->qkv, b->attended, b->logsum, m->dnormed, m->dqkv);
    backward(m, b, QKV, b->normed[0], m->dqkv, m->dnormed);
    outliers(m, m->dnormed);
    norm_backward(m, m->dnormed, b->residual[0], b->mean[0], b->scale[0], bp->gain[0], bp->shift[0],
                  l ? m->dbranch : NULL);
  }
  k->embed_backward(&m->device, s, m->tokens, m->dresidual, grad_of(p, p->bytes), grad_of(p, p->positions));
}

double model_square_sum(const Model *m) {
  const Parameters *p = &m->parameters;
  double sum;
  m->config.kernels->square_sum(&m->device, p->end - p->begin, p->grad + p->begin, &sum);
  return sum;
}

double model_step(Model *m, float rate, double square_sum) {
  const Parameters *p = &m->parameters;
  float scale = 1.0f / fault_loss_scale(m->frozen ? m->config.fault : FAULT_NONE);
  double norm = sqrt(square_sum) * scale;
  int64_t count = p->end - p->begin, decayed = p->decayed - p->begin;
  float clip = norm > 1.0 ? (float)(1.0 / norm) : 1.0f;
  AdamArgs args = {.master = p->master,
                   .grad = p->grad + p->begin,
                   .m = p->m,
                   .v = p->v,
                   .begin = 0,
                   .end = count,
                   .decayed = decayed,
                   .rate = rate,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .epsilon = 1e-8f,
                   .decay = 0.1f,
                   .grad_scale = scale * clip,
                   .step = ++m->step};
  m->config.kernels->adamw(&m->device, &args);
  m->frozen = m->config.fault == FAULT_DY_E4M3_TENSOR; /* from the second step on: the first one's amax stays */
  return norm;
}

double model_update(Model *m, float rate) { return model_step(m, rate, model_square_sum(m)); }

void model_counts(const Model *m, Counts totals[3]) {
  Counts all[LINEAR_KINDS][3];
  memory_read(&m->memory, all, m->counts, sizeof all);
  memset(totals, 0, 3 * sizeof *totals);
  for (int k = 0; k < LINEAR_KINDS; ++k)
    for (int w = 0; w < 3; ++w) {
      totals[w].count += all[k][w].count;
      totals[w].nan += all[k][w].nan;
      totals[w].inf += all[k][w].inf;
      totals[w].nonzero += all[k][w].nonzero;
      totals[w].underflow += all[k][w].underflow;
      totals[w].saturated += all[k][w].saturated;
    }
}

void model_saved_bytes(const Model *m, SavedBytes *bytes) {
  double rows = (double)shape_rows(&m->config.shape);
  for (int k = 0; k < LINEAR_KINDS; ++k) {
    fp8_qtensor saved;
    uint64_t size;
    FP8_INIT(&saved);
    CHECK(fp8_linear_describe(m->plans[k], FP8_ROLE_ACTIVATION, shape_rows(&m->config.shape), FP8_SIDE_COL, &saved));
    CHECK(fp8_qtensor_bytes(&saved, FP8_SIDE_COL, &size));
    int view = saved.col_kind == FP8_SCALING_UNQUANTIZED; /* no bytes of its own: what is kept is the BF16 x */
    bytes->linear[k] = view ? 2.0 * (double)linear_in(&m->config.shape, (enum LinearKind)k) : (double)size / rows;
  }
  bytes->projection_passed = 0.0;
  if (m->blocks[0].layers[PROJECTION].saved.col_kind == FP8_SCALING_UNQUANTIZED) bytes->linear[PROJECTION] = 0.0;
}

uint64_t model_weight_bytes(const Model *m) {
  uint64_t total = 0, size;
  for (int k = 0; k < LINEAR_KINDS; ++k) {
    fp8_qtensor *q = &m->blocks[0].layers[k].quantized;
    CHECK(fp8_qtensor_bytes(q, m->config.make_columns ? FP8_SIDE_ROW : FP8_SIDE_BOTH, &size));
    total += size * (uint64_t)m->config.shape.layers;
  }
  return total;
}
