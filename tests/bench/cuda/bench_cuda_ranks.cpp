// SPDX-License-Identifier: Apache-2.0
// Over NCCL, a process a GPU: gathering primary weights and activations in FP8 against NCCL's bare all-gather of the
// same elements in BF16, and dispatching tokens against our own dispatch in BF16; by turns, the slowest rank's time,
// medians.
//   bench_cuda_ranks RANKS process [--small]
#define FP8_TEST_NCCL
#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <string>

#include "../../capi/ranks.h"
#include "../ranks.h"
#include "comm/nccl_api.h"

namespace {

using namespace bench_ranks;

struct Board {  // shared by the processes
  std::atomic<int> here, turn;
  fp8::nccl::Id id;
  uint8_t own_id[128];
  double ms[kGpus];
};
Board *g_board;
fp8_stream g_stream;
const fp8::nccl::Api *g_nccl_api;
fp8::nccl::Comm g_bare;

void cuda(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "rank %d: %s: %s\n", g_rank, what, cudaGetErrorString(error));
  std::abort();
}

void nccl(int result, const char *what) {
  if (result == fp8::nccl::kSuccess) return;
  std::fprintf(stderr, "rank %d: %s: %s\n", g_rank, what, g_nccl_api->error_string(result));
  std::abort();
}

void meet() {
  const int turn = g_board->turn;
  if (++g_board->here == g_size) {
    g_board->here = 0;
    ++g_board->turn;
  }
  while (g_board->turn == turn) {
  }
}

double timed(const std::function<void()> &body, int times) {  // milliseconds of one
  static cudaEvent_t a, b;
  if (!a) {
    cuda(cudaEventCreate(&a), "an event");
    cuda(cudaEventCreate(&b), "an event");
  }
  const auto stream = static_cast<cudaStream_t>(g_stream);
  meet();
  cuda(cudaEventRecord(a, stream), "an event");
  for (int i = 0; i < times; ++i) body();
  cuda(cudaEventRecord(b, stream), "an event");
  cuda(cudaEventSynchronize(b), "a measurement");
  float ms = 0;
  cuda(cudaEventElapsedTime(&ms, a, b), "a measurement");
  g_board->ms[g_rank] = double(ms) / times;
  meet();
  const double slowest = *std::max_element(g_board->ms, g_board->ms + g_size);
  meet();
  return slowest;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Medians of each body's time and of each one's ratio to the last's.
struct Result {
  std::vector<double> ms, ratio;
};
Result by_turns(const std::vector<std::function<void()>> &bodies, double bytes) {
  // enough calls that the host's first one does not show
  const int times = bytes < 64e6 ? 20 : bytes < 512e6 ? 10 : 3, rounds = bytes < 512e6 ? 15 : 9;
  std::vector<std::vector<double>> ms(bodies.size()), ratio(bodies.size());
  for (int i = 0; i < rounds + 2; ++i) {
    std::vector<double> now;
    for (const auto &body : bodies) now.push_back(timed(body, times));
    for (size_t k = 0; i >= 2 && k < bodies.size(); ++k) {
      ms[k].push_back(now[k]);
      ratio[k].push_back(now[k] / now.back());
    }
  }
  Result r;
  for (size_t k = 0; k < bodies.size(); ++k) {
    r.ms.push_back(median(ms[k]));
    r.ratio.push_back(median(ratio[k]));
  }
  return r;
}

// NCCL's own all-gather of `bytes` in all, in place.
std::function<void()> bare(Memory &m, int64_t bytes) {
  return [&m, bytes] {
    char *all = static_cast<char *>(m.buffer.data);
    const int64_t part = bytes / g_size;
    nccl(g_nccl_api->all_gather(all + g_rank * part, all, part, fp8::nccl::kUint8, g_bare,
                                static_cast<cudaStream_t>(g_stream)),
         "a bare all_gather");
  };
}

double bus(double bytes, double ms) { return bytes * (g_size - 1) / g_size / ms * 1e-6; }

void say(const char *text) {
  if (g_rank == 0) std::fputs(text, stdout);
  std::fflush(stdout);
}

void weights(bool small) {
  const struct {
    const char *name;
    int32_t preset;
  } kinds[] = {{"tensor", FP8_PRESET_TENSOR}, {"block", FP8_PRESET_BLOCK}, {"mx_w2d", FP8_PRESET_MX_W2D}};
  const struct {
    int count;
    int64_t rows, cols;
  } lists[] = {{1, 512, 1024}, {2, 2048, 2048}, {2, 4096, 4096}, {8, 4096, 4096}, {32, 4096, 4096}, {32, 8192, 8192}};
  say("\n| gather of | weights | cut | MB in BF16 | FP8 ms | NCCL's BF16 ms | NCCL's bytes ms | FP8 / BF16 | bus GB/s, "
      "bare "
      "| share |\n|---|---|---|---:|---:|---:|---:|---:|---|---:|\n");
  for (const auto &list : lists) {
    const double elements = double(list.count) * double(list.rows) * double(list.cols);
    if (small && elements > 3e7) break;
    Memory halves(uint64_t(elements) * 2);
    for (const bool one_run : {false, true})
      for (const auto &kind : kinds) {
        if (one_run && (kind.preset != FP8_PRESET_TENSOR || list.count == 1)) continue;
        List fp8(kind.preset, list.count, list.rows, list.cols, one_run, g_stream);
        const Result r =
            by_turns({[&] { fp8.gather(); }, bare(halves, int64_t(elements)), bare(halves, int64_t(elements) * 2)},
                     elements * 2);
        char line[256];
        std::snprintf(line, sizeof line,
                      "| %s | %d x [%lld, %lld] | %s | %.0f | %.3f | %.3f | %.3f | %.2f | %.0f, %.0f | %.2f |\n",
                      kind.name, list.count, static_cast<long long>(list.rows), static_cast<long long>(list.cols),
                      one_run ? "one run" : "each", elements * 2 / 1048576, r.ms[0], r.ms[2], r.ms[1], r.ratio[0],
                      bus(elements, r.ms[0]), bus(elements, r.ms[1]), r.ms[1] / r.ms[0]);
        say(line);
        meet();
      }
  }
}

void activations(bool small) {
  const int64_t rows = small ? 1024 : 8192, cols = small ? 1024 : 8192, part = rows / g_size;
  const struct {
    const char *name;
    int32_t preset;
    uint32_t side;
  } kinds[] = {{"tensor", FP8_PRESET_TENSOR, FP8_SIDE_ROW},
               {"row", FP8_PRESET_ROW, FP8_SIDE_ROW},
               {"block", FP8_PRESET_BLOCK, FP8_SIDE_ROW},
               {"mx", FP8_PRESET_MX, FP8_SIDE_ROW},
               {"block, column side", FP8_PRESET_BLOCK, FP8_SIDE_COL},
               {"mx, column side", FP8_PRESET_MX, FP8_SIDE_COL}};
  char line[256];
  std::snprintf(line, sizeof line,
                "\n| all-gather of [%lld, %lld] | FP8 ms | NCCL's BF16 ms | FP8 / BF16 |\n|---|---:|---:|---:|\n",
                static_cast<long long>(rows), static_cast<long long>(cols));
  say(line);
  Memory halves(rows * cols * 2), x(part * cols * 2);
  fill(x, part * cols, true);
  for (const auto &kind : kinds) {
    fp8_recipe *recipe = make_recipe(kind.preset);
    {
      Described own(recipe, FP8_ROLE_ACTIVATION, part, cols, kind.side),
          full(recipe, FP8_ROLE_ACTIVATION, part * g_size, cols, kind.side);
      fp8_tensor source = tensor_2d(x.buffer.data, FP8_DTYPE_BF16, part, cols);
      fp8_quantize_args args;
      FP8_INIT(&args);
      args.x = &source;
      args.q = &own.q;
      args.role = FP8_ROLE_ACTIVATION;
      BENCH_CHECK(fp8_quantize(g_context, recipe, &args, nullptr));
      BENCH_CHECK(fp8_stream_sync(g_context, nullptr));
      uint64_t bytes = 0;
      BENCH_CHECK(fp8_all_gather_workspace(g_context, g_comm, &own.q, kind.side, &full.q, &bytes));
      Memory workspace(bytes);
      const Result r = by_turns(
          {[&] {
             BENCH_CHECK(fp8_all_gather(g_context, g_comm, &own.q, kind.side, &full.q, &workspace.buffer, g_stream));
           },
           bare(halves, part * g_size * cols * 2)},
          double(rows) * double(cols) * 2);
      std::snprintf(line, sizeof line, "| %s | %.3f | %.3f | %.2f |\n", kind.name, r.ms[0], r.ms[1], r.ratio[0]);
      say(line);
      meet();
    }
    fp8_recipe_destroy(recipe);
  }
}

void tokens(bool small) {
  const int64_t n = small ? 256 : 8192, hidden = small ? 1024 : 7168;
  const int32_t experts = 256 / g_size;
  char line[256];
  std::snprintf(line, sizeof line,
                "\n| dispatch of %lld tokens a rank, hidden %lld, 8 of %d experts | FP8 ms | BF16 ms | FP8 / BF16 |\n"
                "|---|---:|---:|---:|\n",
                static_cast<long long>(n), static_cast<long long>(hidden), experts * g_size);
  say(line);
  const struct {
    const char *name;
    int32_t preset;
  } kinds[] = {{"row", FP8_PRESET_ROW}, {"block", FP8_PRESET_BLOCK}, {"mx", FP8_PRESET_MX}};
  Routing halves(FP8_PRESET_NONE, n, hidden, 8, experts, g_stream);
  for (const auto &kind : kinds) {
    Routing fp8(kind.preset, n, hidden, 8, experts, g_stream);
    const Result r = by_turns({[&] { fp8.dispatch(); }, [&] { halves.dispatch(); }}, double(n) * double(hidden) * 2);
    std::snprintf(line, sizeof line, "| %s | %.3f | %.3f | %.2f |\n", kind.name, r.ms[0], r.ms[1], r.ratio[0]);
    say(line);
    meet();
  }
}

}  // namespace

int main(int argc, char **argv) {
  const bool small = argc > 3 && !std::strcmp(argv[3], "--small");
  if (argc < 3 || std::strcmp(argv[2], "process")) {
    std::fprintf(stderr, "usage: %s RANKS process [--small]\n", argv[0]);
    return 2;
  }
  void *shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  g_board = new (shared) Board();
  nccl_start(argc, argv);
  g_rank = g_nccl.rank;
  g_size = g_nccl.size;
  g_nccl.runs = 1;
  fp8_context *context = ranks_context(1);
  g_context = context;
  cuda(cudaSetDevice(g_rank), "this rank's device");
  BENCH_CHECK(fp8_stream_create(context, &g_stream));
  std::string why;
  g_nccl_api = fp8::nccl::api(false, &why);
  if (!g_nccl_api) {
    std::fprintf(stderr, "no NCCL: %s\n", why.c_str());
    return 1;
  }
  if (g_rank == 0) nccl(g_nccl_api->unique_id(&g_board->id), "an id");
  meet();
  nccl(g_nccl_api->init_rank(&g_bare, g_size, g_board->id, g_rank), "joining the group");
  if (g_rank == 0) BENCH_CHECK(fp8_comm_nccl_id(g_board->own_id));
  meet();
  BENCH_CHECK(fp8_comm_create_nccl_rank(context, g_board->own_id, g_rank, g_size, &g_comm));
  cudaDeviceProp device{};
  int driver = 0;
  cuda(cudaGetDeviceProperties(&device, g_rank), "the device");
  cuda(cudaDriverGetVersion(&driver), "the driver");
  char line[512];
  std::snprintf(line, sizeof line, "%d x %s, a process each; driver for CUDA %d.%d, NCCL %d.%d.%d; %s\n", g_size,
                device.name, driver / 1000, driver % 1000 / 10, g_nccl_api->version / 10000,
                g_nccl_api->version / 100 % 100, g_nccl_api->version % 100, fp8_build_info());
  say(line);
  weights(small);
  activations(small);
  tokens(small);
  fp8_comm_destroy(g_comm);
  fp8_stream_destroy(context, g_stream);
  meet();
  g_nccl_api->abort(g_bare);
  fp8_context_destroy(context);
  return nccl_end(0);
}
