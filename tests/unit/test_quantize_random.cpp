// SPDX-License-Identifier: Apache-2.0
// Random calls of the quantizer, most of them of shapes that no tile divides: every SIMD target, on one thread and on
// three, writes the bytes that the plain code writes, and nothing in the gaps.
#include <cmath>
#include <cstdlib>
#include <memory>

#include "kernel_data.h"
#include "quantize_case.h"

namespace {

using kernel_test::on_threads;

constexpr int64_t kMost = 250000;  // elements: some seconds in all

struct Sizes {
  const int64_t *begin;
  int count;
};

std::vector<uint8_t> run(uint64_t seed, Sizes sizes, fp8::cpu::Simd target, int threads) {
  const size_t bytes = fp8::test::make_case(seed, nullptr, sizes.begin, sizes.count).arena.size();
  const std::unique_ptr<void, void (*)(void *)> arena(std::aligned_alloc(4096, (bytes + 4096) / 4096 * 4096),
                                                      std::free);
  fp8::test::Case c = fp8::test::make_case(seed, arena.get(), sizes.begin, sizes.count);
  std::memcpy(arena.get(), c.arena.data(), bytes);
  std::vector<char> workspace(fp8::cpu::quantize_workspace(c.q));
  c.q.workspace = workspace.data(), c.q.workspace_bytes = workspace.size();
  fp8::cpu::force_simd(target);
  fp8::cpu::quantize(c.q, {on_threads, &threads});
  const uint8_t *begin = static_cast<const uint8_t *>(arena.get());
  return {begin, begin + bytes};
}

void compare(uint64_t seed, Sizes sizes, const std::string &text) {
  const std::vector<uint8_t> plain = run(seed, sizes, fp8::cpu::Simd::kBase, 1);
  for (const fp8::cpu::Simd target : kernel_test::targets())
    for (const int threads : {1, 3}) assert_true(fp8::test::same(plain, run(seed, sizes, target, threads), text));
}

void every_target_writes_the_same(void **) {
  static constexpr int64_t sizes[] = {0, 1, 2, 5, 17, 31, 32, 33, 64, 127, 128, 129, 136, 300, 512, 777, 1024, 2100};
  const Sizes all{sizes, sizeof sizes / sizeof *sizes};
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const fp8::test::Case shape = fp8::test::make_case(seed, nullptr, all.begin, all.count);
    if (shape.rows * shape.cols <= kMost) compare(seed, all, shape.text);
  }
}

// Quantized matrices as input with a scale a row, so that the amaxes of all come first: longer than any tile either
// way.
void sources(void **) {
  static constexpr int64_t sizes[] = {24, 1100};
  int wide = 0;
  for (uint64_t seed = 1; wide < 4; seed += 6) {  // every sixth is ROW
    const fp8::test::Case shape = fp8::test::make_case(seed, nullptr, sizes, 2);
    if (!shape.q.source.scaling || shape.rows == shape.cols) continue;
    wide += shape.q.source_is_col && shape.cols > shape.rows;
    compare(seed, {sizes, 2}, shape.text);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_target_writes_the_same), cmocka_unit_test(sources)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
