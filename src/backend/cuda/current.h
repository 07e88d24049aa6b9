// SPDX-License-Identifier: Apache-2.0
// Work on a device that is not the caller's current one, without changing that.
#pragma once
#include <string>

namespace fp8::cuda {

// The driver's context stack, by symbol: the module loads (and then says what is missing) without a driver.
struct Driver {
  using Context = void *;
  int (*init)(unsigned) = nullptr;
  int (*version)(int *) = nullptr;
  int (*device_get)(int *, int) = nullptr;
  int (*primary_retain)(Context *, int) = nullptr;
  int (*get_current)(Context *) = nullptr;
  int (*push_current)(Context) = nullptr;
  int (*pop_current)(Context *) = nullptr;
};
const Driver *driver(std::string *why, bool *missing);  // NULL: why; missing: none is installed
struct Device;

// Makes a device's primary context current and gives the caller's back: also to a thread that has none, for which
// cudaSetDevice would make one on device 0.
class Current {
 public:
  Current(const Driver *driver, Driver::Context context) : driver_(driver) {
    Driver::Context now = nullptr;
    driver_->get_current(&now);
    if (now != context) pushed_ = driver_->push_current(context) == 0;
  }
  explicit Current(const Device &d);
  ~Current() {
    Driver::Context popped;
    if (pushed_) driver_->pop_current(&popped);
  }
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;

 private:
  const Driver *driver_;
  bool pushed_ = false;
};

}  // namespace fp8::cuda
