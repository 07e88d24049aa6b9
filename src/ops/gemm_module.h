// SPDX-License-Identifier: Apache-2.0
// What a GEMM module (libfp8_onednn.so) gives to the CPU backend: implementations for its ordered list.
#pragma once
#include "ops/backend.h"
#include "ops/select.h"

namespace fp8::ops {

struct GemmModule {
  uint32_t abi;   // kBackendAbi
  uint32_t size;  // sizeof(GemmModule)
  const char *build_id;
  const char *name;
  // State for one context; `why` names what is missing when it cannot serve.
  int32_t (*open)(const HostApi *host, const BackendConfig *config, void **self, char *why, uint64_t bytes);
  void (*close)(void *self);
  // The i-th implementation, best first. FP8_OK; kDeclined: this CPU has no use for it (why), `impl->name` is set;
  // FP8_ERR_ARGUMENT: no such index.
  int32_t (*list)(void *self, int32_t index, GemmImpl *impl, char *why, uint64_t bytes);
};

using GemmModuleFn = const GemmModule *(*)();
constexpr const char *kOnednnEntry = "fp8_onednn_table";

}  // namespace fp8::ops
