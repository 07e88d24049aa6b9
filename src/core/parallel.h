// SPDX-License-Identifier: Apache-2.0
// One process-wide pool of std::threads shared by all contexts: no OpenMP (it drags libgomp into every host and races
// under TSan).
#pragma once
#include <cstdint>

namespace fp8 {

int32_t hardware_threads();  // of this process: affinity and cgroup respected
// body(arg, begin, end) over disjoint parts of [0, n), the caller's thread included, at most `threads` at once (<= 0:
// all). Nested calls and many callers are fine; safe after fork. Parts never depend on the thread count in a way that
// changes results: a body must compute each index alone.
void parallel_for(int32_t threads, int64_t n, void (*body)(void *arg, int64_t begin, int64_t end), void *arg);

}  // namespace fp8
