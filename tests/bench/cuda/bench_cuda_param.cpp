// SPDX-License-Identifier: Apache-2.0
// Primary weights on one GPU: partial amax and cast against the bytes that they must move, and quantize + gather over 8
// local ranks against device copies of the bytes that they must move.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "gpu.h"

namespace {

// FP32 values about normal, over and over.
gpu::Memory masters_of(uint64_t bytes) {
  static std::vector<float> pattern;
  if (pattern.empty()) {
    uint64_t state = 88172645463325252ull;
    pattern.resize(1 << 22);
    for (float &v : pattern)
      for (int k = 0; k < 4; ++k) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        v += static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
      }
  }
  gpu::Memory m(bytes);
  const uint64_t length = pattern.size() * sizeof(float);
  for (uint64_t at = 0; at < bytes; at += length)
    GPU_CHECK(cudaMemcpy(static_cast<char *>(m.data()) + at, pattern.data(), std::min(length, bytes - at),
                         cudaMemcpyHostToDevice));
  return m;
}

struct Shard {  // one rank's list
  std::vector<fp8_param *> params;
  std::vector<fp8_tensor> masters;
  std::vector<const fp8_tensor *> master_at;
  std::vector<fp8_qtensor> full;
  std::vector<fp8_qtensor *> full_at;
  std::vector<gpu::Memory> buffers;
  gpu::Memory amax, shard, workspace;
  fp8_param_args args;
  fp8_param_layout layout;
  Shard(const fp8_context *c, const fp8_recipe *recipe, int count, int64_t n, int world, int rank, uint32_t sides,
        bool gathers) {
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
      GPU_CHECK(fp8_param_create(c, &config, &params.back()));
      buffers.push_back(masters_of(own * 4));
      fp8_tensor t{};
      t.data = buffers.back().data();
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
      GPU_CHECK(fp8_recipe_describe(recipe, c, FP8_ROLE_WEIGHT, n, n, sides | FP8_SIDE_COPY, &full[i]));
      GPU_CHECK(fp8_qtensor_bytes(&full[i], sides, &bytes));
      buffers.emplace_back(bytes);
      GPU_CHECK(fp8_qtensor_place(&full[i], sides, &buffers.back().b));
    }
    for (auto &q : full) full_at.push_back(&q);
    FP8_INIT(&layout);
    GPU_CHECK(fp8_param_sizes(params.data(), count, sides, &layout));
    amax = gpu::Memory(layout.amax_bytes);
    shard = gpu::Memory(layout.row_bytes + layout.col_bytes);
    workspace = gpu::Memory(layout.workspace_bytes);
    FP8_INIT(&args);
    args.params = params.data();
    args.masters = master_at.data();
    args.full = full_at.data();
    args.amax = &amax.b;
    args.shard = &shard.b;
    args.workspace = &workspace.b;
    args.count = count;
    args.sides = sides;
  }
  ~Shard() {
    for (auto *p : params) fp8_param_destroy(p);
  }
};

class Meeting {  // of threads, by spinning: what the host times begins and ends for all of them at once
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

int main(int argc, char **argv) {
  const gpu::Options o = gpu::parse(argc, argv);
  gpu::print_environment("Primary weights on one GPU");
  gpu::Context context;
  gpu::Timer timer;
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
  const int64_t n = o.small ? 1024 : 8192;
  const int count = 16;  // 4 GiB of masters
  const double elements = double(n) * double(n) * count;
  const uint64_t copied = uint64_t{2} << 30;
  gpu::Memory from(copied), to(copied);
  const auto copy = [&](cudaStream_t stream) {
    GPU_CHECK(cudaMemcpyAsync(to.data(), from.data(), copied, cudaMemcpyDeviceToDevice, stream));
  };
  const auto share = [&](double bytes, double ms, double copy_ms) {
    return bytes / ms / (2.0 * double(copied) / copy_ms);
  };
  std::printf(
      "Of the bandwidth of a device copy by turns, medians of %d rounds of %.0f ms.\n\n| list of %d x [%lld, %lld] | "
      "amax ms | of copy speed | cast ms | of copy speed | both | copy GB/s |\n|---|---|---|---|---|---|---|\n",
      o.rounds, o.round_ms, count, static_cast<long long>(n), static_cast<long long>(n));
  for (const auto &k : kinds) {
    if (!o.only.empty() && o.only != k.name) continue;
    fp8_recipe *recipe = gpu::recipe(k.preset);
    Shard s(context, recipe, count, n, 1, 0, FP8_SIDE_BOTH, false);
    const auto t = gpu::by_turns(
        timer, o.rounds, o.round_ms * 1000,
        {[&](int) { GPU_CHECK(fp8_param_amax(context, &s.args, timer.stream)); },
         [&](int) { GPU_CHECK(fp8_param_cast(context, &s.args, timer.stream)); }, [&](int) { copy(timer.stream); }});
    std::vector<double> amax, cast, both;
    for (size_t i = 0; i < t[0].size(); ++i) {
      amax.push_back(share(elements * 4, t[0][i], t[2][i]));
      cast.push_back(share(elements * k.cast, t[1][i], t[2][i]));
      both.push_back(share(elements * (4 + k.cast), t[0][i] + t[1][i], t[2][i]));
    }
    std::printf("| %s | %.3f | %.2f | %.3f | %.2f | %.2f | %.0f |\n", k.name, gpu::median(t[0]) * 1e-3,
                gpu::median(amax), gpu::median(t[1]) * 1e-3, gpu::median(cast), gpu::median(both),
                2e-3 * double(copied) / gpu::median(t[2]));
    std::fflush(stdout);
    fp8_recipe_destroy(recipe);
  }
  // 8 ranks as threads that wait for the start with their streams made
  const int world = 8, small = 4;
  const double weights = double(n) * double(n) * small;
  const int repeats = o.small ? 12 : std::max(12, static_cast<int>(o.rounds * o.round_ms / 2));  // about 2 ms each
  std::printf(
      "\n%d repetitions by turns with a device copy.\n\n| 8 local ranks, %d x [%lld, %lld], row side | quantize ms | "
      "gather ms | both ms | copies of the same bytes ms | ratio |\n|---|---|---|---|---|---|\n",
      repeats, small, static_cast<long long>(n), static_cast<long long>(n));
  for (const auto &k : kinds) {
    if (!o.only.empty() && o.only != k.name) continue;
    fp8_recipe *recipe = gpu::recipe(k.preset);
    std::vector<std::unique_ptr<Shard>> ranks;
    for (int r = 0; r < world; ++r)
      ranks.push_back(std::make_unique<Shard>(context, recipe, small, n, world, r, FP8_SIDE_ROW, true));
    fp8_comm *comms[world];
    GPU_CHECK(fp8_comm_create_local(world, comms));
    Meeting meeting(world);
    enum { kQuantize, kGather, kBoth, kCopy, kParts };
    std::vector<double> times[kParts];
    const auto rank = [&](int r) {
      fp8_stream stream;
      GPU_CHECK(fp8_stream_create(context, &stream));
      for (int i = 0; i < kParts * (repeats + 2); ++i) {
        const int part = i % kParts;
        const double begin = meeting.now();
        if (part == kQuantize || part == kBoth)
          GPU_CHECK(fp8_param_quantize(context, comms[r], &ranks[static_cast<size_t>(r)]->args, stream));
        if (part == kGather || part == kBoth)
          GPU_CHECK(fp8_param_gather(context, comms[r], &ranks[static_cast<size_t>(r)]->args, stream));
        if (part == kCopy && r == 0) copy(static_cast<cudaStream_t>(stream));
        GPU_CHECK(fp8_stream_sync(context, stream));
        const double end = meeting.now();
        if (r == 0 && i >= kParts * 2) times[part].push_back(end - begin);
      }
      fp8_stream_destroy(context, stream);
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < world; ++r) threads.emplace_back(rank, r);
    for (auto &t : threads) t.join();
    // masters read twice, codes written once, then each rank reads and writes every code; each rank's amax is read and
    // becomes the maximum, of which each makes scales
    const double copies = weights * (9 + world * (2 + 4 * k.scale)) / (2.0 * double(copied));
    std::vector<double> peer;
    for (double ms : times[kCopy]) peer.push_back(ms * copies);
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", k.name, gpu::median(times[kQuantize]),
                gpu::median(times[kGather]), gpu::median(times[kBoth]), gpu::median(peer),
                gpu::ratio(times[kBoth], peer));
    std::fflush(stdout);
    for (int r = 0; r < world; ++r) fp8_comm_destroy(comms[r]);
    ranks.clear();
    fp8_recipe_destroy(recipe);
  }
  return 0;
}
