// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <dlfcn.h>

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

const Driver *driver(std::string *why, bool *missing) {
  struct Found {
    Driver table;
    std::string why;
    bool missing = false;
    Found() {
      void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
      if (!library) {
        missing = true;
        const char *error = dlerror();
        why = std::string("no NVIDIA driver is installed (") + (error ? error : "libcuda.so.1") +
              "); install one of CUDA 13.0 or newer, or ask for FP8_BACKEND_CPU";
        return;
      }
      bool all = true;
      auto take = [&](auto &slot, const char *symbol) {
        slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(library, symbol));
        all = all && slot;
      };
      take(table.init, "cuInit");
      take(table.version, "cuDriverGetVersion");
      take(table.device_get, "cuDeviceGet");
      take(table.primary_retain, "cuDevicePrimaryCtxRetain");
      take(table.get_current, "cuCtxGetCurrent");
      take(table.push_current, "cuCtxPushCurrent_v2");
      take(table.pop_current, "cuCtxPopCurrent_v2");
      if (!all) why = "libcuda.so.1 lacks symbols this module needs: the NVIDIA driver is too old";
    }
  };
  static const Found *found = new Found;
  if (why) *why = found->why;
  if (missing) *missing = found->missing;
  return found->why.empty() ? &found->table : nullptr;
}

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
