// SPDX-License-Identifier: Apache-2.0
// Functions of a library that is loaded at run time, by name.
#pragma once
#include <dlfcn.h>

#include <type_traits>

namespace fp8 {

class Symbols {
 public:
  explicit Symbols(void *library) : library_(library) {}
  template <class Slot>
  void take(Slot &slot, const char *symbol) {
    static_assert(std::is_function<std::remove_pointer_t<Slot>>::value, "a slot is a pointer to a function");
    slot = reinterpret_cast<Slot>(dlsym(library_, symbol));
    all_ = all_ && slot;
  }
  bool all() const { return all_; }  // what was asked for is there

 private:
  void *library_;
  bool all_ = true;
};

}  // namespace fp8
