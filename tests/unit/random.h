// SPDX-License-Identifier: Apache-2.0
// The numbers of random tests: the same everywhere.
#pragma once
#include <cstdint>

namespace fp8::test {

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint32_t next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t x = state ^ (state >> 29);
    x *= 0xbf58476d1ce4e5b9ull;
    return static_cast<uint32_t>(x >> 32);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint32_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  float gauss() {
    float s = 0;
    for (int i = 0; i < 6; ++i) s += static_cast<float>(next() >> 8) * 0x1p-24f - 0.5f;
    return s * 1.4f;
  }
};

}  // namespace fp8::test
