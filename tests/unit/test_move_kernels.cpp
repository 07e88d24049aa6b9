// SPDX-License-Identifier: Apache-2.0
// Dequantize, requantize, cast, transpose and measure against loops over elements; every SIMD target, odd views.
#include <cstdio>
#include <cstring>

#include "kernel_data.h"

using namespace kernel_test;

namespace {

const int32_t kScalings[] = {num::kTensor, num::kRow, num::k1x128, num::k128x128, num::k1x32, num::k32x32};

// A side of random codes and scales, special ones included.
struct RandomSide {
  Owned codes;
  std::vector<float> inverse;
  std::vector<uint8_t> e8m0;
  ops::Side side{};
  RandomSide(int32_t scaling, int32_t dtype, int64_t rows, int64_t cols, Layout layout, uint32_t seed)
      : codes(dtype, rows, cols, layout) {
    std::mt19937 rng(seed);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) *static_cast<uint8_t *>(codes.at(r, c)) = uint8_t(rng());
    const int64_t tr = num::scale_tile_rows(scaling), tc = num::scale_tile_cols(scaling);
    const int64_t sr = tr ? (rows + tr - 1) / tr : 1, sc = tc ? (cols + tc - 1) / tc : 1;
    const bool mx = tc == 32 || tr == 32;
    for (int64_t i = 0; i < sr * sc; ++i) {
      e8m0.push_back(uint8_t(rng() % 40 == 0 ? rng() : 100 + rng() % 50));
      inverse.push_back(mx ? num::decode_e8m0(e8m0.back())
                           : std::ldexp(1.0f + float(rng() % 1000) / 999, int(rng() % 20) - 10));
    }
    // scales that are no scales: what a NaN looks like must not depend on the processor
    if (!mx) {
      const float odd[] = {INFINITY, num::float_of(0xffc12345u), 0.0f, -1.5f};
      for (size_t i = 3; i < inverse.size(); i += 9) inverse[i] = odd[i / 9 % 4];
    }
    side = ops::Side{scaling, num::kRuleFp32, codes.m,
                     ops::Scale{mx ? static_cast<void *>(e8m0.data()) : inverse.data(), mx ? num::kE8M0 : num::kF32, 0,
                                sr, sc, sc, 1}};
  }
  float value(int64_t r, int64_t c) const {
    const int64_t tr = num::scale_tile_rows(side.scaling), tc = num::scale_tile_cols(side.scaling);
    const float s = inverse[size_t((tr ? r / tr : 0) * side.scale.cols + (tc ? c / tc : 0))];
    return num::canonical(num::decode_fp8(codes.m.dtype, codes.code(r, c)) * s);
  }
};

void same_element(const Owned &got, int64_t r, int64_t c, float want) {
  char expected[4], found[4];
  const size_t size = size_t(num::element_size(got.m.dtype));
  num::store(got.m.dtype, expected, 0, want);
  std::memcpy(found, got.at(r, c), size);
  assert_memory_equal(found, expected, size);
}

void dequantized(void **) {
  uint32_t seed = 0;
  for (const int32_t scaling : kScalings)
    for (const int32_t out : {num::kF32, num::kF16, num::kBF16})
      for (const bool is_col : {false, true}) {
        ++seed;
        const int64_t rows = 131, cols = 270;
        const RandomSide q(scaling, seed % 2 ? num::kE4M3 : num::kE5M2, is_col ? cols : rows, is_col ? rows : cols,
                           kLayouts[seed % 5], seed);
        for (const cpu::Simd target : targets()) {
          cpu::force_simd(target);
          Owned x(out, rows, cols, kLayouts[(seed / 3) % 5]);
          const std::vector<char> gaps = x.gaps();
          int threads = 1 + int(seed % 3);
          cpu::dequantize(ops::Dequantize{q.side, is_col, 0, x.m}, {on_threads, &threads});
          assert_true(x.gaps() == gaps);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c) same_element(x, r, c, is_col ? q.value(c, r) : q.value(r, c));
        }
      }
}

void quantize(ops::Quantize &q, int threads = 2) {
  std::vector<char> workspace(cpu::quantize_workspace(q));
  q.workspace = workspace.data();
  q.workspace_bytes = workspace.size();
  cpu::quantize(q, {on_threads, &threads});
}

// 1D kinds: the same as quantizing the dequantized matrix. TENSOR and 2D: the bytes and scales themselves.
void requantized(void **) {
  for (const int32_t scaling : kScalings)
    for (const bool from_col : {false, true})
      for (const bool to_col : {false, true})
        for (const bool wide : {false, true}) {  // wider than any tile
          const int64_t rows = wide ? 24 : 140, cols = wide ? 2100 : 133;
          RandomSide from(scaling, num::kE4M3, from_col ? cols : rows, from_col ? rows : cols, Layout::kPlain, 9);
          RandomSide to(scaling, num::kE4M3, to_col ? cols : rows, to_col ? rows : cols, Layout::kPitched, 10);
          ops::Quantize q{};
          q.source = from.side;
          q.source_is_col = from_col;
          ops::QuantizeSide &side = to_col ? q.col : q.row;
          side.side = to.side;
          side.side.rule = to.side.scale.dtype == num::kE8M0 ? num::kRuleE8m0 : num::kRulePow2;
          quantize(q);
          if (num::symmetric(scaling)) {
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t c = 0; c < cols; ++c)
                assert_int_equal(to.codes.code(to_col ? c : r, to_col ? r : c),
                                 from.codes.code(from_col ? c : r, from_col ? r : c));
            const ops::Scale &a = from.side.scale, &b = to.side.scale;
            for (int64_t i = 0; i < b.rows; ++i)
              for (int64_t j = 0; j < b.cols; ++j) {
                const int64_t at = from_col == to_col ? i * a.row_stride + j : j * a.row_stride + i;
                if (a.dtype == num::kF32)
                  assert_memory_equal(&to.inverse[size_t(i * b.cols + j)], &from.inverse[size_t(at)], 4);
                else
                  assert_int_equal(to.e8m0[size_t(i * b.cols + j)], from.e8m0[size_t(at)]);
              }
            continue;
          }
          const int64_t er = to_col ? cols : rows, ec = to_col ? rows : cols;
          const Expected want =
              expect([&](int64_t r, int64_t c) { return to_col == from_col ? from.value(r, c) : from.value(c, r); }, er,
                     ec, scaling, side.side.rule, num::kE4M3, 0);
          for (int64_t r = 0; r < er; ++r)
            for (int64_t c = 0; c < ec; ++c) assert_int_equal(to.codes.code(r, c), want.codes[size_t(r * ec + c)]);
        }
}

void cast_pairs(void **) {
  uint32_t seed = 0;
  for (const int32_t from : {num::kF32, num::kF16, num::kBF16, num::kE4M3, num::kE5M2})
    for (const int32_t to : {num::kF32, num::kF16, num::kBF16, num::kE4M3, num::kE5M2})
      for (const float scale : {1.0f, 3.7f}) {
        ++seed;
        Owned x(from, 37, 2053, kLayouts[seed % 5]);
        fill(x, seed, true);
        for (const cpu::Simd target : targets()) {
          cpu::force_simd(target);
          Owned y(to, 37, 2053, kLayouts[(seed / 2) % 5]);
          const std::vector<char> gaps = y.gaps();
          int threads = 2;
          cpu::cast(ops::Cast{x.m, y.m, scale == 1.0f ? nullptr : &scale, int32_t(seed % 2), 0},
                    {on_threads, &threads});
          assert_true(y.gaps() == gaps);
          for (int64_t r = 0; r < 37; ++r)
            for (int64_t c = 0; c < 2053; ++c) {
              const float v = x.get(r, c) * scale;
              if (to == num::kE4M3 || to == num::kE5M2)
                assert_int_equal(y.code(r, c), num::encode_fp8(to, v, seed % 2));
              else
                same_element(y, r, c, v);
            }
        }
      }
}

template <class T>
void transpose_of(int32_t dtype) {
  for (const int64_t rows : {1, 15, 64, 300})
    for (const int64_t cols : {1, 17, 130}) {
      std::vector<T> src(size_t(rows * (cols + 3))), dst(size_t(cols * (2 * rows + 5)), T(9));
      for (size_t i = 0; i < src.size(); ++i) src[i] = T(i * 2654435761u);
      for (const int64_t step : {1, 2}) {
        ops::Transpose t{};
        t.src = ops::Matrix{src.data(), dtype, 1, rows, cols, {rows}, {cols + 3}, 1};
        t.dst = ops::Matrix{dst.data(), dtype, 1, cols, rows, {cols}, {2 * rows + 5}, step};
        int threads = 3;
        std::fill(dst.begin(), dst.end(), T(9));
        cpu::transpose(t, {on_threads, &threads});
        for (int64_t c = 0; c < cols; ++c) {
          for (int64_t r = 0; r < rows; ++r)
            assert_true(dst[size_t(c * (2 * rows + 5) + r * step)] == src[size_t(r * (cols + 3) + c)]);
          assert_true(dst[size_t(c * (2 * rows + 5) + rows * step)] == T(9));
        }
      }
    }
}

void transposed(void **) {
  transpose_of<uint8_t>(num::kE4M3);
  transpose_of<uint8_t>(7);
  transpose_of<uint16_t>(num::kBF16);
  transpose_of<uint32_t>(num::kF32);
  transpose_of<uint32_t>(8);
  transpose_of<uint64_t>(9);
  transpose_of<uint64_t>(11);
}

// Close to long double sums, and the same bits for every target and thread count.
void measured(void **) {
  for (const bool is_col : {false, true}) {
    const int64_t rows = 300, cols = 270;
    RandomSide q(num::k1x128, num::kE4M3, is_col ? cols : rows, is_col ? rows : cols, Layout::kPlain, 4);
    for (float &v : q.inverse)
      if (!(v > 0 && v < 1e30f)) v = 1;
    Owned x(num::kBF16, rows, cols, Layout::kEvery3rd);
    fill(x, 4, false);
    long double xx = 0, ee = 0, xy = 0;
    double worst = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        uint8_t &code = *static_cast<uint8_t *>(q.codes.at(is_col ? c : r, is_col ? r : c));
        if ((code & 0x7f) == 0x7f) code = 1;
        const double v = x.get(r, c), y = is_col ? q.value(c, r) : q.value(r, c);
        xx += v * v;
        ee += (v - y) * (v - y);
        xy += v * y;
        worst = std::max(worst, std::fabs(v - y));
      }
    double first[4] = {};
    for (const cpu::Simd target : targets())
      for (int threads : {1, 2, 5}) {
        cpu::force_simd(target);
        double sums[4];
        ops::Measure m{};
        m.side = q.side;
        m.is_col = is_col;
        m.x = x.m;
        m.sums = ops::Vector{sums, 11, 0, 4, 1};
        std::vector<char> workspace(cpu::measure_workspace(m));
        m.workspace = workspace.data();
        m.workspace_bytes = workspace.size();
        cpu::measure(m, {on_threads, &threads});
        if (first[0] == 0) std::memcpy(first, sums, sizeof sums);
        assert_memory_equal(sums, first, sizeof sums);
      }
    assert_true(std::fabs(first[0] / double(xx) - 1) < 1e-12);
    assert_true(std::fabs(first[1] / double(ee) - 1) < 1e-12);
    assert_true(std::fabs(first[2] - double(xy)) < 1e-12 * std::sqrt(double(xx) * double(ee)));
    assert_true(first[3] == worst);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(dequantized), cmocka_unit_test(requantized),
                              cmocka_unit_test(cast_pairs), cmocka_unit_test(transposed), cmocka_unit_test(measured)};
  return cmocka_run_group_tests_name("unit.move_kernels", tests, nullptr, nullptr);
}
