// SPDX-License-Identifier: Apache-2.0
// Run-time choice among the SIMD targets that a kernel was compiled for (Highway generates the code; its run-time
// library is not linked).
#pragma once
#include <cstdint>

namespace fp8::cpu {

enum class Simd : int32_t { kBase = 0, kSse4 = 1, kAvx2 = 2, kAvx512 = 3 };

Simd simd();                  // best of this CPU, at most what force_simd allows
void force_simd(Simd limit);  // tests: nothing above `limit` from now on
const char *simd_name(Simd s);

}  // namespace fp8::cpu
