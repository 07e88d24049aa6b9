/* SPDX-License-Identifier: Apache-2.0 */
/* A list of weights cut over ranks: the stateless steps played by one thread, and the communicator's path. */
#ifndef FP8_TEST_SHARDED_H
#define FP8_TEST_SHARDED_H
#include "ranks.h"

enum { kMaxParams = 8, kMaxWorld = 9 };

typedef struct sharded {
  const fp8_context *c;
  const fp8_recipe *recipe;
  int count, world;
  int64_t rows[kMaxParams], cols[kMaxParams], cuts[kMaxParams][kMaxWorld + 1];
  fp8_buffer master[kMaxParams];
  weight whole[kMaxParams]; /* reference, both sides */
} sharded;

typedef struct rank_list { /* one rank's view of it */
  fp8_param *params[kMaxParams];
  fp8_tensor masters[kMaxParams];
  const fp8_tensor *master_at[kMaxParams];
  fp8_param_args args;
  fp8_param_layout layout;
  fp8_buffer amax, shard;
} rank_list;

static inline void make_reference(sharded *s, uint64_t seed) {
  int i;
  for (i = 0; i < s->count; ++i) {
    const int64_t n = s->rows[i] * s->cols[i];
    float *host = (float *)host_new(n * sizeof(float));
    fill_random(host, n, seed + i);
    s->master[i] = dev_new(s->c, host, n * sizeof(float));
    free(host);
    s->whole[i] = whole_weight(s->c, s->recipe, s->master[i].data, s->rows[i], s->cols[i], FP8_SIDE_BOTH);
  }
}

static inline void free_reference(sharded *s) {
  int i;
  for (i = 0; i < s->count; ++i) {
    dev_free(s->c, &s->master[i]);
    dev_free(s->c, &s->whole[i].memory);
  }
}

static inline void open_rank(const sharded *s, int rank, uint32_t sides, rank_list *l) {
  int i;
  memset(l, 0, sizeof *l);
  for (i = 0; i < s->count; ++i) {
    const int64_t begin = s->cuts[i][rank], n = s->cuts[i][rank + 1] - begin;
    fp8_param_config config;
    FP8_INIT(&config);
    config.rows = s->rows[i];
    config.cols = s->cols[i];
    config.cuts = s->cuts[i];
    config.world = s->world;
    config.rank = rank;
    config.recipe = s->recipe;
    MUST(fp8_param_create(s->c, &config, &l->params[i]));
    l->masters[i] = tensor_1d(n ? (float *)s->master[i].data + begin : NULL, FP8_DTYPE_F32, n);
    l->master_at[i] = n || rank % 2 ? &l->masters[i] : NULL; /* nothing owned: no tensor at all is fine too */
  }
  FP8_INIT(&l->layout);
  MUST(fp8_param_sizes((const fp8_param *const *)l->params, s->count, sides, &l->layout));
  l->amax = dev_new(s->c, NULL, l->layout.amax_bytes);
  l->shard = dev_new(s->c, NULL, l->layout.row_bytes + l->layout.col_bytes);
  FP8_INIT(&l->args);
  l->args.params = (const fp8_param *const *)l->params;
  l->args.masters = l->master_at;
  l->args.amax = &l->amax;
  l->args.shard = &l->shard;
  l->args.count = s->count;
  l->args.sides = sides;
}

static inline void close_rank(const sharded *s, rank_list *l) {
  int i;
  for (i = 0; i < s->count; ++i) fp8_param_destroy(l->params[i]);
  dev_free(s->c, &l->amax);
  dev_free(s->c, &l->shard);
}

static inline void reduce_amax(const fp8_param_layout *l, void *into, const void *from) {
  int64_t i;
  if (l->amax_dtype == FP8_DTYPE_F32) {
    for (i = 0; i < l->amax_count; ++i)
      if (((const float *)from)[i] > ((float *)into)[i]) ((float *)into)[i] = ((const float *)from)[i];
  } else {
    for (i = 0; i < l->amax_count; ++i)
      if (((const uint8_t *)from)[i] > ((uint8_t *)into)[i]) ((uint8_t *)into)[i] = ((const uint8_t *)from)[i];
  }
}

/* Fresh weights, gathered by `gather(args)`, must equal the reference byte for byte, unwritten bytes included. */
static inline void compare_full(const sharded *s, rank_list *l, int both_at_once, void (*gather)(rank_list *, void *),
                                void *arg) {
  weight full[kMaxParams];
  fp8_qtensor *at[kMaxParams];
  int i;
  for (i = 0; i < s->count; ++i) {
    full[i] = make_weight(s->c, s->recipe, s->rows[i], s->cols[i], FP8_SIDE_BOTH);
    at[i] = &full[i].q;
  }
  l->args.full = at;
  if (both_at_once) {
    l->args.sides = FP8_SIDE_BOTH;
    gather(l, arg);
  } else {
    l->args.sides = FP8_SIDE_COL;
    gather(l, arg);
    l->args.sides = FP8_SIDE_ROW;
    gather(l, arg);
  }
  l->args.sides = FP8_SIDE_BOTH;
  for (i = 0; i < s->count; ++i) {
    {
      const uint64_t bytes = full[i].memory.bytes;
      uint8_t *a = (uint8_t *)dev_get(s->c, full[i].memory.data, bytes);
      uint8_t *b = (uint8_t *)dev_get(s->c, s->whole[i].memory.data, bytes);
      if (memcmp(a, b, bytes)) {
        uint64_t at_byte = 0;
        int r;
        while (a[at_byte] == b[at_byte]) ++at_byte;
        fprintf(stderr, "weight %d (%lld x %lld, kind %d) differs at byte %llu of %llu: %02x, whole %02x; cuts", i,
                (long long)s->rows[i], (long long)s->cols[i], full[i].q.row_kind, (unsigned long long)at_byte,
                (unsigned long long)bytes, a[at_byte], b[at_byte]);
        for (r = 0; r <= s->world; ++r) fprintf(stderr, " %lld", (long long)s->cuts[i][r]);
        fprintf(stderr, "\n");
        abort();
      }
      free(a);
      free(b);
    }
    dev_free(s->c, &full[i].memory);
  }
}

typedef struct slots { /* gathered by hand */
  const fp8_context *c;
  rank_list *ranks;
  int world;
} slots;

static inline void assemble_slots(rank_list *l, void *arg) {
  const slots *s = (const slots *)arg;
  fp8_param_layout layout;
  fp8_buffer gathered;
  uint64_t slot, first;
  int r;
  FP8_INIT(&layout);
  MUST(fp8_param_sizes(l->args.params, l->args.count, l->args.sides, &layout));
  gathered = dev_new(s->c, NULL, layout.gathered_bytes);
  slot = layout.gathered_bytes / s->world;
  first = layout.col_bytes && l->args.sides == FP8_SIDE_COL ? layout.row_bytes : 0;
  for (r = 0; r < s->world; ++r)
    dev_put(s->c, (char *)gathered.data + r * slot, (const char *)s->ranks[r].shard.data + first, slot);
  l->args.gathered = &gathered;
  MUST(fp8_param_assemble(s->c, &l->args, NULL));
  MUST(fp8_stream_sync(s->c, NULL));
  l->args.gathered = NULL;
  dev_free(s->c, &gathered);
}

/* amax on every rank, max over them, cast on every rank, slots side by side, assemble: all by this thread. */
static inline void check_stateless(const sharded *s, int both_at_once) {
  rank_list ranks[kMaxWorld];
  slots all;
  void *reduced = NULL;
  int r;
  all.c = s->c;
  all.ranks = ranks;
  all.world = s->world;
  for (r = 0; r < s->world; ++r) {
    void *part;
    open_rank(s, r, FP8_SIDE_BOTH, &ranks[r]);
    MUST(fp8_param_amax(s->c, &ranks[r].args, NULL));
    part = dev_get(s->c, ranks[r].amax.data, ranks[r].amax.bytes);
    if (reduced) {
      reduce_amax(&ranks[0].layout, reduced, part);
      free(part);
    } else {
      reduced = part;
    }
  }
  for (r = 0; r < s->world; ++r) {
    dev_put(s->c, ranks[r].amax.data, reduced, ranks[r].amax.bytes);
    MUST(fp8_param_cast(s->c, &ranks[r].args, NULL));
  }
  free(reduced);
  compare_full(s, &ranks[s->world - 1], both_at_once, assemble_slots, &all);
  for (r = 0; r < s->world; ++r) close_rank(s, &ranks[r]);
}

typedef struct over_comm {
  const sharded *s;
  fp8_comm *comm;
  fp8_stream stream;
} over_comm;

static inline void gather_comm(rank_list *l, void *arg) {
  const over_comm *o = (const over_comm *)arg;
  MUST(fp8_param_gather(o->s->c, o->comm, &l->args, o->stream));
  MUST(fp8_stream_sync(o->s->c, o->stream));
}

/* One rank of the communicator's path. */
static inline void check_rank(const sharded *s, fp8_comm *comm, int rank, fp8_stream stream, int both_at_once) {
  rank_list l;
  over_comm o;
  o.s = s;
  o.comm = comm;
  o.stream = stream;
  open_rank(s, rank, FP8_SIDE_BOTH, &l);
  MUST(fp8_param_check(s->c, comm, l.args.params, s->count));
  MUST(fp8_param_quantize(s->c, comm, &l.args, stream));
  compare_full(s, &l, both_at_once, gather_comm, &o);
  close_rank(s, &l);
}

/* Ascending cuts at random, some shards empty. */
static inline void random_cuts(int64_t *cuts, int world, int64_t size, uint64_t *state) {
  int r, q;
  cuts[0] = 0;
  cuts[world] = size;
  for (r = 1; r < world; ++r)
    cuts[r] = next_random(state) % 5 == 0 ? (next_random(state) % 2) * size
                                          : (int64_t)(next_random(state) % (uint32_t)(size + 1));
  for (r = 1; r < world; ++r)
    for (q = r; q > 1 && cuts[q] < cuts[q - 1]; --q) {
      const int64_t t = cuts[q];
      cuts[q] = cuts[q - 1];
      cuts[q - 1] = t;
    }
}
#endif
