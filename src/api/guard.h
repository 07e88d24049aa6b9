// SPDX-License-Identifier: Apache-2.0
// The C boundary: no exception leaves, the floating-point control word is ours inside, sized structs are read and
// written.
#pragma once
#include <cstring>
#include <new>

#include "core/error.h"
#include "core/fpcontrol.h"

namespace fp8 {

// status and the calling thread's detail for the exception in flight
fp8_status translate(const char *function) noexcept;

template <class Body>
fp8_status guard(const char *function, Body &&body) noexcept {
  FpControl control;
  try {
    body();
    return FP8_OK;
  } catch (...) {
    return translate(function);
  }
}

inline void need(const void *pointer, const char *name) {
  if (!pointer) fail(FP8_ERR_ARGUMENT, "%s is NULL", name);
}

// The caller's struct as this library knows it: missing fields are zero, unknown ones must be.
void read_sized_bytes(const void *user, void *ours, size_t our_size, const char *name);
// Writes back what the caller's struct_size holds. `report`: a shorter struct is cut, else a non-default field beyond
// it is refused.
void write_sized_bytes(void *user, const void *ours, size_t our_size, const char *name, bool report);

template <class T>
T read_sized(const T *user, const char *name) {
  T ours;
  read_sized_bytes(user, &ours, sizeof ours, name);
  return ours;
}

template <class T>
void write_sized(T *user, const T &ours, const char *name, bool report = false) {
  write_sized_bytes(user, &ours, sizeof ours, name, report);
}

}  // namespace fp8
