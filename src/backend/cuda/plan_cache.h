// SPDX-License-Identifier: Apache-2.0
// cuBLASLt plans by key: made once, kept for the context's life, read by many threads.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "gemm_plan.h"

namespace fp8::cuda {

struct Device;

struct LtPlan {
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;  // not SUCCESS: cuBLASLt refuses
  mutable cublasLtMatrixLayoutOpaque_t a{}, b{}, d{};   // cuBLASLt's A is our B; its interface is not const, its use is
  cublasLtMatmulDescOpaque_t desc{};                    // without the calls' pointers
  cublasLtMatmulAlgo_t algo{};
  uint64_t workspace = 0;
  int32_t candidates = 0, chosen = 0;  // of the heuristic; chosen by time under FP8_CONTEXT_TUNE
  float tuned_us = 0.0f;
};

class PlanCache {
 public:
  // Never NULL; made on first use. `times`: it may run on noise now, to load its
  // kernel, and under FP8_CONTEXT_TUNE to choose by time (no stream of the caller is being captured).
  const LtPlan *get(const Device &d, const PlanKey &key, bool times);
  std::string explain() const;
  uint64_t size() const;

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<PlanKey, std::unique_ptr<LtPlan>, PlanKeyHash> plans_;
};

cudaDataType_t lt_dtype(int32_t dtype);
// The pointers of one call into a copy of the plan's descriptor.
cublasStatus_t lt_point(const Device &d, const PlanKey &key, const void *scale_a, const void *scale_b, const void *bias,
                        cublasLtMatmulDescOpaque_t *out);

}  // namespace fp8::cuda
