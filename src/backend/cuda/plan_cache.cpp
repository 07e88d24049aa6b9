// SPDX-License-Identifier: Apache-2.0
#include "plan_cache.h"

#include <algorithm>
#include <cstdio>

#include "cuda/launch_cuda.h"
#include "device.h"
#include "fp8/context.h"
#include "lt_api.h"

namespace fp8::cuda {
namespace {

constexpr int kCandidates = 8;

int64_t size_of(int32_t dtype) {
  return dtype == FP8_DTYPE_F32 ? 4 : dtype == FP8_DTYPE_F16 || dtype == FP8_DTYPE_BF16 ? 2 : 1;
}

cublasStatus_t make_layout(const LtApi &lt, cublasLtMatrixLayoutOpaque_t *layout, int32_t dtype, int64_t rows,
                           int64_t cols, int64_t ld) {
  return lt.layout_init(layout, sizeof *layout, lt_dtype(dtype), static_cast<uint64_t>(rows),
                        static_cast<uint64_t>(cols), ld);
}

// Buffers of noise in the plan's shapes, for timing and for loading kernels before a capture.
struct Scratch {
  void *a = nullptr, *b = nullptr, *d = nullptr, *vector = nullptr, *workspace = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  bool good = false;

  Scratch(const PlanKey &k) {
    const int64_t rows_a = k.a_k_major ? k.m : k.k, rows_b = k.b_k_major ? k.n : k.k;
    const int64_t count_a = rows_a * k.lda, count_b = rows_b * k.ldb, count_d = k.m * k.ldd;
    const int64_t count_v = std::max(k.m, k.n) * (k.k / 128 + 4) + 1024;
    good = !cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) && !cudaEventCreate(&begin) &&
           !cudaEventCreate(&end) && !cudaMalloc(&a, static_cast<size_t>(count_a * size_of(k.a_dtype))) &&
           !cudaMalloc(&b, static_cast<size_t>(count_b * size_of(k.b_dtype))) &&
           !cudaMalloc(&d, static_cast<size_t>(count_d * size_of(k.d_dtype))) &&
           !cudaMalloc(&vector, static_cast<size_t>(count_v * 4)) && !cudaMalloc(&workspace, kLtWorkspace) &&
           !launch_noise(a, count_a, k.a_dtype, stream) && !launch_noise(b, count_b, k.b_dtype, stream) &&
           !launch_noise(vector, count_v, FP8_DTYPE_F32, stream) &&
           !cudaMemsetAsync(d, 0, static_cast<size_t>(count_d * size_of(k.d_dtype)), stream);
    if (!good) (void)cudaGetLastError();
  }
  ~Scratch() {
    if (stream) (void)cudaStreamSynchronize(stream);
    for (void *p : {a, b, d, vector, workspace})
      if (p) (void)cudaFree(p);
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
    if (stream) (void)cudaStreamDestroy(stream);
  }
};

}  // namespace

cudaDataType_t lt_dtype(int32_t dtype) {
  switch (dtype) {
    case FP8_DTYPE_F32:
      return CUDA_R_32F;
    case FP8_DTYPE_F16:
      return CUDA_R_16F;
    case FP8_DTYPE_BF16:
      return CUDA_R_16BF;
    case FP8_DTYPE_E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_8F_E5M2;
  }
}

cublasStatus_t lt_describe(const Device &dev, const PlanKey &k, const void *scale_a, const void *scale_b,
                           const void *bias, cublasLtMatmulDescOpaque_t *out) {
  const LtApi &lt = *dev.lt;
  cublasStatus_t s = lt.desc_init(out, sizeof *out, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  auto set = [&](cublasLtMatmulDescAttributes_t what, const auto &value) {
    if (s == CUBLAS_STATUS_SUCCESS) s = lt.desc_set(out, what, &value, sizeof value);
  };
  // our B is its A: K-major means transposed there, and straight for its B
  const int32_t transa = k.b_k_major ? CUBLAS_OP_T : CUBLAS_OP_N, transb = k.a_k_major ? CUBLAS_OP_N : CUBLAS_OP_T;
  if (transa != CUBLAS_OP_N) set(CUBLASLT_MATMUL_DESC_TRANSA, transa);
  if (transb != CUBLAS_OP_N) set(CUBLASLT_MATMUL_DESC_TRANSB, transb);
  if (k.a_mode != kNoScale) {
    if (k.b_mode != kScalar32F) set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, k.b_mode);
    if (k.a_mode != kScalar32F) set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, k.a_mode);
    if (scale_b) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_b);
    if (scale_a) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_a);
  }
  if (k.fast) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  if (k.bias_dtype) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t{CUBLASLT_EPILOGUE_BIAS});
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(lt_dtype(k.bias_dtype)));
    if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  if (k.sms) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, k.sms);
  return s;
}

namespace {

cublasStatus_t ask(const Device &dev, const PlanKey &k, LtPlan *plan, cublasLtMatmulHeuristicResult_t *results,
                   int *found) {
  const LtApi &lt = *dev.lt;
  cublasLtMatmulDescOpaque_t desc;
  // vector scale modes are refused without a pointer; the heuristic reads its value and alignment, never the memory
  const void *somewhere = reinterpret_cast<const void *>(uintptr_t{256});
  cublasStatus_t s = lt_describe(dev, k, somewhere, somewhere, somewhere, &desc);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = k.b_k_major ? make_layout(lt, &plan->a, k.b_dtype, k.k, k.n, k.ldb)
                    : make_layout(lt, &plan->a, k.b_dtype, k.n, k.k, k.ldb);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = k.a_k_major ? make_layout(lt, &plan->b, k.a_dtype, k.k, k.m, k.lda)
                    : make_layout(lt, &plan->b, k.a_dtype, k.m, k.k, k.lda);
  if (s == CUBLAS_STATUS_SUCCESS) s = make_layout(lt, &plan->d, k.d_dtype, k.n, k.m, k.ldd);
  cublasLtMatmulPreferenceOpaque_t preference;
  if (s == CUBLAS_STATUS_SUCCESS) s = lt.preference_init(&preference, sizeof preference);
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto &value) {
    if (s == CUBLAS_STATUS_SUCCESS) s = lt.preference_set(&preference, what, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kLtWorkspace));
  // split-K sums in FP32 only: a reduction in D's 16-bit type would round more than once
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(k.b_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(k.a_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(k.d_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(k.d_align));
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  s = lt.heuristic(static_cast<cublasLtHandle_t>(dev.lt_handle), &desc, &plan->a, &plan->b, &plan->d, &plan->d,
                   &preference, kCandidates, results, found);
  if (s == CUBLAS_STATUS_SUCCESS && *found == 0) s = CUBLAS_STATUS_NOT_SUPPORTED;
  return s;
}

// Shortest of the candidates over noise; each runs at least 4 times and about 2 ms.
void tune(const Device &dev, const PlanKey &k, LtPlan *plan, const cublasLtMatmulHeuristicResult_t *results,
          int found) {
  Scratch t(k);
  if (!t.good) return;
  cublasLtMatmulDescOpaque_t desc;
  if (lt_describe(dev, k, t.vector, t.vector, t.vector, &desc) != CUBLAS_STATUS_SUCCESS) return;
  const float alpha = 1.0f, beta = k.accumulate ? 1.0f : 0.0f;
  float best = 0.0f;
  for (int i = 0; i < found; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    auto run = [&] {
      return dev.lt->matmul(static_cast<cublasLtHandle_t>(dev.lt_handle), &desc, &alpha, t.b, &plan->a, t.a, &plan->b,
                            &beta, t.d, &plan->d, t.d, &plan->d, &results[i].algo, t.workspace, kLtWorkspace,
                            t.stream) == CUBLAS_STATUS_SUCCESS;
    };
    float us = 0.0f;
    int repeats = 4;
    for (int round = 0; round < 2; ++round) {  // the first warms up and sets the count
      (void)cudaEventRecord(t.begin, t.stream);
      bool good = true;
      for (int r = 0; good && r < repeats; ++r) good = run();
      (void)cudaEventRecord(t.end, t.stream);
      float ms = 0.0f;
      if (!good || cudaEventSynchronize(t.end) || cudaEventElapsedTime(&ms, t.begin, t.end)) {
        us = 0.0f;
        (void)cudaGetLastError();
        break;
      }
      us = ms * 1000.0f / static_cast<float>(repeats);
      repeats = std::max(4, std::min(200, static_cast<int>(2000.0f / std::max(us, 1.0f))));
    }
    if (us > 0.0f && (best == 0.0f || us < best)) {
      best = us;
      plan->algo = results[i].algo;
      plan->workspace = results[i].workspaceSize;
      plan->chosen = i;
    }
  }
  plan->tuned_us = best;
}

}  // namespace

const LtPlan *PlanCache::get(const Device &dev, const PlanKey &key, bool times) {
  {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    auto found = plans_.find(key);
    if (found != plans_.end()) return found->second.get();
  }
  auto plan = std::make_unique<LtPlan>();
  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int found = 0;
  plan->status = ask(dev, key, plan.get(), results, &found);
  if (plan->status == CUBLAS_STATUS_SUCCESS) {
    plan->candidates = found;
    plan->algo = results[0].algo;  // cuBLASLt's own order: the same for the same library, device and shape
    plan->workspace = results[0].workspaceSize;
    // without FP8_CONTEXT_TUNE the first one runs all the same: its kernel is then loaded before any capture
    if (times) tune(dev, key, plan.get(), results, dev.config.flags & FP8_CONTEXT_TUNE ? found : 1);
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  return plans_.emplace(key, std::move(plan)).first->second.get();  // a racing thread's plan stays
}

uint64_t PlanCache::size() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  return plans_.size();
}

std::string PlanCache::explain() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  uint64_t refused = 0, tuned = 0;
  for (const auto &entry : plans_) {
    refused += entry.second->status != CUBLAS_STATUS_SUCCESS;
    tuned += entry.second->chosen > 0;
  }
  return "gemm plans: " + std::to_string(plans_.size()) +
         ", refused by cuBLASLt (then padded): " + std::to_string(refused) +
         ", where timing chose another than the first: " + std::to_string(tuned) + "\n";
}

}  // namespace fp8::cuda
