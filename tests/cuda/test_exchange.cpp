// SPDX-License-Identifier: Apache-2.0
// The all-gather over windows with every warp of every rank a thread of the host: random lists of moves, calls after
// one another without a reset, a rank that does not come.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "../unit/random.h"
#include "cuda_emulate.h"

extern "C" {
#include <cmocka.h>
}

static thread_local unsigned t_block, t_thread;
#undef threadIdx
#undef blockIdx
#define threadIdx dim3(t_thread)
#define blockIdx dim3(t_block)
#include "cuda/exchange.cu"

namespace {

using namespace fp8;
using Bytes = std::vector<uint8_t>;
using test::Random;

struct Aligned {  // bytes from an address that is a multiple of 256 on
  Bytes memory;
  uint8_t *data;
  explicit Aligned(size_t n, uint8_t with)
      : memory(n + 256, with),
        data(reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256)) {}
};

struct Group {
  int size, blocks, chunk, depth;
  std::vector<std::unique_ptr<Aligned>> windows;
  Group(int size, int blocks, int chunk, int depth) : size(size), blocks(blocks), chunk(chunk), depth(depth) {
    for (int r = 0; r < size; ++r) windows.push_back(nullptr);
    const size_t bytes = size_t(cuda::peer_window_bytes(exchange(0)));
    for (auto &w : windows) w = std::make_unique<Aligned>(bytes, 0);
  }
  cuda::PeerExchange exchange(int rank) {
    cuda::PeerExchange e{};
    for (int r = 0; r < size && windows[size_t(r)]; ++r)
      e.windows[r] = reinterpret_cast<cuda::PeerWindow *>(windows[size_t(r)]->data);
    e.rank = rank;
    e.size = size;
    e.blocks = blocks;
    e.chunk = chunk;
    e.depth = depth;
    return e;
  }
};

void run(std::vector<cuda::PeerExchange> &calls) {
  std::vector<std::thread> threads;
  for (auto &e : calls)
    for (unsigned b = 0; b < unsigned(e.used * e.size); ++b)
      for (unsigned w = 0; w < 2 * cuda::kPeerPairs; ++w)
        threads.emplace_back([&e, b, w] {
          t_block = b;
          t_thread = w;
          cuda::exchange_chunks(e);
        });
  for (auto &t : threads) t.join();
}

struct Shape {  // of a move of every source
  std::vector<int64_t> lines;
  int64_t line, stride, offset;  // offset: of the first byte, in src and dst alike; or only in dst
  bool alike;
};

void random_call(Group &g, Random &random) {
  const int items = 1 + int(random.below(4));
  std::vector<Shape> shapes;
  for (int i = 0; i < items; ++i) {
    Shape s;
    const bool flat = random.below(2), small = random.below(2);
    s.line = flat ? 0 : small ? 1 + random.below(200) : 16 * (1 + random.below(600));
    s.stride = s.line * g.size + (random.below(2) ? 0 : small ? random.below(20) : 16 * random.below(3));
    s.offset = random.below(3) ? 0 : random.below(16);
    s.alike = random.below(4) != 0;
    const int64_t equal = small ? random.below(300) : random.below(200000);
    for (int r = 0; r < g.size; ++r)
      s.lines.push_back(flat ? (random.below(3) ? equal : random.below(150000)) : random.below(equal / s.line + 2));
    shapes.push_back(s);
  }
  std::vector<cuda::PeerExchange> calls;
  std::vector<std::unique_ptr<Aligned>> memory;
  struct Check {
    const uint8_t *got;
    Bytes want;
  };
  std::vector<Check> checks;
  std::vector<std::vector<Bytes>> sent;  // [item][source]
  for (const Shape &s : shapes) {
    std::vector<Bytes> of;
    for (int r = 0; r < g.size; ++r) {
      Bytes b(size_t(s.lines[size_t(r)] * (s.line ? s.line : 1)));
      for (uint8_t &v : b) v = uint8_t(random.next());
      of.push_back(b);
    }
    sent.push_back(of);
  }
  for (int rank = 0; rank < g.size; ++rank) {
    cuda::PeerExchange e = g.exchange(rank);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Shape &s = shapes[i];
      for (int r = 0; r < g.size; ++r) {
        const Bytes &b = sent[i][size_t(r)];
        if (b.empty()) continue;
        const size_t room = s.line ? size_t(s.lines[size_t(r)] * s.stride) : b.size();
        memory.push_back(std::make_unique<Aligned>(room + 64, 0x5a));
        Aligned &dst = *memory.back();
        memory.push_back(std::make_unique<Aligned>(b.size() + 64, 0));
        Aligned &src = *memory.back();
        uint8_t *from = src.data + s.offset, *to = dst.data + (s.alike ? s.offset : 0);
        std::memcpy(from, b.data(), b.size());
        const bool in_place = !s.line && s.alike && random.below(3) == 0;
        if (in_place && r == rank) std::memcpy(to, b.data(), b.size());
        cuda::PeerMove &m = e.moves[e.count++];
        m.src = r != rank ? nullptr : in_place ? to : from;
        m.dst = to;
        m.bytes = int64_t(b.size());
        m.line = s.line ? s.line : m.bytes;
        m.stride = s.line ? s.stride : 0;
        m.source = r;
        m.shift = int32_t(s.alike ? s.offset : 0);
        Check c{dst.data, Bytes(room + 64, 0x5a)};
        for (int64_t k = 0; k < m.bytes; ++k)
          c.want[size_t(to - dst.data + k / m.line * m.stride + k % m.line)] = b[size_t(k)];
        checks.push_back(c);
      }
    }
    calls.push_back(e);
  }
  bool any = false;
  for (auto &e : calls) any = cuda::plan_exchange(e);
  if (any) run(calls);
  for (const Check &c : checks) assert_memory_equal(c.got, c.want.data(), c.want.size());
}

void gathers(void **) {
  const struct {
    int size, blocks, chunk, depth;
  } groups[] = {{2, 3, 4096, 2}, {2, 1, 8192, 1}, {3, 2, 2048, 4}, {4, 1, 8192, 2}};
  for (const auto &shape : groups) {
    Group g(shape.size, shape.blocks, shape.chunk, shape.depth);
    Random random{uint64_t(shape.size * 100 + shape.blocks)};
    for (int i = 0; i < 25; ++i) random_call(g, random);
  }
}

void shapes(void **) {  // counts of every channel fit, whatever the size
  for (int size = 2; size <= cuda::kPeers; ++size) {
    cuda::PeerExchange e{};
    e.size = size;
    cuda::shape_exchange(e);
    assert_true(e.blocks >= 1 && e.size * e.blocks <= cuda::kPeerBlocks);
    assert_true((size - 1) * e.blocks * cuda::kPeerPairs <= cuda::kPeerCounts);
    assert_true(e.chunk % 16 == 0 && (e.depth & (e.depth - 1)) == 0);
    assert_true(cuda::peer_window_bytes(e) < 20 << 20);
  }
}

void gives_up(void **) {  // rank 1 never comes
  Group g(2, 2, 8192, 2);
  Aligned src(1 << 20, 1), dst(1 << 21, 0);
  cuda::PeerExchange e = g.exchange(0);
  e.count = 2;
  for (int r = 0; r < 2; ++r) {
    cuda::PeerMove m{};
    m.src = src.data;
    m.dst = dst.data + (r << 20);
    m.bytes = m.line = 1 << 20;
    m.source = r;
    e.moves[r] = m;
  }
  assert_true(cuda::plan_exchange(e));
  std::vector<cuda::PeerExchange> calls = {e};
  std::atomic<bool> done{false};
  std::thread rank([&] {
    run(calls);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  assert_false(done);
  __atomic_store_n(&e.windows[0]->stopped.value, 1ull, __ATOMIC_RELEASE);
  rank.join();
  const Bytes before(g.windows[1]->memory);
  run(calls);  // and later ones touch no window
  assert_memory_equal(before.data(), g.windows[1]->memory.data(), before.size());
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gathers), cmocka_unit_test(shapes), cmocka_unit_test(gives_up)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
