// SPDX-License-Identifier: Apache-2.0
// Texts handed out: text NULL asks for needed (with the final 0).
#pragma once
#include <cstring>
#include <string>

#include "core/error.h"

namespace fp8 {

inline void write_text(const std::string &from, char *text, uint64_t bytes, uint64_t *needed) {
  const uint64_t size = from.size() + 1;
  if (!text && !needed) fail(FP8_ERR_ARGUMENT, "text and needed are NULL");
  if (needed) *needed = size;
  if (!text) return;
  if (bytes < size)
    fail(FP8_ERR_ARGUMENT, "bytes is %llu, the text needs %llu", static_cast<unsigned long long>(bytes),
         static_cast<unsigned long long>(size));
  std::memcpy(text, from.c_str(), size);
}

}  // namespace fp8
