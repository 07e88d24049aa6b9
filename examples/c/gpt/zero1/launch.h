/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that the program starts itself, on one host: a process each, joined by sockets from birth. */
#ifndef GPT_LAUNCH_H
#define GPT_LAUNCH_H
#include "transport.h"

typedef struct Launch {
  int *sockets;             /* [world], of this rank: one to each of the others */
  uint8_t nccl_ids[2][128]; /* of rank 0, where ranks are CUDA devices: the trainer's communicator and libfp8's */
} Launch;

/* Over sockets, host memory; also what brings up anything faster. Ends early, with FP8_ERR_COMM, where a rank is gone
 * or silent for longer than the timeout. */
fp8_status socket_exchange(Transport *t, const Message *messages, fp8_stream stream);
/* A libfp8 communicator of callbacks over socket_exchange(). */
void socket_open(Transport *t);
/* Over NCCL, device memory. `probe` is for before: NULL, or why there is no NCCL. */
const char *nccl_probe(uint8_t ids[2][128]);
void nccl_open(Transport *t, const Session *session);
#endif
