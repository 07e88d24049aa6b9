/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Backends, devices, allocators, streams and counters. */
#ifndef FP8_CONTEXT_H
#define FP8_CONTEXT_H
#include "types.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup context Context
 *  A context is one device with its threads, allocator and counters. It owns no tensor. Several contexts, also of
 *  different backends, may live in one process and share nothing but the CPU worker threads.
 *  @{ */

/** A device to compute on. Children (linears, params, plans) hold a counted reference: destroy in any order. */
typedef struct fp8_context fp8_context;

/** Which implementation family computes. */
enum fp8_backend {
  FP8_BACKEND_AUTO = 0, /**< CUDA if a device is present (a broken module is then an error), else CPU */
  FP8_BACKEND_CPU = 1,  /**< the processor, with the oneDNN module if it is installed */
  FP8_BACKEND_CUDA = 2  /**< the CUDA module */
};

/** Bits of fp8_context_config.flags. */
enum fp8_context_flags {
  FP8_CONTEXT_NO_ALLOC =
      1, /**< nothing through the allocator (fp8_buffer_alloc() apart), nothing tensor-sized on the host */
  FP8_CONTEXT_REFERENCE = 2, /**< of CPU contexts, gemm_ref only: exact block sums, slow, the same bits on every CPU;
refused where the backend is CUDA, which has no such product */
  FP8_CONTEXT_CHECK = 4, /**< slow checks of contents: scales that are read must be finite and positive, a given amax
not negative and not NaN; each call waits for its stream */
  FP8_CONTEXT_TUNE = 8   /**< GEMM choice may depend on timing: results may then differ between runs */
};

/** What fp8_context_query() answers. */
enum fp8_query {
  FP8_QUERY_BACKEND = 1,    /**< enum fp8_backend, resolved */
  FP8_QUERY_DEVICE = 2,     /**< the device's index; 0 on the CPU */
  FP8_QUERY_THREADS = 3,    /**< CPU worker threads, the caller included */
  FP8_QUERY_SMS = 4,        /**< multiprocessors; 0 on the CPU */
  FP8_QUERY_CAPABILITY = 5, /**< compute capability, 90 = Hopper; 0 on the CPU */
  FP8_QUERY_SUPPORT = 256   /**< + enum fp8_preset: enum fp8_support of that preset here */
};

/** How a preset runs on a device. */
enum fp8_support {
  FP8_SUPPORT_NONE = 0,    /**< not at all */
  FP8_SUPPORT_NATIVE = 1,  /**< FP8 matrix instructions */
  FP8_SUPPORT_EMULATED = 2 /**< the same numbers, multiplied in a wider type */
};

/** Whose memory an allocator is asked for. */
enum fp8_space {
  FP8_SPACE_HOST = 1,  /**< the host's */
  FP8_SPACE_DEVICE = 2 /**< the context's device's; the same as the host's on the CPU */
};

/** Allocates. Called on the calling thread only; must not throw or unwind.
 *  Arguments: the user pointer, bytes, alignment (a power of two), enum fp8_space, and the stream after whose present
 * work the memory is used. Returns NULL on failure. */
typedef void *(*fp8_alloc_fn)(void *user, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream);

/** Frees what the matching fp8_alloc_fn gave, with the same bytes and space, once the stream has passed this point.
 *  Called on the calling thread only; must not throw or unwind. */
typedef void (*fp8_free_fn)(void *user, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream);

/** The caller's allocator: stream-ordered and sized, so that a framework's own pool can serve. */
typedef struct fp8_allocator {
  size_t struct_size; /**< set by FP8_INIT */
  void *user;         /**< handed to both functions; must outlive the context and its children */
  fp8_alloc_fn alloc; /**< required */
  fp8_free_fn free;   /**< required */
} fp8_allocator;

/** How a context is made. */
typedef struct fp8_context_config {
  size_t struct_size; /**< set by FP8_INIT */
  int32_t backend;    /**< enum fp8_backend */
  int32_t device;     /**< CUDA device index; must be 0 on the CPU */
  uint32_t flags;     /**< bits of enum fp8_context_flags */
  int32_t threads;    /**< CPU worker threads; 0 = all. Results do not depend on it, save oneDNN's products */
  int32_t max_sms;    /**< multiprocessors a kernel may take, for calls that give none; 0 = all */
  int32_t reserved;   /**< 0 */
  const fp8_allocator *allocator; /**< copied; serves fp8_buffer_alloc() and calls with workspace NULL; NULL = malloc or
                                       cudaMallocAsync */
} fp8_context_config;

/** What a context has done so far. A report: a caller with a shorter struct gets what fits. */
typedef struct fp8_counters {
  size_t struct_size;          /**< set by FP8_INIT */
  uint64_t allocations;        /**< requests of calls to the allocator: workspaces that were not given, what a host
                                    communicator stages. fp8_buffer_alloc() is the caller's own and not counted */
  uint64_t launches;           /**< kernels started */
  uint64_t quantizations;      /**< tensors quantized, sides of one call counted once */
  uint64_t gemms;              /**< matrix products */
  uint64_t emulated_gemms;     /**< of these, FP8 products computed in a wider type */
  uint64_t padded_gemms;       /**< of these, products whose operands had to be padded */
  uint64_t bytes_communicated; /**< bytes that collectives took from other ranks; of a reduction, the bytes reduced.
                                  None with one rank, and none of what plans and checks exchange on the host */
} fp8_counters;

/** Makes a context. A CUDA context loads the CUDA module at this call. [shared] [waits]
 *  @param config NULL = all defaults
 *  @param[out] context to be destroyed by fp8_context_destroy()
 *  @return FP8_OK; FP8_ERR_UNSUPPORTED: no such device, no driver, a device that is too old, or no module, with every
 * place that was looked in; FP8_ERR_ARGUMENT; FP8_ERR_IO or FP8_ERR_BACKEND: a module or driver that is there and
 * broken, or too old */
FP8_API fp8_status fp8_context_create(const fp8_context_config *config, fp8_context **context);

/** Asks for one number. [shared]
 *  @param context the context
 *  @param what enum fp8_query
 *  @param[out] value the answer
 *  @return FP8_OK, or FP8_ERR_ARGUMENT for an unknown question */
FP8_API fp8_status fp8_context_query(const fp8_context *context, int32_t what, int64_t *value);

/** A text for people: the implementations of each operation in the order they are tried, and why one declined. [shared]
 *  @param context the context
 *  @param[out] text receives the text; NULL asks for `needed` only
 *  @param bytes room in text
 *  @param[out] needed bytes of the whole text with its final 0; may be NULL
 *  @return FP8_OK, or FP8_ERR_ARGUMENT if the room is too small */
FP8_API fp8_status fp8_context_explain(const fp8_context *context, char *text, uint64_t bytes, uint64_t *needed);

/** Reads the counters. [shared]
 *  @param context the context
 *  @param[out] counters started with FP8_INIT
 *  @return FP8_OK, or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_context_counters(const fp8_context *context, fp8_counters *counters);

/** Drops the caller's reference; never waits. [shared]
 *  @param context NULL is ignored */
FP8_API void fp8_context_destroy(fp8_context *context);

/** Allocates memory of the context's device, aligned to 256 bytes, so that no language needs a CUDA binding of its own
 * to hold a tensor. Allowed under FP8_CONTEXT_NO_ALLOC. [shared] [stream]
 *  @param context the context
 *  @param bytes 0 gives an empty buffer
 *  @param[out] buffer to be freed by fp8_buffer_free()
 *  @param stream the memory is usable by work enqueued on it from now on
 *  @return FP8_OK, FP8_ERR_NO_MEMORY or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_buffer_alloc(const fp8_context *context, uint64_t bytes, fp8_buffer *buffer, fp8_stream stream);

/** Copies bytes between host and device memory, either way. [shared] [stream]
 *  @param context the context
 *  @param[out] dst destination
 *  @param src source; must not overlap dst
 *  @param bytes how many
 *  @param stream the stream; host memory must live until it has passed the copy
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_BACKEND */
FP8_API fp8_status fp8_buffer_copy(const fp8_context *context, void *dst, const void *src, uint64_t bytes,
                                   fp8_stream stream);

/** Zeroes device memory: statistics, gradients. [shared] [stream]
 *  @param context the context
 *  @param[out] dst the memory
 *  @param bytes how many
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_BACKEND */
FP8_API fp8_status fp8_buffer_zero(const fp8_context *context, void *dst, uint64_t bytes, fp8_stream stream);

/** Frees a buffer once the stream has passed this point, and empties it. [shared] [stream]
 *  @param context the context that allocated it
 *  @param[in,out] buffer NULL and empty buffers are ignored
 *  @param stream the stream of its last use */
FP8_API void fp8_buffer_free(const fp8_context *context, fp8_buffer *buffer, fp8_stream stream);

/** Makes a stream of the context's device; NULL on the CPU. [shared]
 *  @param context the context
 *  @param[out] stream to be destroyed by fp8_stream_destroy()
 *  @return FP8_OK, or FP8_ERR_BACKEND */
FP8_API fp8_status fp8_stream_create(const fp8_context *context, fp8_stream *stream);

/** Waits until the stream is empty. [shared] [waits]
 *  @param context the context
 *  @param stream the stream
 *  @return FP8_OK, or FP8_ERR_BACKEND: also a fault of work that was enqueued before */
FP8_API fp8_status fp8_stream_sync(const fp8_context *context, fp8_stream stream);

/** What is enqueued on `stream` from now on starts after what `other` holds now. [shared] [stream]
 *  @param context the context
 *  @param stream the stream that waits
 *  @param other the stream that is waited for
 *  @return FP8_OK, or FP8_ERR_BACKEND */
FP8_API fp8_status fp8_stream_wait(const fp8_context *context, fp8_stream stream, fp8_stream other);

/** Destroys a stream made by fp8_stream_create(). [shared]
 *  @param context the context
 *  @param stream NULL is ignored */
FP8_API void fp8_stream_destroy(const fp8_context *context, fp8_stream stream);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
