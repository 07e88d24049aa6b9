// SPDX-License-Identifier: Apache-2.0
// A linear's forward and backward, four micro-batches with the weight quantized once and dw accumulated in FP32, by
// turns with preset NONE.
#include "layer.h"

namespace {

constexpr int kMicro = 4;

void step(gpu::Layer &l, cudaStream_t s) {
  l.weight(s);
  for (int m = 0; m < kMicro; ++m) l.forward(s), l.backward(s, m > 0);
}

}  // namespace

int main(int argc, char **argv) {
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
    gpu::Context context(tuned ? FP8_CONTEXT_TUNE : 0);
    gpu::Timer timer;
    const int64_t rows = o.small ? 1024 : 16384;
    const int64_t shapes[][2] = {{4096, 16384}, {8192, 8192}};
    std::printf(
        "%lld tokens, 4 micro-batches a step, %s; NONE by turns.\n\n| in -> out | recipe | ms a step | NONE ms | "
        "speed-up |\n|---|---|---:|---:|---:|\n",
        static_cast<long long>(rows), tuned ? "FP8_CONTEXT_TUNE" : "plans by heuristic");
    for (const auto &shape : shapes) {
      gpu::Layer none(context, FP8_PRESET_NONE, rows, shape[0], shape[1], !tuned);
      for (const Preset &p : presets) {
        if (!o.only.empty() && o.only != p.name) continue;
        gpu::Layer layer(context, p.preset, rows, shape[0], shape[1], !tuned);
        const auto times =
            gpu::by_turns(timer, o.rounds, o.round_ms * 1000,
                          {[&](int) { step(layer, timer.stream); }, [&](int) { step(none, timer.stream); }});
        std::printf("| %lld -> %lld | %s | %.2f | %.2f | %.3f |\n", static_cast<long long>(shape[0]),
                    static_cast<long long>(shape[1]), p.name, gpu::median(times[0]) * 1e-3,
                    gpu::median(times[1]) * 1e-3, gpu::ratio(times[1], times[0]));
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  }
  return 0;
}
