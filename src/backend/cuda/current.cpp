// SPDX-License-Identifier: Apache-2.0
#include "current.h"

#include <dlfcn.h>

#include "core/symbols.h"

namespace fp8::cuda {

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
      Symbols found(library);
      found.take(table.init, "cuInit");
      found.take(table.version, "cuDriverGetVersion");
      found.take(table.device_get, "cuDeviceGet");
      found.take(table.primary_retain, "cuDevicePrimaryCtxRetain");
      found.take(table.get_current, "cuCtxGetCurrent");
      found.take(table.push_current, "cuCtxPushCurrent_v2");
      found.take(table.pop_current, "cuCtxPopCurrent_v2");
      if (!found.all()) why = "libcuda.so.1 lacks symbols this module needs: the NVIDIA driver is too old";
    }
  };
  static const Found *found = new Found;
  if (why) *why = found->why;
  if (missing) *missing = found->missing;
  return found->why.empty() ? &found->table : nullptr;
}

}  // namespace fp8::cuda
