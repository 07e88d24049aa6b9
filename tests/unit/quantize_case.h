// SPDX-License-Identifier: Apache-2.0
// Random quantize calls in one arena: built at any base address, run anywhere, compared byte for byte, gaps included.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "numerics/block.h"
#include "ops/quantize.h"
#include "random.h"

namespace fp8::test {

struct Case {
  ops::Quantize q{};
  std::vector<uint8_t> arena;  // initial contents, the same for every base
  std::string text;
  int64_t rows = 0, cols = 0;
};

class Builder {
 public:
  Builder(uint64_t seed, uintptr_t base, const int64_t *sizes, int count) : r_(seed), base_(base) {
    Case &c = case_;
    c.rows = sizes[r_.below(count)];
    c.cols = sizes[r_.below(count)];
    static const int kinds[] = {num::kTensor, num::kRow, num::k1x128, num::k128x128, num::k1x32, num::k32x32};
    kind_ = kinds[seed % 6];
    dtype_ = r_.chance(50) ? num::kE4M3 : num::kE5M2;
    rule_ = kind_ >= num::k1x32 ? (r_.chance(80) ? num::kRuleE8m0 : num::kRuleE8m0Floor)
                                : (r_.chance(50) ? num::kRuleFp32 : num::kRulePow2);
    const int sides = static_cast<int>(1 + r_.below(3));
    const bool plain = r_.chance(50);  // the fast kernels' conditions
    ops::Quantize &q = c.q;
    static const int inputs[] = {num::kF32, num::kF16, num::kBF16};
    const bool source = !plain && !num::symmetric(kind_) && r_.chance(30);
    if (source)
      make_source();
    else
      q.x = input(plain ? num::kBF16 : inputs[r_.below(3)], plain);
    q.round_bf16 = q.x.dtype == num::kF32 && r_.chance(50);
    q.amax_floor = r_.chance(20) ? 0.01f : 0.0f;
    q.amax_only = !source && r_.chance(10);
    if (sides & 1) q.row = side(c.rows, c.cols, plain);
    if (sides & 2) q.col = side(c.cols, c.rows, plain);
    const bool given = !q.amax_only && !source && (kind_ == num::kTensor || kind_ == num::kRow) && r_.chance(20);
    if (given || q.amax_only || r_.chance(40)) {
      if (sides & 1) amax(&q.row, given);
      if (sides & 2) amax(&q.col, given);
      if (given && kind_ == num::kTensor && sides == 3) q.col.amax = q.row.amax;
    }
    if (!q.amax_only && r_.chance(plain ? 30 : 50)) {
      if (sides & 1) q.row.stats = stats();
      if (sides & 2) q.col.stats = stats();
    }
    if (!q.amax_only && r_.chance(40)) {
      q.dbias.dtype = num::kF32;
      q.dbias.size = c.cols;
      q.dbias.stride = 1 + r_.below(2);
      q.dbias.data = floats(c.cols * q.dbias.stride);
      q.dbias_accumulate = r_.chance(50);
    }
    char line[256];
    std::snprintf(line, sizeof line,
                  "seed %llu: %lld x %lld kind %d dtype %d rule %d sides %d in %d%s%s%s%s%s%s lead %d",
                  static_cast<unsigned long long>(seed), static_cast<long long>(c.rows), static_cast<long long>(c.cols),
                  kind_, dtype_, rule_, sides, q.x.dtype, plain ? " plain" : "", source ? " source" : "",
                  given ? " given" : "", q.amax_only ? " amax-only" : "",
                  q.row.stats.data || q.col.stats.data ? " stats" : "", q.dbias.data ? " dbias" : "", q.x.lead);
    c.text = line;
  }
  Case take() { return std::move(case_); }

 private:
  // `bytes` at a multiple of 256 plus shift, surrounded by a pattern
  uint8_t *reserve(int64_t bytes, int64_t shift, void **address) {
    const size_t begin = (case_.arena.size() + 255) / 256 * 256 + static_cast<size_t>(shift);
    case_.arena.resize(begin + static_cast<size_t>(bytes) + 64, 0xcd);
    *address = reinterpret_cast<void *>(base_ + begin);
    return case_.arena.data() + begin;
  }
  float value() {
    if (r_.chance(2)) {
      static const uint32_t specials[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0,         0x80000000,
                                          1,          0x80000001, 0x00400000, 0x7f7fffff, 0x43e00000};
      if (r_.chance(20)) return num::float_of(specials[r_.below(11)]);
      return std::ldexp(r_.gauss(), static_cast<int>(r_.below(60)) - 30);
    }
    return r_.gauss() * scale_;
  }
  void *floats(int64_t n) {
    void *p;
    uint8_t *bytes = reserve(n * 4, 4 * r_.below(3), &p);
    for (int64_t i = 0; i < n; ++i) {
      const float v = r_.gauss();
      std::memcpy(bytes + 4 * i, &v, 4);
    }
    return p;
  }
  ops::Matrix strided(int64_t rows, int64_t cols, int dtype, bool plain, int64_t *count) {
    ops::Matrix m{};
    m.dtype = dtype;
    m.rows = rows, m.cols = cols;
    m.lead = 1;
    m.lead_shape[0] = rows;
    m.col_stride = 1;
    m.lead_stride[0] = plain ? (cols + 15) / 16 * 16 : cols + r_.below(20);
    if (plain || r_.chance(40)) {
      *count = rows * m.lead_stride[0];
      return m;
    }
    if (r_.chance(30)) {  // column-major
      m.col_stride = rows + r_.below(3);
      m.lead_stride[0] = 1;
      *count = cols * m.col_stride + rows;
    } else if (rows % 4 == 0 && rows) {
      m.lead = 2;
      m.lead_shape[0] = rows / 4, m.lead_shape[1] = 4;
      m.lead_stride[1] = cols + 3;
      m.lead_stride[0] = 4 * (cols + 3) + 8;
      *count = m.lead_shape[0] * m.lead_stride[0];
    } else {
      m.col_stride = 2;
      m.lead_stride[0] = 2 * cols + 1;
      *count = rows * m.lead_stride[0];
    }
    return m;
  }
  ops::Matrix input(int dtype, bool plain) {
    int64_t count = 0;
    ops::Matrix m = strided(case_.rows, case_.cols, dtype, plain, &count);
    const int64_t size = num::element_size(dtype);
    uint8_t *bytes = reserve(count * size, plain ? 0 : size * r_.below(3), &m.data);
    scale_ = std::ldexp(1.0f, static_cast<int>(r_.below(20)) - 10);
    for (int64_t i = 0; i < count; ++i) num::store(dtype, bytes, i, value());
    return m;
  }
  void make_source() {
    ops::Quantize &q = case_.q;
    q.source_is_col = r_.chance(50);
    const int64_t rows = q.source_is_col ? case_.cols : case_.rows, cols = q.source_is_col ? case_.rows : case_.cols;
    q.source.scaling = kind_;
    int64_t count = 0;
    q.source.codes = strided(rows, cols, dtype_, false, &count);
    uint8_t *bytes = reserve(count, 0, &q.source.codes.data);
    for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(r_.next());
    q.source.scale = scale(rows, cols, false);
    q.x.rows = case_.rows, q.x.cols = case_.cols;
  }
  void extents(int64_t rows, int64_t cols, int64_t *sr, int64_t *sc) const {
    const int64_t tr = num::scale_tile_rows(kind_), tc = num::scale_tile_cols(kind_);
    *sr = kind_ == num::kTensor ? 1 : tr ? (rows + tr - 1) / tr : 1;
    *sc = tc ? (cols + tc - 1) / tc : 1;
  }
  ops::Scale scale(int64_t rows, int64_t cols, bool native) {
    ops::Scale s{};
    extents(rows, cols, &s.rows, &s.cols);
    s.dtype = kind_ >= num::k1x32 ? num::kE8M0 : num::kF32;
    const int64_t r4 = (s.rows + 3) / 4 * 4, c4 = (s.cols + 3) / 4 * 4;
    if (kind_ == num::k1x128)
      s.row_stride = 1, s.col_stride = native ? r4 : s.rows + 5;
    else if (kind_ == num::k128x128)
      s.row_stride = native ? c4 : s.cols + 5, s.col_stride = 1;
    else
      s.row_stride = native ? s.cols : s.cols + 2, s.col_stride = 1;
    const int64_t count = kind_ == num::k1x128 ? s.cols * s.col_stride : s.rows * s.row_stride;
    uint8_t *bytes = reserve(std::max<int64_t>(count, 1) * (s.dtype == num::kF32 ? 4 : 1), 0, &s.data);
    for (int64_t i = 0; i < std::max<int64_t>(count, 1); ++i) {
      const float v = 0.01f + std::fabs(r_.gauss());
      if (s.dtype == num::kF32)
        std::memcpy(bytes + 4 * i, &v, 4);
      else
        bytes[i] = static_cast<uint8_t>(110 + r_.below(30));
    }
    return s;
  }
  ops::QuantizeSide side(int64_t rows, int64_t cols, bool plain) {
    ops::QuantizeSide s{};
    s.side.scaling = kind_;
    s.side.rule = rule_;
    int64_t count = 0;
    s.side.codes = strided(rows, cols, dtype_, plain, &count);
    uint8_t *bytes = reserve(count, plain ? 0 : r_.below(3), &s.side.codes.data);
    std::memset(bytes, 0xab, static_cast<size_t>(count));
    s.side.scale = scale(rows, cols, plain || r_.chance(50));
    return s;
  }
  void amax(ops::QuantizeSide *s, bool given) {
    s->amax.dtype = num::kF32;
    s->amax.rows = s->side.scale.rows, s->amax.cols = s->side.scale.cols;
    s->amax.col_stride = 1;
    s->amax.row_stride = s->amax.cols;
    void *p;
    uint8_t *bytes = reserve(s->amax.rows * s->amax.cols * 4, 0, &p);
    for (int64_t i = 0; i < s->amax.rows * s->amax.cols; ++i) {
      const float v = std::fabs(r_.gauss()) * 3.0f;
      std::memcpy(bytes + 4 * i, &v, 4);
    }
    s->amax.data = p;
    s->amax_given = given;
  }
  ops::Vector stats() {
    ops::Vector v{};
    v.dtype = 10;
    v.size = 8;
    v.stride = 1 + r_.below(2);
    uint8_t *bytes = reserve(8 * 8 * v.stride, 0, &v.data);
    std::memset(bytes, 0, static_cast<size_t>(64 * v.stride));
    bytes[0] = 7;
    return v;
  }

  Random r_;
  uintptr_t base_;
  Case case_;
  int kind_ = 0, dtype_ = 0, rule_ = 0;
  float scale_ = 1.0f;
};

inline Case make_case(uint64_t seed, const void *base, const int64_t *sizes, int count) {
  return Builder(seed, reinterpret_cast<uintptr_t>(base), sizes, count).take();
}

// Of a case, without building it.
inline int64_t elements(uint64_t seed, const int64_t *sizes, int count) {
  Random r(seed);
  const int64_t rows = sizes[r.below(count)];
  return rows * sizes[r.below(count)];
}

inline bool same(const std::vector<uint8_t> &want, const std::vector<uint8_t> &got, const std::string &text) {
  if (want == got) return true;
  size_t first = 0, count = 0;
  for (size_t i = want.size(); i-- > 0;)
    if (want[i] != got[i]) first = i, ++count;
  std::printf("MISMATCH %s: %zu bytes, first at %zu of %zu: want %02x got %02x\n", text.c_str(), count, first,
              want.size(), want[first], got[first]);
  return false;
}

}  // namespace fp8::test
