// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/gemm.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/log.h"
#include "core/module.h"
#include "cpu/launch_gemm.h"
#include "cpu/simd.h"
#include "fp8/context.h"
#include "fp8/recipe.h"

namespace fp8::cpu {

namespace {

GemmPool pool_of(const ops::HostApi &host, const ops::BackendConfig &config) {
  return {config.owner, host.parallel_for, std::max(config.threads, 1)};
}

}  // namespace

GemmBackend::GemmBackend(const ops::HostApi &host, const ops::BackendConfig &config)
    : host_(host), config_(config), list_(host.verbose, verbose_on()) {
  if (config.flags & FP8_CONTEXT_REFERENCE) {
    list_.add({"ref", "exact sums per K block, one rounding, then FP32 in increasing k", this, nullptr, ref_scratch,
               nullptr, ref_run});
    return;
  }
  add_module();
  about_portable_ = std::string("operands decoded to FP32 tiles, FP32 sums (") + simd_name(simd()) + ")";
  list_.add({"portable", about_portable_.c_str(), this, nullptr, portable_scratch, nullptr, portable_run});
}

GemmBackend::~GemmBackend() {
  if (module_self_) module_->close(module_self_);
}

void GemmBackend::add_module() {
  std::string why;
  void *handle = load_module("fp8_onednn", &why);
  const auto entry = handle ? reinterpret_cast<ops::GemmModuleFn>(dlsym(handle, ops::kOnednnEntry)) : nullptr;
  const ops::GemmModule *module = entry ? entry() : nullptr;
  if (handle && !module) why = "libfp8_onednn.so has no table";
  if (module && (module->abi != ops::kBackendAbi || module->size != sizeof(ops::GemmModule) ||
                 std::strcmp(module->build_id, FP8_BUILD_ID) != 0)) {
    why = std::string("libfp8_onednn.so is of build ") + module->build_id + ", the library of " FP8_BUILD_ID;
    module = nullptr;
  }
  char reason[256] = "";
  if (module && module->open(&host_, &config_, &module_self_, reason, sizeof reason) != FP8_OK) {
    why = reason;
    module = nullptr;
  }
  if (!module) {
    list_.absent("onednn", why);
    return;
  }
  module_ = module;
  ops::GemmImpl impl{};
  for (int32_t i = 0;; ++i) {
    const int32_t status = module->list(module_self_, i, &impl, reason, sizeof reason);
    if (status == FP8_OK) {
      list_.add(impl);
    } else if (status == ops::kDeclined) {
      list_.absent(impl.name, reason);
    } else {
      break;
    }
  }
}

int32_t GemmBackend::workspace(const ops::Gemm &g, uint64_t *bytes) const {
  *bytes = list_.scratch(g);
  return FP8_OK;
}

int32_t GemmBackend::prepare(const ops::Gemm &g) { return list_.prepare(g); }

int32_t GemmBackend::run(const ops::Gemm &g) {
  if (g.d.rows == 0 || g.d.cols == 0) return FP8_OK;
  const int32_t status = list_.run(g);
  if (status == ops::kDeclined) {
    return host_.set_error(FP8_ERR_UNSUPPORTED, FP8_DOMAIN_LIBRARY, 0,
                           ("no implementation takes " + ops::gemm_text(g)).c_str());
  }
  if (status != FP8_OK) return status;
  if (g.a.scaling >= FP8_SCALING_TENSOR && g.a.scaling <= FP8_SCALING_32X32) {
    host_.count(config_.owner, ops::Counters::kEmulatedGemms, 1);  // no CPU multiplies FP8: it is decoded first
  }
  return FP8_OK;
}

// Too short a workspace is the caller's fault here: what these two need depends on the shape alone.
int32_t GemmBackend::check_workspace(const ops::Gemm &g, uint64_t need) const {
  if (g.workspace_bytes >= need) return FP8_OK;
  return host_.set_error(
      FP8_ERR_ARGUMENT, FP8_DOMAIN_LIBRARY, 0,
      format("workspace.bytes is %llu, the product %s needs %llu", static_cast<unsigned long long>(g.workspace_bytes),
             ops::gemm_text(g).c_str(), static_cast<unsigned long long>(need))
          .c_str());
}

uint64_t GemmBackend::ref_scratch(void *self, const ops::Gemm *g) {
  const GemmBackend &b = *static_cast<GemmBackend *>(self);
  return gemm_ref_scratch(*g, pool_of(b.host_, b.config_).threads);
}

int32_t GemmBackend::ref_run(void *self, const ops::Gemm *g, char *, uint64_t) {
  const GemmBackend &b = *static_cast<GemmBackend *>(self);
  if (const int32_t status = b.check_workspace(*g, ref_scratch(self, g))) return status;
  gemm_ref(*g, pool_of(b.host_, b.config_), g->workspace);
  return FP8_OK;
}

uint64_t GemmBackend::portable_scratch(void *self, const ops::Gemm *g) {
  const GemmBackend &b = *static_cast<GemmBackend *>(self);
  return gemm_portable_scratch(*g, pool_of(b.host_, b.config_).threads);
}

int32_t GemmBackend::portable_run(void *self, const ops::Gemm *g, char *, uint64_t) {
  const GemmBackend &b = *static_cast<GemmBackend *>(self);
  if (const int32_t status = b.check_workspace(*g, portable_scratch(self, g))) return status;
  gemm_portable(*g, pool_of(b.host_, b.config_), g->workspace);
  return FP8_OK;
}

}  // namespace fp8::cpu
