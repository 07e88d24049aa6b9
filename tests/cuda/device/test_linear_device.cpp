// SPDX-License-Identifier: Apache-2.0
// On a GPU, through the C API: a linear under NO_ALLOC captured without a warm run and replayed with new data;
// micro-batches in flight on two streams of two threads; 100 times the same bytes; several contexts; the caller's
// device kept.
#include <thread>

#include "../../bench/cuda/layer.h"

namespace {

int g_bad = 0;
void expect(bool good, const char *what, const char *preset) {
  if (good) return;
  std::printf("FAILED %s: %s\n", preset, what);
  ++g_bad;
}

std::vector<uint8_t> get(const gpu::Memory &m) {
  std::vector<uint8_t> v(m.b.bytes);
  GPU_CHECK(cudaMemcpy(v.data(), m.b.data, m.b.bytes, cudaMemcpyDeviceToHost));
  return v;
}

struct Layer : gpu::Layer {
  Layer(const fp8_context *c, int32_t preset, int64_t rows, int64_t in, int64_t out)
      : gpu::Layer(c, preset, rows, in, out) {
    with_dbias = true;
  }
  void step(cudaStream_t s, bool accumulate) {
    weight(s);
    forward(s);
    backward(s, accumulate);
  }
  std::vector<std::vector<uint8_t>> results() const { return {get(y), get(dx), get(dw), get(dbias)}; }
};

void check_preset(const char *name, int32_t preset, int64_t rows, int64_t in, int64_t out) {
  gpu::Context context(FP8_CONTEXT_NO_ALLOC);
  Layer a(context, preset, rows, in, out), b(context, preset, rows, in, out);
  cudaStream_t one, two;
  GPU_CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  GPU_CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  // captured first: prepare alone has made it warm
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  GPU_CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
  a.step(one, false);
  GPU_CHECK(cudaStreamEndCapture(one, &graph));
  GPU_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  GPU_CHECK(cudaGraphLaunch(exec, one));
  GPU_CHECK(cudaStreamSynchronize(one));
  const auto replayed = a.results();
  b.step(two, false);
  GPU_CHECK(cudaStreamSynchronize(two));
  expect(b.results() == replayed, "a replayed graph gives what calls give", name);
  bool zero = true;
  for (const auto &v : replayed)
    for (uint8_t byte : v) zero = zero && !byte;
  expect(!zero, "results are not all zero", name);
  // new data in place
  for (Layer *l : {&a, &b})
    GPU_CHECK(cudaMemcpy(l->x.data(), static_cast<const char *>(l->w.data()) + 64,
                         std::min<size_t>(l->x.b.bytes, l->w.b.bytes) / 4, cudaMemcpyDeviceToDevice));
  GPU_CHECK(cudaDeviceSynchronize());
  GPU_CHECK(cudaGraphLaunch(exec, one));
  b.step(two, false);
  GPU_CHECK(cudaDeviceSynchronize());
  const auto fresh = b.results();
  expect(a.results() == fresh && fresh != replayed, "a graph replayed with new data", name);
  // two threads, two streams, at once, 100 times
  auto loop = [](Layer *l, cudaStream_t s) {
    for (int i = 0; i < 100; ++i) l->step(s, false);
  };
  std::thread t(loop, &a, one);
  loop(&b, two);
  t.join();
  GPU_CHECK(cudaDeviceSynchronize());
  expect(a.results() == fresh && b.results() == fresh, "100 steps on two streams of two threads give the same bytes",
         name);
  fp8_counters counters;
  FP8_INIT(&counters);
  GPU_CHECK(fp8_context_counters(context, &counters));
  expect(counters.allocations == 0, "no allocation under NO_ALLOC", name);
  std::printf("| %s | %lld x %lld -> %lld | %llu | %llu | %llu | %llu | %d |\n", name, static_cast<long long>(rows),
              static_cast<long long>(in), static_cast<long long>(out),
              static_cast<unsigned long long>(counters.launches), static_cast<unsigned long long>(counters.gemms),
              static_cast<unsigned long long>(counters.emulated_gemms),
              static_cast<unsigned long long>(counters.padded_gemms), g_bad);
  std::fflush(stdout);
  GPU_CHECK(cudaGraphExecDestroy(exec));
  GPU_CHECK(cudaGraphDestroy(graph));
  GPU_CHECK(cudaStreamDestroy(one));
  GPU_CHECK(cudaStreamDestroy(two));
}

}  // namespace

int main() {
  gpu::print_environment("Linear on the device: graphs, streams, determinism");
  std::printf(
      "| preset | shape | launches | products | emulated | padded | failures so far "
      "|\n|---|---|---:|---:|---:|---:|---:|\n");
  struct Preset {
    const char *name;
    int32_t preset;
  };
  const Preset presets[] = {{"NONE", FP8_PRESET_NONE},   {"TENSOR", FP8_PRESET_TENSOR}, {"ROW", FP8_PRESET_ROW},
                            {"BLOCK", FP8_PRESET_BLOCK}, {"MX", FP8_PRESET_MX},         {"MX_W2D", FP8_PRESET_MX_W2D}};
  for (const Preset &p : presets) {
    check_preset(p.name, p.preset, 512, 1024, 768);
    check_preset(p.name, p.preset, 250, 208, 144);
  }
  int devices = 0, before = 0, after = 0;
  GPU_CHECK(cudaGetDeviceCount(&devices));
  GPU_CHECK(cudaSetDevice(devices - 1));
  GPU_CHECK(cudaGetDevice(&before));
  gpu::Context first, second;  // of device 0
  fp8_buffer buffer{};
  GPU_CHECK(fp8_buffer_alloc(first, 1 << 20, &buffer, nullptr));
  GPU_CHECK(fp8_buffer_zero(first, buffer.data, 1 << 20, nullptr));
  fp8_buffer_free(first, &buffer, nullptr);
  GPU_CHECK(cudaGetDevice(&after));
  expect(before == after, "the caller's current device is kept", "context");
  std::printf("\n%d failures\n", g_bad);
  return g_bad != 0;
}
