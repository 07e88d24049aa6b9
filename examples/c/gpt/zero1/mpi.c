/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks started by mpirun; host memory. */
#include <fp8_mpi/fp8_mpi.h>
#include <mpi.h>

#include "../../common/option.h"
#include "transport.h"

enum { TAG = 1, CHUNK = 1 << 30 }; /* MPI counts in int */

const char transport_help[] =
    "gpt_mpi: the GPT, data parallel under mpirun, with a ZeRO-1 AdamW: masters and moments are sharded\n";

int transport_begin(int *count, char ***arguments) {
  int rank;
  option_program = "gpt_mpi";
  MPI_Init(count, arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int transport_option(const char *name, const char *value) {
  (void)name, (void)value;
  return 0;
}

void transport_start(Transport *t, Options *options) {
  if (options->place.backend != FP8_BACKEND_CPU)
    option_bad("--device", "cuda", "on CUDA devices use gpt_zero1 --ranks N");
  MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &t->world);
}

static fp8_status exchange(Transport *t, const Message *messages, fp8_stream stream) {
  int64_t most = 0;
  (void)stream;
  for (int r = 0; r < t->world; ++r)
    if (r != t->rank) most += messages[r].in_bytes / CHUNK + messages[r].out_bytes / CHUNK + 2;
  MPI_Request *requests = malloc(((size_t)most + 1) * sizeof *requests);
  REQUIRE(requests, "out of memory");
  int count = 0, code = MPI_SUCCESS;
  for (int r = 0; r < t->world && code == MPI_SUCCESS; ++r) {
    const Message *m = &messages[r];
    if (r == t->rank) continue;
    for (int64_t at = 0; at < m->in_bytes && code == MPI_SUCCESS; at += CHUNK)
      code = MPI_Irecv((char *)m->in + at, (int)(m->in_bytes - at < CHUNK ? m->in_bytes - at : CHUNK), MPI_BYTE, r, TAG,
                       MPI_COMM_WORLD, &requests[count++]);
    for (int64_t at = 0; at < m->out_bytes && code == MPI_SUCCESS; at += CHUNK)
      code = MPI_Isend((const char *)m->out + at, (int)(m->out_bytes - at < CHUNK ? m->out_bytes - at : CHUNK),
                       MPI_BYTE, r, TAG, MPI_COMM_WORLD, &requests[count++]);
  }
  if (code == MPI_SUCCESS) code = MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  free(requests);
  return code == MPI_SUCCESS ? FP8_OK : FP8_ERR_COMM;
}

static void close_transport(Transport *t) { fp8_comm_destroy(t->comm); }

void transport_open(Transport *t, const Session *session) {
  (void)session;
  CHECK(fp8_comm_create_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), 0, &t->comm));
  t->exchange = exchange;
  t->close = close_transport;
}

void transport_end(void) { MPI_Finalize(); }
