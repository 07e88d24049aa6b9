// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels of primary weights, run by the host emulation, give the CPU backend's bits: every step, every rank,
// bytes that nobody may write included.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../unit/random.h"
#include "cpu/launch_param.h"
#include "cuda/launch_param.h"
#include "cuda_emulate.h"
#include "numerics/scale.h"

// after the standard headers: CMocka wants these
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fp8;
using Bytes = std::vector<uint8_t>;
using test::Random;

constexpr int32_t kU8 = 7;  // as FP8_DTYPE_U8

int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

struct List {  // a list as core lays it out, with memory for every rank
  Random random;
  ops::ParamList p{};
  bool quantized, both;
  std::vector<ops::ParamItem> items;
  std::vector<ops::ParamPiece> pieces;
  std::vector<int64_t> shift;
  std::vector<std::vector<float>> values;
  std::vector<std::vector<uint16_t>> halves;
  std::vector<Bytes> shards;
  std::vector<std::vector<uint32_t>> amaxes;  // bytes inside
  int64_t part = 0;
  int32_t rank = 0;  // where the rank is data

  // `kind` and `side` not 0: one square weight.
  List(uint64_t seed, int32_t world, int32_t kind, int64_t side) : random{seed} {
    const int32_t kinds[] = {1, 2, 3, 4, 5, 6, 6, 7};
    p.scaling = kind ? kind : kinds[random.below(8)];
    quantized = p.scaling != 1;
    both = !ops::shares_scale(p.scaling);
    const bool mx = p.scaling == num::k1x32 || p.scaling == num::k32x32;
    p.rule = mx ? num::kRuleE8m0 + int32_t(random.below(2)) : num::kRuleFp32 + int32_t(random.below(2));
    p.dtype = !quantized ? num::kBF16 : random.below(3) ? num::kE4M3 : num::kE5M2;
    p.round_bf16 = random.below(2);
    p.amax_floor = random.below(4) ? 0.0f : 1e-3f;
    p.amax_dtype = mx ? kU8 : int32_t{num::kF32};
    p.world = world;
    p.count = side ? 1 : 1 + int32_t(random.below(5));
    const int64_t sizes[] = {0, 1, 3, 31, 32, 33, 64, 100, 127, 128, 129, 132, 200, 256, 260, 300};
    std::vector<int64_t> used(size_t(world), 0);
    const int64_t element = quantized ? 1 : 2;
    for (int32_t i = 0; i < p.count; ++i) {
      ops::ParamItem m{};
      m.rows = side ? side : sizes[random.below(16)];
      m.cols = side ? side : sizes[random.below(16)];
      m.master_dtype = random.below(3) ? num::kF32 : num::kBF16;
      m.amax = p.amax_count;
      const int64_t tr = ops::tile_rows(p.scaling), tc = ops::tile_cols(p.scaling);
      if (quantized) {
        p.amax_count += (tr ? ceil_div(m.rows, tr) : 1) * (tc ? ceil_div(m.cols, tc) : 1);
        if (both) p.amax_count += m.cols * (tc ? ceil_div(m.rows, tc) : 1);
      }
      const int64_t n = m.rows * m.cols, grain = random.below(3) == 0 ? 1 : random.below(2) ? 4 : 16;
      std::vector<int64_t> cuts = {0, n};
      for (int32_t r = 1; r < world; ++r) cuts.push_back(n ? random.below(n + 1) / grain * grain : 0);
      std::sort(cuts.begin(), cuts.end());
      for (int32_t r = 0; r < world; ++r) {
        ops::ParamPiece own{cuts[size_t(r)], cuts[size_t(r) + 1] - cuts[size_t(r)], 0};
        int64_t &end = used[size_t(r)];
        if (own.count) {
          own.at = end + (own.begin * element % 16 - end % 16 + 16) % 16;
          end = own.at + own.count * element;
        }
        pieces.push_back(own);
      }
      std::vector<float> x(size_t(n) + 4);
      std::vector<uint16_t> h(size_t(n) + 4);
      for (size_t k = 0; k < x.size(); ++k) {
        const uint32_t u = random.next();
        const int64_t cols = std::max<int64_t>(m.cols, 1), at = int64_t(k);
        const int tile = int((at / cols / 32 * 5 + at % cols / 32 * 3) % 7);  // neighbours have other scales
        x[k] = std::ldexp(float(int32_t(u)) / 2147483648.0f, int(random.below(24)) - 16 - tile);
        if (u % 101 == 0) x[k] = 0.0f;
        if (u % 997 == 0) x[k] = NAN;
        if (u % 9973 == 0) x[k] = -INFINITY;
        h[k] = num::encode_bf16(x[k]);
      }
      values.push_back(x);
      halves.push_back(h);
      items.push_back(m);
    }
    part = (*std::max_element(used.begin(), used.end()) + 15) / 16 * 16;
    for (int32_t r = 0; r < world; ++r) shift.push_back(part - (used[size_t(r)] + 15) / 16 * 16);
    p.items = items.data();
    p.pieces = pieces.data();
    p.row_shift = shift.data();
    p.col_part = part;
    p.sides = 3;
    shards.assign(size_t(world), Bytes(size_t(2 * part + 16), 0xa5));
    amaxes.assign(size_t(world), std::vector<uint32_t>(size_t(p.amax_count + 4), 0xeeeeeeee));
  }
  void take_rank(int32_t r, bool as_data) {
    rank = r;
    p.rank = as_data ? -1 : r;
    p.rank_data = as_data ? &rank : nullptr;
    p.amax = amaxes[size_t(r)].data();
    p.shard = shards[size_t(r)].data();
    for (int32_t i = 0; i < p.count; ++i) {
      const int64_t begin = pieces[size_t(i) * size_t(p.world) + size_t(r)].begin;
      ops::ParamItem &m = items[size_t(i)];
      m.master = m.master_dtype == num::kF32 ? static_cast<const void *>(values[size_t(i)].data() + begin)
                                             : static_cast<const void *>(halves[size_t(i)].data() + begin);
    }
  }
};

struct Sided {  // memory of one side of one weight
  Bytes codes;
  std::vector<float> scale;
};

ops::ParamSide make_side(List &l, const ops::ParamItem &m, bool col, Sided &memory) {
  const int64_t rows = col ? m.cols : m.rows, cols = col ? m.rows : m.cols, element = l.quantized ? 1 : 2;
  const int64_t tr = ops::tile_rows(l.p.scaling), tc = ops::tile_cols(l.p.scaling);
  ops::ParamSide s{};
  s.row_stride = cols + (l.random.below(3) ? 0 : 5);
  s.col_stride = 1;
  memory.codes.assign(size_t(rows * s.row_stride * element + 16), 0x5a);
  if (!l.quantized && col) {  // a 16-bit column side is the rows x cols copy, seen from the side
    s.row_stride = 1;
    s.col_stride = rows;
    memory.codes.assign(size_t(rows * cols * element + 16), 0x5a);
  }
  s.codes = memory.codes.data();
  if (!l.quantized) return s;
  s.scale_rows = s.padded_rows = tr ? ceil_div(rows, tr) : 1;
  s.scale_cols = s.padded_cols = tc ? ceil_div(cols, tc) : 1;
  if (l.p.scaling == num::k1x128) {
    s.scale_row_stride = 1;
    s.scale_col_stride = s.padded_rows = (s.scale_rows + 3) / 4 * 4;
  } else {
    s.scale_col_stride = 1;
    s.scale_row_stride = s.padded_cols = (s.scale_cols + 3) / 4 * 4;
  }
  memory.scale.assign(size_t(s.padded_rows * s.padded_cols + 4), -7.0f);
  s.scale = memory.scale.data();
  return s;
}

// As many blocks as suit; in every third list at most 3 too.
int g_bounded = 0;
std::vector<int32_t> mosts(uint64_t seed) { return seed % 3 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, 3}; }
void within(int32_t most) {
  if (!most) return;
  assert_in_range(emulate::machine().most, 0, most);
  g_bounded += emulate::machine().most == unsigned(most);
}

// One of the steps by both backends, from the same bytes.
enum Step { kAmax, kCast, kAssemble };
void run_both(List &l, Step step, void *out, size_t bytes, uint64_t seed, const char *what) {
  Bytes before(static_cast<uint8_t *>(out), static_cast<uint8_t *>(out) + bytes), want;
  Bytes scratch(size_t(cpu::param_workspace(l.p) + uint64_t(cuda::param_table_bytes(l.p)) + 64));
  l.p.workspace = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(scratch.data()) + 15) / 16 * 16);
  const cpu::Parallel alone{nullptr, nullptr};
  int32_t launches = 0;
  (step == kAmax ? cpu::param_amax : step == kCast ? cpu::param_cast : cpu::param_assemble)(l.p, alone);
  want.assign(static_cast<uint8_t *>(out), static_cast<uint8_t *>(out) + bytes);
  for (const int32_t most : mosts(seed)) {
    std::memcpy(out, before.data(), bytes);
    emulate::machine().most = 0;
    assert_int_equal((step == kAmax   ? cuda::launch_param_amax
                      : step == kCast ? cuda::launch_param_cast
                                      : cuda::launch_param_assemble)(l.p, most, nullptr, &launches),
                     cudaSuccess);
    within(most);
    const uint8_t *got = static_cast<const uint8_t *>(out);
    for (size_t i = 0; i < bytes; ++i)
      if (got[i] != want[i]) {
        std::printf(
            "list %llu, scaling %d, rule %d, world %d, sides %u, blocks %d: %s differs at byte %zu of %zu: %02x, not "
            "%02x\n",
            static_cast<unsigned long long>(seed), l.p.scaling, l.p.rule, l.p.world, l.p.sides, most, what, i, bytes,
            got[i], want[i]);
        fail();
      }
  }
}

void assemble(List &l, uint64_t seed, uint32_t sides, bool travels) {
  std::vector<Sided> memory(size_t(l.p.count) * 2);
  for (int32_t i = 0; i < l.p.count; ++i) {
    l.items[size_t(i)].row = make_side(l, l.items[size_t(i)], false, memory[size_t(2 * i)]);
    l.items[size_t(i)].col = make_side(l, l.items[size_t(i)], true, memory[size_t(2 * i + 1)]);
    if (!travels) {
      for (uint8_t &c : memory[size_t(2 * i)].codes) c = uint8_t(l.random.next());
      for (float &s : memory[size_t(2 * i)].scale) s = float(l.random.below(100));
    }
  }
  std::vector<const void *> slots;
  for (const Bytes &shard : l.shards) slots.push_back(shard.data());
  l.p.slots = travels ? slots.data() : nullptr;
  l.p.sides = sides;
  l.p.amax = l.amaxes[0].data();
  // everything in one run of bytes, so that one comparison sees it all
  Bytes all;
  std::vector<size_t> at;
  const auto each = [&](auto &&body) {
    for (size_t k = 0; k < memory.size(); ++k) {
      body(memory[k].codes.data(), memory[k].codes.size());
      body(reinterpret_cast<uint8_t *>(memory[k].scale.data()), memory[k].scale.size() * sizeof(float));
    }
  };
  each([&](const uint8_t *data, size_t n) {
    all.resize((all.size() + 15) / 16 * 16);
    at.push_back(all.size());
    all.insert(all.end(), data, data + n);
  });
  size_t k = 0;
  for (int32_t i = 0; i < l.p.count; ++i)
    for (ops::ParamSide *s : {&l.items[size_t(i)].row, &l.items[size_t(i)].col}) {
      s->codes = all.data() + at[k++];
      if (s->scale) s->scale = all.data() + at[k];
      ++k;
    }
  run_both(l, kAssemble, all.data(), all.size(), seed, travels ? "assembled" : "the column side of the row side");
}

void check_list(uint64_t seed, int32_t world, int32_t kind = 0, int64_t side = 0) {
  List l(seed, world, kind, side);
  const bool as_data = seed % 5 == 0;
  const int32_t some = std::min<int32_t>(world, 7);
  for (int32_t k = 0; k < some; ++k) {
    const int32_t r = world > 9 ? int32_t(l.random.below(world)) : k;
    l.take_rank(r, as_data);
    l.p.sides = k ? 3 : 1 + uint32_t(seed % 3);
    run_both(l, kAmax, l.p.amax, l.amaxes[size_t(r)].size() * 4, seed, "amax");
  }
  if (l.p.amax_count) {
    std::vector<const void *> sources;
    for (const auto &a : l.amaxes) sources.push_back(a.data());
    auto copy = l.amaxes[0];
    ops::ReduceMax reduce{l.amaxes[0].data(), sources.data(), some, l.p.amax_dtype, l.p.amax_count};
    cpu::reduce_max(reduce, {nullptr, nullptr});
    std::swap(copy, l.amaxes[0]);
    const auto before = l.amaxes[0];
    int32_t launches = 0;
    reduce.dst = l.amaxes[0].data();
    for (const int32_t most : mosts(seed)) {
      std::copy(before.begin(), before.end(), l.amaxes[0].begin());
      emulate::machine().most = 0;
      assert_int_equal(cuda::launch_reduce_max(reduce, most, nullptr, &launches), cudaSuccess);
      within(most);
      assert_memory_equal(copy.data(), l.amaxes[0].data(), copy.size() * 4);
    }
    for (auto &a : l.amaxes) a = l.amaxes[0];
  }
  for (int32_t k = 0; k < some; ++k) {
    const int32_t r = world > 9 ? int32_t(l.random.below(world)) : k;
    l.take_rank(r, as_data);
    l.p.sides = k ? 3 : 1 + uint32_t(seed % 3);
    run_both(l, kCast, l.p.shard, l.shards[size_t(r)].size(), seed, "shard");
  }
  for (uint32_t sides = 1; sides <= 3; ++sides) assemble(l, seed, sides, true);
  if (l.quantized && !l.both) assemble(l, seed, 2, false);
}

void steps_equal_cpu(void **) {
  for (uint64_t seed = 0; seed < 60; ++seed) check_list(seed, 1 + int32_t(seed * 5 % 7));
  assert_in_range(g_bounded, 100, 10000);
}

// Tiles of which one rank owns every element take another way through the kernels.
void whole_tiles(void **) {
  for (int32_t kind = 2; kind <= 7; ++kind)
    for (uint64_t seed = 2000; seed < 2003; ++seed) check_list(seed, 1, kind, 256);
  check_list(2003, 1, num::k1x32, 768);  // codes of scales for more than one unit
}

// Over more ranks than a kernel's arguments can describe.
void many_ranks(void **) {
  for (uint64_t seed = 1000; seed < 1004; ++seed) check_list(seed, 1500);
}

// 500 weights: at most ten launches for the three steps. Nothing runs: the launchers count.
void few_launches(void **) {
  emulate::machine().idle = true;
  for (const int32_t world : {1, 2, 8, 16}) {
    constexpr int32_t kWeights = 500;
    std::vector<ops::ParamItem> items(kWeights);
    std::vector<ops::ParamPiece> pieces;
    std::vector<int64_t> shift(size_t(world), 0);
    std::vector<float> master(16, 1.0f), scales(64);
    std::vector<uint8_t> amax(size_t(kWeights) * 64), codes(256), shard(size_t(kWeights) * 16 + 64);
    for (int32_t i = 0; i < kWeights; ++i) {
      ops::ParamItem &m = items[size_t(i)];
      m.rows = m.cols = 4;
      m.master = master.data();
      m.master_dtype = num::kF32;
      m.amax = 8 * i;
      m.row = {codes.data(), 4, 1, scales.data(), 4, 1, 1, 1, 4, 4};
      m.row.scale_rows = 4;
      m.row.scale_cols = 1;
      m.row.scale_row_stride = m.row.scale_col_stride = 1;
      m.row.padded_rows = 4;
      m.row.padded_cols = 1;
      m.col = m.row;
      for (int32_t r = 0; r < world; ++r) pieces.push_back({16 * r / world, 16 * (r + 1) / world - 16 * r / world, 0});
    }
    std::vector<const void *> slots(size_t(world), shard.data());
    ops::ParamList p{};
    p.items = items.data();
    p.pieces = pieces.data();
    p.row_shift = shift.data();
    p.count = kWeights;
    p.world = world;
    p.scaling = num::k1x32;
    p.rule = num::kRuleE8m0;
    p.dtype = num::kE4M3;
    p.sides = 3;
    p.amax_dtype = kU8;
    p.amax = amax.data();
    p.amax_count = 8 * kWeights;
    p.shard = shard.data();
    p.slots = slots.data();
    assert_int_equal(cuda::param_table_bytes(p), 0);
    int32_t launches = 0;
    cuda::launch_param_amax(p, 0, nullptr, &launches);
    cuda::launch_param_cast(p, 0, nullptr, &launches);
    cuda::launch_param_assemble(p, 0, nullptr, &launches);
    assert_in_range(launches, 3, 10);
  }
  emulate::machine().idle = false;
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_equal_cpu), cmocka_unit_test(whole_tiles),
                                     cmocka_unit_test(many_ranks), cmocka_unit_test(few_launches)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
