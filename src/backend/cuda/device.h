// SPDX-License-Identifier: Apache-2.0
// One CUDA device as a context sees it: the primary context, a memory pool, cuBLASLt and the plans made so far.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "current.h"
#include "ops/backend.h"

namespace fp8::cuda {

struct LtApi;
class PlanCache;

struct Device {
  const ops::HostApi *host = nullptr;
  ops::BackendConfig config{};
  const Driver *driver = nullptr;
  Driver::Context context = nullptr;
  int32_t capability = 0, sms = 0, driver_version = 0;
  std::string name;
  cudaMemPool_t pool = nullptr;
  const LtApi *lt = nullptr;  // NULL: lt_refusal says why
  void *lt_handle = nullptr;
  std::string lt_refusal;
  std::unique_ptr<PlanCache> plans;
  Device();
  ~Device();
};

inline Current::Current(const Device &d) : Current(d.driver, d.context) {}

inline Device &device_of(void *self) { return *static_cast<Device *>(self); }
inline cudaStream_t stream_of(fp8_stream s) { return static_cast<cudaStream_t>(s); }
// Blocks of a grid at most, 0 = as many as suit: of more, each could take a multiprocessor of its own. `max_sms`: the
// call's, 0 = the context's.
inline int32_t most_blocks(const Device &d, int32_t max_sms = 0) {
  const int32_t n = max_sms ? max_sms : d.config.max_sms;
  return n < d.sms ? n : 0;
}

// Sets the thread's detail through the host table; returns the status.
int32_t refuse(const Device &d, int32_t status, const char *pattern, ...) __attribute__((format(printf, 3, 4)));
int32_t check_cuda(const Device &d, cudaError_t error, const char *what);  // FP8_OK, NO_MEMORY or BACKEND
inline void count(const Device &d, int32_t kind, uint64_t n = 1) { d.host->count(d.config.owner, kind, n); }

// The table's entries, by file.
int32_t quantize_workspace(void *, const ops::Quantize *, uint64_t *);
int32_t quantize(void *, const ops::Quantize *, fp8_stream);
int32_t dequantize(void *, const ops::Dequantize *, fp8_stream);
int32_t measure_workspace(void *, const ops::Measure *, uint64_t *);
int32_t measure(void *, const ops::Measure *, fp8_stream);
int32_t transpose(void *, const ops::Transpose *, fp8_stream);
int32_t cast(void *, const ops::Cast *, fp8_stream);
int32_t gemm_workspace(void *, const ops::Gemm *, uint64_t *);
int32_t gemm_prepare(void *, const ops::Gemm *);
int32_t gemm(void *, const ops::Gemm *, fp8_stream);

}  // namespace fp8::cuda
