// SPDX-License-Identifier: Apache-2.0
#include "fp8/status.h"

#include <cstring>
#include <exception>

#include "api/guard.h"
#include "fp8/version.h"

namespace fp8 {

namespace {

struct Detail {
  fp8_status status = FP8_OK;
  int32_t domain = FP8_DOMAIN_LIBRARY;
  int64_t native_code = 0;
  std::string message, origin;
};

thread_local Detail t_detail;

constexpr size_t kLargestStruct = 1 << 16;  // beyond it struct_size is not a size but garbage

size_t size_of(const void *user, const char *name) {
  need(user, name);
  size_t size;
  std::memcpy(&size, user, sizeof size);
  if (size == 0) fail(FP8_ERR_ARGUMENT, "%s.struct_size is 0: start the struct with FP8_INIT", name);
  if (size < sizeof size || size > kLargestStruct)
    fail(FP8_ERR_ARGUMENT, "%s.struct_size is %zu, not the size of a struct: start it with FP8_INIT", name, size);
  return size;
}

}  // namespace

void set_detail(fp8_status status, int32_t domain, int64_t native_code, const std::string &message,
                const char *origin) {
  t_detail.status = status;
  t_detail.domain = domain;
  t_detail.native_code = native_code;
  t_detail.message = message;
  t_detail.origin = origin;
}

fp8_status translate(const char *function) noexcept {
  try {
    try {
      throw;
    } catch (const Error &e) {
      set_detail(e.status, e.domain, e.native_code, std::string(function) + ": " + e.what(), function);
      return e.status;
    } catch (const std::bad_alloc &) {
      set_detail(FP8_ERR_NO_MEMORY, FP8_DOMAIN_LIBRARY, 0, std::string(function) + ": out of host memory", function);
      return FP8_ERR_NO_MEMORY;
    } catch (const std::exception &e) {
      set_detail(FP8_ERR_INTERNAL, FP8_DOMAIN_LIBRARY, 0, std::string(function) + ": " + e.what(), function);
      return FP8_ERR_INTERNAL;
    }
  } catch (...) {  // no memory even for the text
    t_detail.status = FP8_ERR_NO_MEMORY;
    t_detail.message.clear();
    return FP8_ERR_NO_MEMORY;
  }
}

void read_sized_bytes(const void *user, void *ours, size_t our_size, const char *name) {
  const size_t size = size_of(user, name);
  const size_t shared = size < our_size ? size : our_size;
  std::memset(ours, 0, our_size);
  std::memcpy(ours, user, shared);
  const unsigned char *bytes = static_cast<const unsigned char *>(user);
  for (size_t i = our_size; i < size; ++i)
    if (bytes[i])
      fail(FP8_ERR_UNSUPPORTED, "%s sets a field at byte %zu, this library knows %zu bytes of the struct", name, i,
           our_size);
  std::memcpy(ours, &our_size, sizeof our_size);
}

void write_sized_bytes(void *user, const void *ours, size_t our_size, const char *name, bool report) {
  const size_t size = size_of(user, name);
  const unsigned char *bytes = static_cast<const unsigned char *>(ours);
  for (size_t i = size; i < our_size && !report; ++i)
    if (bytes[i])
      fail(FP8_ERR_UNSUPPORTED, "%s.struct_size is %zu, too short for the field at byte %zu that this call sets", name,
           size, i);
  const size_t shared = size < our_size ? size : our_size;
  if (shared > sizeof size)
    std::memcpy(static_cast<char *>(user) + sizeof size, bytes + sizeof size, shared - sizeof size);
}

}  // namespace fp8

extern "C" {

const char *fp8_status_name(fp8_status status) {
  static const char *const names[] = {
      "FP8_OK",        "FP8_ERR_ARGUMENT", "FP8_ERR_UNSUPPORTED", "FP8_ERR_NO_MEMORY", "FP8_ERR_NO_ALLOC",
      "FP8_ERR_STATE", "FP8_ERR_BACKEND",  "FP8_ERR_COMM",        "FP8_ERR_IO",        "FP8_ERR_INTERNAL"};
  return status >= 0 && status < int32_t(sizeof names / sizeof *names) ? names[status] : "FP8_ERR_UNKNOWN";
}

void fp8_last_error(fp8_error *error) {
  if (!error) return;
  fp8_error ours{};
  ours.status = fp8::t_detail.status;
  ours.domain = fp8::t_detail.domain;
  ours.native_code = fp8::t_detail.native_code;
  ours.message = fp8::t_detail.message.c_str();
  ours.origin = fp8::t_detail.origin.c_str();
  try {
    fp8::write_sized(error, ours, "error", true);
  } catch (...) {  // a struct without FP8_INIT: nothing is written, and the error in hand stays
  }
}

uint32_t fp8_version(void) { return FP8_VERSION_MAJOR * 10000 + FP8_VERSION_MINOR * 100 + FP8_VERSION_PATCH; }

const char *fp8_build_info(void) {
#if defined(__clang__)
  return "libfp8 " FP8_BUILD_ID ", clang " __clang_version__ ", " FP8_BUILD_TYPE;
#else
  return "libfp8 " FP8_BUILD_ID ", gcc " __VERSION__ ", " FP8_BUILD_TYPE;
#endif
}

void fp8_struct_init(void *object, size_t struct_size) {
  if (!object || struct_size < sizeof struct_size) return;
  std::memset(object, 0, struct_size);
  std::memcpy(object, &struct_size, sizeof struct_size);
}

}  // extern "C"
