// SPDX-License-Identifier: Apache-2.0
// The CPU backend: memory from the C library, no streams (calls are done when they return), and its table.
#include "backend/cpu/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/param.h"
#include "cpu/tile.h"
#include "fp8/context.h"
#include "fp8/recipe.h"

namespace fp8::cpu {

Backend::Backend(const ops::HostApi &api, const ops::BackendConfig &c) : host(api), config(c), gemm(api, c) {}

namespace {

int32_t open(const ops::HostApi *host, const ops::BackendConfig *config, void **self) {
  try {
    *self = new Backend(*host, *config);
    return FP8_OK;
  } catch (const std::exception &e) {
    return host->set_error(FP8_ERR_NO_MEMORY, FP8_DOMAIN_LIBRARY, 0, e.what());
  }
}

void close(void *self) { delete &of(self); }

int32_t query(void *self, int32_t what, int64_t *value) {
  const Backend &b = of(self);
  switch (what) {
    case FP8_QUERY_BACKEND:
      *value = FP8_BACKEND_CPU;
      return FP8_OK;
    case FP8_QUERY_DEVICE:
    case FP8_QUERY_SMS:
    case FP8_QUERY_CAPABILITY:
      *value = 0;
      return FP8_OK;
    case FP8_QUERY_THREADS:
      *value = b.config.threads;
      return FP8_OK;
    default:
      break;
  }
  const int32_t preset = what - FP8_QUERY_SUPPORT;
  if (preset < FP8_PRESET_NONE || preset > FP8_PRESET_MX_W2D)
    return b.fail(FP8_ERR_ARGUMENT, ("what is " + std::to_string(what) + ", no query has this value").c_str());
  // no CPU multiplies FP8: products decode it
  *value = preset == FP8_PRESET_NONE             ? FP8_SUPPORT_NATIVE
           : preset == FP8_PRESET_TENSOR_DELAYED ? FP8_SUPPORT_NONE
                                                 : FP8_SUPPORT_EMULATED;
  return FP8_OK;
}

int32_t explain(void *self, char *text, uint64_t bytes, uint64_t *needed) {
  return entry(self, [&](Backend &b) {
    std::string all = std::string("quantize: ") + tile_ops().name + "\n";
    all += b.gemm.explain();
    if (needed) *needed = all.size() + 1;
    if (text && bytes) {
      const size_t n_copied = std::min<size_t>(bytes - 1, all.size());
      std::memcpy(text, all.data(), n_copied);
      text[n_copied] = 0;
    }
    return FP8_OK;
  });
}

int32_t alloc(void *self, uint64_t bytes, uint64_t align, int32_t, fp8_stream, void **ptr) {
  const uint64_t a = std::max<uint64_t>(align, 64);
  // rounded up: aligned_alloc wants a multiple
  const uint64_t size = (std::max<uint64_t>(bytes, 1) + a - 1) / a * a;
  *ptr = size < bytes ? nullptr : std::aligned_alloc(a, size);
  if (*ptr) return FP8_OK;
  return of(self).fail(FP8_ERR_NO_MEMORY, ("the C library has no " + std::to_string(bytes) + " bytes").c_str());
}

int32_t release(void *, void *ptr, uint64_t, int32_t, fp8_stream) {
  std::free(ptr);
  return FP8_OK;
}

int32_t copy(void *, void *dst, const void *src, uint64_t bytes, fp8_stream) {
  if (bytes) std::memmove(dst, src, bytes);
  return FP8_OK;
}

int32_t zero(void *, void *dst, uint64_t bytes, fp8_stream) {
  if (bytes) std::memset(dst, 0, bytes);
  return FP8_OK;
}

int32_t stream_create(void *, fp8_stream *stream) {
  *stream = nullptr;
  return FP8_OK;
}
int32_t stream_sync(void *, fp8_stream) { return FP8_OK; }
int32_t stream_wait(void *, fp8_stream, fp8_stream) { return FP8_OK; }
void stream_destroy(void *, fp8_stream) {}

int32_t gemm_workspace(void *self, const ops::Gemm *g, uint64_t *bytes) {
  return entry(self, [&](Backend &b) { return b.gemm.workspace(*g, bytes); });
}
int32_t gemm_prepare(void *self, const ops::Gemm *g) {
  return entry(self, [&](Backend &b) { return b.gemm.prepare(*g); });
}
int32_t gemm(void *self, const ops::Gemm *g, fp8_stream) {
  return entry(self, [&](Backend &b) { return b.gemm.run(*g); });
}

ops::BackendApi make_table() {
  ops::BackendApi t{};
  t.abi = ops::kBackendAbi;
  t.size = sizeof t;
  t.build_id = FP8_BUILD_ID;
  t.name = "cpu";
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
  t.gemm_workspace = gemm_workspace;
  t.gemm_prepare = gemm_prepare;
  t.gemm = gemm;
  fill_quantize(t);
  fill_param(t);
  fill_route(t);
  return t;
}

}  // namespace
}  // namespace fp8::cpu

namespace fp8::ops {

const BackendApi *cpu_backend() {
  static const BackendApi table = cpu::make_table();
  return &table;
}

}  // namespace fp8::ops
