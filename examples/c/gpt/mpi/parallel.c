/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel.h"

#include <fp8_mpi/fp8_mpi.h>
#include <limits.h>
#include <mpi.h>

void parallel_open(Parallel *p) {
  memset(p, 0, sizeof *p);
  MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &p->world);
  CHECK(fp8_comm_create_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), 0, &p->comm));
  p->parts = calloc((size_t)p->world * EXCHANGE, sizeof *p->parts);
  REQUIRE(p->parts, "out of memory");
}

void parallel_close(Parallel *p) {
  fp8_comm_destroy(p->comm);
  free(p->parts);
}

/* Message number `round` of a share: how many elements, and where they begin in the flat order. */
static int64_t piece(int64_t size, int rank, int world, int64_t round, int64_t *begin) {
  int64_t left = share_begin(size, rank + 1, world) - (*begin = share_begin(size, rank, world) + round * EXCHANGE);
  return left < 0 ? 0 : left < EXCHANGE ? left : EXCHANGE;
}

void parallel_reduce_scatter(Parallel *p, float *grad, int64_t size) {
  MPI_Request *requests = malloc(2 * (size_t)p->world * sizeof *requests);
  REQUIRE(requests, "out of memory");
  int64_t rounds = (size / p->world + 1 + EXCHANGE - 1) / EXCHANGE, begin, own;
  for (int64_t round = 0; round < rounds; ++round) {
    int count = 0;
    int64_t n = piece(size, p->rank, p->world, round, &own);
    for (int r = 0; r < p->world; ++r)
      if (r != p->rank)
        MPI_Irecv(p->parts + (int64_t)r * EXCHANGE, (int)n, MPI_FLOAT, r, 0, MPI_COMM_WORLD, &requests[count++]);
    for (int r = 0; r < p->world; ++r) {
      if (r == p->rank) continue;
      int64_t give = piece(size, r, p->world, round, &begin);
      MPI_Isend(grad + (give ? begin : 0), (int)give, MPI_FLOAT, r, 0, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0.0f; /* in rank order, whoever sums */
      for (int r = 0; r < p->world; ++r) sum += r == p->rank ? grad[own + i] : p->parts[(int64_t)r * EXCHANGE + i];
      grad[own + i] = sum;
    }
    p->reduced_bytes += (uint64_t)n * sizeof(float) * (uint64_t)(p->world - 1);
  }
  free(requests);
}

void parallel_replicate(Parallel *p, const float *share, int64_t size, int64_t first, int64_t last, float *values) {
  if (p->world == 1) return; /* the share is everything, and is read in place */
  REQUIRE(last - first <= INT_MAX, "%lld FP32 values: too many for one message", (long long)(last - first));
  int *counts = calloc(2 * (size_t)p->world, sizeof *counts), *at = counts + p->world;
  REQUIRE(counts, "out of memory");
  const float *own = NULL;
  for (int r = 0; r < p->world; ++r) {
    int64_t begin = share_begin(size, r, p->world), a = begin, b = share_begin(size, r + 1, p->world);
    if (a < first) a = first;
    if (b > last) b = last;
    if (a >= b) continue;
    counts[r] = (int)(b - a);
    at[r] = (int)(a - first);
    if (r == p->rank) own = share + (a - begin);
  }
  MPI_Allgatherv(own, counts[p->rank], MPI_FLOAT, values, counts, at, MPI_FLOAT, MPI_COMM_WORLD);
  p->replicated_bytes += (uint64_t)(last - first - counts[p->rank]) * sizeof(float);
  free(counts);
}

double parallel_sum(const Parallel *p, double own) {
  double *all = malloc((size_t)p->world * sizeof *all), sum = 0.0;
  REQUIRE(all, "out of memory");
  MPI_Allgather(&own, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int r = 0; r < p->world; ++r) sum += all[r];
  free(all);
  return sum;
}

void parallel_losses(const Parallel *p, const double *own, int64_t count, double *all) {
  int *counts = calloc(2 * (size_t)p->world, sizeof *counts), *at = counts + p->world;
  REQUIRE(counts, "out of memory");
  for (int r = 0; r < p->world; ++r) {
    at[r] = (int)share_begin(count, r, p->world);
    counts[r] = (int)share_begin(count, r + 1, p->world) - at[r];
  }
  MPI_Allgatherv(own, counts[p->rank], MPI_DOUBLE, all, counts, at, MPI_DOUBLE, MPI_COMM_WORLD);
  free(counts);
}
