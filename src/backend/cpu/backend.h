// SPDX-License-Identifier: Apache-2.0
// The CPU backend's state for one context, and how entries of its table are made.
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

// Entries of the table around a kernel.
template <class Op, void (*launch)(const Op &, const Parallel &)>
int32_t run(void *self, const Op *op, fp8_stream) {
  return entry(self, [&](Backend &b) {
    launch(*op, b.parallel());
    b.host.count(b.config.owner, ops::Counters::kLaunches, 1);
    return FP8_OK;
  });
}
template <class Op, uint64_t (*bytes_of)(const Op &)>
int32_t workspace(void *self, const Op *op, uint64_t *bytes) {
  return entry(self, [&](Backend &) {
    *bytes = bytes_of(*op);
    return FP8_OK;
  });
}

void fill_quantize(ops::BackendApi &t);  // quantize.cpp

}  // namespace fp8::cpu
