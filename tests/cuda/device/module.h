// SPDX-License-Identifier: Apache-2.0
// The CUDA module's table opened without libfp8: the tests below the C API.
#pragma once
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fp8/context.h"
#include "fp8/recipe.h"
#include "numerics/block.h"
#include "ops/backend.h"

namespace fp8::test {

#define CUDA_OK(call)                                                                     \
  do {                                                                                    \
    const cudaError_t error_ = (call);                                                    \
    if (error_) std::printf("%s: %s\n", #call, cudaGetErrorString(error_)), std::exit(1); \
  } while (0)

struct Module {
  const ops::BackendApi *api = nullptr;
  void *self = nullptr;
  uint64_t counts[ops::Counters::kKinds] = {};
  std::string message;

  explicit Module(uint32_t flags = 0) {
    const char *path = std::getenv("FP8_CUDA_MODULE");
    void *library = dlopen(path ? path : "libfp8_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) std::printf("%s\n", dlerror()), std::exit(1);
    api = reinterpret_cast<const ops::BackendApi *(*)()>(dlsym(library, "fp8_backend_table"))();
    static ops::HostApi host{};
    host.abi = ops::kBackendAbi;
    host.size = sizeof host;
    host.set_error = [](int32_t status, int32_t, int64_t, const char *text) {
      last() = text;
      return status;
    };
    host.count = [](void *owner, int32_t kind, uint64_t n) { static_cast<Module *>(owner)->counts[kind] += n; };
    ops::BackendConfig config{};
    config.owner = this;
    config.flags = flags;
    if (api->open(&host, &config, &self)) std::printf("open: %s\n", last().c_str()), std::exit(1);
  }
  ~Module() { api->close(self); }
  static std::string &last() {
    static thread_local std::string text;
    return text;
  }
};

struct Device {  // memory that lives with the object
  void *p = nullptr;
  size_t bytes;
  explicit Device(size_t n) : bytes(n ? n : 1) { CUDA_OK(cudaMalloc(&p, bytes)); }
  Device(const void *host, size_t n) : Device(n) { CUDA_OK(cudaMemcpy(p, host, n, cudaMemcpyHostToDevice)); }
  ~Device() { (void)cudaFree(p); }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;
  std::vector<uint8_t> get() const {
    std::vector<uint8_t> v(bytes);
    CUDA_OK(cudaMemcpy(v.data(), p, bytes, cudaMemcpyDeviceToHost));
    return v;
  }
};

inline int &failures() {
  static int n = 0;
  return n;
}
inline bool expect(bool good, const char *what) {
  if (!good) std::printf("FAILED: %s\n", what), ++failures();
  return good;
}

}  // namespace fp8::test
