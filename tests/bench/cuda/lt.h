// SPDX-License-Identifier: Apache-2.0
// cuBLASLt called directly, as a program without libfp8 would: the peer of the GEMM benchmark and the probe.
#pragma once
#include <cublasLt.h>
#include <dlfcn.h>

#include "gpu.h"

namespace lt {

// clang-format off
#define LT_FUNCTIONS(X) \
  X(cublasLtCreate) \
  X(cublasLtGetVersion) \
  X(cublasLtMatmul) \
  X(cublasLtMatmulAlgoConfigGetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic) \
  X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescDestroy) \
  X(cublasLtMatmulDescSetAttribute) \
  X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatrixLayoutDestroy) \
  X(cublasLtMatmulPreferenceCreate) \
  X(cublasLtMatmulPreferenceDestroy) \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtGetStatusName)
// clang-format on

struct Api {
#define LT_SLOT(name) decltype(&::name) name = nullptr;
  LT_FUNCTIONS(LT_SLOT)
  cublasLtHandle_t handle = nullptr;
  Api() {
    void *library = nullptr;  // the copy that libfp8's module has loaded
    for (const char *file : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"})
      if (!library) library = dlopen(file, RTLD_NOW);
    if (!library) std::printf("no libcublasLt.so.13: %s\n", dlerror()), std::exit(1);
#define LT_TAKE(name) name = reinterpret_cast<decltype(name)>(dlsym(library, #name));
    LT_FUNCTIONS(LT_TAKE)
    cublasLtCreate(&handle);
  }
};
inline Api &api() {
  static Api a;
  return a;
}

constexpr uint64_t kWorkspace = 32ull << 20;

struct Matmul {  // D (n x m column-major) (+)= op(A) op(B); A is our weight side
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldd = 0;  // of cuBLASLt's A, B, D
  cudaDataType_t a = CUDA_R_8F_E4M3, b = CUDA_R_8F_E4M3, d = CUDA_R_16BF;
  bool transa = true, transb = false, fast = false, accumulate = false;
  int a_mode = -1, b_mode = -1;  // -1: no scale
  const void *a_scale = nullptr, *b_scale = nullptr;
  const void *bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_16BF;

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t la = nullptr, lb = nullptr, ld = nullptr;
  static constexpr int kMost = 32;
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  std::vector<double> us;      // by tune(); 0: does not run
  std::vector<bool> promised;  // rounds D once: its split-K parts, if any, are summed in FP32
  int found = 0, best = 0, best_any = 0;

  ~Matmul() {
    if (desc) api().cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t l : {la, lb, ld})
      if (l) api().cublasLtMatrixLayoutDestroy(l);
  }
  cublasStatus_t plan() {
    Api &lt = api();
    cublasStatus_t s = lt.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    auto set = [&](cublasLtMatmulDescAttributes_t what, const auto &v) {
      if (!s) s = lt.cublasLtMatmulDescSetAttribute(desc, what, &v, sizeof v);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{transa ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{transb ? CUBLAS_OP_T : CUBLAS_OP_N});
    if (a_mode >= 0) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t{a_mode});
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{b_mode});
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a_scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b_scale);
    }
    if (fast) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
    if (bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t{CUBLASLT_EPILOGUE_BIAS});
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{bias_type});
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (!s)
      s = lt.cublasLtMatrixLayoutCreate(&la, a, static_cast<uint64_t>(transa ? k : m),
                                        static_cast<uint64_t>(transa ? m : k), lda);
    if (!s)
      s = lt.cublasLtMatrixLayoutCreate(&lb, b, static_cast<uint64_t>(transb ? n : k),
                                        static_cast<uint64_t>(transb ? k : n), ldb);
    if (!s) s = lt.cublasLtMatrixLayoutCreate(&ld, d, static_cast<uint64_t>(m), static_cast<uint64_t>(n), ldd);
    cublasLtMatmulPreference_t preference = nullptr;
    if (!s) s = lt.cublasLtMatmulPreferenceCreate(&preference);
    if (!s)
      s = lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                                  sizeof kWorkspace);
    // first libfp8's terms, then every reduction of split-K parts that cuBLASLt has
    for (const uint32_t mask :
         {d == CUDA_R_32F ? uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK} : uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
          uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK}}) {
      if (!s)
        s = lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask,
                                                    sizeof mask);
      cublasLtMatmulHeuristicResult_t some[kMost];
      int n = 0;
      if (!s) s = lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, desc, la, lb, ld, ld, preference, kMost, some, &n);
      for (int i = 0; !s && i < n; ++i) {
        bool known = some[i].state != CUBLAS_STATUS_SUCCESS;
        for (const auto &r : results) known = known || !std::memcmp(&r.algo, &some[i].algo, sizeof r.algo);
        if (known) continue;
        results.push_back(some[i]);
        promised.push_back(d == CUDA_R_32F || config(found, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 ||
                           config(found, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) ==
                               CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
        ++found;
      }
    }
    if (preference) lt.cublasLtMatmulPreferenceDestroy(preference);
    return !s && !found ? CUBLAS_STATUS_NOT_SUPPORTED : s;
  }
  int config(int i, cublasLtMatmulAlgoConfigAttributes_t what) const {
    uint32_t value = 0;
    uint16_t half = 0;
    size_t written = 0;
    const bool is_half = what == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || what == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    const cublasStatus_t s = api().cublasLtMatmulAlgoConfigGetAttribute(&results[static_cast<size_t>(i)].algo, what,
                                                                        is_half ? static_cast<void *>(&half) : &value,
                                                                        is_half ? sizeof half : sizeof value, &written);
    return s ? -1 : is_half ? half : static_cast<int>(value);
  }
  // algorithm/tile/stages/cluster/custom, split-K parts and their reduction, waves, workspace
  std::string name(int i) const {
    char text[160];
    std::snprintf(
        text, sizeof text, "%d/%d/%d/%d/%d split %d red %d waves %.2f ws %zu", config(i, CUBLASLT_ALGO_CONFIG_ID),
        config(i, CUBLASLT_ALGO_CONFIG_TILE_ID), config(i, CUBLASLT_ALGO_CONFIG_STAGES_ID),
        config(i, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), config(i, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
        config(i, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), config(i, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
        static_cast<double>(results[static_cast<size_t>(i)].wavesCount), results[static_cast<size_t>(i)].workspaceSize);
    return text;
  }
  cublasStatus_t run(int i, const void *pa, const void *pb, void *pd, void *workspace, cudaStream_t stream) const {
    const float alpha = 1, beta = accumulate ? 1 : 0;
    return api().cublasLtMatmul(api().handle, desc, &alpha, pa, la, pb, lb, &beta, pd, ld, pd, ld,
                                &results[static_cast<size_t>(i)].algo, workspace, kWorkspace, stream);
  }
  // All candidates once, then those within 8 % of the shortest by turns. `go(i, call)` runs candidate i.
  void tune(gpu::Timer &t, const std::function<cublasStatus_t(int, int)> &go) {
    us.assign(results.size(), 0);
    const auto timed = [&](int i, double length) {
      if (go(i, 0)) return 0.0;
      const gpu::Captured c(t, [&](int call) { go(i, call); });
      return c.time(t, length);
    };
    timed(0, 10000);
    const auto pick = [&] {
      best = best_any = -1;
      for (int i = 0; i < found; ++i) {
        const double v = us[static_cast<size_t>(i)];
        if (v <= 0) continue;
        if (best_any < 0 || v < us[static_cast<size_t>(best_any)]) best_any = i;
        if (promised[static_cast<size_t>(i)] && (best < 0 || v < us[static_cast<size_t>(best)])) best = i;
      }
      best = std::max(best, 0), best_any = std::max(best_any, 0);
    };
    for (int i = 0; i < found; ++i) us[static_cast<size_t>(i)] = timed(i, 1000);
    pick();
    std::vector<int> finalists;
    for (int i = 0; i < found; ++i)
      if (us[static_cast<size_t>(i)] > 0 && us[static_cast<size_t>(i)] < us[static_cast<size_t>(best)] * 1.08)
        finalists.push_back(i);
    if (finalists.size() < 2) return;
    std::vector<std::vector<double>> rounds(finalists.size());
    for (int r = 0; r < 5; ++r)
      for (size_t f = 0; f < finalists.size(); ++f) rounds[f].push_back(timed(finalists[f], 2000));
    for (size_t f = 0; f < finalists.size(); ++f) us[static_cast<size_t>(finalists[f])] = gpu::median(rounds[f]);
    pick();
  }
};

}  // namespace lt
