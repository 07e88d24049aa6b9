// SPDX-License-Identifier: Apache-2.0
// max_sms: a grid has no more blocks than that, and what it writes does not depend on it.
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

// Runs with any number of blocks and with at most 3: the same bytes.
template <class Run>
void same_with_few(size_t bytes, Run &&run) {
  std::vector<uint8_t> out[2];
  unsigned most = 0;
  for (int few = 0; few < 2; ++few) {
    void *p = nullptr;
    assert_int_equal(posix_memalign(&p, 256, bytes), 0);
    std::memset(p, 0xcd, bytes);
    emulate::machine().most = 0;
    assert_int_equal(run(p, few ? 3 : 0), cudaSuccess);
    if (!few) most = emulate::machine().most;
    if (few) assert_in_range(emulate::machine().most, 1, 3);
    out[few].assign(static_cast<uint8_t *>(p), static_cast<uint8_t *>(p) + bytes);
    free(p);
  }
  assert_in_range(most, 4, 1 << 20);  // else nothing was bounded
  assert_true(out[0] == out[1]);
}

void around_a_product(void **) {
  constexpr int64_t rows = 37, k = 1500, blocks = 47;
  test::Random r(3);
  std::vector<float> x(rows * k), scales(rows * blocks);
  std::vector<uint8_t> codes(rows * 1504), e8m0(rows * blocks);
  for (auto &v : x) v = r.gauss();
  for (auto &v : scales) v = std::ldexp(1.0f, static_cast<int>(r.below(200)) - 100);
  for (auto &v : codes) v = static_cast<uint8_t>(r.next());
  for (auto &v : e8m0) v = static_cast<uint8_t>(r.below(256));
  same_with_few(40 * 1504 * 2, [&](void *p, int32_t most) {
    return cuda::launch_pack(matrix(x.data(), num::kF32, rows, k, k), p, num::kBF16, 40, 1504, most, nullptr);
  });
  same_with_few(blocks * 40 * 4, [&](void *p, int32_t most) {
    const ops::Scale s{scales.data(), num::kF32, 0, rows, blocks, blocks, 1};
    return cuda::launch_repack(s, p, 1, 40, blocks * 40, most, nullptr);
  });
  ops::Side side{};
  side.scaling = num::k1x32;
  side.codes = matrix(codes.data(), num::kE4M3, rows, k, 1504);
  side.scale = {e8m0.data(), num::kE8M0, 0, rows, blocks, blocks, 1};
  const int64_t flags = cuda::widen_flags(rows, 1504), wide = rows * 1504 * 2;
  same_with_few(static_cast<size_t>(2 * wide + 2 * flags), [&](void *p, int32_t most) {
    uint8_t *to = static_cast<uint8_t *>(p);
    return cuda::launch_widen({&side, to, rows, 1504}, {&side, to + wide, rows, 1504}, to + 2 * wide, most, nullptr);
  });
  same_with_few(static_cast<size_t>(cuda::swizzle_bytes(rows, blocks)),
                [&](void *p, int32_t most) { return cuda::launch_swizzle(side, p, most, nullptr); });
  std::vector<float> bias(k);
  for (auto &v : bias) v = r.gauss();
  ops::Gemm g{};
  g.bias = {bias.data(), num::kF32, 0, k, 1};
  same_with_few(rows * 1504 * 2, [&](void *p, int32_t most) {
    g.d = matrix(p, num::kBF16, rows, k, 1504);
    return cuda::launch_finish(g, x.data(), k, most, nullptr);
  });
  for (const int32_t dtype : {int32_t{num::kF32}, int32_t{num::kBF16}, int32_t{num::kE4M3}})
    same_with_few(5000 * 4, [&](void *p, int32_t most) { return cuda::launch_noise(p, 5000, dtype, most, nullptr); });
  g.a = g.b = side;
  g.a.codes.cols = g.b.codes.cols = 96;
  same_with_few(rows * rows * 4, [&](void *p, int32_t most) {
    g.bias = {};
    g.d = matrix(p, num::kF32, rows, rows, rows);
    return cuda::launch_small(g, most ? most : 1000, nullptr);
  });
}

// Copies, casts, transposes, dequantization, measurement.
void moves(void **) {
  constexpr int64_t rows = 165, cols = 304, ld = 320;  // ragged for every tile
  test::Random r(5);
  uint8_t *codes = static_cast<uint8_t *>(aligned(ld * ld));
  std::vector<uint64_t> words(rows * ld);
  std::vector<float> x(rows * ld), scales(cols * 3);
  const float half = 0.5f;
  for (int64_t i = 0; i < ld * ld; ++i) codes[i] = static_cast<uint8_t>(r.next());
  for (auto &v : words) v = static_cast<uint64_t>(r.next()) << 32 | r.next();
  for (auto &v : x) v = r.gauss();
  for (auto &v : scales) v = std::ldexp(1.0f, static_cast<int>(r.below(20)) - 10);
  for (const int32_t dtype : {int32_t{num::kE4M3}, int32_t{num::kBF16}, int32_t{num::kF32}, 10 /* U64 */})
    same_with_few(cols * 170 * 8, [&](void *p, int32_t most) {
      const ops::Transpose t{matrix(words.data(), dtype, rows, cols, ld), matrix(p, dtype, cols, rows, 170)};
      return cuda::launch_transpose(t, most, nullptr);
    });
  same_with_few(cols * 272, [&](void *p, int32_t most) {  // by 16 bytes
    const ops::Transpose t{matrix(codes, num::kE4M3, 272, cols, ld), matrix(p, num::kE4M3, cols, 272, 272)};
    return cuda::launch_transpose(t, most, nullptr);
  });
  for (const float *scale : {static_cast<const float *>(nullptr), &half})
    same_with_few(rows * cols * 2, [&](void *p, int32_t most) {
      ops::Cast c{};
      c.src = matrix(x.data(), num::kF32, rows, cols, ld), c.dst = matrix(p, num::kBF16, rows, cols, cols);
      c.scale = scale;
      return cuda::launch_cast(c, most, nullptr);
    });
  for (const int is_col : {0, 1}) {
    ops::Side side{};
    side.scaling = num::k1x128;
    side.codes = matrix(codes, num::kE4M3, is_col ? cols : rows, is_col ? rows : cols, ld);
    side.scale = {scales.data(), num::kF32, 0, side.codes.rows, 3, 3, 1};
    same_with_few(rows * cols * 2, [&](void *p, int32_t most) {
      const ops::Dequantize d{side, is_col, 0, matrix(p, num::kBF16, rows, cols, cols)};
      return cuda::launch_dequantize(d, most, nullptr);
    });
    const size_t bytes = static_cast<size_t>(cuda::measure_bytes(rows, cols));
    same_with_few(bytes + 32, [&](void *p, int32_t most) {
      ops::Measure m{};
      m.side = side, m.is_col = is_col, m.x = matrix(x.data(), num::kF32, rows, cols, ld);
      m.sums = {static_cast<char *>(p) + bytes, 0, 0, 4, 1};
      return cuda::launch_measure(m, p, most, nullptr);
    });
  }
  const int64_t tall = 65700;  // whose bands are several blocks
  const size_t bytes = static_cast<size_t>(cuda::measure_bytes(tall, 2));
  same_with_few(bytes + 32, [&](void *p, int32_t most) {
    ops::Measure m{};
    m.side.scaling = num::kTensor;
    m.side.codes = matrix(codes, num::kE4M3, tall, 2, 1);
    m.side.scale = {scales.data(), num::kF32, 0, 1, 1, 1, 1};
    m.x = matrix(words.data(), num::kE4M3, tall, 2, 1);
    m.sums = {static_cast<char *>(p) + bytes, 0, 0, 4, 1};
    return cuda::launch_measure(m, p, most, nullptr);
  });
  free(codes);
}

// A random call on a device of `sms`: the CPU's bytes? *grid: blocks of its largest.
bool same_as_cpu(uint64_t seed, const int64_t *sizes, int count, int32_t sms, int32_t max_sms, unsigned *grid,
                 int32_t *launches) {
  const test::Case shape = test::make_case(seed, nullptr, sizes, count);
  const size_t bytes = shape.arena.size();
  void *base = aligned(bytes);
  std::vector<uint8_t> results[2];
  for (int way = 0; way < 2; ++way) {
    test::Case c = test::make_case(seed, base, sizes, count);
    std::memcpy(base, c.arena.data(), bytes);
    const int64_t any = cuda::quantize_layout(c.q, sms).bytes;
    c.q.max_sms = max_sms;
    assert_int_equal(cuda::quantize_layout(c.q, sms).bytes, any);  // a workspace serves whatever a call leaves
    const uint64_t need = way ? static_cast<uint64_t>(any) : cpu::quantize_workspace(c.q);
    assert_int_equal(posix_memalign(&c.q.workspace, 256, need + 1), 0);
    c.q.workspace_bytes = need;
    emulate::machine().most = 0;
    if (way)
      assert_int_equal(cuda::launch_quantize(c.q, sms, nullptr, launches), cudaSuccess);
    else
      cpu::quantize(c.q, {nullptr, nullptr});
    *grid = emulate::machine().most;
    free(c.q.workspace);
    results[way].assign(static_cast<uint8_t *>(base), static_cast<uint8_t *>(base) + bytes);
  }
  free(base);
  return test::same(results[0], results[1], shape.text);
}

// Random calls with max_sms of 1 to 6 on a device of 7: within it, and the CPU's bytes.
void quantize_stays_within(void **) {
  const int64_t sizes[] = {0, 8, 100, 136, 264, 300, 520};
  int bad = 0, bounded = 0;
  for (uint64_t seed = 0; seed < 160; ++seed) {
    const int32_t max_sms = static_cast<int32_t>(1 + seed % 7);
    unsigned grid = 0;
    int32_t launches = 0;
    bad += !same_as_cpu(seed, sizes, 7, 7, max_sms, &grid, &launches);
    if (max_sms < 7) assert_in_range(grid, 0, max_sms);
    bounded += max_sms < 7 && grid == static_cast<unsigned>(max_sms);
  }
  assert_in_range(bounded, 50, 160);
  assert_int_equal(bad, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(around_a_product), cmocka_unit_test(moves),
                              cmocka_unit_test(quantize_stays_within)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
