// SPDX-License-Identifier: Apache-2.0
// Hosts may call with FTZ and DAZ set (XLA:CPU does). Every entry point and every worker holds one of these.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#endif

namespace fp8 {

class FpControl {  // round to nearest, subnormals kept, exceptions masked; the caller's word comes back at the end
 public:
#if defined(__x86_64__)
  FpControl() : saved_(_mm_getcsr()) {
    if ((saved_ & ~kStatus) != kDefault) _mm_setcsr(kDefault);
  }
  ~FpControl() {
    if ((saved_ & ~kStatus) != kDefault) _mm_setcsr(saved_);
  }

 private:
  static constexpr uint32_t kStatus = 0x3f, kDefault = 0x1f80;
  uint32_t saved_;
#elif defined(__aarch64__)
  FpControl() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    if (saved_) __asm__ volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
  }
  ~FpControl() {
    if (saved_) __asm__ volatile("msr fpcr, %0" ::"r"(saved_));
  }

 private:
  uint64_t saved_;
#else
  FpControl() {}
  ~FpControl() {}
#endif

 public:
  FpControl(const FpControl &) = delete;
  FpControl &operator=(const FpControl &) = delete;
};

}  // namespace fp8
