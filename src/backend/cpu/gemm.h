// SPDX-License-Identifier: Apache-2.0
// The CPU backend's matrix products: oneDNN where its module is there, else the portable kernel; gemm_ref alone for a
// reference context.
#pragma once
#include <memory>
#include <string>

#include "ops/backend.h"
#include "ops/gemm_module.h"
#include "ops/select.h"

namespace fp8::cpu {

class GemmBackend {
 public:
  GemmBackend(const ops::HostApi &host, const ops::BackendConfig &config);
  ~GemmBackend();
  GemmBackend(const GemmBackend &) = delete;
  GemmBackend &operator=(const GemmBackend &) = delete;

  // the entries of BackendApi
  int32_t workspace(const ops::Gemm &g, uint64_t *bytes) const;
  int32_t prepare(const ops::Gemm &g);
  int32_t run(const ops::Gemm &g);
  std::string explain() const { return list_.explain(); }

 private:
  void add_module();
  int32_t check_workspace(const ops::Gemm &g, uint64_t need) const;
  static uint64_t ref_scratch(void *self, const ops::Gemm *g);
  static int32_t ref_run(void *self, const ops::Gemm *g, char *why, uint64_t bytes);
  static uint64_t portable_scratch(void *self, const ops::Gemm *g);
  static int32_t portable_run(void *self, const ops::Gemm *g, char *why, uint64_t bytes);
  const ops::HostApi &host_;
  ops::BackendConfig config_;
  std::string about_portable_;
  ops::GemmList list_;
  const ops::GemmModule *module_ = nullptr;  // oneDNN's; stays loaded
  void *module_self_ = nullptr;
};

}  // namespace fp8::cpu
