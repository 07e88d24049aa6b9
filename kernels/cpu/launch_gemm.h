// SPDX-License-Identifier: Apache-2.0
// CPU GEMM kernels as the backend calls them: plain parameters, scratch carved by the caller, no allocation.
#pragma once
#include <cstdint>

#include "ops/gemm.h"

namespace fp8::cpu {

// How a kernel spreads independent parts over threads. run may be called from many threads.
struct GemmPool {
  void *owner;
  void (*run)(void *owner, int64_t n, void (*body)(void *arg, int64_t begin, int64_t end), void *arg);
  int32_t threads;
};

// S7: exact sums per K block, one rounding, then FP32 in increasing k. Unquantized operands: products and sums in FP64
// in increasing k, one rounding to FP32 at the end. The same bits on every CPU, SIMD target and thread count.
uint64_t gemm_ref_scratch(const ops::Gemm &g, int32_t threads);
void gemm_ref(const ops::Gemm &g, const GemmPool &pool, void *scratch);

// Operands decoded to FP32 tiles (block scales multiplied in, tensor and row scales at the end), FP32 multiply-adds in
// increasing k. The same bits for every thread count on one SIMD target.
uint64_t gemm_portable_scratch(const ops::Gemm &g, int32_t threads);
void gemm_portable(const ops::Gemm &g, const GemmPool &pool, void *scratch);

}  // namespace fp8::cpu
