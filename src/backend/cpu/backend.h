// SPDX-License-Identifier: Apache-2.0
// The CPU backend's state for one context, and the entries of its table by file.
#pragma once
#include <memory>
#include <string>

#include "backend/cpu/gemm.h"
#include "cpu/launch_cpu.h"
#include "ops/backend.h"

namespace fp8::cpu {

struct Backend {
  Backend(const ops::HostApi &api, const ops::BackendConfig &c);
  const ops::HostApi &host;
  ops::BackendConfig config;
  GemmBackend gemm;
  Parallel parallel() const { return {host.parallel_for, config.owner}; }
  int32_t fail(int32_t status, const char *message) const { return host.set_error(status, 0, 0, message); }
};

inline Backend &of(void *self) { return *static_cast<Backend *>(self); }

// Runs body and turns an exception into a status: none crosses the table.
template <class Body>
int32_t entry(void *self, Body &&body) noexcept {
  try {
    return body(of(self));
  } catch (const std::bad_alloc &) {
    return of(self).fail(FP8_ERR_NO_MEMORY, "the host is out of memory");
  } catch (const std::exception &e) {
    return of(self).fail(FP8_ERR_INTERNAL, e.what());
  }
}

// quantize.cpp
int32_t entry_quantize_workspace(void *self, const ops::Quantize *q, uint64_t *bytes);
int32_t entry_quantize(void *self, const ops::Quantize *q, fp8_stream stream);
int32_t entry_dequantize(void *self, const ops::Dequantize *q, fp8_stream stream);
int32_t entry_measure_workspace(void *self, const ops::Measure *m, uint64_t *bytes);
int32_t entry_measure(void *self, const ops::Measure *m, fp8_stream stream);
// move.cpp
int32_t entry_transpose(void *self, const ops::Transpose *t, fp8_stream stream);
int32_t entry_cast(void *self, const ops::Cast *c, fp8_stream stream);

}  // namespace fp8::cpu
