/* SPDX-License-Identifier: Apache-2.0 */
/* Causal self-attention, one (sequence, head) at a time: a head of one sequence fits in cache, so each is widened to
 * FP32 once and the rest is small matrix products over it. Backward rebuilds the probabilities from q, k and the saved
 * logarithm of each row's sum, and needs `out`: which is why the projection can take its input from here for nothing.
 */
#include "kernels_cpu.h"

/* Eight floats; the compiler lowers them to whatever the instruction set of the clone has. */
typedef float Lane __attribute__((vector_size(32), aligned(4), may_alias));

/* Into each clone, so that it is compiled for the clone's instruction set. */
#define INLINE static inline __attribute__((always_inline))

/* c[4, 16] = sum over k in [k0, k1) of a[i, k] * b[k, j]. The strides of `a` are free, so a transpose costs nothing. */
INLINE void tile_4x16(int64_t k0, int64_t k1, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_k,
                      float *c, int64_t c_row) {
  Lane s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0};
  for (int64_t k = k0; k < k1; ++k) {
    Lane b0 = *(const Lane *)(b + k * b_k), b1 = *(const Lane *)(b + k * b_k + 8);
    float a0 = a[k * a_k], a1 = a[a_row + k * a_k], a2 = a[2 * a_row + k * a_k], a3 = a[3 * a_row + k * a_k];
    s00 += a0 * b0, s01 += a0 * b1;
    s10 += a1 * b0, s11 += a1 * b1;
    s20 += a2 * b0, s21 += a2 * b1;
    s30 += a3 * b0, s31 += a3 * b1;
  }
  *(Lane *)c = s00, *(Lane *)(c + 8) = s01;
  *(Lane *)(c + c_row) = s10, *(Lane *)(c + c_row + 8) = s11;
  *(Lane *)(c + 2 * c_row) = s20, *(Lane *)(c + 2 * c_row + 8) = s21;
  *(Lane *)(c + 3 * c_row) = s30, *(Lane *)(c + 3 * c_row + 8) = s31;
}

/* What the causal mask leaves of a product, by where it cuts: queries i only look at keys j <= i. */
enum Cut {
  SCORES /* c[i, j], j <= i */,
  OVER_KEYS /* sum over keys k <= i */,
  OVER_QUERIES /* sum over queries k >= i */
};

/* Tiles start at multiples of 16 and the sequence is one, so a tile that touches the diagonal is computed whole; what
 * lies above it is finite, and masked before it is used. */
INLINE void product(enum Cut cut, int64_t m, int64_t n, int64_t depth, const float *a, int64_t a_row, int64_t a_k,
                    const float *b, int64_t b_k, float *c) {
  for (int64_t i = 0; i < m; i += 4)
    for (int64_t j = 0; j < n; j += 16) {
      if (cut == SCORES && j > i + 3) break;
      int64_t k0 = cut == OVER_QUERIES ? i : 0, k1 = cut == OVER_KEYS ? i + 4 : depth;
      tile_4x16(k0, k1, a + i * a_row, a_row, a_k, b + j, b_k, c + i * n + j, n);
    }
}

INLINE void widen(int64_t rows, int64_t cols, const bf16 *in, int64_t stride, float factor, float *out) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) out[i * cols + j] = factor * bf16_to_float(in[i * stride + j]);
}

INLINE void widen_transposed(int64_t rows, int64_t cols, const bf16 *in, int64_t stride, float *out) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) out[j * rows + i] = bf16_to_float(in[i * stride + j]);
}

INLINE void narrow(int64_t rows, int64_t cols, const float *in, float factor, bf16 *out, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) out[i * stride + j] = bf16_from_float(factor * in[i * cols + j]);
}

typedef struct Call {
  const Device *device;
  const Shape *shape;
  const bf16 *qkv, *out, *dout;
  float *logsum;
  bf16 *y; /* out in forward, dqkv in backward */
} Call;

/* Per thread: two score matrices and seven [seq, head] ones. */
static int64_t scratch_floats(const Shape *s) { return 2 * s->seq * s->seq + 7 * s->seq * (s->dim / s->heads); }

uint64_t cpu_scratch_bytes(const Shape *s, int threads) {
  return (uint64_t)threads * (uint64_t)scratch_floats(s) * sizeof(float);
}

SIMD_CLONES static void forward_heads(const Call *call, int64_t begin, int64_t end, float *scratch) {
  const Shape *s = call->shape;
  int64_t t = s->seq, h = s->dim / s->heads, stride = 3 * s->dim;
  float *p = scratch, *q = p + t * t, *kt = q + t * h, *v = kt + t * h, *o = v + t * h;
  for (int64_t item = begin; item < end; ++item) {
    int64_t sequence = item / s->heads, head = item % s->heads;
    const bf16 *qkv = call->qkv + sequence * t * stride + head * h;
    widen(t, h, qkv, stride, 1.0f / sqrtf((float)h), q);
    widen_transposed(t, h, qkv + s->dim, stride, kt);
    widen(t, h, qkv + 2 * s->dim, stride, 1.0f, v);
    product(SCORES, t, t, h, q, h, 1, kt, t, p);
    for (int64_t i = 0; i < t; ++i) {
      float *row = p + i * t, largest = row[0], sum = 0.0f;
      for (int64_t j = 1; j <= i; ++j) largest = row[j] > largest ? row[j] : largest;
      for (int64_t j = 0; j <= i; ++j) row[j] = fast_exp(row[j] - largest);
      for (int64_t j = 0; j <= i; ++j) sum += row[j];
      for (int64_t j = 0; j <= i; ++j) row[j] *= 1.0f / sum;
      for (int64_t j = i + 1; j < (i | 3) + 1; ++j) row[j] = 0.0f; /* the rest of this tile's rows */
      call->logsum[item * t + i] = largest + logf(sum);
    }
    product(OVER_KEYS, t, h, t, p, t, 1, v, h, o);
    narrow(t, h, o, 1.0f, call->y + sequence * t * s->dim + head * h, s->dim);
  }
}

SIMD_CLONES static void backward_heads(const Call *call, int64_t begin, int64_t end, float *scratch) {
  const Shape *s = call->shape;
  int64_t t = s->seq, h = s->dim / s->heads, stride = 3 * s->dim;
  float factor = 1.0f / sqrtf((float)h);
  float *p = scratch, *dp = p + t * t, *q = dp + t * t, *k = q + t * h, *kt = k + t * h, *vt = kt + t * h;
  float *o = vt + t * h, *dout = o + t * h, *result = dout + t * h;
  for (int64_t item = begin; item < end; ++item) {
    int64_t sequence = item / s->heads, head = item % s->heads;
    const bf16 *qkv = call->qkv + sequence * t * stride + head * h;
    int64_t at = sequence * t * s->dim + head * h;
    bf16 *dqkv = call->y + sequence * t * stride + head * h;
    widen(t, h, qkv, stride, factor, q);
    widen(t, h, qkv + s->dim, stride, 1.0f, k);
    widen_transposed(t, h, qkv + s->dim, stride, kt);
    widen_transposed(t, h, qkv + 2 * s->dim, stride, vt);
    widen(t, h, call->out + at, s->dim, 1.0f, o);
    widen(t, h, call->dout + at, s->dim, 1.0f, dout);
    product(SCORES, t, t, h, q, h, 1, kt, t, p);
    product(SCORES, t, t, h, dout, h, 1, vt, t, dp);
    for (int64_t i = 0; i < t; ++i) { /* p = probabilities, dp = gradient of the scores */
      float *row = p + i * t, *drow = dp + i * t, logsum = call->logsum[item * t + i], mean = 0.0f;
      for (int64_t j = 0; j < h; ++j) mean += o[i * h + j] * dout[i * h + j];
      for (int64_t j = 0; j <= i; ++j) row[j] = fast_exp(row[j] - logsum);
      for (int64_t j = 0; j <= i; ++j) drow[j] = row[j] * (drow[j] - mean);
      for (int64_t j = i + 1; j < (i | 3) + 1; ++j) row[j] = drow[j] = 0.0f;
    }
    product(OVER_KEYS, t, h, t, dp, t, 1, k, h, result);
    narrow(t, h, result, factor, dqkv, stride);
    product(OVER_QUERIES, t, h, t, dp, 1, t, q, h, result); /* q carries the factor already */
    narrow(t, h, result, 1.0f, dqkv + s->dim, stride);
    product(OVER_QUERIES, t, h, t, p, 1, t, dout, h, result);
    narrow(t, h, result, 1.0f, dqkv + 2 * s->dim, stride);
  }
}

static float *scratch_of(const Call *call, int thread) {
  return (float *)call->device->scratch + thread * scratch_floats(call->shape);
}
static void forward_task(void *argument, int64_t begin, int64_t end, int thread) {
  forward_heads(argument, begin, end, scratch_of(argument, thread));
}
static void backward_task(void *argument, int64_t begin, int64_t end, int thread) {
  backward_heads(argument, begin, end, scratch_of(argument, thread));
}

void cpu_attention(const Device *d, const Shape *s, const bf16 *qkv, bf16 *out, float *logsum) {
  Call call = {d, s, qkv, NULL, NULL, logsum, out};
  pool_run(d->pool, s->batch * s->heads, forward_task, &call);
}

void cpu_attention_backward(const Device *d, const Shape *s, const bf16 *qkv, const bf16 *out, const float *logsum,
                            const bf16 *dout, bf16 *dqkv) {
  Call call = {d, s, qkv, out, dout, (float *)logsum, dqkv};
  pool_run(d->pool, s->batch * s->heads, backward_task, &call);
}
