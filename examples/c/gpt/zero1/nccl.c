/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL between the GPUs of the ranks: a communicator of the trainer's, for messages of its own, and one of libfp8's,
 * whose all-gathers leave NCCL where NVLink joins the GPUs. NCCL's functions are taken from the copy that libfp8 has
 * found, so that building needs nothing of NCCL. */
#include "launch.h"
#ifdef EXAMPLE_CUDA
#include <dlfcn.h>
#include <unistd.h>

typedef struct Id { /* ncclUniqueId */
  char bytes[128];
} Id;

typedef struct Nccl {
  int (*init)(void **comm, int world, Id id, int rank);
  int (*abort)(void *comm);
  int (*destroy)(void *comm);
  int (*send)(const void *data, size_t count, int type, int peer, void *comm, fp8_stream stream);
  int (*receive)(void *data, size_t count, int type, int peer, void *comm, fp8_stream stream);
  int (*group_start)(void);
  int (*group_end)(void);
  const char *(*error)(int result);
  void *comm;
} Nccl;

enum { UINT8 = 1 }; /* ncclUint8 */

static Nccl nccl;

static int take(void *library, const char *name, void *slot) {
  void *found = dlsym(library, name);
  memcpy(slot, &found, sizeof found);
  return found != NULL;
}

const char *nccl_probe(uint8_t ids[2][128]) {
  static fp8_error error;
  FP8_INIT(&error);
  for (int i = 0; i < 2; ++i)
    if (fp8_comm_nccl_id(ids[i]) != FP8_OK) { /* loads it, from where libfp8 looks */
      fp8_last_error(&error);
      return error.message;
    }
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return "libfp8 has loaded NCCL, but not as libnccl.so.2";
  if (!(take(library, "ncclCommInitRank", &nccl.init) && take(library, "ncclCommAbort", &nccl.abort) &&
        take(library, "ncclCommDestroy", &nccl.destroy) && take(library, "ncclSend", &nccl.send) &&
        take(library, "ncclRecv", &nccl.receive) && take(library, "ncclGroupStart", &nccl.group_start) &&
        take(library, "ncclGroupEnd", &nccl.group_end) && take(library, "ncclGetErrorString", &nccl.error)))
    return "libnccl.so.2 lacks functions";
  return NULL;
}

static fp8_status answer(const Transport *t, int result, const char *what) {
  if (result == 0) return FP8_OK;
  fprintf(stderr, "rank %d of %d: NCCL: %s: %s\n", t->rank, t->world, what, nccl.error(result));
  return FP8_ERR_COMM;
}

static fp8_status exchange(Transport *t, const Message *messages, fp8_stream stream) {
  int result = nccl.group_start();
  for (int r = 0; r < t->world && !result; ++r) {
    const Message *m = &messages[r];
    if (r == t->rank) continue;
    if (m->out_bytes) result = nccl.send(m->out, (size_t)m->out_bytes, UINT8, r, nccl.comm, stream);
    if (m->in_bytes && !result) result = nccl.receive(m->in, (size_t)m->in_bytes, UINT8, r, nccl.comm, stream);
  }
  int ended = nccl.group_end();
  return answer(t, result ? result : ended, "send and receive");
}

static void abort_transport(Transport *t) {
  alarm(10); /* NCCL itself may not come back */
  /* first what runs beside libfp8's communicator, which fp8_comm_wait() has given up: to release that one, the whole
   * device must come to rest */
  nccl.abort(nccl.comm);
  fp8_comm_destroy(t->comm);
}

static void close_transport(Transport *t) {
  fp8_comm_destroy(t->comm);
  answer(t, nccl.destroy(nccl.comm), "destroying the communicator");
}

void nccl_open(Transport *t, const Session *session) {
  const Launch *l = t->state;
  Id id;
  memcpy(id.bytes, l->nccl_ids[0], sizeof id.bytes);
  if (answer(t, nccl.init(&nccl.comm, t->world, id, t->rank), "joining the group")) exit(1);
  CHECK(fp8_comm_create_nccl_rank(session->context, l->nccl_ids[1], t->rank, t->world, &t->comm));
  t->exchange = exchange;
  t->abort = abort_transport;
  t->close = close_transport;
}
#else
const char *nccl_probe(uint8_t ids[2][128]) { /* options.c has refused the device already */
  (void)ids;
  return "this program was built without CUDA";
}
void nccl_open(Transport *t, const Session *session) {
  (void)session;
  fail("rank %d: this program was built without CUDA", t->rank);
}
#endif
