/* SPDX-License-Identifier: Apache-2.0 */
/* All parameters live in one flat FP32 buffer each for master, gradient and the two moments: a parameter is an offset.
 * So the optimizer is one loop, and a rank of a data-parallel run owns a range [begin, end) of masters and moments.
 * Matrices come first: they decay. */
#ifndef GPT_PARAMETERS_H
#define GPT_PARAMETERS_H
#include "../common/memory.h"
#include "kernels.h"

enum LinearKind { QKV, PROJECTION, FC1, FC2, LINEAR_KINDS };

typedef struct Parameter {
  char name[24];
  int64_t rows, cols, offset;
  float deviation; /* of the initial normal distribution; negative: constant 1 (gains) */
  float *value;    /* what forward reads: the master; with several ranks a replica, or NULL: FP8 or BF16 elsewhere */
} Parameter;

typedef struct BlockParameters { /* indices into items */
  int weight[LINEAR_KINDS], bias[LINEAR_KINDS];
  int gain[2], shift[2]; /* norms before attention and before the MLP */
} BlockParameters;

typedef struct Parameters {
  Parameter *items;
  int count;
  BlockParameters *blocks;
  int bytes, positions, head, gain, shift; /* embeddings, head, final norm */
  int64_t size, decayed;                   /* elements of a flat buffer; of its matrices */
  int64_t learned;                         /* without padding */
  int64_t begin, end;                      /* this rank's share of the flat order: all of it with one rank */
  float *master, *m, *v;                   /* device memory, of the share */
  float *grad;                             /* of everything */
} Parameters;

int64_t linear_in(const Shape *s, enum LinearKind kind);
int64_t linear_out(const Shape *s, enum LinearKind kind);
void parameters_create(Parameters *p, const Shape *s, Memory *memory, Pool *pool, uint64_t seed, int rank, int world);
static inline int64_t share_begin(int64_t size, int rank, int world) {
  return size / world * rank + size % world * rank / world;
}
void parameters_destroy(Parameters *p); /* the flat buffers belong to `memory` */
static inline float *value_of(const Parameters *p, int i) { return p->items[i].value; }
static inline float *grad_of(const Parameters *p, int i) { return p->grad + p->items[i].offset; }
#endif
