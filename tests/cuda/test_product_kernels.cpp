// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels around products (widening, small MX products, packing, swizzled scales), run by the host emulation.
#include <cmath>

#include "../unit/quantize_case.h"
#include "cpu/launch_cpu.h"
#include "cuda/launch_cuda.h"

// after the standard headers: CMocka wants these
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

#include "kernel_case.h"

namespace {

using namespace fp8;

// What BF16 cannot hold is left out by widen and added by add_outside: together the exact product.
void widened_product_is_whole(void **) {
  constexpr int64_t m = 20, n = 18, k = 80, ld = 80;
  test::Random r(9);
  for (int round = 0; round < 4; ++round) {
    std::vector<uint8_t> qa(m * k), qb(n * k), sa(m * 3), sb(n * 3);
    for (auto &v : qa) v = static_cast<uint8_t>(r.next() % 127 | (r.next() & 128));
    for (auto &v : qb) v = static_cast<uint8_t>(r.next() % 127 | (r.next() & 128));
    for (auto &v : sa)
      v = static_cast<uint8_t>(round == 0     ? 120 + r.below(14)
                               : r.chance(30) ? r.below(12)
                               : r.chance(20) ? 245 + r.below(6)
                                              : 127);
    for (auto &v : sb) v = static_cast<uint8_t>(round == 0 ? 120 + r.below(14) : 100 + r.below(10));
    auto side = [&](std::vector<uint8_t> &q, std::vector<uint8_t> &s, int64_t rows) {
      ops::Side x{};
      x.scaling = num::k1x32;
      x.codes = matrix(q.data(), num::kE4M3, rows, k, k);
      x.scale = {s.data(), num::kE8M0, 0, rows, 3, 3, 1};
      return x;
    };
    const ops::Side a = side(qa, sa, m), b = side(qb, sb, n);
    uint16_t *wa = static_cast<uint16_t *>(aligned(m * ld * 2)), *wb = static_cast<uint16_t *>(aligned(n * ld * 2));
    const int64_t count = cuda::widen_flags(m, ld) + cuda::widen_flags(n, ld);
    assert_int_equal(count, 6);
    alignas(16) uint8_t flags[8];
    std::memset(flags, 0xcd, sizeof flags);  // a workspace holds anything
    assert_int_equal(cuda::launch_widen({&a, wa, m, ld}, {&b, wb, n, ld}, flags, 0, nullptr), cudaSuccess);
    assert_int_equal(flags[0] | flags[1] | flags[2], round != 0);
    assert_int_equal(flags[3] | flags[4] | flags[5], 0);
    assert_int_equal(flags[6], 0xcd);
    std::vector<float> d(m * n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < k; ++c)
          sum += double(num::decode_bf16(wa[i * ld + c])) * num::decode_bf16(wb[j * ld + c]);
        d[i * n + j] = static_cast<float>(sum);
      }
    assert_int_equal(cuda::launch_outside(a, b, matrix(d.data(), num::kF32, m, n, n), flags, count, 2, nullptr),
                     cudaSuccess);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t c = 0; c < k; ++c) {
          const double p = std::ldexp(double(num::decode<num::E4M3>(qa[i * k + c])), sa[i * 3 + c / 32] - 127) *
                           std::ldexp(double(num::decode<num::E4M3>(qb[j * k + c])), sb[j * 3 + c / 32] - 127);
          sum += p, size += std::fabs(p);
        }
        assert_true(std::fabs(d[i * n + j] - sum) <= 1e-5 * size);
      }
    free(wa), free(wb);
  }
}

// Small MX products in one kernel: any codes and scales, ragged, strided, bias, accumulate; NaN where an operand is.
void small_product_is_whole(void **) {
  test::Random r(11);
  const int64_t shapes[][3] = {{20, 18, 80}, {1, 1, 1}, {33, 20, 131}, {16, 48, 64}, {5, 40, 200}};
  int round = 0;
  for (const auto &shape : shapes)
    for (int v = 0; v < 8; ++v, ++round) {
      const int64_t m = shape[0], n = shape[1], k = shape[2], blocks = (k + 31) / 32;
      const int32_t dtype_a = v & 4 ? num::kE5M2 : num::kE4M3, kind_b = v & 4 ? num::k32x32 : num::k1x32;
      const int64_t rows_b = v & 4 ? (n + 31) / 32 : n, ld = v & 2 ? k + 3 : (k + 15) / 16 * 16;
      std::vector<uint8_t> qa(m * ld + 16), qb(n * ld + 16), sa(m * blocks), sb(rows_b * blocks);
      uint8_t *pa = qa.data(), *pb = qb.data();
      while (!(v & 2) && reinterpret_cast<uintptr_t>(pa) % 8) ++pa;
      while (!(v & 2) && reinterpret_cast<uintptr_t>(pb) % 8) ++pb;
      const unsigned codes = v & 4 ? 0x7c : 0x7f;  // the finite ones
      for (auto &q : qa) q = static_cast<uint8_t>(r.next() % codes | (r.next() & 128));
      for (auto &q : qb) q = static_cast<uint8_t>(r.next() % 0x7f | (r.next() & 128));
      for (auto &s : sa)
        s = static_cast<uint8_t>(r.chance(20) ? r.below(12) : r.chance(20) ? (v & 4 ? 237 : 245) + r.below(6) : 127);
      for (auto &s : sb) s = static_cast<uint8_t>(100 + r.below(10));
      const bool nan = round % 3 == 0;
      if (nan) pa[0] = 0x7f;
      ops::Gemm g{};
      g.a.scaling = num::k1x32, g.b.scaling = kind_b;
      g.a.codes = matrix(pa, dtype_a, m, k, ld), g.b.codes = matrix(pb, num::kE4M3, n, k, ld);
      g.a.scale = {sa.data(), num::kE8M0, 0, m, blocks, blocks, 1};
      g.b.scale = {sb.data(), num::kE8M0, 0, rows_b, blocks, blocks, 1};
      std::vector<float> d(m * (n + 2)), before, bias(n);
      for (auto &x : d) x = r.gauss();
      for (auto &x : bias) x = r.gauss();
      before = d;
      g.d = matrix(d.data(), num::kF32, m, n, n + 2);
      g.accumulate = v & 1;
      if (v & 1) g.bias = {bias.data(), num::kF32, 0, n, 1};
      assert_int_equal(cuda::launch_small(g, 1, nullptr), cudaSuccess);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const double old = v & 1 ? before[i * (n + 2) + j] : 0, plus = v & 1 ? bias[j] : 0;
          double sum = old + plus, size = std::fabs(old) + std::fabs(plus);
          for (int64_t c = 0; c < k; ++c) {
            const double p =
                std::ldexp(double(num::decode_fp8(dtype_a, pa[i * ld + c])), sa[i * blocks + c / 32] - 127) *
                std::ldexp(double(num::decode_fp8(num::kE4M3, pb[j * ld + c])),
                           sb[(v & 4 ? j / 32 : j) * blocks + c / 32] - 127);
            sum += p, size += std::fabs(p);
          }
          if (nan && i == 0)
            assert_true(std::isnan(d[j]));
          else
            assert_true(std::fabs(d[i * (n + 2) + j] - sum) <= 1e-6 * size + 1e-43);
        }
        for (int64_t j = n; j < n + 2; ++j) assert_true(d[i * (n + 2) + j] == before[i * (n + 2) + j]);
      }
    }
  // a scale of NaN, and FP16 out rounded once
  uint8_t q[32], s[2] = {127, 255};
  std::memset(q, 0x38, sizeof q);  // 1
  ops::Gemm g{};
  g.a.scaling = g.b.scaling = num::k1x32;
  g.a.codes = matrix(q, num::kE4M3, 2, 16, 16), g.b.codes = matrix(q, num::kE4M3, 1, 16, 16);
  g.a.scale = {s, num::kE8M0, 0, 2, 1, 1, 1}, g.b.scale = {s, num::kE8M0, 0, 1, 1, 1, 1};
  uint16_t out[2];
  g.d = matrix(out, num::kF16, 2, 1, 1);
  assert_int_equal(cuda::launch_small(g, 4, nullptr), cudaSuccess);
  assert_true(num::decode_f16(out[0]) == 16.0f && std::isnan(num::decode_f16(out[1])));
}

// Every code under every scale, in and out of the window: the exact value, or zero and the flag.
void every_code_widens(void **) {
  constexpr int64_t rows = 256, k = 264, ld = 272;  // row r: scale code r; codes in order
  std::vector<uint8_t> codes(rows * k), scales(rows * 9);
  for (int64_t i = 0; i < rows * k; ++i) codes[i] = static_cast<uint8_t>(i % k);
  for (int64_t i = 0; i < rows * 9; ++i) scales[i] = static_cast<uint8_t>(i / 9);
  uint16_t *out[2] = {static_cast<uint16_t *>(aligned(rows * ld * 2)), static_cast<uint16_t *>(aligned(rows * ld * 2))};
  ops::Side s[2];
  for (int i = 0; i < 2; ++i) {
    s[i] = ops::Side{};
    s[i].scaling = num::k1x32;
    s[i].codes = matrix(codes.data(), i ? num::kE5M2 : num::kE4M3, rows, k, k);
    s[i].scale = {scales.data(), num::kE8M0, 0, rows, 9, 9, 1};
    std::memset(out[i], 0xcd, rows * ld * 2);
  }
  uint8_t *flags = static_cast<uint8_t *>(aligned(64));
  assert_int_equal(cuda::widen_flags(rows, ld), 32);
  assert_int_equal(cuda::launch_widen({&s[0], out[0], rows, ld}, {&s[1], out[1], rows, ld}, flags, 0, nullptr),
                   cudaSuccess);
  for (int i = 0; i < 64; ++i) {  // a block has 8 scale codes: 16 to 23 lie in E5M2's window but for 16
    const int c = i % 32 * 8, low = i < 32 ? 10 : 17, high = i < 32 ? 246 : 239;
    assert_int_equal(flags[i], c < low || c + 7 > high);
  }
  free(flags);
  for (int i = 0; i < 2; ++i) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < ld; ++c) {
        uint16_t want = 0;
        if (c < k) {
          const float q = num::decode_fp8(s[i].codes.dtype, codes[r * k + c]);
          const double x = std::ldexp(double(q), static_cast<int>(r) - 127);
          const bool left =
              r != 255 && std::isfinite(q) && q != 0 && (std::fabs(x) < 0x1p-126 || std::fabs(x) > 0x1.fep127);
          want = r == 255 || std::isnan(q) ? 0x7fc0 : left ? 0 : num::encode_bf16(static_cast<float>(x));
        }
        assert_int_equal(out[i][r * ld + c], want);
      }
    free(out[i]);
  }
}

void pack_repack_finish(void **) {
  const float src[6] = {1, 2, 3, 4, 5, 6};
  uint16_t packed[4 * 4];
  assert_int_equal(
      cuda::launch_pack(matrix(const_cast<float *>(src), num::kF32, 2, 3, 3), packed, num::kBF16, 4, 4, 0, nullptr),
      cudaSuccess);
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c)
      assert_true(num::decode_bf16(packed[r * 4 + c]) == (r < 2 && c < 3 ? src[r * 3 + c] : 0.0f));
  ops::Scale s{const_cast<float *>(src), num::kF32, 0, 2, 3, 3, 1};
  float columns[12];
  assert_int_equal(cuda::launch_repack(s, columns, 1, 4, 12, 0, nullptr), cudaSuccess);
  for (int i = 0; i < 12; ++i) assert_true(columns[i] == (i % 4 < 2 ? src[i % 4 * 3 + i / 4] : 0.0f));
  float rows[8];
  assert_int_equal(cuda::launch_repack(s, rows, 4, 1, 8, 0, nullptr), cudaSuccess);
  for (int i = 0; i < 8; ++i) assert_true(rows[i] == (i % 4 < 3 ? src[i / 4 * 3 + i % 4] : 0.0f));
  float d[6] = {10, 10, 10, 10, 10, 10}, bias[3] = {100, 200, 300};
  ops::Gemm g{};
  g.d = matrix(d, num::kF32, 2, 3, 3);
  g.bias = {bias, num::kF32, 0, 3, 1};
  g.accumulate = 1;
  assert_int_equal(cuda::launch_finish(g, src, 3, 0, nullptr), cudaSuccess);
  for (int i = 0; i < 6; ++i) assert_true(d[i] == 10 + src[i] + bias[i % 3]);
}

// BLOCK's power-of-two scale, repeated for four 1x32 blocks, is what the swizzled MX form holds at every place.
void swizzle_repeats_block_scales(void **) {
  constexpr int64_t rows = 200, k = 300, blocks = 10;
  float scales[rows * 3];
  for (int64_t i = 0; i < rows * 3; ++i) scales[i] = std::ldexp(1.0f, static_cast<int>(i % 250) - 127);
  ops::Side s{};
  s.scaling = num::k1x128;
  s.codes = matrix(nullptr, num::kE4M3, rows, k, 304);
  s.scale = {scales, num::kF32, 0, rows, 3, 1, rows};
  std::vector<uint8_t> out(static_cast<size_t>(cuda::swizzle_bytes(rows, blocks)), 0xcd);
  assert_int_equal(out.size(), 2 * 3 * 512);
  assert_int_equal(cuda::launch_swizzle(s, out.data(), 0, nullptr), cudaSuccess);
  size_t filled = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t code = out[static_cast<size_t>(cuda::swizzle_offset(r, b, blocks))];
      assert_true(num::decode_e8m0(code) == scales[r + b / 4 * rows]);
      filled += code != 0;
    }
  for (uint8_t code : out) filled -= code != 0;
  assert_int_equal(filled, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(widened_product_is_whole), cmocka_unit_test(every_code_widens),
                              cmocka_unit_test(small_product_is_whole), cmocka_unit_test(pack_repack_finish),
                              cmocka_unit_test(swizzle_repeats_block_scales)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
