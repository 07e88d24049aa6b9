/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange of bytes over sockets, and a libfp8 communicator made of it: the caller's own kind. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "launch.h"

static fp8_status lost(const Transport *t, int peer, const char *how) {
  fprintf(stderr, "rank %d of %d: rank %d %s\n", t->rank, t->world, peer, how);
  return FP8_ERR_COMM;
}

/* Moves what the socket takes or has; -1: it is closed. */
static int advance(int fd, const Message *m, int64_t *sent, int64_t *received) {
  ssize_t n = 0;
  while (*sent < m->out_bytes && (n = send(fd, (const char *)m->out + *sent, (size_t)(m->out_bytes - *sent), 0)) > 0)
    *sent += n;
  if (n < 0 && errno != EAGAIN && errno != EINTR) return -1;
  while (*received < m->in_bytes) {
    n = recv(fd, (char *)m->in + *received, (size_t)(m->in_bytes - *received), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return -1;
    if (n < 0) break;
    *received += n;
  }
  return 0;
}

fp8_status socket_exchange(Transport *t, const Message *messages, fp8_stream stream) {
  const Launch *l = t->state;
  struct pollfd *waiting = calloc((size_t)t->world, sizeof *waiting);
  int64_t *sent = calloc(2 * (size_t)t->world, sizeof *sent), *received = sent + t->world;
  fp8_status status = FP8_OK;
  (void)stream;
  REQUIRE(waiting && sent, "out of memory");
  while (status == FP8_OK) {
    int last = -1;
    for (int r = 0; r < t->world && status == FP8_OK; ++r) {
      const Message *m = &messages[r];
      waiting[r].fd = -1; /* poll ignores it */
      if (r == t->rank) continue;
      if (advance(l->sockets[r], m, &sent[r], &received[r])) status = lost(t, r, "is gone");
      waiting[r].events = (short)((sent[r] < m->out_bytes ? POLLOUT : 0) | (received[r] < m->in_bytes ? POLLIN : 0));
      if (!waiting[r].events) continue;
      waiting[r].fd = l->sockets[r];
      last = r;
    }
    if (last < 0) break;
    if (status == FP8_OK && poll(waiting, (nfds_t)t->world, (int)t->timeout_ms) == 0)
      status = lost(t, last, "is silent: the time is over");
  }
  free(waiting);
  free(sent);
  return status;
}

static fp8_status all_gather(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                             fp8_stream stream) {
  Transport *t = user;
  Message *messages = calloc((size_t)t->world, sizeof *messages);
  if (!messages) return FP8_ERR_NO_MEMORY;
  for (int r = 0; r < t->world; ++r) {
    Message m = {src, (char *)dst + offsets[r], bytes[t->rank], bytes[r]};
    messages[r] = m;
  }
  if (bytes[t->rank]) memmove(messages[t->rank].in, src, (size_t)bytes[t->rank]);
  fp8_status status = socket_exchange(t, messages, stream);
  free(messages);
  return status;
}

static fp8_status all_reduce_max(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream stream) {
  Transport *t = user;
  int64_t size = dtype == FP8_DTYPE_F32 ? 4 : 1, bytes = count * size;
  if (dtype != FP8_DTYPE_F32 && dtype != FP8_DTYPE_U8) return FP8_ERR_UNSUPPORTED;
  char *all = malloc((size_t)(t->world * bytes) + 1);
  Message *messages = calloc((size_t)t->world, sizeof *messages);
  fp8_status status = all && messages ? FP8_OK : FP8_ERR_NO_MEMORY;
  for (int r = 0; status == FP8_OK && r < t->world; ++r) {
    Message m = {inout, all + r * bytes, bytes, bytes};
    messages[r] = m;
  }
  if (status == FP8_OK) status = socket_exchange(t, messages, stream);
  for (int r = 0; status == FP8_OK && r < t->world; ++r) {
    const uint8_t *codes = (const uint8_t *)all + r * bytes;
    const float *values = (const float *)(const void *)codes;
    for (int64_t i = 0; r != t->rank && i < count; ++i)
      if (size == 1) {
        if (codes[i] > ((uint8_t *)inout)[i]) ((uint8_t *)inout)[i] = codes[i];
      } else if (values[i] > ((float *)inout)[i]) {
        ((float *)inout)[i] = values[i];
      }
  }
  free(all);
  free(messages);
  return status;
}

static void close_transport(Transport *t) { fp8_comm_destroy(t->comm); }

void socket_open(Transport *t) {
  fp8_comm_ops ops;
  FP8_INIT(&ops);
  ops.user = t;
  ops.rank = t->rank;
  ops.size = t->world;
  ops.caps = FP8_COMM_HOST;
  ops.all_gather = all_gather;
  ops.all_reduce_max = all_reduce_max;
  CHECK(fp8_comm_create(&ops, &t->comm));
  t->exchange = socket_exchange;
  t->close = close_transport;
}
