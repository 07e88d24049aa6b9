// SPDX-License-Identifier: Apache-2.0
// The table of libfp8_cuda.so and the entries that are neither quantization nor products.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cuda/launch_cuda.h"
#include "cuda/launch_param.h"
#include "device.h"
#include "fp8/context.h"
#include "fp8/recipe.h"
#include "fp8/status.h"
#include "lt_api.h"
#include "param.h"
#include "plan_cache.h"

#ifndef FP8_BUILD_ID
#define FP8_BUILD_ID "unknown"
#endif

namespace fp8::cuda {
namespace {

constexpr int kDriverMinimum = 13000;
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

int32_t open_error(const ops::HostApi *host, int32_t domain, int64_t code, const std::string &text) {
  return host->set_error(FP8_ERR_BACKEND, domain, code, text.c_str());
}

// What this machine does not have, rather than what is there and fails.
int32_t not_here(const ops::HostApi *host, int64_t code, const std::string &text) {
  return host->set_error(FP8_ERR_UNSUPPORTED, FP8_DOMAIN_CUDA, code, text.c_str());
}

int32_t open(const ops::HostApi *host, const ops::BackendConfig *config, void **self) {
  if (host->abi != ops::kBackendAbi || host->size < sizeof(ops::HostApi)) return FP8_ERR_BACKEND;
  std::string why;
  bool missing = false;
  const Driver *driver = cuda::driver(&why, &missing);
  if (!driver) return missing ? not_here(host, 0, why) : open_error(host, FP8_DOMAIN_CUDA, 0, why);
  int version = 0, code = driver->init(0);
  if (code == kNoDevice) return not_here(host, code, "the NVIDIA driver finds no CUDA device");
  if (code)
    return open_error(host, FP8_DOMAIN_CUDA, code,
                      "cuInit failed with " + std::to_string(code) + ": no usable CUDA device");
  driver->version(&version);
  if (version < kDriverMinimum)
    return open_error(host, FP8_DOMAIN_CUDA, version,
                      "the NVIDIA driver serves CUDA " + std::to_string(version / 1000) + "." +
                          std::to_string(version % 1000 / 10) + ", this module needs 13.0: update the driver");
  int ordinal = 0;
  if ((code = driver->device_get(&ordinal, config->device)))
    return not_here(host, code,
                    "config.device is " + std::to_string(config->device) + ", which is no CUDA device of this machine");
  auto device = std::make_unique<Device>();
  device->host = host;
  device->config = *config;
  device->driver = driver;
  device->driver_version = version;
  // Retained for the life of the process: other libraries of the process hold it too, and a destroy never waits.
  if ((code = driver->primary_retain(&device->context, ordinal)))
    return open_error(host, FP8_DOMAIN_CUDA, code, "cuDevicePrimaryCtxRetain failed with " + std::to_string(code));
  Current current(*device);
  cudaDeviceProp properties;
  if (cudaError_t e = cudaGetDeviceProperties(&properties, config->device))
    return check_cuda(*device, e, "cudaGetDeviceProperties");
  device->capability = properties.major * 10 + properties.minor;
  device->sms = properties.multiProcessorCount;
  device->name = properties.name;
  if (device->capability < 89)
    return not_here(host, device->capability,
                    "device " + std::to_string(config->device) + " (" + device->name + ") has compute capability " +
                        std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                        "; FP8 needs 8.9 or newer");
  for (cudaError_t (*loads)() : {load_quantize, load_move, load_gemm_support, load_gemm_small, load_partial_amax,
                                 load_partial_cast, load_partial_assemble, load_route})
    if (cudaError_t e = loads()) return check_cuda(*device, e, "loading the module's kernels");
  cudaMemPoolProps pool{};
  pool.allocType = cudaMemAllocationTypePinned;
  pool.location.type = cudaMemLocationTypeDevice;
  pool.location.id = config->device;
  if (cudaError_t e = cudaMemPoolCreate(&device->pool, &pool)) return check_cuda(*device, e, "cudaMemPoolCreate");
  uint64_t keep = UINT64_MAX;  // freed memory stays in the pool: no system call per step
  (void)cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep);
  device->lt = lt_api(&device->lt_refusal);
  if (device->lt) {
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = device->lt->create(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
      cudaMemPoolDestroy(device->pool);
      return open_error(host, FP8_DOMAIN_CUBLAS, status,
                        "cublasLtCreate of " + device->lt->path + " failed: " + device->lt->status_name(status));
    }
    device->lt_handle = handle;
  }
  device->plans = std::make_unique<PlanCache>();
  if (host->verbose) {
    std::string line = "cuda: " + device->name + ", " +
                       (device->lt ? "cuBLASLt " + std::to_string(device->lt->version) + " from " + device->lt->path
                                   : device->lt_refusal);
    host->verbose(line.c_str());
  }
  *self = device.release();
  return FP8_OK;
}

void close(void *self) {
  Device *d = &device_of(self);
  {
    Current current(*d);
    if (d->lt_handle) d->lt->destroy(static_cast<cublasLtHandle_t>(d->lt_handle));
    if (d->pool) (void)cudaMemPoolDestroy(d->pool);
  }
  delete d;
}

int32_t support(const Device &d, int64_t preset) {
  if (preset < FP8_PRESET_NONE || preset > FP8_PRESET_MX_W2D || preset == FP8_PRESET_TENSOR_DELAYED || !d.lt)
    return FP8_SUPPORT_NONE;
  const bool hopper = d.capability >= 90 && d.capability < 100, blackwell = d.capability >= 100;
  switch (preset) {
    case FP8_PRESET_ROW:
      return d.capability >= 90 ? FP8_SUPPORT_NATIVE : FP8_SUPPORT_NONE;
    case FP8_PRESET_BLOCK:
      return hopper ? FP8_SUPPORT_NATIVE : blackwell ? FP8_SUPPORT_EMULATED : FP8_SUPPORT_NONE;
    case FP8_PRESET_MX:
      return blackwell ? FP8_SUPPORT_NATIVE : FP8_SUPPORT_EMULATED;
    case FP8_PRESET_MX_W2D:
      return blackwell ? FP8_SUPPORT_NATIVE : FP8_SUPPORT_EMULATED;
    default:
      return FP8_SUPPORT_NATIVE;
  }
}

int32_t query(void *self, int32_t what, int64_t *value) {
  const Device &d = device_of(self);
  if (what > FP8_QUERY_SUPPORT) return *value = support(d, what - FP8_QUERY_SUPPORT), FP8_OK;
  switch (what) {
    case FP8_QUERY_BACKEND:
      return *value = FP8_BACKEND_CUDA, FP8_OK;
    case FP8_QUERY_DEVICE:
      return *value = d.config.device, FP8_OK;
    case FP8_QUERY_THREADS:
      return *value = d.config.threads, FP8_OK;
    case FP8_QUERY_SMS:
      return *value = d.sms, FP8_OK;
    case FP8_QUERY_CAPABILITY:
      return *value = d.capability, FP8_OK;
    default:
      return refuse(d, FP8_ERR_ARGUMENT, "what is %d, which is no query of the CUDA backend", what);
  }
}

int32_t explain(void *self, char *text, uint64_t bytes, uint64_t *needed) {
  const Device &d = device_of(self);
  std::string s = "cuda: device " + std::to_string(d.config.device) + ", " + d.name + ", capability " +
                  std::to_string(d.capability / 10) + "." + std::to_string(d.capability % 10) + ", " +
                  std::to_string(d.sms) + " SMs, driver for CUDA " + std::to_string(d.driver_version / 1000) + "." +
                  std::to_string(d.driver_version % 1000 / 10) + "\n";
  if (d.lt)
    s += "gemm: cuBLASLt " + std::to_string(d.lt->version) + " (" + d.lt->path + ")\n";
  else
    s += "gemm: none: " + d.lt_refusal + "\n";
  if (d.capability < 100)
    s += "gemm MX, MX_W2D: emulated: no 1x32 scaling in this device's tensor cores; decoded to BF16, then a BF16 "
         "product; small ones in one kernel\n";
  s += d.plans->explain();
  if (needed) *needed = s.size() + 1;
  if (text && bytes) {
    const size_t n = s.size() < bytes - 1 ? s.size() : bytes - 1;
    memcpy(text, s.data(), n);
    text[n] = 0;
  }
  return FP8_OK;
}

int32_t alloc(void *self, uint64_t bytes, uint64_t align, int32_t space, fp8_stream stream, void **ptr) {
  const Device &d = device_of(self);
  *ptr = nullptr;
  if (space == FP8_SPACE_HOST) {
    if (posix_memalign(ptr, align < 64 ? 64 : align, bytes ? bytes : 1))
      return refuse(d, FP8_ERR_NO_MEMORY, "%llu bytes of host memory are not to be had",
                    static_cast<unsigned long long>(bytes));
    return FP8_OK;
  }
  Current current(d);
  return check_cuda(d, cudaMallocFromPoolAsync(ptr, bytes ? bytes : 1, d.pool, stream_of(stream)),
                    "cudaMallocFromPoolAsync");
}

int32_t release(void *self, void *ptr, uint64_t, int32_t space, fp8_stream stream) {
  const Device &d = device_of(self);
  if (space == FP8_SPACE_HOST) return free(ptr), FP8_OK;
  Current current(d);
  return check_cuda(d, cudaFreeAsync(ptr, stream_of(stream)), "cudaFreeAsync");
}

int32_t copy(void *self, void *dst, const void *src, uint64_t bytes, fp8_stream stream) {
  const Device &d = device_of(self);
  if (!bytes) return FP8_OK;
  Current current(d);
  return check_cuda(d, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_of(stream)), "cudaMemcpyAsync");
}

int32_t zero(void *self, void *dst, uint64_t bytes, fp8_stream stream) {
  const Device &d = device_of(self);
  if (!bytes) return FP8_OK;
  Current current(d);
  return check_cuda(d, cudaMemsetAsync(dst, 0, bytes, stream_of(stream)), "cudaMemsetAsync");
}

int32_t stream_create(void *self, fp8_stream *stream) {
  const Device &d = device_of(self);
  Current current(d);
  cudaStream_t made = nullptr;
  const int32_t status =
      check_cuda(d, cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  *stream = made;
  return status;
}

int32_t stream_sync(void *self, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  return check_cuda(d, cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

int32_t stream_wait(void *self, fp8_stream stream, fp8_stream other) {
  const Device &d = device_of(self);
  Current current(d);
  cudaEvent_t event = nullptr;
  if (cudaError_t e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
    return check_cuda(d, e, "cudaEventCreateWithFlags");
  cudaError_t e = cudaEventRecord(event, stream_of(other));
  if (!e) e = cudaStreamWaitEvent(stream_of(stream), event, 0);
  (void)cudaEventDestroy(event);  // the wait keeps what it needs
  return check_cuda(d, e, "cudaStreamWaitEvent");
}

void stream_destroy(void *self, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  (void)cudaStreamDestroy(stream_of(stream));
}

ops::BackendApi make_table() {
  ops::BackendApi t{};  // what is not set is not offered
  t.abi = ops::kBackendAbi;
  t.size = sizeof t;
  t.build_id = FP8_BUILD_ID;
  t.name = "cuda";
  t.open = open;
  t.close = close;
  t.query = query;
  t.explain = explain;
  t.alloc = alloc;
  t.release = release;
  t.copy = copy;
  t.zero = zero;
  t.stream_create = stream_create;
  t.stream_sync = stream_sync;
  t.stream_wait = stream_wait;
  t.stream_destroy = stream_destroy;
  t.quantize_workspace = quantize_workspace;
  t.quantize = quantize;
  t.dequantize = dequantize;
  t.measure_workspace = measure_workspace;
  t.measure = measure;
  t.transpose = transpose;
  t.cast = cast;
  t.gemm_workspace = gemm_workspace;
  t.gemm_prepare = gemm_prepare;
  t.gemm = gemm;
  fill_param(t);
  return t;
}

}  // namespace
}  // namespace fp8::cuda

extern "C" __attribute__((visibility("default"))) const fp8::ops::BackendApi *fp8_backend_table(void) {
  static const fp8::ops::BackendApi table = fp8::cuda::make_table();
  return &table;
}
