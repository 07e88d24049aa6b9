// SPDX-License-Identifier: Apache-2.0
// cuBLASLt by symbol: the copy that is already in the process, else beside the module, in pip's nvidia/*/lib, or the
// system's.
#pragma once
#include <cublasLt.h>

#include <string>

namespace fp8::cuda {

struct LtApi {
  std::string path;
  size_t version = 0;  // major * 10000 + minor * 100 + patch
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) desc_init = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) layout_init = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) preference_init = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get = nullptr;
};

constexpr size_t kLtMinimum = 120900;  // outer-vector and 128-block scales on Hopper

// NULL: *why names every place tried. Found once a process.
const LtApi *lt_api(std::string *why);

// Host only, tested without a GPU: the candidate files in order of trial, RTLD_NOLOAD names apart.
// module_folder: where this module lies; python_paths: a colon list of site-packages folders.
std::string lt_candidates(const std::string &module_folder, const std::string &python_paths, char separator);

}  // namespace fp8::cuda
