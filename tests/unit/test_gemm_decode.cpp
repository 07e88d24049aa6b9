// SPDX-License-Identifier: Apache-2.0
// Decoded operands against the definition, in every layout, and the window in which BF16 is exact.
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
//
#include <cmocka.h>
}

#include "cpu/launch_gemm.h"
#include "cpu/simd.h"
#include "gemm_data.h"

using namespace gemm_test;
using namespace fp8;

namespace {

void serial(void *, int64_t n, void (*body)(void *, int64_t, int64_t), void *arg) { body(arg, 0, n); }
const cpu::GemmPool kSerial{nullptr, serial, 1};

float element(const cpu::DecodeTo &to, int64_t row, int64_t k) {
  int64_t at = row * to.row_stride + k;
  if (to.block_rows) {
    const int64_t pair = to.dtype == FP8_DTYPE_BF16 ? 2 : 1, r = row % to.block_rows, c = k % to.block_k;
    at = row / to.block_rows * to.row_stride + k / to.block_k * to.k_stride + (c / pair * to.block_rows + r) * pair +
         c % pair;
  }
  if (to.dtype == FP8_DTYPE_F32) return static_cast<float *>(to.data)[at];
  const uint32_t bits = static_cast<uint32_t>(static_cast<uint16_t *>(to.data)[at]) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

bool same(float got, double want) {
  if (want != want) return got != got;
  return got == want && std::signbit(got) == std::signbit(want);
}

struct Layout {
  int32_t dtype, rows, k;
};

void check_layout(Operand &x, const Layout &layout, bool fold) {
  cpu::DecodeTo to{nullptr, layout.dtype, layout.rows, layout.k, fold, x.cols + 3, 0};
  int64_t rows = x.rows, cols = x.cols, size = x.rows * to.row_stride;
  if (layout.rows) {
    rows = (x.rows + layout.rows - 1) / layout.rows * layout.rows;
    cols = (x.cols + layout.k - 1) / layout.k * layout.k;
    to.k_stride = layout.rows * layout.k;
    to.row_stride = cols * layout.rows;
    size = rows * cols;
  }
  std::vector<uint32_t> memory(size, 0x41424344);
  to.data = memory.data();
  assert_true(cpu::decode_operand(x.side(), to, kSerial));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double want = r < x.rows && c < x.cols ? x.value(r, c) * (fold ? x.scale(r, c) : 1.0) : 0.0;
      if (!same(element(to, r, c), want)) {
        fail_msg("dtype %d block %d x %d: [%d, %d] is %g, must be %g", layout.dtype, layout.rows, layout.k,
                 static_cast<int>(r), static_cast<int>(c), element(to, r, c), want);
      }
    }
  }
}

void every_layout(void **) {
  std::mt19937 rng(2);
  const Layout layouts[] = {{FP8_DTYPE_F32, 0, 0},   {FP8_DTYPE_BF16, 0, 0},   {FP8_DTYPE_F32, 64, 16},
                            {FP8_DTYPE_F32, 48, 32}, {FP8_DTYPE_BF16, 64, 32}, {FP8_DTYPE_BF16, 48, 32},
                            {FP8_DTYPE_BF16, 16, 64}};
  for (int level = 3; level >= 0; --level) {
    cpu::force_simd(static_cast<cpu::Simd>(level));
    for (const int32_t dtype : {FP8_DTYPE_E4M3, FP8_DTYPE_E5M2}) {
      for (const int32_t kind : {FP8_SCALING_TENSOR, FP8_SCALING_ROW, FP8_SCALING_1X128, FP8_SCALING_128X128,
                                 FP8_SCALING_1X32, FP8_SCALING_32X32}) {
        Operand x;
        x.shape(dtype, kind, 67, 301);
        for (uint8_t &c : x.codes) c = static_cast<uint8_t>(rng());
        for (size_t i = 0; i < x.scales.size(); ++i) x.set_e8m0(i, 20 + static_cast<int>(rng() % 210));
        for (const Layout &layout : layouts) {
          check_layout(x, layout, true);
          check_layout(x, layout, false);
        }
      }
    }
  }
  cpu::force_simd(cpu::Simd::kAvx512);
}

// All codes at the ends of the window; one step beyond is refused, save for a block of zeros.
void window(void **) {
  for (const int32_t dtype : {FP8_DTYPE_E4M3, FP8_DTYPE_E5M2}) {
    const int low = dtype == FP8_DTYPE_E4M3 ? 10 : 17, high = dtype == FP8_DTYPE_E4M3 ? 246 : 239;
    Operand x;
    x.shape(dtype, FP8_SCALING_1X32, 3, 256);
    for (int64_t i = 0; i < 3 * 256; ++i) x.codes[i] = static_cast<uint8_t>(i);
    const auto all = [&](int code) {
      for (size_t i = 0; i < x.scales.size(); ++i) x.set_e8m0(i, code);
    };
    std::vector<uint16_t> memory(3 * 256);
    const cpu::DecodeTo to{memory.data(), FP8_DTYPE_BF16, 0, 0, 1, 256, 0};
    for (const int code : {low, high}) {
      all(code);
      check_layout(x, {FP8_DTYPE_BF16, 0, 0}, true);
    }
    for (const int code : {low - 1, high + 1, 0, 254, 255}) {
      all(100);
      if (code == 255)
        x.e8m0[5] = 255, x.scales[5] = NAN;
      else
        x.set_e8m0(5, code);
      assert_false(cpu::decode_operand(x.side(), to, kSerial));
      const std::vector<uint8_t> before = x.codes;
      for (int i = 0; i < 32; ++i) x.codes[5 * 32 + i] = i % 2 ? 0x80 : 0;
      assert_int_equal(cpu::decode_operand(x.side(), to, kSerial), code != 255);
      x.codes = before;
    }
  }
  Operand x;  // FP32 scales that are no power of two
  x.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X128, 4, 128);
  for (uint8_t &c : x.codes) c = 0x38;
  x.scales[2] = 1.5f;
  std::vector<uint16_t> memory(4 * 128);
  assert_false(cpu::decode_operand(x.side(), {memory.data(), FP8_DTYPE_BF16, 0, 0, 1, 128, 0}, kSerial));
  x.scales[2] = 0.5f;
  assert_true(cpu::decode_operand(x.side(), {memory.data(), FP8_DTYPE_BF16, 0, 0, 1, 128, 0}, kSerial));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_layout), cmocka_unit_test(window)};
  return cmocka_run_group_tests_name("gemm_decode", tests, nullptr, nullptr);
}
