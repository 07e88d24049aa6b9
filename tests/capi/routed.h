/* SPDX-License-Identifier: Apache-2.0 */
/* A routing of tokens to experts that every rank knows whole. */
#ifndef FP8_TEST_ROUTED_H
#define FP8_TEST_ROUTED_H
#include "half.h"
#include "ranks.h"

enum { kMaxTokens = 40, kMaxK = 5, kRanks = 8 };

typedef struct job { /* one global routing, known to every rank */
  const fp8_recipe *recipe;
  int world, k, experts, row_alignment;
  int64_t hidden, tokens[kRanks];
  uint16_t *x[kRanks], *dy[kRanks]; /* BF16 [tokens, hidden] */
  int32_t ids[kRanks][kMaxTokens * kMaxK];
  float weights[kRanks][kMaxTokens * kMaxK];
} job;

static inline void make_job(job *j, uint64_t *random, int world, int k, int experts, int64_t hidden, int tokens) {
  int r;
  int64_t i;
  j->world = world;
  j->k = k;
  j->experts = experts;
  j->hidden = hidden;
  for (r = 0; r < world; ++r) {
    j->tokens[r] = r == 1 ? 0 : next_random(random) % (tokens + 1);
    j->x[r] = (uint16_t *)host_new(j->tokens[r] * hidden * 2);
    j->dy[r] = (uint16_t *)host_new(j->tokens[r] * hidden * 2);
    for (i = 0; i < j->tokens[r] * hidden; ++i) {
      const int binade = (int)(next_random(random) % 20) - 10;
      j->x[r][i] = to_bf16(ldexpf((float)(int32_t)next_random(random) / 2147483648.0f, binade));
      j->dy[r][i] = to_bf16((float)(int32_t)next_random(random) / 2147483648.0f);
    }
    for (i = 0; i < j->tokens[r] * k; ++i) { /* -1 and repeats included */
      j->ids[r][i] = (int32_t)(next_random(random) % (uint32_t)(world * experts + 1)) - 1;
      j->weights[r][i] = (float)(next_random(random) >> 8) / 16777216.0f;
    }
  }
}

static inline void free_job(job *j) {
  int r;
  for (r = 0; r < j->world; ++r) {
    free(j->x[r]);
    free(j->dy[r]);
  }
}

typedef struct sided { /* an activation's row side, in memory of its own */
  fp8_qtensor q;
  fp8_buffer memory;
} sided;

static inline sided make_rows(const fp8_context *c, const fp8_recipe *r, int64_t rows, int64_t cols) {
  sided s;
  uint64_t bytes;
  FP8_INIT(&s.q);
  MUST(fp8_recipe_describe(r, c, FP8_ROLE_ACTIVATION, rows, cols, FP8_SIDE_ROW | FP8_SIDE_COPY, &s.q));
  MUST(fp8_qtensor_bytes(&s.q, FP8_SIDE_ROW, &bytes));
  s.memory = dev_new(c, NULL, bytes);
  s.memory.bytes = bytes;
  MUST(fp8_qtensor_place(&s.q, FP8_SIDE_ROW, &s.memory));
  return s;
}

static inline void quantize_rows(const fp8_context *c, const fp8_recipe *r, void *x, sided *s, fp8_stream stream) {
  fp8_tensor t = tensor_2d(x, FP8_DTYPE_BF16, s->q.rows, s->q.cols);
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &t;
  args.q = &s->q;
  args.role = FP8_ROLE_ACTIVATION;
  MUST(fp8_quantize(c, r, &args, stream));
  MUST(fp8_stream_sync(c, stream));
}

static inline fp8_dispatch_config config_of(const job *j, int rank, const fp8_tensor *ids) {
  fp8_dispatch_config config;
  FP8_INIT(&config);
  config.expert_ids = ids;
  config.recipe = j->recipe;
  config.tokens = j->tokens[rank];
  config.hidden = j->hidden;
  config.max_tokens = kMaxTokens;
  config.k = j->k;
  config.experts_per_rank = j->experts;
  config.row_alignment = j->row_alignment;
  return config;
}

#endif
