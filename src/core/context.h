// SPDX-License-Identifier: Apache-2.0
// A context: one backend on one device, its allocator, its counters.
#pragma once
#include <atomic>
#include <string>

#include "core/handle.h"
#include "fp8/context.h"
#include "ops/backend.h"

struct fp8_context : fp8::Counted {
  ~fp8_context();
  int32_t backend = FP8_BACKEND_CPU;  // resolved, never AUTO
  int32_t device = 0;
  uint32_t flags = 0;
  int32_t threads = 0, max_sms = 0;
  fp8_allocator allocator{};  // alloc NULL = the backend's own
  const fp8::ops::BackendApi *api = nullptr;
  void *self = nullptr;
  mutable std::atomic<uint64_t> counters[fp8::ops::Counters::kKinds]{};
};

namespace fp8 {

fp8_context *create_context(const fp8_context_config &config);

// Throws the calling thread's detail, which a backend entry has set, when status is not FP8_OK.
void check(int32_t status);
// Sets that detail, for callbacks that must not throw; returns status.
int32_t set_error(int32_t status, int32_t domain, int64_t native_code, const char *message);
const ops::HostApi &host_api();  // what modules are given

// A CPU context has no streams.
void check_stream(const fp8_context &c, fp8_stream stream);

inline void count(const fp8_context &c, ops::Counters::Kind kind, uint64_t n = 1) {
  c.counters[kind].fetch_add(n, std::memory_order_relaxed);
}

// Through the caller's allocator or the backend; counted as an allocation; throws NO_MEMORY.
// allocate_uncounted is for memory that is the caller's (fp8_buffer_alloc).
void *allocate(const fp8_context &c, uint64_t bytes, int32_t space, fp8_stream stream);
void *allocate_uncounted(const fp8_context &c, uint64_t bytes, int32_t space, fp8_stream stream);
void deallocate(const fp8_context &c, void *ptr, uint64_t bytes, int32_t space, fp8_stream stream) noexcept;

// Call-long scratch: the caller's buffer (any address; too short is ARGUMENT with the size) or the context's allocator
// (NO_ALLOC is refused). take() carves 256-byte aligned pieces; need counts them with Plan.
constexpr uint64_t kWorkspaceAlign = 256;
class Plan {  // adds up pieces; total() has room for any base address, 0 when nothing is needed
 public:
  void add(uint64_t bytes) { sum_ += (bytes + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign; }
  uint64_t total() const { return sum_ ? sum_ + kWorkspaceAlign : 0; }

 private:
  uint64_t sum_ = 0;
};

class Workspace {
 public:
  Workspace(const fp8_context &c, const fp8_buffer *given, uint64_t need, fp8_stream stream);
  ~Workspace();
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  bool holds(uint64_t bytes) const { return used_ <= size_ && bytes <= size_ - used_; }
  void *take(uint64_t bytes);   // NULL for 0 bytes
  void *rest(uint64_t *bytes);  // all that is left, aligned
  void rewind(uint64_t mark) { used_ = mark; }
  uint64_t mark() const { return used_; }

 private:
  const fp8_context &c_;
  char *base_ = nullptr;
  uint64_t size_ = 0, used_ = 0, owned_bytes_ = 0;
  void *owned_ = nullptr;
  fp8_stream stream_;
};

}  // namespace fp8
