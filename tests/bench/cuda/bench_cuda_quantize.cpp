// SPDX-License-Identifier: Apache-2.0
// Quantizers against the memory: bytes that must move at the bandwidth of a device copy, measured by turns in the same
// run.
#include "gpu.h"

namespace {

struct Row {
  const char *name;
  int32_t preset, role;
};
constexpr Row kRows[] = {
    {"TENSOR", FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION},     {"ROW", FP8_PRESET_ROW, FP8_ROLE_ACTIVATION},
    {"BLOCK 1x128", FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION}, {"BLOCK 128x128", FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT},
    {"MX 1x32", FP8_PRESET_MX, FP8_ROLE_ACTIVATION},        {"MX_W2D 32x32", FP8_PRESET_MX_W2D, FP8_ROLE_WEIGHT}};

// Bytes an element of BF16: read once or twice, written a side.
double bytes_per_element(const Row &r, uint32_t sides) {
  const double write = sides == FP8_SIDE_BOTH ? 2 : 1;
  const bool two = r.preset == FP8_PRESET_TENSOR || (r.preset == FP8_PRESET_ROW && sides != FP8_SIDE_ROW);
  double scales = 0;
  if (r.preset == FP8_PRESET_BLOCK && r.role == FP8_ROLE_ACTIVATION) scales = 4.0 / 128 * write;
  if (r.preset == FP8_PRESET_MX) scales = 1.0 / 32 * write;
  return (two ? 4 : 2) + write + scales;
}

}  // namespace

int main(int argc, char **argv) {
  const gpu::Options o = gpu::parse(argc, argv);
  gpu::print_environment("Quantizers, BF16 to FP8");
  gpu::Context context;
  gpu::Timer timer;
  std::printf(
      "Share of the floor: (bytes that must move / copy bandwidth of the same rounds) / time, median of %d rounds of "
      "%.0f ms.\n\n",
      o.rounds, o.round_ms);
  std::printf(
      "| recipe | shape | side | us | TB/s | copy TB/s | share of the floor |\n|---|---|---|---:|---:|---:|---:|\n");
  const int64_t shapes[][2] = {{4096, 4096}, {8192, 8192}, {16384, 8192}};
  for (const auto &shape : shapes) {
    if (o.small && shape[0] > 4096) break;
    const int64_t rows = shape[0], cols = shape[1], bytes_x = rows * cols * 2;
    const int sets = static_cast<int>(std::max<int64_t>(3, (int64_t{400} << 20) / bytes_x));
    std::vector<gpu::Memory> x, y;
    for (int i = 0; i < sets; ++i) x.emplace_back(bytes_x, true), y.emplace_back(bytes_x);
    for (const Row &row : kRows)
      for (uint32_t sides : {FP8_SIDE_ROW, FP8_SIDE_COL, FP8_SIDE_BOTH}) {
        const char *side = sides == FP8_SIDE_ROW ? "row" : sides == FP8_SIDE_COL ? "column" : "both";
        if (!o.only.empty() && std::string(row.name).find(o.only) == std::string::npos) continue;
        fp8_recipe *r = gpu::recipe(row.preset);
        std::vector<gpu::Quantized> q;
        std::vector<fp8_tensor> views;
        for (int i = 0; i < sets; ++i) {
          q.emplace_back(context, r, row.role, rows, cols, sides);
          views.push_back(gpu::tensor(x[static_cast<size_t>(i)].data(), FP8_DTYPE_BF16, rows, cols));
        }
        gpu::Memory workspace(gpu::quantize_workspace(context, r, row.role, views[0], q[0].q));
        const auto times =
            gpu::by_turns(timer, o.rounds, o.round_ms * 1000,
                          {[&](int i) {
                             const size_t s = static_cast<size_t>(i % sets);
                             gpu::quantize(context, r, row.role, views[s], q[s].q, &workspace.b, timer.stream);
                           },
                           [&](int i) {
                             const size_t s = static_cast<size_t>(i % sets);
                             GPU_CHECK(cudaMemcpyAsync(y[s].data(), x[s].data(), static_cast<size_t>(bytes_x),
                                                       cudaMemcpyDeviceToDevice, timer.stream));
                           }});
        const double bytes = bytes_per_element(row, sides) * static_cast<double>(rows * cols);
        const double us = gpu::median(times[0]), copy = gpu::median(times[1]);
        const double share = gpu::ratio(times[1], times[0]) * bytes / (2.0 * static_cast<double>(bytes_x));
        std::printf("| %s | %lldx%lld | %s | %.1f | %.2f | %.2f | %.3f |\n", row.name, static_cast<long long>(rows),
                    static_cast<long long>(cols), side, us, bytes / us * 1e-6,
                    2.0 * static_cast<double>(bytes_x) / copy * 1e-6, share);
        std::fflush(stdout);
        fp8_recipe_destroy(r);
      }
  }
  return 0;
}
