/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel.h"

enum { HOST_PIECE = 1 << 16, DEVICE_PIECE = 1 << 22 };

void parallel_open(Parallel *p, const Session *session, Transport *transport) {
  memset(p, 0, sizeof *p);
  p->transport = transport;
  p->rank = transport->rank;
  p->world = transport->world;
  p->comm = transport->comm;
  p->kernels = session->kernels;
  p->device.pool = session->pool;
  p->device.stream = session->stream;
  p->piece = session->options.place.backend == FP8_BACKEND_CPU ? HOST_PIECE : DEVICE_PIECE;
  memory_open(&p->memory, session->context, session->stream);
  p->parts = memory_alloc(&p->memory, (uint64_t)p->world * (uint64_t)p->piece * sizeof *p->parts);
  p->messages = calloc((size_t)p->world, sizeof *p->messages);
  REQUIRE(p->messages, "out of memory");
}

void parallel_close(Parallel *p) {
  memory_close(&p->memory);
  free(p->messages);
}

static void check(Parallel *p, fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  fprintf(stderr, "rank %d of %d: %s: %s: %s\n", p->rank, p->world, what, fp8_status_name(status),
          error.status == status && error.message ? error.message : "(no detail)");
  if (p->transport->abort) p->transport->abort(p->transport);
  fail("rank %d of %d: gives up", p->rank, p->world);
}

void parallel_wait(Parallel *p) {
  check(p, fp8_comm_wait(p->comm, p->device.stream, p->transport->timeout_ms), "waiting for the other ranks");
}

void parallel_exchange(Parallel *p) {
  if (p->world > 1)
    check(p, p->transport->exchange(p->transport, p->messages, p->device.stream), "an exchange with the other ranks");
  memset(p->messages, 0, (size_t)p->world * sizeof *p->messages);
}

/* Message number `round` of a share: how many elements, and where they begin in the flat order. */
static int64_t piece_of(const Parallel *p, int64_t size, int rank, int64_t round, int64_t *begin) {
  *begin = share_begin(size, rank, p->world) + round * p->piece;
  int64_t left = share_begin(size, rank + 1, p->world) - *begin;
  return left < 0 ? 0 : left < p->piece ? left : p->piece;
}

void parallel_reduce_scatter(Parallel *p, float *grad, int64_t size) {
  int64_t rounds = (size / p->world + 1 + p->piece - 1) / p->piece, begin, own;
  for (int64_t round = 0; round < rounds; ++round) {
    int64_t n = piece_of(p, size, p->rank, round, &own);
    for (int r = 0; r < p->world; ++r) {
      int64_t give = piece_of(p, size, r, round, &begin);
      Message m = {grad + (give ? begin : 0), p->parts + (int64_t)r * p->piece, give * (int64_t)sizeof(float),
                   n * (int64_t)sizeof(float)};
      p->messages[r] = m;
    }
    parallel_exchange(p);
    if (n) p->kernels->sum_ranks(&p->device, n, p->world, p->rank, p->parts, p->piece, grad + own);
    p->reduced_bytes += (uint64_t)n * sizeof(float) * (uint64_t)(p->world - 1);
  }
  parallel_wait(p);
}

void parallel_replicate(Parallel *p, const float *share, int64_t size, int64_t first, int64_t last, float *values) {
  if (p->world == 1) return; /* the share is everything, and is read in place */
  const float *own = NULL;
  int64_t own_bytes = 0;
  for (int r = 0; r < p->world; ++r) {
    int64_t begin = share_begin(size, r, p->world), a = begin, b = share_begin(size, r + 1, p->world);
    if (a < first) a = first;
    if (b > last) b = last;
    if (a >= b) continue;
    p->messages[r].in = values + (a - first);
    p->messages[r].in_bytes = (b - a) * (int64_t)sizeof(float);
    if (r == p->rank) own = share + (a - begin);
  }
  if (own) {
    own_bytes = p->messages[p->rank].in_bytes;
    CHECK(fp8_buffer_copy(p->memory.context, p->messages[p->rank].in, own, (uint64_t)own_bytes, p->device.stream));
  }
  for (int r = 0; r < p->world; ++r) {
    p->messages[r].out = own;
    p->messages[r].out_bytes = own_bytes;
  }
  parallel_exchange(p);
  p->replicated_bytes += (uint64_t)(last - first) * sizeof(float) - (uint64_t)own_bytes;
}

void parallel_all(Parallel *p, const void *own, int64_t bytes, void *all) {
  uint64_t total = (uint64_t)p->world * (uint64_t)bytes;
  if (p->staging.bytes < total) p->staging = memory_buffer(&p->memory, total + 4096);
  char *slots = p->staging.data, *mine = slots + p->rank * bytes;
  memory_write(&p->memory, mine, own, (uint64_t)bytes);
  for (int r = 0; r < p->world; ++r) {
    Message m = {mine, slots + r * bytes, bytes, bytes};
    p->messages[r] = m;
  }
  parallel_exchange(p);
  parallel_wait(p);
  memory_read(&p->memory, all, slots, total);
}

double parallel_sum(Parallel *p, double own) {
  double *all = malloc((size_t)p->world * sizeof *all), sum = 0.0;
  REQUIRE(all, "out of memory");
  parallel_all(p, &own, sizeof own, all);
  for (int r = 0; r < p->world; ++r) sum += all[r];
  free(all);
  return sum;
}

void parallel_losses(Parallel *p, const double *own, int64_t count, double *all) {
  int64_t most = count / p->world + 1; /* of one rank */
  double *padded = calloc(((size_t)p->world + 1) * (size_t)most, sizeof *padded), *theirs = padded + most;
  REQUIRE(padded, "out of memory");
  for (int64_t i = share_begin(count, p->rank, p->world), n = 0; i < share_begin(count, p->rank + 1, p->world);
       ++i, ++n)
    padded[n] = own[n];
  parallel_all(p, padded, most * (int64_t)sizeof *padded, theirs);
  for (int r = 0; r < p->world; ++r) {
    int64_t first = share_begin(count, r, p->world), last = share_begin(count, r + 1, p->world);
    memcpy(all + first, theirs + r * most, (size_t)(last - first) * sizeof *all);
  }
  free(padded);
}
