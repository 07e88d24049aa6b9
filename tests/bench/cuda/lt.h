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
  cublasLtMatmulHeuristicResult_t results[8];
  int found = 0, best = 0;

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
    if (!s) s = lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, desc, la, lb, ld, ld, preference, 8, results, &found);
    if (preference) lt.cublasLtMatmulPreferenceDestroy(preference);
    return !s && !found ? CUBLAS_STATUS_NOT_SUPPORTED : s;
  }
  cublasStatus_t run(int i, const void *pa, const void *pb, void *pd, void *workspace, cudaStream_t stream) const {
    const float alpha = 1, beta = accumulate ? 1 : 0;
    return api().cublasLtMatmul(api().handle, desc, &alpha, pa, la, pb, lb, &beta, pd, ld, pd, ld, &results[i].algo,
                                workspace, kWorkspace, stream);
  }
  void tune(gpu::Timer &t, const void *pa, const void *pb, void *pd, void *workspace) {
    double shortest = 0;
    for (int i = 0; i < found; ++i) {
      if (run(i, pa, pb, pd, workspace, t.stream)) continue;
      const double once = t.time(3, [&](int) { run(i, pa, pb, pd, workspace, t.stream); });
      const double us = t.time(std::max(3, std::min(100, static_cast<int>(4000 / std::max(once, 1.0)))),
                               [&](int) { run(i, pa, pb, pd, workspace, t.stream); });
      if (!shortest || us < shortest) shortest = us, best = i;
    }
  }
};

}  // namespace lt
