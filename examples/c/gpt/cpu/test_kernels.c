/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the GPT's CPU kernels: forward against plain loops in double, backward against differences of those loops
 * along random directions. Inputs and outputs are BF16, so the bounds are a few of its rounding errors. */
#include <math.h>

#include "../../common/random.h"
#include "kernels_cpu.h"

enum { LARGEST = 1 << 14 };
typedef void (*Forward)(const Shape *s, const double *in, const double *extra, double *out);

static void fill(uint64_t seed, int64_t count, float factor, bf16 *narrow, double *wide) {
  for (int64_t i = 0; i < count; ++i) {
    narrow[i] = bf16_from_float(factor * random_normal(seed, (uint64_t)i));
    wide[i] = bf16_to_float(narrow[i]);
  }
}

static double relative_error(const double *exact, const bf16 *got, int64_t count) {
  double error = 0.0, size = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    double d = bf16_to_float(got[i]) - exact[i];
    error += d * d;
    size += exact[i] * exact[i];
  }
  return sqrt(error / size);
}

/* <dout, f(in + h u) - f(in - h u)> / 2h must be <din, u>, for a few directions u. */
static void check_gradient(const char *what, const Shape *s, Forward f, const double *in, const double *extra,
                           int64_t inputs, int64_t outputs, const double *dout, const bf16 *din) {
  static double moved[LARGEST], plus[LARGEST], minus[LARGEST];
  double error = 0.0, size = 0.0, h = 1e-5;
  for (uint64_t direction = 0; direction < 8; ++direction) {
    double slope = 0.0, dot = 0.0;
    for (int64_t i = 0; i < inputs; ++i) moved[i] = in[i] + h * random_normal(100 + direction, (uint64_t)i);
    f(s, moved, extra, plus);
    for (int64_t i = 0; i < inputs; ++i) moved[i] = in[i] - h * random_normal(100 + direction, (uint64_t)i);
    f(s, moved, extra, minus);
    for (int64_t i = 0; i < outputs; ++i) slope += dout[i] * (plus[i] - minus[i]) / (2.0 * h);
    for (int64_t i = 0; i < inputs; ++i)
      dot += bf16_to_float(din[i]) * (double)random_normal(100 + direction, (uint64_t)i);
    error += (slope - dot) * (slope - dot);
    size += slope * slope;
  }
  printf("%-14s backward: relative error %.1e\n", what, sqrt(error / size));
  REQUIRE(error < 0.01 * 0.01 * size, "%s: backward disagrees with differences of forward", what);
}

static void check_forward(const char *what, const double *exact, const bf16 *got, int64_t count) {
  double error = relative_error(exact, got, count);
  printf("%-14s forward:  relative error %.1e\n", what, error);
  REQUIRE(error < 4e-3, "%s: forward disagrees with plain loops", what);
}

static void attention_plain(const Shape *s, const double *qkv, const double *extra, double *out) {
  int64_t h = s->dim / s->heads, stride = 3 * s->dim;
  (void)extra;
  for (int64_t item = 0; item < s->batch * s->heads; ++item)
    for (int64_t i = 0; i < s->seq; ++i) {
      const double *base = qkv + item / s->heads * s->seq * stride + item % s->heads * h;
      double p[64], sum = 0.0, *o = out + (item / s->heads * s->seq + i) * s->dim + item % s->heads * h;
      for (int64_t j = 0; j <= i; ++j) {
        double dot = 0.0;
        for (int64_t d = 0; d < h; ++d) dot += base[i * stride + d] * base[j * stride + s->dim + d];
        sum += p[j] = exp(dot / sqrt((double)h));
      }
      for (int64_t d = 0; d < h; ++d) {
        o[d] = 0.0;
        for (int64_t j = 0; j <= i; ++j) o[d] += p[j] / sum * base[j * stride + 2 * s->dim + d];
      }
    }
}

static void gelu_plain(const Shape *s, const double *in, const double *extra, double *out) {
  (void)extra;
  for (int64_t i = 0; i < shape_rows(s) * s->dim; ++i)
    out[i] = 0.5 * in[i] * (1.0 + tanh(sqrt(2.0 / 3.141592653589793) * (in[i] + 0.044715 * in[i] * in[i] * in[i])));
}

static void norm_plain(const Shape *s, const double *in, const double *gain, double *out) {
  for (int64_t i = 0; i < shape_rows(s); ++i) {
    const double *x = in + i * s->dim;
    double mean = 0.0, variance = 0.0;
    for (int64_t j = 0; j < s->dim; ++j) mean += x[j] / (double)s->dim;
    for (int64_t j = 0; j < s->dim; ++j) variance += (x[j] - mean) * (x[j] - mean) / (double)s->dim;
    for (int64_t j = 0; j < s->dim; ++j) out[i * s->dim + j] = (x[j] - mean) / sqrt(variance + 1e-5) * gain[j];
  }
}

static uint8_t targets[64];
static void loss_plain(const Shape *s, const double *logits, const double *extra, double *losses) {
  (void)extra;
  for (int64_t i = 0; i < shape_rows(s); ++i) {
    double sum = 0.0;
    for (int j = 0; j < VOCABULARY; ++j) sum += exp(logits[i * VOCABULARY + j]);
    losses[i] = log(sum) - logits[i * VOCABULARY + targets[i]];
  }
}

static bf16 in[LARGEST], out[LARGEST], dout[LARGEST], din[LARGEST];
static double win[LARGEST], wout[LARGEST], wdout[LARGEST];

static void check_attention(const Device *d, const Shape *s) {
  static float logsum[1024];
  int64_t rows = shape_rows(s);
  fill(1, rows * 3 * s->dim, 1.5f, in, win);
  fill(2, rows * s->dim, 1.0f, dout, wdout);
  cpu_attention(d, s, in, out, logsum);
  attention_plain(s, win, NULL, wout);
  check_forward("attention", wout, out, rows * s->dim);
  cpu_attention_backward(d, s, in, out, logsum, dout, din);
  check_gradient("attention", s, attention_plain, win, NULL, rows * 3 * s->dim, rows * s->dim, wdout, din);
}

static void check_gelu(const Device *d, const Shape *s) {
  int64_t count = shape_rows(s) * s->dim;
  fill(3, count, 2.0f, in, win);
  fill(4, count, 1.0f, dout, wdout);
  cpu_gelu(d, count, in, out);
  gelu_plain(s, win, NULL, wout);
  check_forward("GELU", wout, out, count);
  cpu_gelu_backward(d, count, in, dout, din);
  check_gradient("GELU", s, gelu_plain, win, NULL, count, count, wdout, din);
}

static void check_norm(const Device *d, const Shape *s) {
  static float residual[LARGEST], dresidual[LARGEST], gain[64], bias[64], dgain[64], dbias[64], mean[64], scale[64];
  double wgain[64];
  int64_t rows = shape_rows(s);
  fill(5, rows * s->dim, 3.0f, in, win);
  fill(6, rows * s->dim, 1.0f, dout, wdout);
  for (int64_t i = 0; i < rows * s->dim; ++i) residual[i] = (float)win[i];
  for (int64_t j = 0; j < s->dim; ++j) wgain[j] = gain[j] = 1.0f + 0.1f * random_normal(7, (uint64_t)j);
  NormArgs forward = {residual, NULL, NULL, gain, bias, out, mean, scale};
  cpu_norm(d, rows, s->dim, &forward);
  norm_plain(s, win, wgain, wout);
  check_forward("norm", wout, out, rows * s->dim);
  NormBackwardArgs backward = {dout, residual, mean, scale, gain, dresidual, din, dgain, dbias};
  cpu_norm_backward(d, rows, s->dim, &backward);
  check_gradient("norm", s, norm_plain, win, wgain, rows * s->dim, rows * s->dim, wdout, din);
  for (int64_t j = 0; j < s->dim; ++j) { /* the output is linear in gain and bias */
    double g = 0.0, b = 0.0;
    for (int64_t i = 0; i < rows; ++i) {
      g += wdout[i * s->dim + j] * wout[i * s->dim + j] / wgain[j];
      b += wdout[i * s->dim + j];
    }
    REQUIRE(fabs(g - dgain[j]) < 1e-3 && fabs(b - dbias[j]) < 1e-3, "norm: gradient of gain or bias %d", (int)j);
  }
}

static void check_loss(const Device *d, const Shape *s) {
  static float losses[64];
  int64_t rows = shape_rows(s);
  fill(8, rows * VOCABULARY, 2.0f, in, win);
  for (int64_t i = 0; i < rows; ++i) targets[i] = (uint8_t)random_bits(9, (uint64_t)i), wdout[i] = 0.5;
  cpu_cross_entropy(d, rows, in, targets, 0.5f, losses, din);
  loss_plain(s, win, NULL, wout);
  for (int64_t i = 0; i < rows; ++i) REQUIRE(fabs(losses[i] - wout[i]) < 1e-5 * wout[i], "loss of row %d", (int)i);
  check_gradient("loss", s, loss_plain, win, NULL, rows * VOCABULARY, rows, wdout, din);
}

int main(void) {
  Shape s = {.layers = 1, .dim = 64, .heads = 2, .seq = 32, .batch = 2};
  Device d = {pool_create(3), NULL, NULL};
  d.scratch = malloc((size_t)cpu_scratch_bytes(&s, pool_threads(d.pool)));
  REQUIRE(d.scratch, "out of memory");
  check_attention(&d, &s);
  check_gelu(&d, &s);
  check_norm(&d, &s);
  check_loss(&d, &s);
  free(d.scratch);
  pool_destroy(d.pool);
  return 0;
}
