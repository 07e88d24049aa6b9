/* SPDX-License-Identifier: Apache-2.0 */
#include "parameters.h"

#include "../common/random.h"

int64_t linear_in(const Shape *s, enum LinearKind kind) { return kind == FC2 ? 4 * s->dim : s->dim; }

int64_t linear_out(const Shape *s, enum LinearKind kind) {
  return kind == QKV ? 3 * s->dim : kind == FC1 ? 4 * s->dim : s->dim;
}

static int add(Parameters *p, const char *what, int64_t layer, int64_t rows, int64_t cols, double deviation) {
  Parameter *item = &p->items[p->count];
  if (layer < 0)
    snprintf(item->name, sizeof item->name, "%s", what);
  else
    snprintf(item->name, sizeof item->name, "%d.%s", (int)layer, what);
  item->rows = rows;
  item->cols = cols;
  item->offset = p->size;
  item->deviation = (float)deviation;
  p->size += (rows * cols + 63) / 64 * 64; /* each starts at 256 bytes */
  p->learned += rows * cols;
  return p->count++;
}

static void list(Parameters *p, const Shape *s) {
  static const char *const weights[] = {"qkv.w", "projection.w", "fc1.w", "fc2.w"};
  static const char *const biases[] = {"qkv.b", "projection.b", "fc1.b", "fc2.b"};
  /* Branches end in the residual stream, which sums 2 * layers of them: those linears start smaller. */
  double branch = 1.0 / sqrt(2.0 * (double)s->layers);
  p->bytes = add(p, "bytes", -1, VOCABULARY, s->dim, 0.02);
  p->positions = add(p, "positions", -1, s->seq, s->dim, 0.02);
  p->head = add(p, "head", -1, VOCABULARY, s->dim, 0.02);
  for (int64_t l = 0; l < s->layers; ++l)
    for (int k = 0; k < LINEAR_KINDS; ++k) {
      int64_t in = linear_in(s, (enum LinearKind)k), out = linear_out(s, (enum LinearKind)k);
      double deviation = 0.5 / sqrt((double)in) * (k == PROJECTION || k == FC2 ? branch : 1.0);
      p->blocks[l].weight[k] = add(p, weights[k], l, out, in, deviation);
    }
  p->decayed = p->size;
  for (int64_t l = 0; l < s->layers; ++l) {
    for (int k = 0; k < LINEAR_KINDS; ++k)
      p->blocks[l].bias[k] = add(p, biases[k], l, 1, linear_out(s, (enum LinearKind)k), 0.0);
    for (int n = 0; n < 2; ++n) {
      p->blocks[l].gain[n] = add(p, n ? "norm2.gain" : "norm1.gain", l, 1, s->dim, -1.0);
      p->blocks[l].shift[n] = add(p, n ? "norm2.shift" : "norm1.shift", l, 1, s->dim, 0.0);
    }
  }
  p->gain = add(p, "norm.gain", -1, 1, s->dim, -1.0);
  p->shift = add(p, "norm.shift", -1, 1, s->dim, 0.0);
}

/* One rank reads its masters. With several, what is read in FP32 has a replica: the embeddings, biases and norms. */
static void place_values(Parameters *p, Memory *memory, int world) {
  int64_t first = p->items[p->head].offset; /* of what is read in BF16 or FP8: up to the vectors */
  float *matrices = NULL, *vectors = NULL;
  if (world > 1) {
    matrices = memory_alloc(memory, (uint64_t)first * sizeof(float));
    vectors = memory_alloc(memory, (uint64_t)(p->size - p->decayed) * sizeof(float));
  }
  for (int i = 0; i < p->count; ++i) {
    Parameter *item = &p->items[i];
    if (world == 1)
      item->value = p->master + item->offset;
    else if (item->offset < first)
      item->value = matrices + item->offset;
    else if (item->offset >= p->decayed)
      item->value = vectors + (item->offset - p->decayed);
  }
}

typedef struct Initial {
  const Parameters *parameters;
  uint64_t seed;
  float *values; /* of this rank's share */
} Initial;

/* Elements [begin, end) of the share: each depends on the seed and its place alone. */
static void initial_task(void *argument, int64_t begin, int64_t end, int thread) {
  const Initial *c = argument;
  const Parameters *p = c->parameters;
  (void)thread;
  for (int i = 0; i < p->count; ++i) {
    const Parameter *item = &p->items[i];
    int64_t first = p->begin + begin, last = p->begin + end, size = item->rows * item->cols;
    if (first < item->offset) first = item->offset;
    if (last > item->offset + size) last = item->offset + size;
    for (int64_t j = first; j < last; ++j)
      c->values[j - p->begin] = item->deviation < 0.0f   ? 1.0f
                                : item->deviation > 0.0f ? item->deviation * random_normal(c->seed, (uint64_t)j)
                                                         : 0.0f;
  }
}

void parameters_create(Parameters *p, const Shape *s, Memory *memory, Pool *pool, uint64_t seed, int rank, int world) {
  memset(p, 0, sizeof *p);
  p->items = calloc((size_t)(5 + 12 * s->layers), sizeof *p->items);
  p->blocks = calloc((size_t)s->layers, sizeof *p->blocks);
  REQUIRE(p->items && p->blocks, "out of memory");
  list(p, s);

  p->begin = share_begin(p->size, rank, world);
  p->end = share_begin(p->size, rank + 1, world);
  int64_t count = p->end - p->begin;
  uint64_t bytes = (uint64_t)count * sizeof(float);
  p->master = memory_alloc(memory, bytes);
  p->grad = memory_alloc(memory, (uint64_t)p->size * sizeof(float));
  p->m = memory_alloc(memory, bytes);
  p->v = memory_alloc(memory, bytes);

  Initial initial = {p, seed,
                     calloc((size_t)count + 1, sizeof(float))}; /* padding stays zero, and so do its gradients */
  REQUIRE(initial.values, "out of memory");
  pool_run(pool, count, initial_task, &initial);
  memory_write(memory, p->master, initial.values, bytes);
  free(initial.values);
  place_values(p, memory, world);
}

void parameters_destroy(Parameters *p) {
  free(p->items);
  free(p->blocks);
}
