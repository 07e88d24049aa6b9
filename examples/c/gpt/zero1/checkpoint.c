/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include "../statefile.h"

enum { FIELDS = 13, MESSAGE = 1 << 20 };

static void list_fields(const Sharded *z, int64_t steps, Field fields[FIELDS]) {
  const Options *o = &z->session->options;
  const ModelConfig *c = &z->model.config;
  float rate = o->rate;
  int32_t rate_bits;
  memcpy(&rate_bits, &rate, sizeof rate_bits);
  Field all[FIELDS] = {{"layers", c->shape.layers},
                       {"dim", c->shape.dim},
                       {"seq", c->shape.seq},
                       {"batch", c->shape.batch},
                       {"micro-batches", c->micro_batches},
                       {"the recipe", c->preset},
                       {"the seed", (int64_t)c->seed},
                       {"the rate's bits", rate_bits},
                       {"steps of the schedule", steps},
                       {"the text, as a number,", z->session->text.sum},
                       {"projection saved", c->save_projection},
                       {"the number of values", z->model.parameters.size},
                       {"steps taken", z->model.step}};
  memcpy(fields, all, sizeof all);
}

static int64_t share_of(const Sharded *z, int rank, int64_t *begin) {
  int64_t size = z->model.parameters.size;
  *begin = share_begin(size, rank, z->parallel->world);
  return share_begin(size, rank + 1, z->parallel->world) - *begin;
}

static float *array_of(const Sharded *z, int which) {
  const Parameters *p = &z->model.parameters;
  return which == 0 ? p->master : which == 1 ? p->m : p->v;
}

/* `count` values of the share of rank r <-> the host of rank 0, through `passed`, device memory. */
static void move(const Sharded *z, int r, float *values, float *host, float *passed, int64_t count, int to_rank_0) {
  Parallel *p = z->parallel;
  const Memory *memory = &z->model.memory;
  uint64_t bytes = (uint64_t)count * sizeof(float);
  float *at = p->rank == r ? values : passed;
  if (p->rank == 0 && !to_rank_0) memory_write(memory, at, host, bytes);
  if (r && p->rank == (to_rank_0 ? r : 0)) {
    p->messages[to_rank_0 ? 0 : r].out = at;
    p->messages[to_rank_0 ? 0 : r].out_bytes = (int64_t)bytes;
  } else if (r) {
    p->messages[to_rank_0 ? r : 0].in = at;
    p->messages[to_rank_0 ? r : 0].in_bytes = (int64_t)bytes;
  }
  if (r) {
    parallel_exchange(p);
    parallel_wait(p);
  }
  if (p->rank == 0 && to_rank_0) memory_read(memory, host, at, bytes);
}

/* All three arrays in flat order; rank 0 writes to `writer`, or reads from `reader`. */
static void move_all(Sharded *z, StateWriter *writer, FILE *reader) {
  int rank = z->parallel->rank, world = z->parallel->world, to_rank_0 = writer != NULL;
  fp8_buffer passed = {NULL, 0};
  float *host = malloc(MESSAGE * sizeof *host);
  REQUIRE(host, "out of memory");
  CHECK(fp8_buffer_alloc(z->session->context, MESSAGE * sizeof(float), &passed, z->session->stream));
  for (int which = 0; which < 3; ++which)
    for (int r = 0; r < world; ++r) {
      int64_t begin, count = share_of(z, r, &begin);
      for (int64_t at = 0; at < count && (rank == 0 || rank == r); at += MESSAGE) {
        int64_t n = count - at < MESSAGE ? count - at : MESSAGE;
        if (rank == 0 && reader) state_get(reader, host, (size_t)n * sizeof *host);
        move(z, r, rank == r ? array_of(z, which) + at : NULL, host, passed.data, n, to_rank_0);
        if (rank == 0 && writer) state_put(writer, host, (size_t)n * sizeof *host);
      }
    }
  fp8_buffer_free(z->session->context, &passed, z->session->stream);
  free(host);
}

void checkpoint_write(Sharded *z, const char *path, int64_t steps, int64_t kill_at) {
  StateWriter w;
  Field fields[FIELDS];
  list_fields(z, steps, fields);
  if (z->parallel->rank == 0) state_begin(&w, path, fields, FIELDS, kill_at);
  move_all(z, &w, NULL);
  if (z->parallel->rank == 0) state_end(&w);
  parallel_sum(z->parallel, 0.0); /* nobody goes on before the file is safe */
}

int64_t checkpoint_read(Sharded *z, const char *path, int64_t steps) {
  int64_t taken = 0, body = 3 * z->model.parameters.size * (int64_t)sizeof(float);
  Field fields[FIELDS];
  list_fields(z, steps, fields);
  FILE *file = z->parallel->rank == 0 ? state_open(path, fields, FIELDS, body, &taken) : NULL;
  move_all(z, NULL, file);
  if (file) fclose(file);
  z->model.step = taken = (int64_t)parallel_sum(z->parallel, (double)taken); /* rank 0 alone has read it */
  return taken;
}
