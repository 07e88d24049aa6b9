// SPDX-License-Identifier: Apache-2.0
// Gathering primary weights and dispatching tokens over MPI, in FP8 and in BF16, by turns in one process a rank:
//   mpirun -n 2 bench_param [--smoke]
// Time is the slowest rank's; the ratio is the median of pairs.
#include <fp8/fp8.h>
#include <fp8_mpi/fp8_mpi.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {

int g_rank, g_size;
bool g_smoke;
const fp8_context *g_context;
fp8_comm *g_comm;

void check(fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  fp8_error e;
  FP8_INIT(&e);
  fp8_last_error(&e);
  std::fprintf(stderr, "%s: %s\n", what, e.message ? e.message : "");
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check((call), #call)

struct Memory {
  fp8_buffer buffer{};
  explicit Memory(uint64_t bytes) {
    CHECK(fp8_buffer_alloc(g_context, bytes ? bytes : 1, &buffer, nullptr));
    std::memset(buffer.data, 0x11, bytes);
    buffer.bytes = bytes;
  }
  ~Memory() { fp8_buffer_free(g_context, &buffer, nullptr); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
};

fp8_recipe *make_recipe(int32_t preset) {
  fp8_recipe_config config;
  FP8_INIT(&config);
  CHECK(fp8_recipe_config_preset(preset, &config));
  fp8_recipe *r = nullptr;
  CHECK(fp8_recipe_create(&config, &r));
  return r;
}

struct Described {
  fp8_qtensor q;
  std::vector<Memory *> memory;
  Described(const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols, uint32_t sides) {
    uint64_t bytes = 0;
    FP8_INIT(&q);
    CHECK(fp8_recipe_describe(r, g_context, role, rows, cols, sides | FP8_SIDE_COPY, &q));
    CHECK(fp8_qtensor_bytes(&q, sides, &bytes));
    memory.push_back(new Memory(bytes));
    CHECK(fp8_qtensor_place(&q, sides, &memory[0]->buffer));
  }
  ~Described() { delete memory[0]; }
};

double timed(const std::function<void()> &body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  body();
  double spent = MPI_Wtime() - begin, slowest = 0;
  MPI_Allreduce(&spent, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void report(const char *what, double bytes, const std::function<void()> &fp8, const std::function<void()> &bf16) {
  std::vector<double> a, b, ratio;
  fp8();
  bf16();
  for (int i = 0; i < (g_smoke ? 2 : 9); ++i) {
    a.push_back(timed(fp8));
    b.push_back(timed(bf16));
    ratio.push_back(a.back() / b.back());
  }
  for (auto *v : {&a, &b, &ratio}) std::sort(v->begin(), v->end());
  const size_t m = a.size() / 2;
  if (g_rank == 0)
    std::printf("| %s | %.0f | %.2f | %.2f | %.2f (%.2f-%.2f) |\n", what, bytes * 1e-6, a[m] * 1e3, b[m] * 1e3,
                ratio[m], ratio[a.size() / 4], ratio[a.size() * 3 / 4]);
  std::fflush(stdout);
}

// A list of square weights, cut evenly, quantized once; gather() is what a forward pass needs.
struct List {
  fp8_recipe *recipe;
  std::vector<fp8_param *> params;
  std::vector<Described *> full;
  std::vector<fp8_qtensor *> full_at;
  std::vector<fp8_tensor> masters;
  std::vector<const fp8_tensor *> master_at;
  Memory *amax, *shard, *workspace, *master;
  fp8_param_args args;
  List(int32_t preset, int count, int64_t n) : recipe(make_recipe(preset)) {
    std::vector<int64_t> cuts;
    for (int r = 0; r <= g_size; ++r) cuts.push_back(n * n * r / g_size);
    const int64_t own = cuts[g_rank + 1] - cuts[g_rank];
    master = new Memory(own * 4);
    for (int64_t i = 0; i < own; ++i) static_cast<float *>(master->buffer.data)[i] = std::sin(0.1f * float(i % 1021));
    fp8_tensor t{};
    t.data = master->buffer.data;
    t.dtype = FP8_DTYPE_F32;
    t.ndim = 1;
    t.shape[0] = own;
    t.stride[0] = 1;
    masters.assign(count, t);
    for (int i = 0; i < count; ++i) {
      fp8_param_config config;
      FP8_INIT(&config);
      config.rows = config.cols = n;
      config.cuts = cuts.data();
      config.world = g_size;
      config.rank = g_rank;
      config.recipe = recipe;
      params.push_back(nullptr);
      CHECK(fp8_param_create(g_context, &config, &params.back()));
      full.push_back(new Described(recipe, FP8_ROLE_WEIGHT, n, n, FP8_SIDE_ROW));
      full_at.push_back(&full.back()->q);
      master_at.push_back(&masters[i]);
    }
    fp8_param_layout layout;
    FP8_INIT(&layout);
    CHECK(fp8_param_sizes(params.data(), count, FP8_SIDE_ROW, &layout));
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
    CHECK(fp8_param_quantize(g_context, g_comm, &args, nullptr));
  }
  void gather() { CHECK(fp8_param_gather(g_context, g_comm, &args, nullptr)); }
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
  Routing(int32_t preset, int64_t n, int64_t hidden, int32_t k, int32_t experts) : recipe(make_recipe(preset)) {
    ids = new Memory(n * k * 4);
    for (int64_t t = 0; t < n; ++t)
      for (int32_t j = 0; j < k; ++j)
        static_cast<int32_t *>(ids->buffer.data)[t * k + j] =
            int32_t((t * 7 + j * (experts * g_size / k)) % (experts * g_size));
    fp8_tensor id{};
    id.data = ids->buffer.data;
    id.dtype = FP8_DTYPE_I32;
    id.ndim = 2;
    id.shape[0] = n;
    id.shape[1] = id.stride[0] = k;
    id.stride[1] = 1;
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
    CHECK(fp8_dispatch_plan_sizes(g_context, g_comm, &config, &bytes, nullptr));
    memory = new Memory(bytes);
    config.memory = &memory->buffer;
    CHECK(fp8_dispatch_plan_create(g_context, g_comm, &config, nullptr, &plan));
    CHECK(fp8_dispatch_plan_query(plan, &rows, nullptr, nullptr, &bytes));
    workspace = new Memory(bytes);
    tokens = new Described(recipe, FP8_ROLE_ACTIVATION, n, hidden, FP8_SIDE_ROW);
    grouped = new Described(recipe, FP8_ROLE_ACTIVATION, rows, hidden, FP8_SIDE_ROW);
    x = new Memory(n * hidden * 2);
    fp8_tensor source{};
    source.data = x->buffer.data;
    source.dtype = FP8_DTYPE_BF16;
    source.ndim = 2;
    source.shape[0] = n;
    source.shape[1] = source.stride[0] = hidden;
    source.stride[1] = 1;
    fp8_quantize_args args;
    FP8_INIT(&args);
    args.x = &source;
    args.q = &tokens->q;
    args.role = FP8_ROLE_ACTIVATION;
    CHECK(fp8_quantize(g_context, recipe, &args, nullptr));
  }
  void dispatch() { CHECK(fp8_dispatch(plan, &tokens->q, &grouped->q, &workspace->buffer, nullptr)); }
  ~Routing() {
    fp8_dispatch_plan_destroy(plan);
    delete tokens;
    delete grouped;
    for (auto *m : {memory, workspace, ids, x}) delete m;
    fp8_recipe_destroy(recipe);
  }
};

}  // namespace

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_smoke = argc > 1 && !std::strcmp(argv[1], "--smoke");
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CPU;
  config.threads = 1;  // a rank a core
  fp8_context *context = nullptr;
  CHECK(fp8_context_create(&config, &context));
  g_context = context;
  if (fp8_comm_create_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), 0, &g_comm) != FP8_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  const struct {
    const char *name;
    int32_t preset;
  } weights[] = {{"tensor", FP8_PRESET_TENSOR},
                 {"block", FP8_PRESET_BLOCK},
                 {"mx_w2d", FP8_PRESET_MX_W2D},
                 {"mx (row side)", FP8_PRESET_MX}},
    tokens[] = {{"row", FP8_PRESET_ROW}, {"block", FP8_PRESET_BLOCK}, {"mx", FP8_PRESET_MX}};
  const int count = g_smoke ? 2 : 4;
  const int64_t n = g_smoke ? 128 : 4096;
  if (g_rank == 0)
    std::printf(
        "%d ranks, one thread each; %s\n\n| gather of | MB in FP8 | FP8 ms | BF16 ms | FP8 / BF16 "
        "|\n|---|---|---|---|---|\n",
        g_size, fp8_build_info());
  {
    List bf16(FP8_PRESET_NONE, count, n);
    for (const auto &w : weights) {
      List fp8(w.preset, count, n);
      report(
          w.name, double(count) * double(n) * double(n), [&] { fp8.gather(); }, [&] { bf16.gather(); });
    }
  }
  const int64_t rows = g_smoke ? 64 : 4096, hidden = g_smoke ? 256 : 8192;
  if (g_rank == 0)
    std::printf("\n| dispatch of | MB in FP8 | FP8 ms | BF16 ms | FP8 / BF16 |\n|---|---|---|---|---|\n");
  {
    Routing bf16(FP8_PRESET_NONE, rows, hidden, 2, 4);
    for (const auto &t : tokens) {
      Routing fp8(t.preset, rows, hidden, 2, 4);
      report(
          t.name, double(rows) * double(hidden) * 2, [&] { fp8.dispatch(); }, [&] { bf16.dispatch(); });
    }
  }
  fp8_comm_destroy(g_comm);
  fp8_context_destroy(context);
  MPI_Finalize();
}
