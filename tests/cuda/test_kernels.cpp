// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels, run by the host emulation, give the CPU backend's bits.
#include <algorithm>
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

constexpr int64_t kSizes[] = {0, 1, 2, 5, 31, 32, 33, 64, 100, 127, 128, 129, 136, 200, 256, 300};
constexpr int kCount = sizeof kSizes / sizeof *kSizes;
constexpr size_t kArena = 64 << 20;  // of the largest call

bool run_case(uint64_t seed, const int64_t *sizes = kSizes, int count = kCount, int32_t *ran = nullptr) {
  static void *const base = aligned(kArena);
  test::Case c = test::make_case(seed, base, sizes, count);
  const size_t bytes = c.arena.size();
  assert_in_range(bytes, 0, kArena);
  std::vector<uint8_t> results[2];
  for (int way = 0; way < 2; ++way) {
    std::memcpy(base, c.arena.data(), bytes);
    const uint64_t need =
        way ? static_cast<uint64_t>(cuda::quantize_layout(c.q, 3).bytes) : cpu::quantize_workspace(c.q);
    c.q.workspace = aligned(need);
    std::memset(c.q.workspace, 0xee, need);
    c.q.workspace_bytes = need;
    if (way) {
      int32_t launches = 0;
      assert_int_equal(cuda::launch_quantize(c.q, 3, nullptr, &launches), cudaSuccess);
      if (ran) *ran = launches;
    } else {
      cpu::quantize(c.q, {nullptr, nullptr});
    }
    free(c.q.workspace);
    results[way].assign(static_cast<uint8_t *>(base), static_cast<uint8_t *>(base) + bytes);
  }
  return test::same(results[0], results[1], c.text);
}

void quantize_equals_cpu(void **) {
  int bad = 0;
  for (uint64_t seed = 0; seed < 240; ++seed) bad += !run_case(seed);
  assert_int_equal(bad, 0);
}

// Row sides alone of 1x128 and 1x32, aligned: quantize_lines, with its second load and its ends.
void lines_equal_cpu(void **) {
  const int64_t sizes[] = {9, 16, 264, 520, 776};
  int bad = 0, ran = 0;
  for (uint64_t seed = 2; seed < 1600; seed += 2) {
    if (seed % 6 != 2 && seed % 6 != 4) continue;  // the kinds
    const test::Case c = test::make_case(seed, nullptr, sizes, 5);
    const ops::Quantize &q = c.q;
    if (!q.row.side.scaling || q.col.side.scaling || c.text.find(" plain") == std::string::npos || q.dbias.data ||
        q.row.stats.data || q.amax_only || c.cols < 264)
      continue;
    bad += !run_case(seed, sizes, 5);
    ++ran;
  }
  assert_in_range(ran, 10, 1000);
  assert_int_equal(bad, 0);
}

// Aligned BF16 to aligned codes: quantize_lean, with whole tiles, ragged ones and blocks that end early.
void lean_equals_cpu(void **) {
  const int64_t sizes[] = {24, 40, 128, 136, 200, 264, 300, 384};
  int bad = 0, amax = 0, stats = 0, ran = 0;
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    const test::Case c = test::make_case(seed, nullptr, sizes, 8);
    const bool counts = c.q.row.stats.data || c.q.col.stats.data;
    if (c.text.find(" plain") == std::string::npos || c.q.amax_only || c.cols % 8) continue;
    if (!c.q.col.side.scaling && !counts) continue;
    if (seed >= 400 && (!c.q.row.amax.data || !c.q.col.amax.data || c.cols % 32 == 0)) continue;
    bad += !run_case(seed, sizes, 8);
    ++ran;
    amax += c.q.row.amax.data && c.q.col.amax.data;
    stats += counts;
  }
  assert_in_range(ran, 100, 1000);
  assert_in_range(stats, 40, 1000);
  assert_in_range(amax, 40, 1000);
  assert_int_equal(bad, 0);
}

// TENSOR and ROW: small ones without statistics in one launch (and one for dbias), others in two passes.
void small_and_two_passes_equal_cpu(void **) {
  const int64_t small[] = {1, 8, 64, 120, 128, 136, 256, 264, 384}, large[] = {136, 300, 1672, 1800};
  int bad = 0, counts[2][2] = {};
  for (int big = 0; big < 2; ++big)
    for (uint64_t seed = 0; seed < (big ? 500 : 700); ++seed) {
      if (seed % 6 > 1) continue;  // the kinds
      const int64_t *sizes = big ? large : small;
      const int count = big ? 4 : 9;
      if (big && test::elements(seed, sizes, count) > 60 * 128 * 128) continue;
      const test::Case c = test::make_case(seed, nullptr, sizes, count);
      const bool row = seed % 6 == 1;
      if (c.text.find(" plain") == std::string::npos || c.text.find(" given") != std::string::npos || c.q.amax_only ||
          c.cols % 8 || (row && !c.q.col.side.scaling))
        continue;
      const int64_t down = (c.rows + 127) / 128, across = (c.cols + 127) / 128;
      const bool fits = (row ? (c.q.row.side.scaling ? down + across - 1 : down) : down * across) <= 8;
      if (big && (fits || down * across > 60)) continue;
      const bool one = fits && !c.q.row.stats.data && !c.q.col.stats.data;
      int32_t launches = 0;
      bad += !run_case(seed, sizes, count, &launches);
      assert_int_equal(launches - (c.q.dbias.data ? 1 : 0), one ? 1 : 2);
      ++counts[!one][row];
    }
  for (const auto &of : counts)
    for (int n : of) assert_in_range(n, 4, 400);
  assert_int_equal(bad, 0);
}

// ROW in two passes: partial maxima that the second joins, and where those are many, one of a line in zeroed memory.
void row_maxima_split_or_zeroed(void **) {
  const int64_t sizes[] = {8, 200, 1672, 4360};
  int bad = 0, counts[2] = {};
  for (uint64_t seed = 1; seed < 1800; seed += 6) {
    if (test::elements(seed, sizes, 4) > 4360 * 200) continue;
    const test::Case c = test::make_case(seed, nullptr, sizes, 4);
    if (c.q.amax_only || !c.q.col.side.scaling || c.rows + c.cols < 1800) continue;
    const bool split = cuda::quantize_layout(c.q, 3).split;
    assert_int_equal(split, c.cols < 4360 && (c.rows + 127) / 128 * ((c.cols + 127) / 128) <= 64);  // 35 parts of a row
    if (split)
      assert_int_equal(cuda::quantize_layout(c.q, 132).split, c.rows < 4360);  // of a column, on more processors
    if (++counts[split] <= 4) bad += !run_case(seed, sizes, 4);
  }
  for (int n : counts) assert_in_range(n, 6, 300);
  assert_int_equal(bad, 0);
  ops::Quantize q{};  // a workspace of many rows serves fewer
  q.row.side.scaling = q.col.side.scaling = num::kRow;
  for (int64_t cols : {8, 300, 4096, 5000}) {
    q.x.cols = cols;
    int64_t before = 0;
    for (q.x.rows = 0; q.x.rows < 9000; q.x.rows += 31) {
      const int64_t bytes = cuda::quantize_layout(q, 132).bytes;
      assert_true(bytes >= before);
      before = bytes;
    }
  }
}

void moves_equal_cpu(void **) {
  test::Random r(5);
  for (int round = 0; round < 24; ++round) {
    const int64_t rows = round < 4 ? 128 + 16 * round : 1 + r.below(150), cols = round < 4 ? 144 : 1 + r.below(150),
                  ld = round < 4 ? 160 : cols + 3;
    uint8_t *src = static_cast<uint8_t *>(aligned(static_cast<size_t>(rows * ld * 4)));
    for (int64_t i = 0; i < rows * ld * 4; ++i) src[i] = static_cast<uint8_t>(r.next());
    const int32_t dtypes[] = {num::kE4M3, num::kBF16, num::kF32, num::kF16, num::kE5M2};
    const int32_t from = dtypes[round < 4 ? 0 : r.below(5)], to = dtypes[r.below(5)];
    uint8_t *out[2];
    const size_t bytes = static_cast<size_t>((rows + 16) * (cols + 16) * 4);
    for (int way = 0; way < 2; ++way) {
      out[way] = static_cast<uint8_t *>(aligned(bytes));
      std::memset(out[way], 0xcd, bytes);
      ops::Transpose t{matrix(src, from, rows, cols, ld), matrix(out[way], from, cols, rows, (rows + 15) / 16 * 16)};
      if (way)
        assert_int_equal(cuda::launch_transpose(t, 0, nullptr), cudaSuccess);
      else
        cpu::transpose(t, {nullptr, nullptr});
    }
    assert_memory_equal(out[0], out[1], bytes);
    float scale = 0.3f;
    for (int way = 0; way < 2; ++way) {
      ops::Cast c{};
      c.src = matrix(src, from, rows, cols, ld);
      c.dst = matrix(out[way], to, rows, cols, cols + 1);
      c.scale = round % 2 ? &scale : nullptr;
      c.saturate = round % 3 != 0;
      if (way)
        assert_int_equal(cuda::launch_cast(c, 0, nullptr), cudaSuccess);
      else
        cpu::cast(c, {nullptr, nullptr});
    }
    assert_memory_equal(out[0], out[1], bytes);
    free(src), free(out[0]), free(out[1]);
  }
}

void dequantize_and_measure_equal_cpu(void **) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    test::Case shape = test::make_case(seed, nullptr, kSizes, kCount);
    void *base = aligned(shape.arena.size());
    test::Case c = test::make_case(seed, base, kSizes, kCount);
    std::memcpy(base, c.arena.data(), c.arena.size());
    if (c.q.x.dtype && !c.q.amax_only) {
      void *workspace = aligned(cpu::quantize_workspace(c.q));
      c.q.workspace = workspace, c.q.workspace_bytes = cpu::quantize_workspace(c.q);
      cpu::quantize(c.q, {nullptr, nullptr});
      free(workspace);
      for (int col = 0; col < 2; ++col) {
        const ops::QuantizeSide &s = col ? c.q.col : c.q.row;
        if (!s.side.scaling) continue;
        const size_t bytes = static_cast<size_t>(c.rows * c.cols * 4 + 4);
        void *out[2];
        double sums[2][4];
        for (int way = 0; way < 2; ++way) {
          out[way] = aligned(bytes);
          std::memset(out[way], 0xcd, bytes);
          ops::Dequantize d{};
          d.side = s.side;
          d.is_col = col;
          d.x = matrix(out[way], seed % 2 ? num::kF32 : num::kBF16, c.rows, c.cols, c.cols);
          if (way)
            assert_int_equal(cuda::launch_dequantize(d, 0, nullptr), cudaSuccess);
          else
            cpu::dequantize(d, {nullptr, nullptr});
          ops::Measure m{};
          m.side = s.side;
          m.is_col = col;
          m.x = c.q.x;
          m.sums.data = sums[way], m.sums.size = 4, m.sums.stride = 1;
          m.workspace_bytes =
              way ? static_cast<uint64_t>(cuda::measure_bytes(c.rows, c.cols)) : cpu::measure_workspace(m);
          m.workspace = aligned(m.workspace_bytes);
          if (way)
            assert_int_equal(cuda::launch_measure(m, m.workspace, 0, nullptr), cudaSuccess);
          else
            cpu::measure(m, {nullptr, nullptr});
          free(m.workspace);
        }
        assert_memory_equal(out[0], out[1], bytes);
        for (int i = 0; i < 4; ++i)
          if (!(std::isnan(sums[0][i]) && std::isnan(sums[1][i]))) assert_memory_equal(&sums[0][i], &sums[1][i], 8);
        free(out[0]), free(out[1]);
      }
    }
    free(base);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(quantize_equals_cpu),
                              cmocka_unit_test(lines_equal_cpu),
                              cmocka_unit_test(lean_equals_cpu),
                              cmocka_unit_test(small_and_two_passes_equal_cpu),
                              cmocka_unit_test(row_maxima_split_or_zeroed),
                              cmocka_unit_test(moves_equal_cpu),
                              cmocka_unit_test(dequantize_and_measure_equal_cpu)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
