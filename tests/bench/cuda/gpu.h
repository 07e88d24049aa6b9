// SPDX-License-Identifier: Apache-2.0
// What the GPU benchmarks share: a context with device memory of noise, events, rounds by turns, medians.
#pragma once
#include <cuda_runtime_api.h>
#include <fp8/fp8.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace gpu {

inline void check(fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  fp8_error e;
  FP8_INIT(&e);
  fp8_last_error(&e);
  std::printf("\n%s: %s: %s\n", what, fp8_status_name(status), e.message ? e.message : "");
  std::exit(1);
}
inline void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  std::printf("\n%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define GPU_CHECK(call) ::gpu::check((call), #call)

struct Context {
  fp8_context *c = nullptr;
  explicit Context(uint32_t flags = 0) {
    fp8_context_config config;
    FP8_INIT(&config);
    config.backend = FP8_BACKEND_CUDA;
    config.flags = flags;
    GPU_CHECK(fp8_context_create(&config, &c));
  }
  ~Context() { fp8_context_destroy(c); }
  operator const fp8_context *() const { return c; }
};

inline uint16_t bf16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// Device memory; `noise`: BF16 values about normal.
struct Memory {
  fp8_buffer b{};
  Memory() = default;
  explicit Memory(uint64_t bytes, bool noise = false) {
    b.bytes = bytes ? bytes : 1;
    GPU_CHECK(cudaMalloc(&b.data, b.bytes));
    if (!noise) {
      GPU_CHECK(cudaMemset(b.data, 0, b.bytes));
      return;
    }
    constexpr size_t kPattern = 1 << 22;
    static std::vector<uint16_t> pattern;
    if (pattern.empty()) {
      uint64_t s = 88172645463325252ull;
      for (size_t i = 0; i < kPattern; ++i) {
        float v = 0;
        for (int k = 0; k < 4; ++k) {
          s ^= s << 13, s ^= s >> 7, s ^= s << 17;
          v += static_cast<float>(s >> 40) * 0x1p-24f - 0.5f;
        }
        pattern.push_back(bf16(v * 1.7f));
      }
    }
    for (uint64_t at = 0; at < b.bytes; at += kPattern * 2)
      GPU_CHECK(cudaMemcpy(static_cast<char *>(b.data) + at, pattern.data(),
                           std::min<uint64_t>(kPattern * 2, b.bytes - at), cudaMemcpyHostToDevice));
  }
  Memory(Memory &&o) noexcept : b(o.b) { o.b = {}; }
  Memory &operator=(Memory &&o) noexcept {
    std::swap(b, o.b);
    return *this;
  }
  ~Memory() {
    if (b.data) (void)cudaFree(b.data);
  }
  void *data() const { return b.data; }
};

inline fp8_tensor tensor(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows, t.shape[1] = cols;
  t.stride[0] = cols, t.stride[1] = 1;
  return t;
}

inline fp8_recipe *recipe(int32_t preset) {
  fp8_recipe_config config;
  FP8_INIT(&config);
  GPU_CHECK(fp8_recipe_config_preset(preset, &config));
  fp8_recipe *r = nullptr;
  GPU_CHECK(fp8_recipe_create(&config, &r));
  return r;
}

struct Quantized {
  fp8_qtensor q;
  Memory memory;
  Quantized(const fp8_context *c, const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols, uint32_t sides) {
    FP8_INIT(&q);
    GPU_CHECK(fp8_recipe_describe(r, c, role, rows, cols, sides, &q));
    uint64_t bytes = 0;
    GPU_CHECK(fp8_qtensor_bytes(&q, sides, &bytes));
    memory = Memory(bytes + 256);
    GPU_CHECK(fp8_qtensor_place(&q, sides, &memory.b));
  }
};

inline uint64_t quantize_workspace(const fp8_context *c, const fp8_recipe *r, int32_t role, const fp8_tensor &x,
                                   fp8_qtensor &q) {
  fp8_quantize_args a;
  FP8_INIT(&a);
  a.x = &x, a.q = &q, a.role = role;
  uint64_t bytes = 0;
  GPU_CHECK(fp8_quantize_workspace(c, r, &a, &bytes));
  return bytes;
}
inline void quantize(const fp8_context *c, const fp8_recipe *r, int32_t role, const fp8_tensor &x, fp8_qtensor &q,
                     const fp8_buffer *workspace, cudaStream_t stream) {
  fp8_quantize_args a;
  FP8_INIT(&a);
  a.x = &x, a.q = &q, a.role = role, a.workspace = workspace;
  GPU_CHECK(fp8_quantize(c, r, &a, stream));
}

struct Timer {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  Timer() {
    GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreate(&begin));
    GPU_CHECK(cudaEventCreate(&end));
  }
  // microseconds a call over n calls; work(i) enqueues on `stream`
  double time(int n, const std::function<void(int)> &work) {
    GPU_CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < n; ++i) work(i);
    GPU_CHECK(cudaEventRecord(end, stream));
    GPU_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    GPU_CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1000.0 / n;
  }
};

// Calls captured in a graph, about half a millisecond of them: small ones are then not the host's time.
struct Captured {
  cudaGraphExec_t exec = nullptr;
  int calls;
  double us;  // a call, roughly
  Captured(Timer &t, const std::function<void(int)> &work) {
    t.time(2, work);
    us = std::max(t.time(4, work), 0.5);
    calls = std::max(4, std::min(64, static_cast<int>(500 / us)));
    cudaGraph_t graph = nullptr;
    GPU_CHECK(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) work(i);
    GPU_CHECK(cudaStreamEndCapture(t.stream, &graph));
    GPU_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    GPU_CHECK(cudaGraphDestroy(graph));
  }
  Captured(Captured &&o) noexcept : exec(o.exec), calls(o.calls), us(o.us) { o.exec = nullptr; }
  Captured(const Captured &) = delete;
  Captured &operator=(const Captured &) = delete;
  ~Captured() {
    if (exec) (void)cudaGraphExecDestroy(exec);
  }
  double time(Timer &t, double length) const {  // microseconds a call over about `length`
    const int n = std::max(1, static_cast<int>(length / (us * calls)));
    return t.time(n, [&](int) { GPU_CHECK(cudaGraphLaunch(exec, t.stream)); }) / calls;
  }
};

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// Rounds by turns, each about `round_us` long; medians in microseconds a call.
inline std::vector<std::vector<double>> by_turns(Timer &t, int rounds, double round_us,
                                                 const std::vector<std::function<void(int)>> &works) {
  std::vector<std::vector<double>> times(works.size());
  std::vector<int> counts;
  for (const auto &w : works) {
    t.time(2, w);
    const double us = t.time(4, w);
    counts.push_back(std::max(3, std::min(20000, static_cast<int>(round_us / std::max(us, 1.0)))));
  }
  for (int r = 0; r < rounds; ++r)
    for (size_t i = 0; i < works.size(); ++i) times[i].push_back(t.time(counts[i], works[i]));
  return times;
}
// The same from graphs.
inline std::vector<std::vector<double>> captured_by_turns(Timer &t, int rounds, double round_us,
                                                          const std::vector<std::function<void(int)>> &works) {
  std::vector<std::vector<double>> times(works.size());
  std::vector<Captured> graphs;
  for (const auto &w : works) graphs.emplace_back(t, w);
  for (const auto &g : graphs) g.time(t, round_us / 2);
  for (int r = 0; r < rounds; ++r)
    for (size_t i = 0; i < works.size(); ++i) times[i].push_back(graphs[i].time(t, round_us));
  return times;
}
inline double ratio(const std::vector<double> &a, const std::vector<double> &b) {  // median of a / b by rounds
  std::vector<double> r;
  for (size_t i = 0; i < a.size(); ++i) r.push_back(a[i] / b[i]);
  return median(r);
}

inline void print_environment(const char *what) {
  cudaDeviceProp p;
  int driver = 0, runtime = 0, device = 0;
  GPU_CHECK(cudaGetDevice(&device));
  GPU_CHECK(cudaGetDeviceProperties(&p, device));
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  std::printf("## %s\n\n%s, %d SMs, driver for CUDA %d.%d, runtime %d.%d, %s\n\n", what, p.name, p.multiProcessorCount,
              driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, fp8_build_info());
}

struct Options {
  double round_ms = 100;  // with the rounds, two seconds of each thing
  int rounds = 20;
  bool small = false;
  std::string only;
};
inline Options parse(int argc, char **argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--small")
      o.small = true, o.rounds = 3, o.round_ms = 5;
    else if (a == "--only" && i + 1 < argc)
      o.only = argv[++i];
    else if (a == "--rounds" && i + 1 < argc)
      o.rounds = std::atoi(argv[++i]);
    else if (a == "--round-ms" && i + 1 < argc)
      o.round_ms = std::atof(argv[++i]);
    else
      std::printf("usage: %s [--small] [--only TEXT] [--rounds N] [--round-ms MS]\n", argv[0]), std::exit(2);
  }
  return o;
}

}  // namespace gpu
