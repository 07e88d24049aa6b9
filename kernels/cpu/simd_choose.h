// SPDX-License-Identifier: Apache-2.0
// What stands behind a kernel's targets: the choice among the copies of a function that Highway compiled.
// Included after hwy/foreach_target.h, used under HWY_ONCE.
#pragma once
#include <hwy/highway.h>

#include "cpu/simd.h"

#if HWY_TARGETS & HWY_AVX3
#define FP8_IF_AVX512(NAME) \
  if (chosen == Simd::kAvx512) return N_AVX3::NAME;
#else
#define FP8_IF_AVX512(NAME)
#endif
#if HWY_TARGETS & HWY_AVX2
#define FP8_IF_AVX2(NAME) \
  if (chosen == Simd::kAvx2) return N_AVX2::NAME;
#else
#define FP8_IF_AVX2(NAME)
#endif
#if HWY_TARGETS & HWY_SSE4
#define FP8_IF_SSE4(NAME) \
  if (chosen == Simd::kSse4) return N_SSE4::NAME;
#else
#define FP8_IF_SSE4(NAME)
#endif

// Body of a function that returns NAME as compiled for simd(); a target that was not compiled leads to the lowest one.
#define FP8_SIMD_CHOOSE(NAME) \
  const Simd chosen = simd(); \
  (void)chosen;               \
  FP8_IF_AVX512(NAME)         \
  FP8_IF_AVX2(NAME)           \
  FP8_IF_SSE4(NAME)           \
  return HWY_STATIC_DISPATCH(NAME)
