// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "fp8/context.h"
#include "fp8/status.h"
#include "lt_api.h"
#include "plan_cache.h"

namespace fp8::cuda {

Device::Device() = default;
Device::~Device() = default;

int32_t refuse(const Device &d, int32_t status, const char *pattern, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, pattern);
  vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return d.host->set_error(status, FP8_DOMAIN_LIBRARY, 0, text);
}

int32_t check_cuda(const Device &d, cudaError_t error, const char *what) {
  if (error == cudaSuccess) return FP8_OK;
  (void)cudaGetLastError();  // not sticky for the host's own checks
  char text[512];
  snprintf(text, sizeof text, "%s: CUDA error %d (%s: %s)", what, static_cast<int>(error), cudaGetErrorName(error),
           cudaGetErrorString(error));
  return d.host->set_error(error == cudaErrorMemoryAllocation ? FP8_ERR_NO_MEMORY : FP8_ERR_BACKEND, FP8_DOMAIN_CUDA,
                           static_cast<int64_t>(error), text);
}

}  // namespace fp8::cuda
