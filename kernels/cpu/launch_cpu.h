// SPDX-License-Identifier: Apache-2.0
// CPU kernels: checked PODs in, done when they return. Results never depend on the thread count or the SIMD target.
#pragma once
#include "ops/move.h"
#include "ops/quantize.h"

namespace fp8::cpu {

// body(arg, begin, end) over disjoint parts of [0, n). run NULL: serial.
struct Parallel {
  void (*run)(void *owner, int64_t n, void (*body)(void *arg, int64_t begin, int64_t end), void *arg);
  void *owner;
};

uint64_t quantize_workspace(const ops::Quantize &q);
void quantize(const ops::Quantize &q, const Parallel &parallel);
void dequantize(const ops::Dequantize &d, const Parallel &parallel);
uint64_t measure_workspace(const ops::Measure &m);
void measure(const ops::Measure &m, const Parallel &parallel);
void transpose(const ops::Transpose &t, const Parallel &parallel);
void cast(const ops::Cast &c, const Parallel &parallel);

}  // namespace fp8::cpu
