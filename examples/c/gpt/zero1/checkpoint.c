/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <unistd.h>

enum { FIELDS = 14, MESSAGE = 1 << 20 };

typedef struct Field {
  const char *name;
  int64_t value;
} Field;

typedef struct Writer { /* of rank 0 */
  FILE *file;
  const char *path;
  uint64_t sum; /* FNV-1a over 8-byte words */
  int64_t written, kill_at;
} Writer;

static const int64_t magic = 0x3154504b43545047; /* "GPTCKPT1": a file of the other byte order is not taken */

static void list_fields(const Sharded *z, int64_t steps, Field fields[FIELDS]) {
  const Options *o = &z->session->options;
  const ModelConfig *c = &z->model.config;
  float rate = o->rate;
  int32_t rate_bits;
  memcpy(&rate_bits, &rate, sizeof rate_bits);
  Field all[FIELDS] = {{"the magic number", magic},
                       {"layers", c->shape.layers},
                       {"dim", c->shape.dim},
                       {"seq", c->shape.seq},
                       {"batch", c->shape.batch},
                       {"micro-batches", c->micro_batches},
                       {"the recipe", c->preset},
                       {"the seed", (int64_t)c->seed},
                       {"the rate's bits", rate_bits},
                       {"steps of the schedule", steps},
                       {"the size of the text", z->session->text.size},
                       {"projection saved", c->save_projection},
                       {"the number of values", z->model.parameters.size},
                       {"steps taken", z->model.step}};
  memcpy(fields, all, sizeof all);
}

static uint64_t add_to_sum(uint64_t sum, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i += 4) { /* all that is summed is a multiple of 4 bytes */
    uint32_t word;
    memcpy(&word, at + i, sizeof word);
    sum = (sum ^ word) * 0x100000001b3u;
  }
  return sum;
}

static void put(Writer *w, const void *data, size_t bytes) {
  size_t part = bytes;
  if (w->kill_at >= 0 && w->written + (int64_t)bytes > w->kill_at) part = (size_t)(w->kill_at - w->written);
  if (fwrite(data, 1, part, w->file) != part) fail("cannot write %s: %s", w->path, strerror(errno));
  w->written += (int64_t)part;
  if (part < bytes) {
    fflush(w->file);
    raise(SIGKILL);
  }
  w->sum = add_to_sum(w->sum, data, bytes);
}

static void publish(Writer *w, const char *temporary) {
  if (fwrite(&w->sum, sizeof w->sum, 1, w->file) != 1 || fflush(w->file) || fsync(fileno(w->file)) || fclose(w->file))
    fail("cannot write %s: %s", temporary, strerror(errno));
  if (w->kill_at >= w->written) raise(SIGKILL); /* everything is written, and nothing renamed */
  if (rename(temporary, w->path)) fail("cannot rename %s to %s: %s", temporary, w->path, strerror(errno));
  char *copy = strdup(w->path);
  REQUIRE(copy, "out of memory");
  int folder = open(dirname(copy), O_RDONLY); /* the new name too must survive */
  if (folder < 0 || fsync(folder)) fail("cannot flush the folder of %s: %s", w->path, strerror(errno));
  close(folder);
  free(copy);
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

/* All three arrays in flat order; rank 0 calls `each` before or after a part has moved. */
static void move_all(Sharded *z, float *host, int to_rank_0, void (*each)(void *user, float *host, int64_t count),
                     void *user) {
  int rank = z->parallel->rank, world = z->parallel->world;
  fp8_buffer passed = {NULL, 0};
  CHECK(fp8_buffer_alloc(z->session->context, MESSAGE * sizeof(float), &passed, z->session->stream));
  for (int which = 0; which < 3; ++which)
    for (int r = 0; r < world; ++r) {
      int64_t begin, count = share_of(z, r, &begin);
      for (int64_t at = 0; at < count && (rank == 0 || rank == r); at += MESSAGE) {
        int64_t n = count - at < MESSAGE ? count - at : MESSAGE;
        if (rank == 0 && !to_rank_0) each(user, host, n);
        move(z, r, rank == r ? array_of(z, which) + at : NULL, host, passed.data, n, to_rank_0);
        if (rank == 0 && to_rank_0) each(user, host, n);
      }
    }
  fp8_buffer_free(z->session->context, &passed, z->session->stream);
}

static void put_values(void *user, float *host, int64_t count) { put(user, host, (size_t)count * sizeof *host); }

static void get_values(void *user, float *host, int64_t count) {
  if (fread(host, sizeof *host, (size_t)count, user) != (size_t)count)
    fail("a checkpoint cannot be read: %s", strerror(errno));
}

void checkpoint_write(Sharded *z, const char *path, int64_t steps, int64_t kill_at) {
  int rank = z->parallel->rank;
  float *buffer = malloc(MESSAGE * sizeof *buffer);
  char *temporary = malloc(strlen(path) + 8);
  REQUIRE(buffer && temporary, "out of memory");
  Writer w = {NULL, path, 0xcbf29ce484222325u, 0, kill_at};
  sprintf(temporary, "%s.tmp", path);
  if (rank == 0) {
    Field fields[FIELDS];
    list_fields(z, steps, fields);
    w.file = fopen(temporary, "wb");
    if (!w.file) fail("cannot write %s: %s", temporary, strerror(errno));
    for (int i = 0; i < FIELDS; ++i) put(&w, &fields[i].value, sizeof fields[i].value);
  }
  move_all(z, buffer, 1, put_values, &w);
  if (rank == 0) publish(&w, temporary);
  parallel_sum(z->parallel, 0.0); /* nobody goes on before the file is safe */
  free(temporary);
  free(buffer);
}

static FILE *open_checked(const Sharded *z, const char *path, int64_t steps, float *buffer, int64_t *taken) {
  Field wanted[FIELDS];
  int64_t found[FIELDS], left = 3 * z->model.parameters.size;
  uint64_t sum, expected;
  FILE *file = fopen(path, "rb");
  if (!file) fail("cannot read %s: %s", path, strerror(errno));
  list_fields(z, steps, wanted);
  if (fread(found, sizeof found, 1, file) != 1) fail("%s is no checkpoint: it is too short", path);
  for (int i = 0; i < FIELDS - 1; ++i)
    if (found[i] != wanted[i].value)
      fail("%s was written by another run: %s is %lld there, %lld here", path, wanted[i].name, (long long)found[i],
           (long long)wanted[i].value);
  sum = add_to_sum(0xcbf29ce484222325u, found, sizeof found);
  for (size_t n; left; left -= (int64_t)n) {
    n = (size_t)(left < MESSAGE ? left : MESSAGE);
    if (fread(buffer, sizeof *buffer, n, file) != n) fail("%s is cut: %lld values are missing", path, (long long)left);
    sum = add_to_sum(sum, buffer, n * sizeof *buffer);
  }
  if (fread(&expected, sizeof expected, 1, file) != 1 || sum != expected)
    fail("%s is damaged: its checksum does not match", path);
  if (fseek(file, (long)sizeof found, SEEK_SET)) fail("cannot read %s: %s", path, strerror(errno));
  *taken = found[FIELDS - 1];
  return file;
}

int64_t checkpoint_read(Sharded *z, const char *path, int64_t steps) {
  int64_t taken = 0;
  float *buffer = malloc(MESSAGE * sizeof *buffer);
  REQUIRE(buffer, "out of memory");
  FILE *file = z->parallel->rank == 0 ? open_checked(z, path, steps, buffer, &taken) : NULL;
  move_all(z, buffer, 0, get_values, file);
  if (file) fclose(file);
  free(buffer);
  z->model.step = taken = (int64_t)parallel_sum(z->parallel, (double)taken); /* rank 0 alone has read it */
  return taken;
}
