// SPDX-License-Identifier: Apache-2.0
// Random matrices under odd views, a threaded Parallel, and a quantizer written element by element as the oracle.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

// clang-format off
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
//
#include <cmocka.h>
}
// clang-format on

#include "cpu/launch_cpu.h"
#include "cpu/tile.h"

namespace kernel_test {

using namespace fp8;

inline void on_threads(void *owner, int64_t n, void (*body)(void *, int64_t, int64_t), void *arg) {
  const int64_t threads = *static_cast<int *>(owner);
  std::vector<std::thread> crew;
  for (int64_t t = 0; t < threads; ++t) crew.emplace_back(body, arg, n * t / threads, n * (t + 1) / threads);
  for (std::thread &t : crew) t.join();
}

inline std::vector<cpu::Simd> targets() {
  cpu::force_simd(cpu::Simd::kAvx512);
  std::vector<cpu::Simd> all;
  for (int i = static_cast<int>(cpu::simd()); i >= 0; --i) all.push_back(static_cast<cpu::Simd>(i));
  return all;
}

enum class Layout { kPlain, kPitched, kTransposed, kEvery3rd, kLead3 };
constexpr Layout kLayouts[] = {Layout::kPlain, Layout::kPitched, Layout::kTransposed, Layout::kEvery3rd,
                               Layout::kLead3};

// A view with memory of its own, filled with a guard pattern that no call may touch.
struct Owned {
  std::vector<char> memory;
  ops::Matrix m{};
  Owned(int32_t dtype, int64_t rows, int64_t cols, Layout layout) {
    m.dtype = dtype;
    m.rows = rows;
    m.cols = cols;
    m.lead = 1;
    m.lead_shape[0] = rows;
    m.col_stride = 1;
    m.lead_stride[0] = cols;
    int64_t span = rows * cols;
    if (layout == Layout::kPitched) {
      m.lead_stride[0] = cols + 5;
      span = rows * (cols + 5);
    } else if (layout == Layout::kTransposed) {
      m.lead_stride[0] = 1;
      m.col_stride = rows + 3;
      span = cols * (rows + 3);
    } else if (layout == Layout::kEvery3rd) {
      m.col_stride = 3;
      m.lead_stride[0] = 3 * cols + 1;
      span = rows * (3 * cols + 1);
    } else if (layout == Layout::kLead3) {  // rows = a x b x c with gaps
      int64_t c = rows % 3 == 0 ? 3 : 1, b = (rows / c) % 2 == 0 ? 2 : 1, a = rows / c / b;
      m.lead = 3;
      const int64_t shape[3] = {a, b, c}, stride[3] = {b * (c * (cols + 2) + 7) + 1, c * (cols + 2) + 7, cols + 2};
      std::copy(shape, shape + 3, m.lead_shape);
      std::copy(stride, stride + 3, m.lead_stride);
      span = a * stride[0];
    }
    memory.assign(size_t(span * num::element_size(dtype) + 64), char(0x6b));
    m.data = memory.data();
  }
  void *at(int64_t r, int64_t c) const {
    return static_cast<char *>(m.data) + (ops::row_offset(m, r) + c * m.col_stride) * num::element_size(m.dtype);
  }
  float get(int64_t r, int64_t c) const { return num::load(m.dtype, at(r, c), 0); }
  uint8_t code(int64_t r, int64_t c) const { return *static_cast<uint8_t *>(at(r, c)); }
  void set(int64_t r, int64_t c, float v) { num::store(m.dtype, at(r, c), 0, v); }
  // elements of the view are cleared, so that equal memories mean: the same elements and untouched gaps
  std::vector<char> gaps() const {
    Owned copy = *this;
    copy.m.data = copy.memory.data();
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.cols; ++c) std::memset(copy.at(r, c), 0, size_t(num::element_size(m.dtype)));
    return copy.memory;
  }
  Owned(const Owned &o) : memory(o.memory), m(o.m) { m.data = memory.data(); }
  Owned &operator=(const Owned &) = delete;
};

// Values across many binades with specials here and there.
inline void fill(Owned &x, uint32_t seed, bool specials) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < x.m.rows; ++r)
    for (int64_t c = 0; c < x.m.cols; ++c) {
      float v = std::ldexp(normal(rng), int(rng() % 24) - 12);
      if (specials && rng() % 97 == 0) {
        const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 1e-41f, -3e38f};
        v = odd[rng() % 8];
      }
      x.set(r, c, v);
    }
}

struct Expected {  // of one side, in its own orientation
  std::vector<uint8_t> codes;
  std::vector<float> amax, inverse;
  std::vector<uint8_t> scale_code;
  uint64_t stats[num::kStats] = {};
  int64_t scale_rows, scale_cols;
};

// x(r, c) in the side's own orientation
template <class X>
Expected expect(X &&x, int64_t rows, int64_t cols, int32_t scaling, int32_t rule, int32_t dtype, float floor) {
  Expected e;
  const int64_t tr = num::scale_tile_rows(scaling) ? num::scale_tile_rows(scaling) : std::max<int64_t>(rows, 1);
  const int64_t tc = num::scale_tile_cols(scaling) ? num::scale_tile_cols(scaling) : std::max<int64_t>(cols, 1);
  e.scale_rows = num::scale_tile_rows(scaling) ? (rows + tr - 1) / tr : 1;
  e.scale_cols = num::scale_tile_cols(scaling) ? (cols + tc - 1) / tc : 1;
  e.amax.assign(size_t(e.scale_rows * e.scale_cols), 0.0f);
  auto cell = [&](int64_t r, int64_t c) { return size_t(r / tr * e.scale_cols + c / tc); };
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const float a = std::fabs(x(r, c));
      if (!std::isnan(a)) e.amax[cell(r, c)] = std::max(e.amax[cell(r, c)], a);
    }
  std::vector<num::ScaleOf> scales;
  for (const float a : e.amax) {
    scales.push_back(num::scale_of(dtype, rule, a, floor));
    e.inverse.push_back(scales.back().inverse);
    e.scale_code.push_back(scales.back().code);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const float v = x(r, c), m = scales[cell(r, c)].multiplier, scaled = v * m;
      const uint8_t q = num::encode_fp8(dtype, scaled);
      e.codes.push_back(q);
      e.stats[num::kCount] += 1;
      e.stats[num::kNan] += std::isnan(v);
      e.stats[num::kInf] += std::isinf(v);
      e.stats[num::kNonzero] += std::isfinite(v) && v != 0;
      e.stats[num::kUnderflow] += std::isfinite(v) && v != 0 && (q & 0x7f) == 0;
      const float limit = std::fabs(scaled);
      e.stats[num::kSaturated] += std::isfinite(v) && (dtype == num::kE4M3 ? limit > 464.0f : limit >= 61440.0f);
    }
  return e;
}

}  // namespace kernel_test
