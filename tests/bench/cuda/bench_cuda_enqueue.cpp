// SPDX-License-Identifier: Apache-2.0
// The host's time to enqueue a linear's calls, beside the same product by cuBLASLt called directly. One thread on one
// processor; short repetitions, all calls by turns, each after two that are not timed and on an idle GPU.
#include <sched.h>

#include <chrono>

#include "layer.h"
#include "lt.h"

namespace {

constexpr int kCalls = 10;  // of a repetition: fewer than a stream holds before it makes the host wait

struct Way {
  const char *name;
  int32_t preset, x_mode, w_mode;  // cuBLASLt's; -1 = BF16, where this GPU has no product of these scales
};
constexpr Way kWays[] = {{"TENSOR", FP8_PRESET_TENSOR, 0, 0},   {"ROW", FP8_PRESET_ROW, 3, 3},
                         {"BLOCK", FP8_PRESET_BLOCK, 4, 5},     {"MX", FP8_PRESET_MX, -1, -1},
                         {"MX_W2D", FP8_PRESET_MX_W2D, -1, -1}, {"NONE", FP8_PRESET_NONE, -1, -1}};

struct Calls {  // of one recipe and shape
  gpu::Layer layer;
  gpu::Quantized x;
  gpu::Memory scratch, bare_workspace;
  lt::Matmul bare;
  const void *pa, *pb;

  Calls(const fp8_context *c, const Way &w, int64_t rows, int64_t in, int64_t out, cudaStream_t s)
      : layer(c, w.preset, rows, in, out),
        x(c, layer.r, FP8_ROLE_ACTIVATION, rows, in, FP8_SIDE_BOTH),
        scratch(gpu::quantize_workspace(c, layer.r, FP8_ROLE_ACTIVATION, tx(), x.q)),
        bare_workspace(lt::kWorkspace) {
    const bool bf16 = w.x_mode < 0;
    bare.m = out, bare.n = rows, bare.k = bare.lda = bare.ldb = in, bare.ldd = out;
    if (bf16) bare.a = bare.b = CUDA_R_16BF;
    bare.a_mode = w.w_mode, bare.b_mode = w.x_mode;
    layer.weight(s);
    quantize(s);
    bare.a_scale = layer.qw->q.row_scale.data, bare.b_scale = x.q.row_scale.data;
    bare.fast = w.x_mode == 0 || w.x_mode == 3;
    pa = bf16 ? layer.w.data() : layer.qw->q.row.data, pb = bf16 ? layer.x.data() : x.q.row.data;
    GPU_CHECK(cudaDeviceSynchronize());
    if (const cublasStatus_t status = bare.plan()) {
      std::printf("cuBLASLt: %s\n", lt::api().cublasLtGetStatusName(status));
      std::exit(1);
    }
  }
  fp8_tensor tx() const { return gpu::tensor(layer.x.data(), FP8_DTYPE_BF16, layer.rows, layer.in); }
  void quantize(cudaStream_t s) { gpu::quantize(layer.c, layer.r, FP8_ROLE_ACTIVATION, tx(), x.q, &scratch.b, s); }
  void matmul(cudaStream_t s) {
    if (bare.run(0, pa, pb, layer.y.data(), bare_workspace.data(), s)) std::printf("cublasLtMatmul failed\n");
  }
};

double host_us(const std::function<void()> &work) {
  for (int i = 0; i < 2; ++i) work();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) work();
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  GPU_CHECK(cudaDeviceSynchronize());
  return us / kCalls;
}

uint64_t launches(const fp8_context *c) {
  fp8_counters n;
  FP8_INIT(&n);
  GPU_CHECK(fp8_context_counters(c, &n));
  return n.launches;
}

void pin() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cpu = sched_getcpu();
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (cpu < 0 || sched_setaffinity(0, sizeof set, &set)) std::printf("The thread is not bound to a processor.\n\n");
}

}  // namespace

int main(int argc, char **argv) {
  const gpu::Options o = gpu::parse(argc, argv);
  gpu::print_environment("Host time to enqueue");
  gpu::Context context;
  gpu::Timer timer;
  cudaStream_t s = timer.stream;
  const int64_t shapes[][3] = {{64, 512, 512}, {512, 2048, 2048}, {4096, 4096, 4096}};
  const int repetitions = 10 * o.rounds;
  std::printf(
      "Microseconds a call: the median of the means of repetitions of %d calls, in brackets their least; %d "
      "repetitions "
      "of the first shape, fewer of larger ones. Peer: cublasLtMatmul of the same product, BF16 where this GPU has "
      "none "
      "of the recipe's scales. Launches are libfp8's of a forward, memsets not counted.\n\n"
      "| tokens, in -> out | recipe | forward | launches | quantize x | cublasLtMatmul | forward / cublasLtMatmul | "
      "backward |\n|---|---|---:|---:|---:|---:|---:|---:|\n",
      kCalls, repetitions);
  bool pinned = false;
  for (const auto &shape : shapes) {
    if (o.small && shape[0] > 64) break;
    std::vector<std::unique_ptr<Calls>> all;
    std::vector<const Way *> ways;
    for (const Way &w : kWays) {
      if (!o.only.empty() && o.only != w.name) continue;
      all.push_back(std::make_unique<Calls>(context, w, shape[0], shape[1], shape[2], s));
      ways.push_back(&w);
    }
    if (!pinned) pin();  // after what starts threads
    pinned = true;
    std::vector<std::vector<double>> times(4 * all.size());
    const int64_t large = shape[0] * shape[1] >> 20;
    for (int rep = 0; rep < repetitions / (large ? large > 8 ? 6 : 3 : 1); ++rep)
      for (size_t i = 0; i < all.size(); ++i) {
        Calls &c = *all[i];
        times[4 * i].push_back(host_us([&] { c.layer.forward(s); }));
        times[4 * i + 1].push_back(host_us([&] { c.quantize(s); }));
        times[4 * i + 2].push_back(host_us([&] { c.matmul(s); }));
        times[4 * i + 3].push_back(host_us([&] { c.layer.backward(s, true); }));
      }
    for (size_t i = 0; i < all.size(); ++i) {
      const uint64_t before = launches(context);
      all[i]->layer.forward(s);
      const auto median = [&](size_t k) { return gpu::median(times[4 * i + k]); };
      const auto least = [&](size_t k) { return *std::min_element(times[4 * i + k].begin(), times[4 * i + k].end()); };
      std::printf("| %lld, %lld -> %lld | %s | %.2f [%.2f] | %llu | %.2f [%.2f] | %.2f [%.2f] | %.2f | %.2f [%.2f] |\n",
                  static_cast<long long>(shape[0]), static_cast<long long>(shape[1]), static_cast<long long>(shape[2]),
                  ways[i]->name, median(0), least(0), static_cast<unsigned long long>(launches(context) - before),
                  median(1), least(1), median(2), least(2), gpu::ratio(times[4 * i], times[4 * i + 2]), median(3),
                  least(3));
    }
    std::fflush(stdout);
    GPU_CHECK(cudaDeviceSynchronize());
  }
  return 0;
}
