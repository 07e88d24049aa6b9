// SPDX-License-Identifier: Apache-2.0
#include "core/context.h"

#include <dlfcn.h>

#include <cstring>

#include "core/error.h"
#include "core/log.h"
#include "core/module.h"
#include "core/parallel.h"

fp8_context::~fp8_context() {
  if (api && self) api->close(self);
}

namespace fp8 {

namespace {

thread_local std::string t_message;
thread_local int32_t t_domain = FP8_DOMAIN_LIBRARY;
thread_local int64_t t_native = 0;

}  // namespace

int32_t set_error(int32_t status, int32_t domain, int64_t native_code, const char *message) {
  t_domain = domain;
  t_native = native_code;
  try {
    t_message = message ? message : "";
  } catch (...) {
    t_message.clear();
  }
  return status;
}

namespace {

const fp8_context &owner_of(void *owner) { return *static_cast<const fp8_context *>(owner); }

void host_count(void *owner, int32_t kind, uint64_t n) {
  if (kind >= 0 && kind < ops::Counters::kKinds) count(owner_of(owner), static_cast<ops::Counters::Kind>(kind), n);
}

void *host_alloc(void *owner, uint64_t bytes, uint64_t, int32_t space, fp8_stream stream) {
  try {
    return allocate(owner_of(owner), bytes, space, stream);
  } catch (const Error &e) {
    set_error(e.status, e.domain, e.native_code, e.what());
    return nullptr;
  }
}

void host_release(void *owner, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream) {
  deallocate(owner_of(owner), ptr, bytes, space, stream);
}

void host_parallel_for(void *owner, int64_t n, void (*body)(void *, int64_t, int64_t), void *arg) {
  parallel_for(owner_of(owner).threads, n, body, arg);
}

constexpr ops::HostApi kHost = {ops::kBackendAbi, sizeof(ops::HostApi), set_error,         host_count,
                                host_alloc,       host_release,         host_parallel_for, verbose};

const ops::BackendApi *cuda_table() {
  std::string why;
  bool present = false;
  void *module = load_module("fp8_cuda", &why, &present);
  if (!module)
    fail(present ? FP8_ERR_BACKEND : FP8_ERR_UNSUPPORTED,
         "the CUDA module libfp8_cuda.so was not loaded (%s); install it beside libfp8.so, name its folder in "
         "FP8_MODULE_PATH, or ask for FP8_BACKEND_CPU",
         why.c_str());
  auto get = reinterpret_cast<const ops::BackendApi *(*)()>(dlsym(module, "fp8_backend_table"));
  const ops::BackendApi *table = get ? get() : nullptr;
  if (!table) fail(FP8_ERR_BACKEND, "libfp8_cuda.so has no backend table: it is not a module of libfp8");
  if (table->abi != ops::kBackendAbi || table->size != sizeof(ops::BackendApi) ||
      std::strcmp(table->build_id, FP8_BUILD_ID) != 0)
    fail(FP8_ERR_BACKEND, "libfp8_cuda.so is of build %s, libfp8.so of build %s: install both from one build",
         table->build_id, FP8_BUILD_ID);
  return table;
}

void check_config(const fp8_context_config &c) {
  if (c.backend < FP8_BACKEND_AUTO || c.backend > FP8_BACKEND_CUDA)
    fail(FP8_ERR_ARGUMENT, "config.backend is %d, not an enum fp8_backend", c.backend);
  const uint32_t known = FP8_CONTEXT_NO_ALLOC | FP8_CONTEXT_REFERENCE | FP8_CONTEXT_CHECK | FP8_CONTEXT_TUNE;
  if (c.flags & ~known) fail(FP8_ERR_UNSUPPORTED, "config.flags has unknown bits 0x%x", c.flags & ~known);
  if (c.device < 0) fail(FP8_ERR_ARGUMENT, "config.device is %d, must be >= 0", c.device);
  if (c.threads < 0) fail(FP8_ERR_ARGUMENT, "config.threads is %d, must be >= 0", c.threads);
  if (c.max_sms < 0) fail(FP8_ERR_ARGUMENT, "config.max_sms is %d, must be >= 0", c.max_sms);
  if (c.reserved) fail(FP8_ERR_UNSUPPORTED, "config.reserved is %d, must be 0", c.reserved);
  if (c.allocator && (!c.allocator->alloc || !c.allocator->free))
    fail(FP8_ERR_ARGUMENT, "config.allocator.%s is NULL", c.allocator->alloc ? "free" : "alloc");
}

}  // namespace

const ops::HostApi &host_api() { return kHost; }

fp8_context *create_context(const fp8_context_config &config) {
  check_config(config);
  Ref<fp8_context> context = Ref<fp8_context>::adopt(new fp8_context);
  context->backend = config.backend;
  if (config.backend == FP8_BACKEND_AUTO)
    context->backend = cuda_device_count() > 0 ? FP8_BACKEND_CUDA : FP8_BACKEND_CPU;
  if (context->backend == FP8_BACKEND_CPU && config.device != 0)
    fail(FP8_ERR_ARGUMENT, "config.device is %d, the CPU backend has device 0 only", config.device);
  if (context->backend == FP8_BACKEND_CUDA && (config.flags & FP8_CONTEXT_REFERENCE))
    fail(FP8_ERR_UNSUPPORTED,
         "config.flags has FP8_CONTEXT_REFERENCE, whose product only the CPU has; the backend is %s: ask for "
         "FP8_BACKEND_CPU",
         config.backend == FP8_BACKEND_AUTO ? "FP8_BACKEND_AUTO, CUDA here" : "FP8_BACKEND_CUDA");
  context->device = config.device;
  context->flags = config.flags;
  context->threads = config.threads ? config.threads : hardware_threads();
  context->max_sms = config.max_sms;
  if (config.allocator) context->allocator = *config.allocator;
  const ops::BackendApi *api = context->backend == FP8_BACKEND_CUDA ? cuda_table() : ops::cpu_backend();
  const ops::BackendConfig backend{context.get(), context->device, context->flags, context->threads, context->max_sms};
  void *self = nullptr;
  check(api->open(&kHost, &backend, &self));
  context->api = api;
  context->self = self;
  return context.release();
}

void check(int32_t status) {
  if (status == FP8_OK) return;
  throw Error(status, t_message, t_domain, t_native);
}

void check_stream(const fp8_context &c, fp8_stream stream) {
  if (stream && c.backend == FP8_BACKEND_CPU) fail(FP8_ERR_ARGUMENT, "stream is not NULL on a CPU context");
}

void *allocate_uncounted(const fp8_context &c, uint64_t bytes, int32_t space, fp8_stream stream) {
  if (bytes == 0) return nullptr;
  void *ptr = nullptr;
  if (c.allocator.alloc) {
    ptr = c.allocator.alloc(c.allocator.user, bytes, kWorkspaceAlign, space, stream);
    if (ptr && reinterpret_cast<uintptr_t>(ptr) % kWorkspaceAlign) {
      c.allocator.free(c.allocator.user, ptr, bytes, space, stream);
      fail(FP8_ERR_NO_MEMORY, "the allocator returned memory that is not %d-byte aligned", int(kWorkspaceAlign));
    }
    if (!ptr) fail(FP8_ERR_NO_MEMORY, "the allocator gave no %llu bytes", static_cast<unsigned long long>(bytes));
  } else {
    check(c.api->alloc(c.self, bytes, kWorkspaceAlign, space, stream, &ptr));
  }
  return ptr;
}

void *allocate(const fp8_context &c, uint64_t bytes, int32_t space, fp8_stream stream) {
  void *ptr = allocate_uncounted(c, bytes, space, stream);
  if (ptr) count(c, ops::Counters::kAllocations);
  return ptr;
}

void deallocate(const fp8_context &c, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream) noexcept {
  if (!ptr) return;
  if (c.allocator.free)
    c.allocator.free(c.allocator.user, ptr, bytes, space, stream);
  else
    c.api->release(c.self, ptr, bytes, space, stream);
}

Workspace::Workspace(const fp8_context &c, const fp8_buffer *given, uint64_t need, fp8_stream stream)
    : c_(c), stream_(stream) {
  char *begin = nullptr;
  uint64_t bytes = need;
  if (given) {
    if (given->bytes < need)
      fail(FP8_ERR_ARGUMENT, "workspace.bytes is %llu, %llu are needed", static_cast<unsigned long long>(given->bytes),
           static_cast<unsigned long long>(need));
    if (!given->data && need)
      fail(FP8_ERR_ARGUMENT, "workspace.data is NULL, %llu bytes are needed", static_cast<unsigned long long>(need));
    begin = static_cast<char *>(given->data);
    bytes = given->bytes;
  } else if (need) {
    if (c.flags & FP8_CONTEXT_NO_ALLOC)
      fail(FP8_ERR_NO_ALLOC, "workspace is NULL, %llu bytes are needed and the context has FP8_CONTEXT_NO_ALLOC",
           static_cast<unsigned long long>(need));
    owned_ = allocate(c, need, FP8_SPACE_DEVICE, stream);
    owned_bytes_ = need;
    begin = static_cast<char *>(owned_);
  }
  const uint64_t skip =
      begin ? (kWorkspaceAlign - reinterpret_cast<uintptr_t>(begin) % kWorkspaceAlign) % kWorkspaceAlign : 0;
  if (bytes > skip) {
    base_ = begin + skip;
    size_ = bytes - skip;
  }
}

Workspace::~Workspace() { deallocate(c_, owned_, owned_bytes_, FP8_SPACE_DEVICE, stream_); }

void *Workspace::take(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  const uint64_t rounded = (bytes + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign;
  if (used_ + bytes > size_)
    fail(FP8_ERR_INTERNAL, "the workspace plan is short: %llu of %llu bytes used, %llu more asked",
         static_cast<unsigned long long>(used_), static_cast<unsigned long long>(size_),
         static_cast<unsigned long long>(bytes));
  void *piece = base_ + used_;
  used_ += rounded;
  return piece;
}

void *Workspace::rest(uint64_t *bytes) {
  *bytes = size_ > used_ ? size_ - used_ : 0;
  return *bytes ? base_ + used_ : nullptr;
}

}  // namespace fp8
