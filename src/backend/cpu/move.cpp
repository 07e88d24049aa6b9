// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/backend.h"

namespace fp8::cpu {

int32_t entry_transpose(void *self, const ops::Transpose *t, fp8_stream) {
  return entry(self, [&](Backend &b) {
    transpose(*t, b.parallel());
    b.host.count(b.config.owner, ops::Counters::kLaunches, 1);
    return FP8_OK;
  });
}

int32_t entry_cast(void *self, const ops::Cast *c, fp8_stream) {
  return entry(self, [&](Backend &b) {
    cast(*c, b.parallel());
    b.host.count(b.config.owner, ops::Counters::kLaunches, 1);
    return FP8_OK;
  });
}

}  // namespace fp8::cpu
