// SPDX-License-Identifier: Apache-2.0
// Golden tests at the kernels' level: views over plain arrays, one report per mismatch.
#pragma once
// clang-format off
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
extern "C" {
#include <cmocka.h>
}
// clang-format on
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/launch_cpu.h"
#include "cpu/tile.h"
#include "golden.h"
#include "numerics/block.h"

namespace golden {

using namespace fp8;

inline ops::Matrix matrix(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  ops::Matrix m{};
  m.data = data;
  m.dtype = dtype;
  m.lead = 1;
  m.rows = m.lead_shape[0] = rows;
  m.cols = cols;
  m.lead_stride[0] = cols;
  m.col_stride = 1;
  return m;
}

inline ops::Scale scale(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  return ops::Scale{data, dtype, 0, rows, cols, cols, 1};
}

// Every SIMD target of this machine; force_simd(kAvx512) lifts the limit again.
inline std::vector<cpu::Simd> targets() {
  cpu::force_simd(cpu::Simd::kAvx512);
  std::vector<cpu::Simd> all;
  for (int i = static_cast<int>(cpu::simd()); i >= 0; --i) all.push_back(static_cast<cpu::Simd>(i));
  return all;
}

inline int64_t up(int64_t a, int64_t b) { return b ? (a + b - 1) / b : 1; }

struct Kind {  // "b1x128_pow2" and the like, as the manifest writes them
  int32_t scaling, rule;
  bool e8m0() const { return rule >= num::kRuleE8m0; }
};

inline Kind kind_of(const std::string &name) {
  auto starts = [&](const char *p) { return name.rfind(p, 0) == 0; };
  Kind k{};
  k.scaling = starts("tensor")     ? num::kTensor
              : starts("row")      ? num::kRow
              : starts("b1x128")   ? num::k1x128
              : starts("b128x128") ? num::k128x128
              : starts("mx1x32")   ? num::k1x32
              : starts("mx32x32")  ? num::k32x32
                                   : 0;
  auto ends = [&](const std::string &p) {
    return name.size() > p.size() && name.compare(name.size() - p.size(), p.size(), p) == 0;
  };
  k.rule = ends("_fp32")    ? num::kRuleFp32
           : ends("_pow2")  ? num::kRulePow2
           : ends("_rceil") ? num::kRuleE8m0
           : ends("_floor") ? num::kRuleE8m0Floor
                            : 0;
  assert_true(k.scaling && k.rule);
  return k;
}

inline int32_t format_of(const std::string &name) { return name == "e4m3" ? num::kE4M3 : num::kE5M2; }
inline int32_t source_of(const Array &x, const std::string &name) {
  return x.dtype == "float32" || x.dtype == "uint32"                                       ? num::kF32
         : name.find("f16") != std::string::npos && name.find("bf16") == std::string::npos ? num::kF16
                                                                                           : num::kBF16;
}

// One side with its own memory.
struct Out {
  std::vector<uint8_t> codes;
  std::vector<char> scales;
  std::vector<uint64_t> stats = std::vector<uint64_t>(8, 0);
  ops::QuantizeSide view{};
  Out(const Kind &k, int32_t dtype, int64_t rows, int64_t cols) : codes(size_t(rows * cols), 0xee) {
    const int64_t r = up(rows, num::scale_tile_rows(k.scaling)), c = up(cols, num::scale_tile_cols(k.scaling));
    scales.assign(size_t(r * c * 4), 0x55);
    view.side.scaling = k.scaling;
    view.side.rule = k.rule;
    view.side.codes = matrix(codes.data(), dtype, rows, cols);
    view.side.scale = scale(scales.data(), k.e8m0() ? num::kE8M0 : num::kF32, r, c);
    view.stats = ops::Vector{stats.data(), 10, 0, 8, 1};
  }
};

inline int64_t differences(const char *what, const void *got, const void *want, int64_t n, int64_t size) {
  int64_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const char *g = static_cast<const char *>(got) + i * size, *w = static_cast<const char *>(want) + i * size;
    if (std::memcmp(g, w, size_t(size)) == 0) continue;
    if (bad++ < 3) {
      uint64_t a = 0, b = 0;
      std::memcpy(&a, g, size_t(size));
      std::memcpy(&b, w, size_t(size));
      std::fprintf(stderr, "%s[%lld] is 0x%llx, golden has 0x%llx\n", what, (long long)i, (unsigned long long)a,
                   (unsigned long long)b);
    }
  }
  if (bad) std::fprintf(stderr, "%s: %lld of %lld differ\n", what, (long long)bad, (long long)n);
  return bad;
}

inline void run(ops::Quantize &q, const cpu::Parallel &parallel = {}) {
  std::vector<char> workspace(cpu::quantize_workspace(q));
  q.workspace = workspace.data();
  q.workspace_bytes = workspace.size();
  cpu::quantize(q, parallel);
}

}  // namespace golden
