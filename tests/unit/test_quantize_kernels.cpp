// SPDX-License-Identifier: Apache-2.0
// The CPU quantizer against an element-by-element oracle: every kind and rule, odd shapes and views, every SIMD target,
// one and several threads; amax in and out, statistics, column sums, padding.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "kernel_data.h"

using namespace kernel_test;

namespace {

struct Mode {
  int32_t scaling, rule;
};
const Mode kModes[] = {
    {num::kTensor, num::kRuleFp32},    {num::kTensor, num::kRulePow2},  {num::kRow, num::kRuleFp32},
    {num::kRow, num::kRulePow2},       {num::k1x128, num::kRuleFp32},   {num::k1x128, num::kRulePow2},
    {num::k128x128, num::kRuleFp32},   {num::k128x128, num::kRulePow2}, {num::k1x32, num::kRuleE8m0},
    {num::k1x32, num::kRuleE8m0Floor}, {num::k32x32, num::kRuleE8m0}};
const int64_t kShapes[][2] = {{1, 1}, {3, 130}, {129, 33}, {130, 257}, {12, 2050}, {258, 96}, {136, 288}};

// One side's memory; scales in native strides where `native`, else compact.
struct SideMemory {
  Owned codes;
  std::vector<char> scales;
  std::vector<float> amax;
  uint64_t stats[8] = {};
  ops::QuantizeSide view{};
  int64_t line, lines, stride;
  SideMemory(const Mode &k, int32_t dtype, int64_t rows, int64_t cols, const Expected &e, Layout layout, bool native)
      : codes(dtype, rows, cols, layout) {
    const bool e8m0 = k.rule >= num::kRuleE8m0, column = k.scaling == num::k1x128;
    line = column ? e.scale_rows : e.scale_cols;
    lines = column ? e.scale_cols : e.scale_rows;
    stride = native && (column || k.scaling == num::k128x128) ? (line + 3) / 4 * 4 : line;
    scales.assign(size_t(stride * lines * 4 + 16), char(0x6b));
    amax.assign(e.amax.size() + 4, -7.0f);
    view.side = ops::Side{k.scaling, k.rule, codes.m,
                          ops::Scale{scales.data(), e8m0 ? num::kE8M0 : num::kF32, stride != line, e.scale_rows,
                                     e.scale_cols, column ? 1 : stride, column ? stride : 1}};
    view.amax = ops::Scale{amax.data(), num::kF32, 0, e.scale_rows, e.scale_cols, e.scale_cols, 1};
    view.stats = ops::Vector{stats, 10, 0, 8, 1};
  }
  void check(const Expected &e, const std::vector<char> &gaps, bool with_stats) const {
    assert_true(codes.gaps() == gaps);
    for (int64_t r = 0; r < codes.m.rows; ++r)
      for (int64_t c = 0; c < codes.m.cols; ++c)
        assert_int_equal(codes.code(r, c), e.codes[size_t(r * codes.m.cols + c)]);
    const ops::Scale &s = view.side.scale;
    for (int64_t i = 0; i < e.scale_rows; ++i)
      for (int64_t j = 0; j < e.scale_cols; ++j) {
        const int64_t at = i * s.row_stride + j * s.col_stride;
        const size_t want = size_t(i * e.scale_cols + j);
        if (s.dtype == num::kF32) {
          assert_memory_equal(scales.data() + at * 4, &e.inverse[want], 4);
        } else {
          assert_int_equal(uint8_t(scales[size_t(at)]), e.scale_code[want]);
        }
        assert_memory_equal(&amax[want], &e.amax[want], 4);
      }
    const int64_t size = s.dtype == num::kF32 ? 4 : 1;
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t b = (i * stride + line) * size; b < (i + 1) * stride * size; ++b)
        assert_int_equal(scales[size_t(b)], 0);
    for (size_t b = size_t(lines * stride * size); b < scales.size(); ++b) assert_int_equal(scales[b], 0x6b);
    if (with_stats) assert_memory_equal(stats, e.stats, sizeof stats);
  }
};

void run(ops::Quantize &q, int threads) {
  std::vector<char> workspace(cpu::quantize_workspace(q) + 1);
  q.workspace = workspace.data() + 1;  // any address
  q.workspace_bytes = workspace.size() - 1;
  cpu::quantize(q, {threads > 1 ? on_threads : nullptr, &threads});
}

void against_oracle(void **) {
  uint32_t seed = 1;
  for (const Mode &k : kModes)
    for (const auto &shape : kShapes) {
      const int32_t sources[] = {num::kF32, num::kF16, num::kBF16};
      const int32_t source = sources[seed % 3], dtype = seed % 2 ? num::kE4M3 : num::kE5M2;
      const Layout in = kLayouts[seed % 5], out = kLayouts[(seed / 2) % 5];
      const float floor = seed % 4 == 0 ? 0.5f : 0.0f;
      Owned x(source, shape[0], shape[1], in);
      fill(x, seed, seed % 3 == 0);
      const Expected row = expect([&](int64_t r, int64_t c) { return x.get(r, c); }, shape[0], shape[1], k.scaling,
                                  k.rule, dtype, floor);
      const Expected col = expect([&](int64_t r, int64_t c) { return x.get(c, r); }, shape[1], shape[0], k.scaling,
                                  k.rule, dtype, floor);
      for (const cpu::Simd target : targets())
        for (int sides = 1; sides <= 3; ++sides) {
          cpu::force_simd(target);
          SideMemory a(k, dtype, shape[0], shape[1], row, out, true),
              b(k, dtype, shape[1], shape[0], col, out, sides == 3);
          const std::vector<char> gaps_a = a.codes.gaps(), gaps_b = b.codes.gaps();
          ops::Quantize q{};
          q.x = x.m;
          q.amax_floor = floor;
          if (sides & 1) q.row = a.view;
          if (sides & 2) q.col = b.view;
          run(q, sides == 3 ? 3 : 1);
          if (sides & 1) a.check(row, gaps_a, true);
          if (sides & 2) b.check(col, gaps_b, true);
        }
      ++seed;
    }
  cpu::force_simd(cpu::Simd::kAvx512);
}

// every exponent, the mantissas around S3's step, both signs of a comparison with the floor
void scales_alike(void **) {
  std::vector<float> amax;
  for (uint32_t e = 0; e < 256; ++e)
    for (const uint32_t m : {0u, 1u, 0x5fffffu, 0x600000u, 0x600001u, 0x7fffffu})
      if (e < 255 || m == 0) amax.push_back(num::float_of(e << 23 | m));
  const size_t n = amax.size();
  std::vector<float> multiplier(n), inverse(n);
  std::vector<uint8_t> codes(n);
  for (const cpu::Simd target : targets()) {
    cpu::force_simd(target);
    for (const int32_t dtype : {num::kE4M3, num::kE5M2})
      for (int32_t rule = num::kRuleFp32; rule <= num::kRuleE8m0Floor; ++rule)
        for (const float floor : {0.0f, 0.75f}) {
          cpu::tile_ops().scales(dtype, rule, floor, amax.data(), int64_t(n), multiplier.data(), inverse.data(),
                                 codes.data());
          for (size_t i = 0; i < n; ++i) {
            const num::ScaleOf want = num::scale_of(dtype, rule, amax[i], floor);
            assert_memory_equal(&multiplier[i], &want.multiplier, 4);
            assert_memory_equal(&inverse[i], &want.inverse, 4);
            assert_int_equal(codes[i], want.code);
          }
        }
  }
  cpu::force_simd(cpu::Simd::kAvx512);
}

// Every BF16 number by powers of two, where no element overflows: SIMD has a path for it.
void powers_of_two(void **) {
  std::vector<uint16_t> x(1 << 16);
  std::vector<float> m(512);
  std::vector<uint8_t> want(1 << 14), got(1 << 14);
  for (const int32_t dtype : {num::kE4M3, num::kE5M2})
    for (const int e : {-126, -60, -1, 0, 9, 100, 111, 112, 113, 119, 120, 121, 127}) {
      for (size_t i = 0; i < m.size(); ++i) m[i] = std::ldexp(1.0f, std::min(127, e + int(i % 3)));
      for (uint32_t i = 0; i < x.size(); ++i) {
        const uint32_t v = i * 40503 & 0xffff;  // mixed: vectors with and without subnormal results
        const float largest = num::float_of((v & 0x7fffu) << 16) * std::ldexp(1.0f, std::min(127, e + 2));
        x[i] = largest <= (dtype == num::kE4M3 ? 448.0f : 57344.0f) ? uint16_t(v) : 0;
      }
      for (int part = 0; part < 4; ++part)
        for (const cpu::Simd target : targets()) {
          cpu::force_simd(target);
          const cpu::TileOps &ops = cpu::tile_ops(), &plain = *cpu::plain_ops();
          const cpu::Tile t{x.data() + (part << 14), num::kBF16, 256, 128, 128};
          plain.cast_rows(t, dtype, cpu::Range::kTame, 32, m.data(), want.data(), 128);
          ops.cast_rows(t, dtype, cpu::Range::kTame, 32, m.data(), got.data(), 128);
          assert_memory_equal(got.data(), want.data(), want.size());
          plain.cast_cols(t, dtype, cpu::Range::kTame, 32, m.data(), want.data(), 128);
          ops.cast_cols(t, dtype, cpu::Range::kTame, 32, m.data(), got.data(), 128);
          assert_memory_equal(got.data(), want.data(), want.size());
        }
    }
  cpu::force_simd(cpu::Simd::kAvx512);
}

// amax alone equals the amax of a full call; given back, it gives the same codes, and another gives others.
void amax_apart(void **) {
  for (const Mode &k : kModes) {
    Owned x(num::kBF16, 130, 200, Layout::kPlain);
    fill(x, 5, false);
    const Expected row =
        expect([&](int64_t r, int64_t c) { return x.get(r, c); }, 130, 200, k.scaling, k.rule, num::kE4M3, 0);
    const Expected col =
        expect([&](int64_t r, int64_t c) { return x.get(c, r); }, 200, 130, k.scaling, k.rule, num::kE4M3, 0);
    SideMemory a(k, num::kE4M3, 130, 200, row, Layout::kPlain, false),
        b(k, num::kE4M3, 200, 130, col, Layout::kPlain, false);
    ops::Quantize q{};
    q.x = x.m;
    q.row = a.view;
    q.col = b.view;
    q.amax_only = 1;
    run(q, 2);
    assert_memory_equal(a.amax.data(), row.amax.data(), row.amax.size() * 4);
    assert_memory_equal(b.amax.data(), col.amax.data(), col.amax.size() * 4);
    assert_int_equal(a.scales[0], 0x6b);
    assert_int_equal(a.codes.code(0, 0), 0x6b);
    assert_int_equal(a.stats[0], 0);
    for (float &v : a.amax) v *= 4;
    for (float &v : b.amax) v *= 4;
    q.amax_only = 0;
    q.row.amax_given = q.col.amax_given = 1;
    run(q, 2);
    for (int64_t r = 0; r < 130; ++r)
      for (int64_t c = 0; c < 200; ++c) {
        auto given = [&](const Expected &e, int64_t i, int64_t j) {
          const int64_t tr = num::scale_tile_rows(k.scaling), tc = num::scale_tile_cols(k.scaling);
          return num::scale_of(num::kE4M3, k.rule,
                               4 * e.amax[size_t((tr ? i / tr : 0) * e.scale_cols + (tc ? j / tc : 0))], 0)
              .multiplier;
        };
        assert_int_equal(a.codes.code(r, c), num::encode_fp8(num::kE4M3, x.get(r, c) * given(row, r, c)));
        assert_int_equal(b.codes.code(c, r), num::encode_fp8(num::kE4M3, x.get(r, c) * given(col, c, r)));
      }
  }
}

void column_sums(void **) {
  for (const Layout layout : kLayouts)
    for (const int64_t rows : {0, 1, 128, 129, 390}) {
      constexpr int64_t kCols = 75;
      Owned x(num::kF16, rows, kCols, layout);
      fill(x, uint32_t(rows) + 3, false);
      std::vector<float> want(kCols);
      for (int64_t c = 0; c < kCols; ++c) {
        double total = 0;
        for (int64_t r0 = 0; r0 < rows; r0 += 128) {
          float part = 0;
          for (int64_t r = r0; r < std::min(rows, r0 + 128); ++r) part += x.get(r, c);
          total += part;
        }
        want[size_t(c)] = float(total);
      }
      for (const cpu::Simd target : targets())
        for (const int threads : {1, 3}) {
          cpu::force_simd(target);
          std::vector<float> got(2 * kCols, 1.5f);
          ops::Quantize q{};
          q.x = x.m;
          q.dbias = ops::Vector{got.data(), num::kF32, 0, kCols, 2};
          run(q, threads);
          for (int64_t c = 0; c < kCols; ++c) assert_memory_equal(&got[size_t(2 * c)], &want[size_t(c)], 4);
          q.dbias_accumulate = 1;
          run(q, threads);
          for (int64_t c = 0; c < kCols; ++c) {
            assert_true(got[size_t(2 * c)] == want[size_t(c)] + want[size_t(c)]);
            assert_true(got[size_t(2 * c + 1)] == 1.5f);
          }
        }
    }
}

// An FP32 source rounded first is the BF16 source; without the flag it is not.
void round_first(void **) {
  for (const Layout layout : kLayouts) {
    Owned x(num::kF32, 132, 140, layout), h(num::kBF16, 132, 140, Layout::kPlain);
    fill(x, 11, true);
    for (int64_t r = 0; r < 132; ++r)
      for (int64_t c = 0; c < 140; ++c) h.set(r, c, x.get(r, c));
    const Mode k = {num::k128x128, num::kRuleFp32};
    auto value = [&](int64_t r, int64_t c) { return h.get(r, c); };
    const Expected want = expect(value, 132, 140, k.scaling, k.rule, num::kE4M3, 0);
    SideMemory a(k, num::kE4M3, 132, 140, want, Layout::kPlain, true);
    ops::Quantize q{};
    q.x = x.m;
    q.row = a.view;
    q.round_bf16 = 1;
    const std::vector<char> gaps = a.codes.gaps();
    run(q, 2);
    a.check(want, gaps, true);
    q.round_bf16 = 0;
    run(q, 1);
    int64_t differ = 0;
    for (int64_t i = 0; i < 132 * 140; ++i) differ += a.codes.code(i / 140, i % 140) != want.codes[size_t(i)];
    assert_true(differ > 100);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(against_oracle), cmocka_unit_test(scales_alike),
                              cmocka_unit_test(powers_of_two),  cmocka_unit_test(amax_apart),
                              cmocka_unit_test(column_sums),    cmocka_unit_test(round_first)};
  return cmocka_run_group_tests_name("unit.quantize_kernels", tests, nullptr, nullptr);
}
