/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads over callbacks of the caller's own, which take host memory and claim to fuse groups. */
#ifndef FP8_TEST_RANKS_FUSED_H
#define FP8_TEST_RANKS_FUSED_H
#include "ranks.h"

typedef struct meeting {
  pthread_barrier_t all;
  int size, groups; /* of rank 0 */
  void *at[64];
} meeting;

typedef struct fused_rank {
  meeting *m;
  int rank;
  rank_call call;
} fused_rank;

static inline fp8_status fused_gather(void *user, const void *src, void *dst, const int64_t *bytes,
                                      const int64_t *offsets, fp8_stream stream) {
  fused_rank *o = (fused_rank *)user;
  int r;
  (void)stream;
  o->m->at[o->rank] = (void *)(uintptr_t)src;
  pthread_barrier_wait(&o->m->all);
  for (r = 0; r < o->m->size; ++r) memmove((char *)dst + offsets[r], o->m->at[r], bytes[r]);
  pthread_barrier_wait(&o->m->all);
  return FP8_OK;
}

static inline fp8_status fused_reduce(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream stream) {
  fused_rank *o = (fused_rank *)user;
  const int64_t bytes = count * (dtype == FP8_DTYPE_F32 ? 4 : 1);
  char *best = (char *)host_new(bytes);
  int r;
  int64_t i;
  (void)stream;
  o->m->at[o->rank] = inout;
  pthread_barrier_wait(&o->m->all);
  memcpy(best, inout, bytes);
  for (r = 0; r < o->m->size; ++r)
    for (i = 0; i < count; ++i)
      if (dtype == FP8_DTYPE_F32) {
        const float v = ((const float *)o->m->at[r])[i];
        if (v > ((float *)best)[i]) ((float *)best)[i] = v;
      } else {
        const uint8_t v = ((const uint8_t *)o->m->at[r])[i];
        if (v > ((uint8_t *)best)[i]) ((uint8_t *)best)[i] = v;
      }
  pthread_barrier_wait(&o->m->all);
  memcpy(inout, best, bytes);
  free(best);
  return FP8_OK;
}

static inline fp8_status fused_begin(void *user) {
  fused_rank *o = (fused_rank *)user;
  if (o->rank == 0) ++o->m->groups;
  return FP8_OK;
}

static inline fp8_status fused_end(void *user) { return user ? FP8_OK : FP8_ERR_ARGUMENT; }

/* *groups: how many were begun. */
static inline void run_fused(const fp8_context *c, int size, void (*body)(rank_call *), void *arg, int *groups) {
  fused_rank ranks[64];
  meeting m;
  int r;
  memset(&m, 0, sizeof m);
  memset(ranks, 0, sizeof ranks);
  m.size = size;
  pthread_barrier_init(&m.all, NULL, (unsigned)size);
  for (r = 0; r < size; ++r) {
    fp8_comm_ops ops;
    FP8_INIT(&ops);
    ranks[r].m = &m;
    ranks[r].rank = ranks[r].call.rank = r;
    ranks[r].call.size = size;
    ranks[r].call.c = c;
    ranks[r].call.arg = arg;
    ranks[r].call.body = body;
    ops.user = &ranks[r];
    ops.rank = r;
    ops.size = size;
    ops.caps = FP8_COMM_HOST;
    ops.all_gather = fused_gather;
    ops.all_reduce_max = fused_reduce;
    ops.group_begin = fused_begin;
    ops.group_end = fused_end;
    MUST(fp8_comm_create(&ops, &ranks[r].call.comm));
    CHECK(!pthread_create(&ranks[r].call.thread, NULL, rank_main, &ranks[r].call));
  }
  for (r = 0; r < size; ++r) pthread_join(ranks[r].call.thread, NULL);
  for (r = 0; r < size; ++r) fp8_comm_destroy(ranks[r].call.comm);
  pthread_barrier_destroy(&m.all);
  *groups = m.groups;
}
#endif
