// SPDX-License-Identifier: Apache-2.0
// A linear's forward and backward, four micro-batches with the weight quantized once and dw accumulated in FP32, by
// turns with preset NONE. And what the host spends to enqueue.
#include <chrono>
#include <memory>

#include "gpu.h"

namespace {

constexpr int kMicro = 4;

struct Layer {
  const fp8_context *c;
  fp8_recipe *r;
  fp8_linear *l = nullptr;
  int64_t rows, in, out;
  gpu::Memory x, w, dy, y, dx, dw, workspace;
  std::unique_ptr<gpu::Quantized> qw, saved;
  bool plain;

  // Without prepare the first calls plan, and tune, what they use alone.
  Layer(const fp8_context *context, int32_t preset, int64_t rows, int64_t in, int64_t out, bool prepare = true)
      : c(context),
        r(gpu::recipe(preset)),
        rows(rows),
        in(in),
        out(out),
        x(rows * in * 2, true),
        w(out * in * 2, true),
        dy(rows * out * 2, true),
        y(rows * out * 2),
        dx(rows * in * 2),
        dw(out * in * 4),
        plain(preset == FP8_PRESET_NONE) {
    fp8_linear_config config;
    FP8_INIT(&config);
    config.in_features = in, config.out_features = out, config.recipe = r;
    GPU_CHECK(fp8_linear_create(c, &config, &l));
    uint64_t bytes = 0;
    GPU_CHECK(fp8_linear_workspace(l, rows, 0, &bytes));
    workspace = gpu::Memory(bytes);
    qw = std::make_unique<gpu::Quantized>(c, r, FP8_ROLE_WEIGHT, out, in, FP8_SIDE_BOTH);
    saved = std::make_unique<gpu::Quantized>(c, r, FP8_ROLE_ACTIVATION, rows, in, FP8_SIDE_COL);
    if (prepare) GPU_CHECK(fp8_linear_prepare(l, rows, 0));
  }
  ~Layer() {
    fp8_linear_destroy(l);
    fp8_recipe_destroy(r);
  }
  void weight(cudaStream_t s) {
    gpu::quantize(c, r, FP8_ROLE_WEIGHT, gpu::tensor(w.data(), FP8_DTYPE_BF16, out, in), qw->q, &workspace.b, s);
  }
  void forward(cudaStream_t s) {
    fp8_tensor tx = gpu::tensor(x.data(), FP8_DTYPE_BF16, rows, in),
               ty = gpu::tensor(y.data(), FP8_DTYPE_BF16, rows, out);
    fp8_linear_forward_args a;
    FP8_INIT(&a);
    a.x = &tx, a.w = &qw->q, a.y = &ty, a.saved_x = &saved->q, a.workspace = &workspace.b;
    GPU_CHECK(fp8_linear_forward(l, &a, s));
  }
  void backward(cudaStream_t s, bool accumulate) {
    fp8_tensor tdy = gpu::tensor(dy.data(), FP8_DTYPE_BF16, rows, out),
               tdx = gpu::tensor(dx.data(), FP8_DTYPE_BF16, rows, in),
               tdw = gpu::tensor(dw.data(), FP8_DTYPE_F32, out, in);
    fp8_linear_backward_args a;
    FP8_INIT(&a);
    a.dy = &tdy, a.w = &qw->q, a.saved_x = &saved->q, a.dx = &tdx, a.dw = &tdw, a.workspace = &workspace.b;
    a.flags = accumulate ? FP8_LINEAR_ACCUMULATE_DW : 0;
    GPU_CHECK(fp8_linear_backward(l, &a, s));
  }
  void step(cudaStream_t s) {
    weight(s);
    for (int m = 0; m < kMicro; ++m) forward(s), backward(s, m > 0);
  }
};

double host_us(int n, const std::function<void()> &work) {
  GPU_CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 20; ++i) work();
  GPU_CHECK(cudaDeviceSynchronize());
  std::vector<double> times;
  for (int round = 0; round < 41; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i) work();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / n);
    GPU_CHECK(cudaDeviceSynchronize());
  }
  return gpu::median(times);
}

}  // namespace

int main(int argc, char **argv) {
  const bool enqueue = argc > 1 && std::string(argv[1]) == "--enqueue";  // the host's time alone
  if (enqueue) --argc, ++argv;
  const gpu::Options o = gpu::parse(argc, argv);
  gpu::print_environment("Linear, forward and backward");
  struct Preset {
    const char *name;
    int32_t preset;
  };
  const Preset presets[] = {{"TENSOR", FP8_PRESET_TENSOR},
                            {"ROW", FP8_PRESET_ROW},
                            {"BLOCK", FP8_PRESET_BLOCK},
                            {"MX", FP8_PRESET_MX},
                            {"MX_W2D", FP8_PRESET_MX_W2D}};
  for (const bool tuned : {false, true}) {
    if (enqueue) break;
    gpu::Context context(tuned ? FP8_CONTEXT_TUNE : 0);
    gpu::Timer timer;
    const int64_t rows = o.small ? 1024 : 16384;
    const int64_t shapes[][2] = {{4096, 16384}, {8192, 8192}};
    std::printf(
        "%lld tokens, 4 micro-batches a step, %s; NONE by turns.\n\n| in -> out | recipe | ms a step | NONE ms | "
        "speed-up |\n|---|---|---:|---:|---:|\n",
        static_cast<long long>(rows), tuned ? "FP8_CONTEXT_TUNE" : "plans by heuristic");
    for (const auto &shape : shapes) {
      Layer none(context, FP8_PRESET_NONE, rows, shape[0], shape[1], !tuned);
      for (const Preset &p : presets) {
        if (!o.only.empty() && o.only != p.name) continue;
        Layer layer(context, p.preset, rows, shape[0], shape[1], !tuned);
        const auto times =
            gpu::by_turns(timer, std::max(3, o.rounds - 2), o.round_ms * 6000,
                          {[&](int) { layer.step(timer.stream); }, [&](int) { none.step(timer.stream); }});
        std::printf("| %lld -> %lld | %s | %.2f | %.2f | %.3f |\n", static_cast<long long>(shape[0]),
                    static_cast<long long>(shape[1]), p.name, gpu::median(times[0]) * 1e-3,
                    gpu::median(times[1]) * 1e-3, gpu::ratio(times[1], times[0]));
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  }
  gpu::Context context;
  gpu::Timer timer;
  std::printf(
      "Host time to enqueue, 64 tokens, 512 -> 512, 25 calls a round, the GPU idle before.\n\n| call | us "
      "|\n|---|---:|\n");
  for (const Preset &p : presets) {
    Layer layer(context, p.preset, 64, 512, 512);
    layer.weight(timer.stream);
    std::printf("| fp8_linear_forward %s | %.2f |\n", p.name, host_us(25, [&] { layer.forward(timer.stream); }));
    std::printf("| fp8_linear_backward %s | %.2f |\n", p.name,
                host_us(25, [&] { layer.backward(timer.stream, true); }));
  }
  return 0;
}
