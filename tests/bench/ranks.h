// SPDX-License-Identifier: Apache-2.0
// What benchmarks of ranks share: this rank's end, a list of weights to gather, tokens to dispatch.
#pragma once
#include <fp8/fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace bench_ranks {

inline int g_rank, g_size;
inline const fp8_context *g_context;
inline fp8_comm *g_comm;
inline void (*g_abort)() = std::abort;  // ends every rank

inline void check(fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  fp8_error e;
  FP8_INIT(&e);
  fp8_last_error(&e);
  std::fprintf(stderr, "rank %d: %s: %s\n", g_rank, what, e.message ? e.message : "");
  g_abort();
}
#define BENCH_CHECK(call) ::bench_ranks::check((call), #call)

struct Memory {
  fp8_buffer buffer{};
  explicit Memory(uint64_t bytes) {
    BENCH_CHECK(fp8_buffer_alloc(g_context, bytes ? bytes : 1, &buffer, nullptr));
    BENCH_CHECK(fp8_buffer_zero(g_context, buffer.data, bytes, nullptr));
    buffer.bytes = bytes;
  }
  void put(const void *host, uint64_t bytes, uint64_t at = 0) {
    BENCH_CHECK(fp8_buffer_copy(g_context, static_cast<char *>(buffer.data) + at, host, bytes, nullptr));
    BENCH_CHECK(fp8_stream_sync(g_context, nullptr));
  }
  ~Memory() { fp8_buffer_free(g_context, &buffer, nullptr); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
};

inline fp8_tensor matrix(const Memory &m, int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t{};
  t.data = m.buffer.data;
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = t.stride[0] = cols;
  t.stride[1] = 1;
  return t;
}

inline fp8_recipe *make_recipe(int32_t preset) {
  fp8_recipe_config config;
  FP8_INIT(&config);
  BENCH_CHECK(fp8_recipe_config_preset(preset, &config));
  fp8_recipe *r = nullptr;
  BENCH_CHECK(fp8_recipe_create(&config, &r));
  return r;
}

struct Described {
  fp8_qtensor q;
  std::vector<Memory *> memory;
  Described(const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols, uint32_t sides) {
    uint64_t bytes = 0;
    FP8_INIT(&q);
    BENCH_CHECK(fp8_recipe_describe(r, g_context, role, rows, cols, sides | FP8_SIDE_COPY, &q));
    BENCH_CHECK(fp8_qtensor_bytes(&q, sides, &bytes));
    memory.push_back(new Memory(bytes));
    BENCH_CHECK(fp8_qtensor_place(&q, sides, &memory[0]->buffer));
  }
  ~Described() { delete memory[0]; }
};

// Values about one, over and over.
inline void fill(Memory &m, int64_t count, bool bf16) {
  std::vector<float> values(std::min<int64_t>(count, 1 << 20));
  std::vector<uint16_t> halves(bf16 ? values.size() : 0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.1f * float(i % 1021)) + 0.01f * float(i % 7);
  for (size_t i = 0; i < halves.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    halves[i] = uint16_t(bits >> 16);
  }
  const void *host = bf16 ? static_cast<const void *>(halves.data()) : values.data();
  const int64_t size = bf16 ? 2 : 4;
  for (int64_t at = 0; at < count; at += int64_t(values.size()))
    m.put(host, std::min<int64_t>(values.size(), count - at) * size, at * size);
}

// A list of weights, each cut evenly or all of them as one run, quantized once; gather() is what a forward pass needs.
struct List {
  fp8_recipe *recipe;
  std::vector<fp8_param *> params;
  std::vector<Described *> full;
  std::vector<fp8_qtensor *> full_at;
  std::vector<fp8_tensor> masters;
  std::vector<const fp8_tensor *> master_at;
  Memory *amax, *shard, *workspace, *master;
  fp8_param_args args;
  fp8_stream stream;
  List(int32_t preset, int count, int64_t rows, int64_t cols, bool one_run = false, fp8_stream stream = nullptr)
      : recipe(make_recipe(preset)), stream(stream) {
    const int64_t n = rows * cols;
    std::vector<std::vector<int64_t>> cuts(count);
    int64_t most = 0;
    for (int i = 0; i < count; ++i)
      for (int r = 0; r <= g_size; ++r)
        cuts[i].push_back(one_run ? std::min(n, std::max<int64_t>(0, n * count * r / g_size - n * i)) : n * r / g_size);
    for (const auto &c : cuts) most = std::max(most, c[g_rank + 1] - c[g_rank]);
    master = new Memory(most * 4);
    fill(*master, most, false);
    masters.resize(count);
    for (int i = 0; i < count; ++i) {
      fp8_param_config config;
      FP8_INIT(&config);
      config.rows = rows;
      config.cols = cols;
      config.cuts = cuts[i].data();
      config.world = g_size;
      config.rank = g_rank;
      config.recipe = recipe;
      params.push_back(nullptr);
      BENCH_CHECK(fp8_param_create(g_context, &config, &params.back()));
      full.push_back(new Described(recipe, FP8_ROLE_WEIGHT, rows, cols, FP8_SIDE_ROW));
      full_at.push_back(&full.back()->q);
      fp8_tensor &t = masters[i];
      t.data = master->buffer.data;
      t.dtype = FP8_DTYPE_F32;
      t.ndim = 1;
      t.shape[0] = cuts[i][g_rank + 1] - cuts[i][g_rank];
      t.stride[0] = 1;
      master_at.push_back(&t);
    }
    fp8_param_layout layout;
    FP8_INIT(&layout);
    BENCH_CHECK(fp8_param_sizes(params.data(), count, FP8_SIDE_ROW, &layout));
    amax = new Memory(layout.amax_bytes);
    shard = new Memory(layout.row_bytes + layout.col_bytes);
    workspace = new Memory(layout.workspace_bytes);
    FP8_INIT(&args);
    args.params = params.data();
    args.masters = master_at.data();
    args.full = full_at.data();
    args.amax = &amax->buffer;
    args.shard = &shard->buffer;
    args.workspace = &workspace->buffer;
    args.count = count;
    args.sides = FP8_SIDE_ROW;
    BENCH_CHECK(fp8_stream_sync(g_context, nullptr));
    BENCH_CHECK(fp8_param_quantize(g_context, g_comm, &args, stream));
  }
  void gather() { BENCH_CHECK(fp8_param_gather(g_context, g_comm, &args, stream)); }
  ~List() {
    for (auto *p : params) fp8_param_destroy(p);
    for (auto *f : full) delete f;
    for (auto *m : {amax, shard, workspace, master}) delete m;
    fp8_recipe_destroy(recipe);
  }
};

// Tokens to k of the experts, spread evenly.
struct Routing {
  fp8_recipe *recipe;
  Memory *memory, *workspace, *ids, *x;
  Described *tokens, *grouped;
  fp8_dispatch_plan *plan = nullptr;
  fp8_stream stream;
  Routing(int32_t preset, int64_t n, int64_t hidden, int32_t k, int32_t experts, fp8_stream stream = nullptr)
      : recipe(make_recipe(preset)), stream(stream) {
    std::vector<int32_t> host(n * k);
    for (int64_t t = 0; t < n; ++t)
      for (int32_t j = 0; j < k; ++j)
        host[t * k + j] = int32_t((t * 7 + t / experts + j * (experts * g_size / k)) % (experts * g_size));
    ids = new Memory(n * k * 4);
    ids->put(host.data(), n * k * 4);
    const fp8_tensor id = matrix(*ids, FP8_DTYPE_I32, n, k);
    fp8_dispatch_config config;
    FP8_INIT(&config);
    config.expert_ids = &id;
    config.recipe = recipe;
    config.tokens = config.max_tokens = n;
    config.hidden = hidden;
    config.k = k;
    config.experts_per_rank = experts;
    uint64_t bytes = 0;
    int64_t rows = 0;
    BENCH_CHECK(fp8_dispatch_plan_sizes(g_context, g_comm, &config, &bytes, nullptr));
    memory = new Memory(bytes);
    config.memory = &memory->buffer;
    BENCH_CHECK(fp8_dispatch_plan_create(g_context, g_comm, &config, stream, &plan));
    BENCH_CHECK(fp8_dispatch_plan_query(plan, &rows, nullptr, nullptr, &bytes));
    workspace = new Memory(bytes);
    tokens = new Described(recipe, FP8_ROLE_ACTIVATION, n, hidden, FP8_SIDE_ROW);
    grouped = new Described(recipe, FP8_ROLE_ACTIVATION, rows, hidden, FP8_SIDE_ROW);
    x = new Memory(n * hidden * 2);
    fill(*x, n * hidden, true);
    const fp8_tensor source = matrix(*x, FP8_DTYPE_BF16, n, hidden);
    fp8_quantize_args args;
    FP8_INIT(&args);
    args.x = &source;
    args.q = &tokens->q;
    args.role = FP8_ROLE_ACTIVATION;
    BENCH_CHECK(fp8_quantize(g_context, recipe, &args, stream));
  }
  void dispatch() { BENCH_CHECK(fp8_dispatch(plan, &tokens->q, &grouped->q, &workspace->buffer, stream)); }
  ~Routing() {
    fp8_dispatch_plan_destroy(plan);
    delete tokens;
    delete grouped;
    for (auto *m : {memory, workspace, ids, x}) delete m;
    fp8_recipe_destroy(recipe);
  }
};

}  // namespace bench_ranks
