/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks reach each other. A program has one implementation: mpi.c under mpirun, launch.c where the program starts
 * its ranks itself (sockets between CPU processes, NCCL between GPUs). The trainer needs one operation of its own, an
 * exchange of bytes; FP8 and BF16 weights travel through the libfp8 communicator beside it. */
#ifndef GPT_TRANSPORT_H
#define GPT_TRANSPORT_H
#include "../train.h"

typedef struct Message { /* between this rank and another one */
  const void *out;
  void *in;
  int64_t out_bytes, in_bytes;
} Message;

typedef struct Transport {
  int rank, world;
  fp8_comm *comm;
  void *state;
  int64_t timeout_ms; /* of fp8_comm_wait() */
  /* messages[world], memory of the device; that of this rank itself is ignored. All messages of an exchange travel at
   * once; enqueued on the stream where there is one. */
  fp8_status (*exchange)(struct Transport *t, const Message *messages, fp8_stream stream);
  void (*abort)(struct Transport *t); /* after a fault: what is enqueued ends. May be NULL */
  void (*close)(struct Transport *t);
} Transport;

extern const char transport_help[];
/* First thing in the program: it names itself, and MPI starts here. Returns the rank if it is known already, else 0. */
int transport_begin(int *count, char ***arguments);
/* An option of this transport, value may be NULL: 1 = taken. */
int transport_option(const char *name, const char *value);
/* From here on there are `world` processes; every one's options name its own device. */
void transport_start(Transport *t, Options *options);
/* Makes the communicator; ends the program, where devices or libraries are missing, with 77 and the reason. */
void transport_open(Transport *t, const Session *session);
void transport_end(void); /* last thing */
#endif
