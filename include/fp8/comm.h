/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Communicators. */
#ifndef FP8_COMM_H
#define FP8_COMM_H
#include "context.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_comm fp8_comm;   /* [serial]: every rank makes the same calls in the same order */
enum fp8_comm_caps { FP8_COMM_HOST = 1, FP8_COMM_DEVICE = 2, FP8_COMM_CAPTURABLE = 4, FP8_COMM_STREAM_ORDERED = 8 };
/* arrays of `size` on the host; src may lie at its own place in dst */
typedef fp8_status (*fp8_comm_all_gather_fn)(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets, fp8_stream stream);
typedef fp8_status (*fp8_comm_all_reduce_max_fn)(void *user, void *inout, int64_t count, int32_t dtype /* F32, U8 */, fp8_stream stream);
typedef fp8_status (*fp8_comm_all_to_all_fn)(void *user, const void *src, const int64_t *src_bytes, const int64_t *src_offsets, void *dst, const int64_t *dst_bytes, const int64_t *dst_offsets, fp8_stream stream);
typedef fp8_status (*fp8_comm_simple_fn)(void *user);
typedef void (*fp8_comm_release_fn)(void *user);
typedef struct fp8_comm_ops {       /* copied; called on the calling thread only (release: on the one that drops the last reference); a callback returns a status and never throws or unwinds; all but the first two may be NULL */
  size_t struct_size;
  void *user;
  int32_t rank, size;
  uint32_t caps, reserved;
  fp8_comm_all_gather_fn all_gather;
  fp8_comm_all_reduce_max_fn all_reduce_max;
  fp8_comm_all_to_all_fn all_to_all;
  fp8_comm_simple_fn group_begin, group_end, status;
  fp8_comm_release_fn release;
} fp8_comm_ops;
FP8_API fp8_status fp8_comm_create(const fp8_comm_ops *ops, fp8_comm **comm);
FP8_API fp8_status fp8_comm_create_local(int32_t size, fp8_comm **comms /* out, `size` of them: one a thread; a rank blocks until its peers arrive */);
FP8_API fp8_status fp8_comm_create_nccl(void *nccl_comm, fp8_comm **comm);                       /* borrowed */
FP8_API fp8_status fp8_comm_nccl_id(uint8_t *id /* 128 bytes */);
FP8_API fp8_status fp8_comm_create_nccl_rank(const fp8_context *context, const uint8_t *id, int32_t rank, int32_t size, fp8_comm **comm); /* [waits] owned: may be aborted */
FP8_API fp8_status fp8_comm_query(const fp8_comm *comm, int32_t *rank, int32_t *size, uint32_t *caps);  /* [pure] each may be NULL */
FP8_API fp8_status fp8_comm_status(const fp8_comm *comm);                                        /* polls for asynchronous faults */
FP8_API fp8_status fp8_comm_wait(fp8_comm *comm, fp8_stream stream, int64_t timeout_ms);         /* [waits] for the stream or for a fault */
FP8_API fp8_status fp8_comm_check(fp8_comm *comm, const char *what, const void *bytes, uint64_t count); /* [waits] all ranks agree on these bytes, else ERR_COMM naming who differs */
FP8_API void fp8_comm_destroy(fp8_comm *comm);                                                   /* never waits: an owned one is aborted, so fp8_comm_wait first */

#ifdef __cplusplus
}
#endif
#endif
