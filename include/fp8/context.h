/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Backends, devices, allocators, streams and counters. */
#ifndef FP8_CONTEXT_H
#define FP8_CONTEXT_H
#include "types.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_context fp8_context;
enum fp8_backend { FP8_BACKEND_AUTO = 0 /* CUDA if a device is present (a broken module is then an error), else CPU */, FP8_BACKEND_CPU = 1, FP8_BACKEND_CUDA = 2 };
enum fp8_context_flags { FP8_CONTEXT_NO_ALLOC = 1, FP8_CONTEXT_REFERENCE = 2 /* gemm_ref only */, FP8_CONTEXT_CHECK = 4 /* slow checks of contents */, FP8_CONTEXT_TUNE = 8 };
enum fp8_query {                    /* of fp8_context_query */
  FP8_QUERY_BACKEND = 1, FP8_QUERY_DEVICE = 2, FP8_QUERY_THREADS = 3, FP8_QUERY_SMS = 4, FP8_QUERY_CAPABILITY = 5 /* 90 = Hopper; 0 on the CPU */,
  FP8_QUERY_SUPPORT = 256           /* + preset: enum fp8_support */
};
enum fp8_support { FP8_SUPPORT_NONE = 0, FP8_SUPPORT_NATIVE = 1, FP8_SUPPORT_EMULATED = 2 };
enum fp8_space { FP8_SPACE_HOST = 1, FP8_SPACE_DEVICE = 2 };
typedef void *(*fp8_alloc_fn)(void *user, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream);
typedef void (*fp8_free_fn)(void *user, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream);
typedef struct fp8_allocator { size_t struct_size; void *user; fp8_alloc_fn alloc; fp8_free_fn free; } fp8_allocator;
typedef struct fp8_context_config {
  size_t struct_size;
  int32_t backend, device;
  uint32_t flags;
  int32_t threads;                  /* CPU worker threads; 0 = all */
  int32_t max_sms;                  /* default for calls that give none */
  int32_t reserved;
  const fp8_allocator *allocator;   /* copied; serves fp8_buffer_alloc and calls with workspace NULL; NULL = malloc / cudaMallocAsync */
} fp8_context_config;
typedef struct fp8_counters { size_t struct_size; uint64_t allocations, launches, quantizations, gemms, emulated_gemms, padded_gemms, bytes_communicated; } fp8_counters;
FP8_API fp8_status fp8_context_create(const fp8_context_config *config /* NULL = defaults */, fp8_context **context);
FP8_API fp8_status fp8_context_query(const fp8_context *context, int32_t what, int64_t *value); /* [shared] enum fp8_query */
FP8_API fp8_status fp8_context_explain(const fp8_context *context, char *text, uint64_t bytes, uint64_t *needed); /* [shared] implementations, refusals and why; text NULL asks for needed (with the final 0) */
FP8_API fp8_status fp8_context_counters(const fp8_context *context, fp8_counters *counters);    /* [shared] */
FP8_API void fp8_context_destroy(fp8_context *context);
/* so that no language needs a CUDA binding of its own to hold a tensor */
FP8_API fp8_status fp8_buffer_alloc(const fp8_context *context, uint64_t bytes, fp8_buffer *buffer, fp8_stream stream); /* 256-byte aligned; also under NO_ALLOC */
FP8_API fp8_status fp8_buffer_copy(const fp8_context *context, void *dst, const void *src, uint64_t bytes, fp8_stream stream); /* host or device, either way */
FP8_API fp8_status fp8_buffer_zero(const fp8_context *context, void *dst, uint64_t bytes, fp8_stream stream);            /* stats, gradients */
FP8_API void fp8_buffer_free(const fp8_context *context, fp8_buffer *buffer, fp8_stream stream);
FP8_API fp8_status fp8_stream_create(const fp8_context *context, fp8_stream *stream);
FP8_API fp8_status fp8_stream_sync(const fp8_context *context, fp8_stream stream);              /* [waits] */
FP8_API fp8_status fp8_stream_wait(const fp8_context *context, fp8_stream stream, fp8_stream other); /* [stream] what is enqueued on `stream` from now on starts after what `other` holds now */
FP8_API void fp8_stream_destroy(const fp8_context *context, fp8_stream stream);

#ifdef __cplusplus
}
#endif
#endif
