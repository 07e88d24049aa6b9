// SPDX-License-Identifier: Apache-2.0
// Primary weights on one GPU: partial amax and cast against the bytes that they must move, and quantize + gather over 8
// local ranks against device copies of the bytes that they must move.
#include <cuda_runtime.h>
#include <fp8/fp8.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace {

void check(fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  fp8_error e;
  FP8_INIT(&e);
  fp8_last_error(&e);
  std::fprintf(stderr, "%s: %s\n", what, e.message ? e.message : "");
  std::exit(1);
}
#define CHECK(call) check((call), #call)

fp8_context *g_context;

fp8_buffer device(uint64_t bytes) {
  fp8_buffer b{};
  CHECK(fp8_buffer_alloc(g_context, bytes ? bytes : 1, &b, nullptr));
  CHECK(fp8_buffer_zero(g_context, b.data, bytes ? bytes : 1, nullptr));
  b.bytes = bytes;
  return b;
}

// Values about normal, over and over.
fp8_buffer masters_of(uint64_t bytes) {
  static fp8_buffer pattern{};
  if (!pattern.data) {
    std::vector<float> host(1 << 22);
    uint64_t state = 88172645463325252ull;
    for (float &v : host) {
      for (int k = 0; k < 4; ++k) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        v += static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
      }
    }
    pattern = device(host.size() * sizeof(float));
    CHECK(fp8_buffer_copy(g_context, pattern.data, host.data(), pattern.bytes, nullptr));
    CHECK(fp8_stream_sync(g_context, nullptr));
  }
  fp8_buffer b = device(bytes);
  for (uint64_t at = 0; at < bytes; at += pattern.bytes)
    CHECK(fp8_buffer_copy(g_context, static_cast<char *>(b.data) + at, pattern.data,
                          std::min(pattern.bytes, bytes - at), nullptr));
  return b;
}

double gpu_ms(const std::function<void()> &body) {  // median of 9, on the default stream
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  std::vector<float> all;
  for (int i = 0; i < 11; ++i) {
    cudaEventRecord(a);
    body();
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    if (i >= 2) all.push_back(ms);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

struct Shard {  // one rank's list
  std::vector<fp8_param *> params;
  std::vector<fp8_tensor> masters;
  std::vector<const fp8_tensor *> master_at;
  std::vector<fp8_qtensor> full;
  std::vector<fp8_qtensor *> full_at;
  std::vector<fp8_buffer> buffers;
  fp8_buffer amax, shard, workspace;
  fp8_param_args args;
  fp8_param_layout layout;
  Shard(const fp8_recipe *recipe, int count, int64_t n, int world, int rank, uint32_t sides, bool gathers) {
    std::vector<int64_t> cuts;
    for (int r = 0; r <= world; ++r) cuts.push_back(n * n * r / world);
    const int64_t own = cuts[rank + 1] - cuts[rank];
    for (int i = 0; i < count; ++i) {
      fp8_param_config config;
      FP8_INIT(&config);
      config.rows = config.cols = n;
      config.cuts = cuts.data();
      config.world = world;
      config.rank = rank;
      config.recipe = recipe;
      params.push_back(nullptr);
      CHECK(fp8_param_create(g_context, &config, &params.back()));
      buffers.push_back(masters_of(own * 4));
      fp8_tensor t{};
      t.data = buffers.back().data;
      t.dtype = FP8_DTYPE_F32;
      t.ndim = 1;
      t.shape[0] = own;
      t.stride[0] = 1;
      masters.push_back(t);
    }
    for (auto &t : masters) master_at.push_back(&t);
    full.resize(count);
    for (int i = 0; gathers && i < count; ++i) {
      uint64_t bytes = 0;
      FP8_INIT(&full[i]);
      CHECK(fp8_recipe_describe(recipe, g_context, FP8_ROLE_WEIGHT, n, n, sides | FP8_SIDE_COPY, &full[i]));
      CHECK(fp8_qtensor_bytes(&full[i], sides, &bytes));
      buffers.push_back(device(bytes));
      CHECK(fp8_qtensor_place(&full[i], sides, &buffers.back()));
    }
    for (auto &q : full) full_at.push_back(&q);
    FP8_INIT(&layout);
    CHECK(fp8_param_sizes(params.data(), count, sides, &layout));
    amax = device(layout.amax_bytes);
    shard = device(layout.row_bytes + layout.col_bytes);
    workspace = device(layout.workspace_bytes);
    FP8_INIT(&args);
    args.params = params.data();
    args.masters = master_at.data();
    args.full = full_at.data();
    args.amax = &amax;
    args.shard = &shard;
    args.workspace = &workspace;
    args.count = count;
    args.sides = sides;
  }
  ~Shard() {
    for (auto *p : params) fp8_param_destroy(p);
    for (auto &b : buffers) fp8_buffer_free(g_context, &b, nullptr);
    for (auto *b : {&amax, &shard, &workspace}) fp8_buffer_free(g_context, b, nullptr);
  }
};

class Meeting {  // of threads, by spinning: what is timed begins and ends for all of them at once
 public:
  explicit Meeting(int size) : size_(size) {}
  double now() {  // milliseconds, once everyone has come
    const int turn = turn_;
    if (++here_ == size_) {
      here_ = 0;
      ++turn_;
    }
    while (turn_ == turn) std::this_thread::yield();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  const int size_;
  std::atomic<int> here_{0}, turn_{0};
};

}  // namespace

int main() {
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CUDA;
  if (fp8_context_create(&config, &g_context) != FP8_OK) {
    std::printf("no CUDA device\n");
    return 0;
  }
  const struct {
    const char *name;
    int32_t preset;
    double cast;   // bytes an element: masters read once more, codes written
    double scale;  // bytes an element: the row side's, where they aren't a thousandth
  } kinds[] = {{"tensor", FP8_PRESET_TENSOR, 5, 0},
               {"row", FP8_PRESET_ROW, 6, 0},
               {"block", FP8_PRESET_BLOCK, 5, 0},
               {"mx", FP8_PRESET_MX, 6, 1.0 / 32},
               {"mx_w2d", FP8_PRESET_MX_W2D, 5, 0}};
  const int64_t n = 8192;
  const int count = 16;  // 4 GiB of masters
  const double elements = double(n) * n * count;
  fp8_buffer from = device(2ull << 30), to = device(2ull << 30);
  const double copy =
      gpu_ms([&] { cudaMemcpyAsync(to.data, from.data, 2ull << 30, cudaMemcpyDeviceToDevice, nullptr); });
  const double floor_bw = 2.0 * double(2ull << 30) / copy * 1e-6;
  std::printf(
      "device copy: %.0f GB/s read and written\n\n| list of 16 x [8192, 8192] | amax ms | of copy speed | cast ms | of "
      "copy speed | both |\n|---|---|---|---|---|---|\n",
      floor_bw);
  for (const auto &k : kinds) {
    fp8_recipe *recipe = nullptr;
    fp8_recipe_config rc;
    FP8_INIT(&rc);
    CHECK(fp8_recipe_config_preset(k.preset, &rc));
    CHECK(fp8_recipe_create(&rc, &recipe));
    Shard s(recipe, count, n, 1, 0, FP8_SIDE_BOTH, false);
    const double a = gpu_ms([&] { CHECK(fp8_param_amax(g_context, &s.args, nullptr)); });
    const double b = gpu_ms([&] { CHECK(fp8_param_cast(g_context, &s.args, nullptr)); });
    const double am = elements * 4 / (floor_bw * 1e6), bm = elements * k.cast / (floor_bw * 1e6);
    std::printf("| %s | %.3f | %.2f | %.3f | %.2f | %.2f |\n", k.name, a, am / a, b, bm / b, (am + bm) / (a + b));
    fp8_recipe_destroy(recipe);
  }
  // 8 ranks as threads that wait for the start with their streams made
  const int world = 8, small = 4;
  const double weights = double(n) * n * small;
  std::printf(
      "\n| 8 local ranks, 4 x [8192, 8192], row side | quantize ms | gather ms | both ms | copies of the same bytes ms "
      "| "
      "ratio |\n|---|---|---|---|---|---|\n");
  for (const auto &k : kinds) {
    fp8_recipe *recipe = nullptr;
    fp8_recipe_config rc;
    FP8_INIT(&rc);
    CHECK(fp8_recipe_config_preset(k.preset, &rc));
    CHECK(fp8_recipe_create(&rc, &recipe));
    std::vector<Shard *> ranks;
    for (int r = 0; r < world; ++r) ranks.push_back(new Shard(recipe, small, n, world, r, FP8_SIDE_ROW, true));
    fp8_comm *comms[world];
    CHECK(fp8_comm_create_local(world, comms));
    Meeting meeting(world);
    std::vector<double> times[3];  // quantize, gather, both
    const auto rank = [&](int r) {
      fp8_stream stream;
      CHECK(fp8_stream_create(g_context, &stream));
      for (int i = 0; i < 3 * 12; ++i) {
        const double begin = meeting.now();
        if (i % 3 != 1) CHECK(fp8_param_quantize(g_context, comms[r], &ranks[r]->args, stream));
        if (i % 3 != 0) CHECK(fp8_param_gather(g_context, comms[r], &ranks[r]->args, stream));
        CHECK(fp8_stream_sync(g_context, stream));
        const double end = meeting.now();
        if (r == 0 && i >= 6) times[i % 3].push_back(end - begin);
      }
      fp8_stream_destroy(g_context, stream);
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < world; ++r) threads.emplace_back(rank, r);
    for (auto &t : threads) t.join();
    double median[3];
    for (int i = 0; i < 3; ++i) {
      std::sort(times[i].begin(), times[i].end());
      median[i] = times[i][times[i].size() / 2];
    }
    // masters read twice, codes written once, then each rank reads and writes every code; each rank's amax is read and
    // becomes the maximum, of which each makes scales
    const double copies = weights * (9 + world * (2 + 4 * k.scale)) / (floor_bw * 1e6);
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", k.name, median[0], median[1], median[2], copies,
                median[2] / copies);
    for (int r = 0; r < world; ++r) fp8_comm_destroy(comms[r]);
    for (auto *s : ranks) delete s;
    fp8_recipe_destroy(recipe);
  }
  return 0;
}
