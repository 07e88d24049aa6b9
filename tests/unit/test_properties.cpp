// SPDX-License-Identifier: Apache-2.0
// Properties of the quantizer that need no reference: idempotence, equivariance under powers of two, sign symmetry,
// permutation of blocks, exact double quantization.
#include <cstdio>
#include <cstring>

#include "kernel_data.h"

using namespace kernel_test;

namespace {

struct Mode {
  int32_t scaling, rule;
};
const Mode kPow2[] = {{num::kTensor, num::kRulePow2},  {num::kRow, num::kRulePow2},  {num::k1x128, num::kRulePow2},
                      {num::k128x128, num::kRulePow2}, {num::k1x32, num::kRuleE8m0}, {num::k32x32, num::kRuleE8m0}};
constexpr int64_t kRows = 256, kCols = 384;

struct Result {
  std::vector<uint8_t> codes = std::vector<uint8_t>(kRows * kCols);
  std::vector<float> scales = std::vector<float>(kRows * kCols / 32);
  ops::Side side{};
};

ops::Matrix matrix(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  return ops::Matrix{data, dtype, 1, rows, cols, {rows}, {cols}, 1};
}

void quantize_into(Result &r, const ops::Matrix &x, const Mode &k, int32_t dtype) {
  const int64_t tr = num::scale_tile_rows(k.scaling), tc = num::scale_tile_cols(k.scaling);
  const int64_t sr = tr ? (x.rows + tr - 1) / tr : 1, sc = tc ? (x.cols + tc - 1) / tc : 1;
  ops::Quantize q{};
  q.x = x;
  // scales as F32 whatever the rule: 2^(c - 127)
  r.side = q.row.side = ops::Side{k.scaling, k.rule, matrix(r.codes.data(), dtype, x.rows, x.cols),
                                  ops::Scale{r.scales.data(), num::kF32, 0, sr, sc, sc, 1}};
  std::vector<char> workspace(cpu::quantize_workspace(q));
  q.workspace = workspace.data();
  q.workspace_bytes = workspace.size();
  cpu::quantize(q, {});
}

Result quantized(const ops::Matrix &x, const Mode &k, int32_t dtype) {
  Result r;
  quantize_into(r, x, k, dtype);
  return r;
}

std::vector<float> values(const Result &r) {
  std::vector<float> x(r.codes.size());
  cpu::dequantize(ops::Dequantize{r.side, 0, 0, matrix(x.data(), num::kF32, kRows, kCols)}, {});
  return x;
}

Owned gauss(int32_t dtype, uint32_t seed) {
  Owned x(dtype, kRows, kCols, Layout::kPlain);
  fill(x, seed, false);
  return x;
}

void idempotent(void **) {
  for (const Mode &k : kPow2)
    for (const int32_t dtype : {num::kE4M3, num::kE5M2}) {
      const Owned x = gauss(num::kBF16, 1);
      const Result once = quantized(x.m, k, dtype);
      std::vector<float> v = values(once);
      const Result twice = quantized(matrix(v.data(), num::kF32, kRows, kCols), k, dtype);
      const std::vector<float> w = values(twice);
      assert_memory_equal(v.data(), w.data(), v.size() * 4);
    }
}

void equivariant(void **) {
  for (const Mode &k : kPow2)
    for (const int shift : {-9, 5}) {
      const Owned x = gauss(num::kF32, 2);
      Owned y = gauss(num::kF32, 2), z = gauss(num::kF32, 2);
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t c = 0; c < kCols; ++c) {
          y.set(r, c, std::ldexp(x.get(r, c), shift));
          z.set(r, c, -x.get(r, c));
        }
      const Result a = quantized(x.m, k, num::kE4M3), b = quantized(y.m, k, num::kE4M3),
                   n = quantized(z.m, k, num::kE4M3);
      assert_memory_equal(a.codes.data(), b.codes.data(), a.codes.size());
      for (size_t i = 0; i < a.scales.size(); ++i) assert_true(std::ldexp(a.scales[i], shift) == b.scales[i]);
      for (size_t i = 0; i < a.codes.size(); ++i) assert_int_equal(a.codes[i] ^ 0x80, n.codes[i]);
    }
}

// Blocks are independent: rows in another order give the same rows, in chunks as tall as a tile.
void permuted(void **) {
  for (const Mode &k : kPow2) {
    const int64_t chunk = std::max<int64_t>(num::scale_tile_rows(k.scaling), 1);
    if (k.scaling == num::kTensor) continue;
    const Owned x = gauss(num::kBF16, 3);
    Owned y = gauss(num::kBF16, 3);
    auto from = [&](int64_t r) { return (kRows / chunk - 1 - r / chunk) * chunk + r % chunk; };
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kCols; ++c) y.set(r, c, x.get(from(r), c));
    const Result a = quantized(x.m, k, num::kE5M2), b = quantized(y.m, k, num::kE5M2);
    for (int64_t r = 0; r < kRows; ++r)
      assert_memory_equal(&b.codes[size_t(r * kCols)], &a.codes[size_t(from(r) * kCols)], kCols);
  }
}

// numerics: where both grids are normal, the second quantization changes nothing and equals the direct one.
void double_quantization(void **) {
  for (const Mode &k : {kPow2[2], kPow2[4]}) {
    const Owned x = gauss(num::kBF16, 4);
    const Result row = quantized(x.m, k, num::kE4M3);
    const std::vector<float> v = values(row);
    const int64_t tile = num::scale_tile_cols(k.scaling);
    std::vector<uint8_t> col(kRows * kCols);
    std::vector<float> scale(kRows * kCols / 32);
    ops::Quantize q{};
    q.source = row.side;
    q.col.side = ops::Side{k.scaling, k.rule, matrix(col.data(), num::kE4M3, kCols, kRows),
                           ops::Scale{scale.data(), num::kF32, 0, kCols, kRows / tile, kRows / tile, 1}};
    cpu::quantize(q, {});
    int64_t exact = 0;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kCols; ++c) {
        const float s = scale[size_t(c * (kRows / tile) + r / tile)], x_r = v[size_t(r * kCols + c)];
        if (std::fabs(x_r) < std::ldexp(s, -6)) continue;
        assert_true(num::decode_fp8(num::kE4M3, col[size_t(c * kRows + r)]) * s == x_r);
        ++exact;
      }
    assert_true(exact > kRows * kCols / 2);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(idempotent), cmocka_unit_test(equivariant), cmocka_unit_test(permuted),
                              cmocka_unit_test(double_quantization)};
  return cmocka_run_group_tests_name("unit.properties", tests, nullptr, nullptr);
}
