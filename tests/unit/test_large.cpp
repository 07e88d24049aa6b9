// SPDX-License-Identifier: Apache-2.0
// The quantizer and dequantizer over more than 2^31 elements, over offsets beyond that, and where outputs are streamed.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "kernel_data.h"

using namespace kernel_test;

namespace {

ops::Matrix matrix(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  return ops::Matrix{data, dtype, 1, rows, cols, {rows}, {cols}, 1};
}

// x and the outputs lie in small files mapped again and again, so the extents are real and the memory is not.
class Repeated {
 public:
  Repeated(int64_t bytes, int64_t period) : bytes_(bytes) {
    const int file = memfd_create("repeated", 0);
    assert_true(file >= 0 && ftruncate(file, period) == 0);
    data_ = static_cast<char *>(
        mmap(nullptr, size_t(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    assert_true(data_ != MAP_FAILED);
    for (int64_t at = 0; at < bytes; at += period)
      assert_true(mmap(data_ + at, size_t(std::min(period, bytes - at)), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       file, 0) != MAP_FAILED);
    close(file);
  }
  ~Repeated() { munmap(data_, size_t(bytes_)); }
  template <class T>
  T *as() const {
    return reinterpret_cast<T *>(data_);
  }

 private:
  int64_t bytes_;
  char *data_;
};

void beyond_2_31(void **) {
  constexpr int64_t cols = 4096, rows = (int64_t{1} << 31) / cols + 128, n = rows * cols, mib = 1 << 20;
  Repeated x(n * 2, 16 * mib), codes(n, 8 * mib), back(n * 2, 32 * mib);
  for (int64_t i = 0; i < 8 * mib; ++i) x.as<uint16_t>()[i] = uint16_t(0x3f00 + i % 251);
  std::vector<uint64_t> stats(8, 0);
  ops::Quantize q{};
  float scale = 0;
  q.x = matrix(x.as<void>(), num::kBF16, rows, cols);
  q.row.side = ops::Side{num::kTensor, num::kRuleFp32, matrix(codes.as<void>(), num::kE4M3, rows, cols),
                         ops::Scale{&scale, num::kF32, 0, 1, 1, 1, 1}};
  q.row.stats = ops::Vector{stats.data(), 10, 0, 8, 1};
  char workspace[256];
  assert_true(cpu::quantize_workspace(q) <= sizeof workspace);
  q.workspace = workspace;
  q.workspace_bytes = sizeof workspace;
  int threads = 2;
  cpu::quantize(q, {on_threads, &threads});
  assert_int_equal(stats[num::kCount], n);
  assert_int_equal(stats[num::kNonzero], n);
  const num::ScaleOf s = num::scale_of(num::kE4M3, num::kRuleFp32, num::decode_bf16(0x3f00 + 250), 0);
  assert_true(scale == s.inverse);
  auto code = [&](int64_t i) {
    return num::encode_fp8(num::kE4M3, num::decode_bf16(uint16_t(0x3f00 + i % (8 * mib) % 251)) * s.multiplier);
  };
  for (int64_t i = n - 8 * mib; i < n; i += 1013) assert_int_equal(codes.as<uint8_t>()[i], code(i));
  cpu::dequantize(ops::Dequantize{q.row.side, 0, 0, matrix(back.as<void>(), num::kBF16, rows, cols)},
                  {on_threads, &threads});
  for (int64_t i = n - 8 * mib; i < n; i += 1013)
    assert_int_equal(back.as<uint16_t>()[i], num::encode_bf16(num::dequantize_element(num::kE4M3, code(i), scale)));
}

// Elements far apart in memory: offsets beyond 2^31 elements, both sides, streamed outputs included.
void far_apart(void **) {
  constexpr int64_t rows = 130, cols = 140, pitch = int64_t{1} << 25, span = rows * pitch;
  char *x = static_cast<char *>(
      mmap(nullptr, size_t(span * 2), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  char *row = static_cast<char *>(
      mmap(nullptr, size_t(span), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  char *col = static_cast<char *>(mmap(nullptr, size_t((cols + 1) * pitch), PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  assert_true(x != MAP_FAILED && row != MAP_FAILED && col != MAP_FAILED);
  Owned near(num::kBF16, rows, cols, Layout::kPlain);
  fill(near, 8, false);
  for (int64_t r = 0; r < rows; ++r) std::memcpy(x + r * pitch * 2, near.at(r, 0), cols * 2);
  const Expected want = expect([&](int64_t r, int64_t c) { return near.get(r, c); }, rows, cols, num::k1x32,
                               num::kRuleE8m0, num::kE4M3, 0);
  const Expected flip = expect([&](int64_t r, int64_t c) { return near.get(c, r); }, cols, rows, num::k1x32,
                               num::kRuleE8m0, num::kE4M3, 0);
  std::vector<uint8_t> s(rows * 5), t(cols * 5);
  ops::Quantize q{};
  q.x = ops::Matrix{x, num::kBF16, 1, rows, cols, {rows}, {pitch}, 1};
  q.row.side = ops::Side{num::k1x32, num::kRuleE8m0, ops::Matrix{row, num::kE4M3, 1, rows, cols, {rows}, {pitch}, 1},
                         ops::Scale{s.data(), num::kE8M0, 0, rows, 5, 5, 1}};
  q.col.side = ops::Side{num::k1x32, num::kRuleE8m0, ops::Matrix{col, num::kE4M3, 1, cols, rows, {cols}, {pitch}, 1},
                         ops::Scale{t.data(), num::kE8M0, 0, cols, 5, 5, 1}};
  cpu::quantize(q, {});
  for (int64_t r = 0; r < rows; ++r) assert_memory_equal(row + r * pitch, &want.codes[size_t(r * cols)], cols);
  for (int64_t c = 0; c < cols; ++c) assert_memory_equal(col + c * pitch, &flip.codes[size_t(c * rows)], rows);
  munmap(x, size_t(span * 2));
  munmap(row, size_t(span));
  munmap(col, size_t((cols + 1) * pitch));
}

// A call large enough to stream gives what its halves give without.
void streamed(void **) {
  constexpr int64_t rows = 8200, cols = 4100;
  static_assert(rows * cols > cpu::kStreamFrom && rows / 2 * cols < cpu::kStreamFrom,
                "one streams, the other does not");
  std::vector<uint16_t> x(rows * cols);
  std::mt19937 rng(6);
  for (uint16_t &v : x) v = uint16_t(0x3c00 + rng() % 0x500);
  std::vector<uint8_t> whole(rows * cols), halves(rows * cols), col(rows * cols);
  std::vector<float> s(rows * 33), t(cols * 65);
  auto call = [&](int64_t first, int64_t n, uint8_t *out, bool both) {
    ops::Quantize q{};
    q.x = matrix(&x[size_t(first * cols)], num::kBF16, n, cols);
    q.row.side = ops::Side{num::k1x128, num::kRulePow2, matrix(out + first * cols, num::kE4M3, n, cols),
                           ops::Scale{s.data(), num::kF32, 0, n, 33, 33, 1}};
    if (both)
      q.col.side = ops::Side{num::k1x128, num::kRulePow2, matrix(col.data(), num::kE4M3, cols, n),
                             ops::Scale{t.data(), num::kF32, 0, cols, 65, 65, 1}};
    int threads = 2;
    cpu::quantize(q, {on_threads, &threads});
  };
  call(0, rows / 2, halves.data(), false);
  call(rows / 2, rows / 2, halves.data(), false);
  call(0, rows, whole.data(), true);
  assert_memory_equal(whole.data(), halves.data(), whole.size());
  std::vector<uint16_t> a(rows * cols), b(rows * cols);
  const ops::Side side{num::k1x128, num::kRulePow2, matrix(whole.data(), num::kE4M3, rows, cols),
                       ops::Scale{s.data(), num::kF32, 0, rows, 33, 33, 1}};
  cpu::dequantize(ops::Dequantize{side, 0, 0, matrix(a.data(), num::kBF16, rows, cols)}, {});
  for (int64_t r = 0; r < rows; r += 7)
    for (int64_t c = 0; c < cols; ++c)
      assert_int_equal(a[size_t(r * cols + c)],
                       num::encode_bf16(num::dequantize_element(num::kE4M3, whole[size_t(r * cols + c)],
                                                                s[size_t(r * 33 + c / 128)])));
  const ops::Side other{num::k1x128, num::kRulePow2, matrix(col.data(), num::kE4M3, cols, rows),
                        ops::Scale{t.data(), num::kF32, 0, cols, 65, 65, 1}};
  cpu::dequantize(ops::Dequantize{other, 1, 0, matrix(b.data(), num::kBF16, rows, cols)}, {});
  for (int64_t r = 0; r < rows; r += 7)
    for (int64_t c = 0; c < cols; c += 3)
      assert_int_equal(b[size_t(r * cols + c)],
                       num::encode_bf16(num::dequantize_element(num::kE4M3, col[size_t(c * rows + r)],
                                                                t[size_t(c * 65 + r / 128)])));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(far_apart), cmocka_unit_test(streamed), cmocka_unit_test(beyond_2_31)};
  return cmocka_run_group_tests_name("unit.large", tests, nullptr, nullptr);
}
