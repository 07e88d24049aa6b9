/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Communicators. */
#ifndef FP8_COMM_H
#define FP8_COMM_H
#include "context.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup comm Communicators
 *  A group of ranks, behind a table of callbacks: threads of one process (local), NCCL, MPI, or the caller's own. A
 * call that only enqueues cannot report a later death: fp8_comm_status() polls for it, fp8_comm_wait() waits with a
 * timeout.
 *  Ranks check their arguments each by itself, before anything is sent, and do not agree on errors, which would cost
 * every call a round trip: where one rank's call is refused, its peers have begun and wait for it, until it makes the
 * call after all, destroys its end of a local group, or their own fp8_comm_wait() gives up (MPI: nothing ends that).
 * What must be equal is compared once, at setup: fp8_param_check(), fp8_comm_check().
 *  @{ */

/** A rank's end of a group. [serial]: every rank makes the same calls in the same order. */
typedef struct fp8_comm fp8_comm;

/** What a communicator can do, as bits. */
enum fp8_comm_caps {
  FP8_COMM_HOST = 1,          /**< moves host memory */
  FP8_COMM_DEVICE = 2,        /**< moves device memory */
  FP8_COMM_CAPTURABLE = 4,    /**< may be captured into a CUDA graph */
  FP8_COMM_STREAM_ORDERED = 8 /**< enqueues on the stream and returns; without it, on device memory, libfp8 waits for
the stream before each call, and what the call moves is there when it returns */
};

/** Gathers bytes[r] bytes of each rank r to dst + offsets[r] on every rank. bytes and offsets are host arrays of
 * `size`; src may lie at its own place in dst. */
typedef fp8_status (*fp8_comm_all_gather_fn)(void *user, const void *src, void *dst, const int64_t *bytes,
                                             const int64_t *offsets, fp8_stream stream);

/** Replaces each of `count` elements (F32 or U8) by its maximum over the ranks. */
typedef fp8_status (*fp8_comm_all_reduce_max_fn)(void *user, void *inout, int64_t count, int32_t dtype,
                                                 fp8_stream stream);

/** Sends src_bytes[r] bytes from src + src_offsets[r] to each rank r and receives dst_bytes[r] at dst + dst_offsets[r].
 * Host arrays of `size`, in bytes. */
typedef fp8_status (*fp8_comm_all_to_all_fn)(void *user, const void *src, const int64_t *src_bytes,
                                             const int64_t *src_offsets, void *dst, const int64_t *dst_bytes,
                                             const int64_t *dst_offsets, fp8_stream stream);

/** Begins or ends a group of calls, or reports the communicator's state. */
typedef fp8_status (*fp8_comm_simple_fn)(void *user);

/** Releases the user pointer; called once, on the thread that drops the last reference. */
typedef void (*fp8_comm_release_fn)(void *user);

/** A communicator of the caller's own. Callbacks come on the calling thread only (release: on the one that drops the
 * last reference); a callback returns a status and never throws or unwinds. All but the first two may be NULL. */
typedef struct fp8_comm_ops {
  size_t struct_size;                        /**< set by FP8_INIT */
  void *user;                                /**< handed to every callback */
  int32_t rank;                              /**< this rank */
  int32_t size;                              /**< ranks */
  uint32_t caps;                             /**< bits of enum fp8_comm_caps */
  uint32_t reserved;                         /**< 0 */
  fp8_comm_all_gather_fn all_gather;         /**< required */
  fp8_comm_all_reduce_max_fn all_reduce_max; /**< required */
  fp8_comm_all_to_all_fn all_to_all;         /**< for fp8_dispatch() and its kin */
  fp8_comm_simple_fn group_begin;            /**< begins a group that the transport may fuse */
  fp8_comm_simple_fn group_end;              /**< ends it */
  fp8_comm_simple_fn status;                 /**< FP8_OK, or the asynchronous fault */
  fp8_comm_release_fn release;               /**< frees user */
} fp8_comm_ops;

/** Makes a communicator from callbacks. [pure]
 *  @param ops copied
 *  @param[out] comm to be destroyed by fp8_comm_destroy()
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_comm_create(const fp8_comm_ops *ops, fp8_comm **comm);

/** Makes a group whose ranks are threads of this process. A rank blocks its caller until the peers arrive, so one
 * thread never drives two ranks. [pure]
 *  @param size ranks
 *  @param[out] comms array of `size`: one for each thread
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_comm_create_local(int32_t size, fp8_comm **comms);

/** Borrows an ncclComm_t: it must outlive the communicator, and is never aborted. Needs the copy of NCCL that made it
 * in the process. NCCL connects ranks at their first collective, which ranks of one process may not capture: run one
 * step before a capture. [pure]
 *  @param nccl_comm an ncclComm_t
 *  @param[out] comm to be destroyed by fp8_comm_destroy()
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED or FP8_ERR_COMM */
FP8_API fp8_status fp8_comm_create_nccl(void *nccl_comm, fp8_comm **comm);

/** A new id for fp8_comm_create_nccl_rank(), made on one rank and handed to the others. [shared]
 *  @param[out] id 128 bytes
 *  @return FP8_OK, FP8_ERR_UNSUPPORTED or FP8_ERR_COMM */
FP8_API fp8_status fp8_comm_nccl_id(uint8_t *id);

/** Makes an NCCL communicator that libfp8 owns: it may be aborted. Its ranks are connected. Up to 8 ranks on GPUs of
 * one host that NVLink joins also get windows of up to 16 MB of device memory each, which all-gathers go through, by a
 * kernel of libfp8's own; else, or with FP8_PEER_WINDOWS=0 in the environment of any rank, NCCL moves those too, and
 * FP8_VERBOSE=1 says why. Gathers in captured graphs are not ordered among others of the communicator but by the
 * streams that the graphs run on. [waits] for all ranks
 *  @param context a CUDA context: its device
 *  @param id 128 bytes of fp8_comm_nccl_id(), equal on all ranks
 *  @param rank this rank
 *  @param size ranks
 *  @param[out] comm to be destroyed by fp8_comm_destroy()
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED or FP8_ERR_COMM */
FP8_API fp8_status fp8_comm_create_nccl_rank(const fp8_context *context, const uint8_t *id, int32_t rank, int32_t size,
                                             fp8_comm **comm);

/** Rank, size and capabilities. [pure]
 *  @param comm the communicator
 *  @param[out] rank may be NULL
 *  @param[out] size may be NULL
 *  @param[out] caps bits of enum fp8_comm_caps; may be NULL
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_comm_query(const fp8_comm *comm, int32_t *rank, int32_t *size, uint32_t *caps);

/** Polls for asynchronous faults. [shared]
 *  @param comm the communicator
 *  @return FP8_OK, or FP8_ERR_COMM */
FP8_API fp8_status fp8_comm_status(const fp8_comm *comm);

/** Waits for the stream, for a fault or for the timeout. Then an owned NCCL communicator is aborted, and since NCCL
 * frees memory meanwhile, that waits for everything on its GPU: kernels of other communicators that a lost rank holds
 * up are ended by aborting those. This call waits 1.5 s for it, then leaves it to end by itself. [serial] [waits]
 *  @param comm the communicator
 *  @param stream the stream
 *  @param timeout_ms milliseconds; negative = no limit
 *  @return FP8_OK: the stream is empty; FP8_ERR_COMM: a fault, or the time is over */
FP8_API fp8_status fp8_comm_wait(fp8_comm *comm, fp8_stream stream, int64_t timeout_ms);

/** Checks that all ranks agree on some bytes. [serial] [waits]
 *  @param comm the communicator
 *  @param what their name, for the message
 *  @param bytes host memory
 *  @param count how many
 *  @return FP8_OK, or FP8_ERR_COMM naming who differs */
FP8_API fp8_status fp8_comm_check(fp8_comm *comm, const char *what, const void *bytes, uint64_t count);

/** Destroys a rank's end; never waits for peers: an owned communicator is aborted, so call fp8_comm_wait() first. As
 * there, what waits for other work on the GPU is left alone after 1.5 s.
 *  @param comm NULL is ignored */
FP8_API void fp8_comm_destroy(fp8_comm *comm);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
