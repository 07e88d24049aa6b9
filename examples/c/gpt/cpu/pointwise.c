/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding, GELU and the loss. */
#include "kernels_cpu.h"

typedef struct Call {
  int64_t seq, rows, dim;
  const uint8_t *tokens;
  const float *bytes, *positions, *dresidual;
  float *residual, *dbytes, *dpositions, *losses;
  const bf16 *in, *dout;
  bf16 *out;
  float scale;
} Call;

static void embed_task(void *argument, int64_t begin, int64_t end, int thread) {
  const Call *c = argument;
  (void)thread;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < c->dim; ++j)
      c->residual[i * c->dim + j] = c->bytes[c->tokens[i] * c->dim + j] + c->positions[i % c->seq * c->dim + j];
}

/* Rows that hold the same byte add into one row of the table: threads share the columns, so no two write one element.
 */
static void embed_backward_task(void *argument, int64_t begin, int64_t end, int thread) {
  const Call *c = argument;
  (void)thread;
  for (int64_t i = 0; i < c->rows; ++i)
    for (int64_t j = begin; j < end; ++j) {
      c->dbytes[c->tokens[i] * c->dim + j] += c->dresidual[i * c->dim + j];
      c->dpositions[i % c->seq * c->dim + j] += c->dresidual[i * c->dim + j];
    }
}

void cpu_embed(const Device *d, const Shape *s, const uint8_t *tokens, const float *bytes, const float *positions,
               float *residual) {
  Call call = {
      .seq = s->seq, .dim = s->dim, .tokens = tokens, .bytes = bytes, .positions = positions, .residual = residual};
  pool_run(d->pool, shape_rows(s), embed_task, &call);
}

void cpu_embed_backward(const Device *d, const Shape *s, const uint8_t *tokens, const float *dresidual, float *dbytes,
                        float *dpositions) {
  Call call = {.seq = s->seq,
               .rows = shape_rows(s),
               .dim = s->dim,
               .tokens = tokens,
               .dresidual = dresidual,
               .dbytes = dbytes,
               .dpositions = dpositions};
  pool_run(d->pool, s->dim, embed_backward_task, &call);
}

/* GELU in its tanh form: x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
SIMD_CLONES static void gelu_range(const Call *c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float x = bf16_to_float(c->in[i]), u = 0.79788456f * (x + 0.044715f * x * x * x);
    c->out[i] = bf16_from_float(x / (1.0f + fast_exp(-2.0f * u)));
  }
}

SIMD_CLONES static void gelu_backward_range(const Call *c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float x = bf16_to_float(c->in[i]), u = 0.79788456f * (x + 0.044715f * x * x * x);
    float sigmoid = 1.0f / (1.0f + fast_exp(-2.0f * u)), du = 0.79788456f * (1.0f + 0.134145f * x * x);
    c->out[i] = bf16_from_float(bf16_to_float(c->dout[i]) * (sigmoid + 2.0f * x * sigmoid * (1.0f - sigmoid) * du));
  }
}

static void gelu_task(void *argument, int64_t begin, int64_t end, int thread) {
  (void)thread;
  gelu_range(argument, begin, end);
}
static void gelu_backward_task(void *argument, int64_t begin, int64_t end, int thread) {
  (void)thread;
  gelu_backward_range(argument, begin, end);
}

void cpu_gelu(const Device *d, int64_t count, const bf16 *in, bf16 *out) {
  Call call = {.in = in, .out = out};
  pool_run(d->pool, count, gelu_task, &call);
}

void cpu_gelu_backward(const Device *d, int64_t count, const bf16 *in, const bf16 *dout, bf16 *din) {
  Call call = {.in = in, .dout = dout, .out = din};
  pool_run(d->pool, count, gelu_backward_task, &call);
}

SIMD_CLONES static void cross_entropy_rows(const Call *c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float p[VOCABULARY], largest = -INFINITY, sum = 0.0f;
    const bf16 *logits = c->in + i * VOCABULARY;
    for (int j = 0; j < VOCABULARY; ++j) p[j] = bf16_to_float(logits[j]);
    for (int j = 0; j < VOCABULARY; ++j) largest = p[j] > largest ? p[j] : largest;
    float target = p[c->tokens[i]] - largest;
    for (int j = 0; j < VOCABULARY; ++j) p[j] = fast_exp(p[j] - largest);
    for (int j = 0; j < VOCABULARY; ++j) sum += p[j];
    c->losses[i] = logf(sum) - target;
    if (!c->out) continue;
    bf16 *dlogits = c->out + i * VOCABULARY;
    float factor = c->scale / sum;
    p[c->tokens[i]] -= sum;
    for (int j = 0; j < VOCABULARY; ++j) dlogits[j] = bf16_from_float(factor * p[j]);
  }
}

static void cross_entropy_task(void *argument, int64_t begin, int64_t end, int thread) {
  (void)thread;
  cross_entropy_rows(argument, begin, end);
}

void cpu_cross_entropy(const Device *d, int64_t rows, const bf16 *logits, const uint8_t *targets, float scale,
                       float *losses, bf16 *dlogits) {
  Call call = {.in = logits, .tokens = targets, .scale = scale, .losses = losses, .out = dlogits};
  pool_run(d->pool, rows, cross_entropy_task, &call);
}

static void amplify_task(void *argument, int64_t begin, int64_t end, int thread) {
  const Call *c = argument;
  (void)thread;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < c->dim; j += 32)
      c->out[i * c->dim + j] = bf16_from_float(c->scale * bf16_to_float(c->out[i * c->dim + j]));
}

void cpu_amplify(const Device *d, int64_t rows, int64_t dim, float factor, bf16 *values) {
  Call call = {.dim = dim, .scale = factor, .out = values};
  pool_run(d->pool, rows, amplify_task, &call);
}
