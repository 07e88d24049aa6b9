// SPDX-License-Identifier: Apache-2.0
// What a backend supplies: one table of plain functions, filled by backend/cpu in the library and by a module
// otherwise. Every entry is noexcept, returns an fp8_status, and reports detail through the host table. Argument checks
// that need no device are core's; an entry sees only legal, checked views. Queries ([pure]) read no data pointer.
#pragma once
#include <cstdint>

#include "fp8/types.h"
#include "ops/gemm.h"
#include "ops/move.h"
#include "ops/param.h"
#include "ops/quantize.h"
#include "ops/route.h"

namespace fp8::ops {

constexpr uint32_t kBackendAbi = 1;

// Of one context. Core counts quantizations and GEMMs that it hands over; backends bump launches, emulated and padded
// GEMMs through HostApi::count. Workspace queries never shrink when rows grow.
struct Counters {
  enum Kind : int32_t {
    kAllocations,
    kLaunches,
    kQuantizations,
    kGemms,
    kEmulatedGemms,
    kPaddedGemms,
    kBytesCommunicated,
    kKinds
  };
};

// From the library to a module. `owner` is the context's opaque address given at open.
struct HostApi {
  uint32_t abi;
  uint32_t size;
  // detail of the calling thread's error; returns status
  int32_t (*set_error)(int32_t status, int32_t domain, int64_t native_code, const char *message);
  void (*count)(void *owner, int32_t kind, uint64_t n);
  // the context's allocator; NULL result: error is set. align <= 256
  void *(*alloc)(void *owner, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream);
  void (*release)(void *owner, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream);
  void (*parallel_for)(void *owner, int64_t n, void (*body)(void *arg, int64_t begin, int64_t end), void *arg);
  void (*verbose)(const char *line);  // FP8_VERBOSE=1
};

struct BackendConfig {
  void *owner;
  int32_t device;
  uint32_t flags;  // enum fp8_context_flags
  int32_t threads;
  int32_t max_sms;
};

// A backend's state for one context is the opaque `self`. All entries but open/close are safe from many threads.
struct BackendApi {
  uint32_t abi;
  uint32_t size;
  const char *build_id;  // equal to the library's, else refused
  const char *name;
  int32_t (*open)(const HostApi *host, const BackendConfig *config, void **self);
  void (*close)(void *self);
  int32_t (*query)(void *self, int32_t what, int64_t *value);                    // enum fp8_query
  int32_t (*explain)(void *self, char *text, uint64_t bytes, uint64_t *needed);  // implementations and refusals
  // default memory, used where the caller gave no allocator
  int32_t (*alloc)(void *self, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream, void **ptr);
  int32_t (*release)(void *self, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream);
  int32_t (*copy)(void *self, void *dst, const void *src, uint64_t bytes, fp8_stream stream);
  int32_t (*zero)(void *self, void *dst, uint64_t bytes, fp8_stream stream);
  int32_t (*stream_create)(void *self, fp8_stream *stream);
  int32_t (*stream_sync)(void *self, fp8_stream stream);
  int32_t (*stream_wait)(void *self, fp8_stream stream, fp8_stream other);
  void (*stream_destroy)(void *self, fp8_stream stream);
  // quantize.h
  int32_t (*quantize_workspace)(void *self, const Quantize *q, uint64_t *bytes);
  int32_t (*quantize)(void *self, const Quantize *q, fp8_stream stream);
  int32_t (*dequantize)(void *self, const Dequantize *q, fp8_stream stream);
  int32_t (*measure_workspace)(void *self, const Measure *m, uint64_t *bytes);
  int32_t (*measure)(void *self, const Measure *m, fp8_stream stream);
  // move.h
  int32_t (*transpose)(void *self, const Transpose *t, fp8_stream stream);
  int32_t (*cast)(void *self, const Cast *c, fp8_stream stream);
  // gemm.h
  int32_t (*gemm_workspace)(void *self, const Gemm *g, uint64_t *bytes);
  int32_t (*gemm_prepare)(void *self, const Gemm *g);  // may block: plans, lazy loading
  int32_t (*gemm)(void *self, const Gemm *g, fp8_stream stream);
  // param.h; an entry that a backend lacks is NULL
  int32_t (*param_workspace)(void *self, const ParamList *p, uint64_t *bytes);  // bound over the three calls
  int32_t (*param_amax)(void *self, const ParamList *p, fp8_stream stream);
  int32_t (*param_cast)(void *self, const ParamList *p, fp8_stream stream);
  int32_t (*param_assemble)(void *self, const ParamList *p, fp8_stream stream);
  int32_t (*reduce_max)(void *self, const ReduceMax *r, fp8_stream stream);
  // route.h
  int32_t (*route_copy)(void *self, const RouteCopy *r, fp8_stream stream);
  int32_t (*route_combine)(void *self, const RouteCombine *r, fp8_stream stream);
  int32_t (*route_backward)(void *self, const RouteBackward *r, fp8_stream stream);
  int32_t (*route_scalar)(void *self, const RouteScalar *r, fp8_stream stream);
};

const BackendApi *
cpu_backend();  // backend/cpu; a module exports `extern "C" const BackendApi *fp8_backend_table(void)`

}  // namespace fp8::ops
