// SPDX-License-Identifier: Apache-2.0
// One exception inside the library; api/guard.h turns it into a status and the thread's detail.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "fp8/status.h"

namespace fp8 {

// message: "tensor.field is value, rule"; guard.h puts the function's name before it.
class Error : public std::runtime_error {
 public:
  Error(fp8_status status, const std::string &message, int32_t domain = FP8_DOMAIN_LIBRARY, int64_t native_code = 0)
      : std::runtime_error(message), status(status), domain(domain), native_code(native_code) {}
  fp8_status status;
  int32_t domain;
  int64_t native_code;
};

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void fail(fp8_status status, const char *pattern, ...) __attribute__((format(printf, 2, 3)));

// Keeps the calling thread's detail, the text included, for fp8_last_error().
void set_detail(fp8_status status, int32_t domain, int64_t native_code, const std::string &message, const char *origin);

}  // namespace fp8
