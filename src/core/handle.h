// SPDX-License-Identifier: Apache-2.0
// Handles are counted: children hold their parents, so destruction is order-free and never waits.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace fp8 {

class Counted {
 public:
  void retain() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  bool drop() const { return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  mutable std::atomic<int64_t> refs_{1};
};

// Owning pointer to a Counted handle.
template <class T>
class Ref {
 public:
  Ref() = default;
  static Ref adopt(T *handle) {
    Ref r;
    r.handle_ = handle;
    return r;
  }
  static Ref share(T *handle) {
    if (handle) handle->retain();
    return adopt(handle);
  }
  Ref(const Ref &other) : handle_(other.handle_) {
    if (handle_) handle_->retain();
  }
  Ref(Ref &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Ref &operator=(Ref other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Ref() {
    if (handle_ && handle_->drop()) delete handle_;
  }
  T *get() const { return handle_; }
  T *operator->() const { return handle_; }
  T &operator*() const { return *handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  T *release() { return std::exchange(handle_, nullptr); }

 private:
  T *handle_ = nullptr;
};

}  // namespace fp8
