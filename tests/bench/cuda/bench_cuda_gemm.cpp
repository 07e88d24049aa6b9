// SPDX-License-Identifier: Apache-2.0
// fp8_gemm, plans by heuristic and tuned, by turns with cuBLASLt called directly with the fastest of its candidates: of
// those that keep libfp8's one rounding, and of all. --candidates lists each with its time on stderr, --enqueue
// measures the host alone.
#include <chrono>
#include <memory>

#include "lt.h"

namespace {

struct Way {
  const char *name;
  int32_t preset, a_role, b_role;  // roles of the row sides
  int32_t a_mode, b_mode;          // cuBLASLt's for our a and b
  uint32_t flags;
  int32_t d;
};
constexpr int32_t kX = FP8_ROLE_ACTIVATION, kW = FP8_ROLE_WEIGHT, kDy = FP8_ROLE_GRADIENT;
constexpr Way kWays[] = {
    {"BF16", FP8_PRESET_NONE, kX, kW, -1, -1, 0, FP8_DTYPE_BF16},
    {"BF16, FP32 +=", FP8_PRESET_NONE, kX, kW, -1, -1, FP8_GEMM_ACCUMULATE, FP8_DTYPE_F32},
    {"TENSOR fast", FP8_PRESET_TENSOR, kX, kW, 0, 0, FP8_GEMM_FAST_ACCUMULATION, FP8_DTYPE_BF16},
    {"TENSOR split", FP8_PRESET_TENSOR, kX, kW, 0, 0, 0, FP8_DTYPE_BF16},
    {"TENSOR E5M2 FP32 +=", FP8_PRESET_TENSOR, kDy, kX, 0, 0, FP8_GEMM_ACCUMULATE, FP8_DTYPE_F32},
    {"ROW fast", FP8_PRESET_ROW, kX, kW, 3, 3, FP8_GEMM_FAST_ACCUMULATION, FP8_DTYPE_BF16},
    {"ROW split", FP8_PRESET_ROW, kX, kW, 3, 3, 0, FP8_DTYPE_BF16},
    {"ROW FP32 +=", FP8_PRESET_ROW, kDy, kX, 3, 3, FP8_GEMM_ACCUMULATE, FP8_DTYPE_F32},
    {"BLOCK 1Dx2D", FP8_PRESET_BLOCK, kX, kW, 4, 5, 0, FP8_DTYPE_BF16},
    {"BLOCK 1Dx1D", FP8_PRESET_BLOCK, kDy, kX, 4, 4, 0, FP8_DTYPE_BF16},
    {"BLOCK 1Dx1D FP32 +=", FP8_PRESET_BLOCK, kDy, kX, 4, 4, FP8_GEMM_ACCUMULATE, FP8_DTYPE_F32},
    {"MX (peer: BF16)", FP8_PRESET_MX, kX, kW, -1, -1, 0, FP8_DTYPE_BF16},
};

cudaDataType_t lt_type(int32_t dtype) {
  return dtype == FP8_DTYPE_F32    ? CUDA_R_32F
         : dtype == FP8_DTYPE_BF16 ? CUDA_R_16BF
         : dtype == FP8_DTYPE_E4M3 ? CUDA_R_8F_E4M3
                                   : CUDA_R_8F_E5M2;
}

struct Problem {
  gpu::Memory xa, xb, d, workspace, direct_workspace;
  fp8_recipe *r;
  gpu::Quantized a, b;
  fp8_tensor td;
  fp8_gemm_args args;
  const bool bf16;

  Problem(const fp8_context *c, const Way &w, int64_t m, int64_t n, int64_t k)
      : xa(m * k * 2, true),
        xb(n * k * 2, true),
        d(m * n * 4),
        direct_workspace(lt::kWorkspace),
        r(gpu::recipe(w.preset)),
        a(c, r, w.a_role, m, k, FP8_SIDE_ROW),
        b(c, r, w.b_role, n, k, FP8_SIDE_ROW),
        td(gpu::tensor(d.data(), w.d, m, n)),
        bf16(w.a_mode < 0) {
    for (int i = 0; i < 2; ++i) {
      gpu::Quantized &q = i ? b : a;
      const fp8_tensor x = gpu::tensor((i ? xb : xa).data(), FP8_DTYPE_BF16, i ? n : m, k);
      const int32_t role = i ? w.b_role : w.a_role;
      gpu::Memory scratch(gpu::quantize_workspace(c, r, role, x, q.q));
      gpu::quantize(c, r, role, x, q.q, &scratch.b, nullptr);
      GPU_CHECK(cudaDeviceSynchronize());
    }
    FP8_INIT(&args);
    args.a = &a.q, args.b = &b.q, args.a_side = FP8_SIDE_ROW, args.b_side = FP8_SIDE_ROW, args.d = &td,
    args.flags = w.flags;
    uint64_t bytes = 0;
    GPU_CHECK(fp8_gemm_workspace(c, &args, &bytes));
    workspace = gpu::Memory(bytes);
    args.workspace = &workspace.b;
  }
  Problem(const Problem &) = delete;
  Problem &operator=(const Problem &) = delete;
  ~Problem() { fp8_recipe_destroy(r); }
  // cuBLASLt is column-major: our b is its a; MX's peer is BF16
  const void *direct_a() const { return bf16 ? xb.data() : b.q.row.data; }
  const void *direct_b() const { return bf16 ? xa.data() : a.q.row.data; }
};

// Equal problems in memory of their own, taken by turns: together larger than L2.
std::vector<std::unique_ptr<Problem>> problems(const fp8_context *c, const Way &w, int64_t m, int64_t n, int64_t k) {
  std::vector<std::unique_ptr<Problem>> all;
  all.push_back(std::make_unique<Problem>(c, w, m, n, k));
  const uint64_t bytes = all[0]->a.memory.b.bytes + all[0]->b.memory.b.bytes + all[0]->d.b.bytes;
  const uint64_t sets = std::max<uint64_t>(3, (uint64_t{200} << 20) / bytes);
  while (all.size() < sets) all.push_back(std::make_unique<Problem>(c, w, m, n, k));
  return all;
}

void set_direct(lt::Matmul &l, const Way &w, Problem &p, int64_t m, int64_t n, int64_t k) {
  const bool bf16 = p.bf16;
  l.m = n, l.n = m, l.k = k;
  l.lda = l.ldb = k, l.ldd = n;
  l.a = bf16 ? CUDA_R_16BF : lt_type(p.b.q.row.dtype), l.b = bf16 ? CUDA_R_16BF : lt_type(p.a.q.row.dtype),
  l.d = lt_type(w.d);
  l.a_mode = w.b_mode, l.b_mode = w.a_mode;
  l.a_scale = p.b.q.row_scale.data, l.b_scale = p.a.q.row_scale.data;
  l.fast = w.flags & FP8_GEMM_FAST_ACCUMULATION, l.accumulate = w.flags & FP8_GEMM_ACCUMULATE;
}

}  // namespace

int main(int argc, char **argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool candidates = mode == "--candidates", enqueue = mode == "--enqueue";
  if (candidates || enqueue) --argc, ++argv;
  const gpu::Options o = gpu::parse(argc, argv);
  gpu::print_environment("GEMM");
  gpu::Context heuristic, tuned(FP8_CONTEXT_TUNE);
  gpu::Timer timer;
  const int64_t shapes[][3] = {{8192, 8192, 8192}, {4096, 7168, 16384}, {4096, 4096, 7168}, {4096, 7168, 2048},
                               {4096, 2112, 7168}, {4096, 24576, 1536}, {4096, 32768, 512}, {128, 7168, 2048}};
  std::printf(
      "cuBLASLt %zu, 32 MiB workspace each. TFLOP/s, hot, calls replayed from graphs; ratio = time of cuBLASLt's best "
      "candidate called directly / ours, median of %d rounds of %.0f ms, buffers by turns, larger than L2. The direct "
      "best keeps libfp8's terms (split-K "
      "parts of a 16-bit output summed in FP32); any: without them, where that is another.\n\n",
      lt::api().cublasLtGetVersion(), o.rounds, o.round_ms);
  std::printf(
      "| product | M,N,K | ours | ours tuned | direct best | any | ratio | ratio tuned | direct best is "
      "|\n|---|---|---:|---:|---:|---:|---:|---:|---|\n");
  for (const auto &s : shapes) {
    if (enqueue) break;
    const int64_t m = s[0], n = s[1], k = s[2];
    char shape[64];
    std::snprintf(shape, sizeof shape, "%lld,%lld,%lld", static_cast<long long>(m), static_cast<long long>(n),
                  static_cast<long long>(k));
    if (o.small && m * n * k > (int64_t{1} << 37)) continue;
    for (const Way &w : kWays) {
      if (!o.only.empty() && std::string(w.name).find(o.only) == std::string::npos) continue;
      const auto sets = problems(heuristic, w, m, n, k);
      const auto at = [&](int call) -> Problem & { return *sets[static_cast<size_t>(call) % sets.size()]; };
      lt::Matmul direct;
      set_direct(direct, w, at(0), m, n, k);  // its scales are every set's
      const cublasStatus_t status = direct.plan();
      if (status) {
        std::printf("| %s | %s | refused by cuBLASLt: %s |\n", w.name, shape, lt::api().cublasLtGetStatusName(status));
        continue;
      }
      const auto run_direct = [&](int i, int call) {
        Problem &p = at(call);
        return direct.run(i, p.direct_a(), p.direct_b(), p.d.data(), p.direct_workspace.data(), timer.stream);
      };
      direct.tune(timer, run_direct);
      const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * 1e-6;
      if (candidates) {  // number 0 is what libfp8 takes without tuning
        for (int i = 0; i < direct.found; ++i) {
          const double us = direct.us[static_cast<size_t>(i)];
          std::fprintf(stderr, "| %s | %s | %d | %.0f | %.2f | %s%s |\n", w.name, shape, i, us > 0 ? flop / us : 0, us,
                       direct.name(i).c_str(),
                       i == direct.best       ? " BEST"
                       : i == direct.best_any ? " ANY"
                                              : "");
        }
      }
      std::vector<std::function<void(int)>> works = {
          [&](int call) { GPU_CHECK(fp8_gemm(heuristic, &at(call).args, timer.stream)); },
          [&](int call) { GPU_CHECK(fp8_gemm(tuned, &at(call).args, timer.stream)); },
          [&](int call) { run_direct(direct.best, call); }};
      const bool other = direct.best_any != direct.best;
      if (other) works.push_back([&](int call) { run_direct(direct.best_any, call); });
      const auto t = gpu::captured_by_turns(timer, o.rounds, o.round_ms * 1000, works);
      std::printf("| %s | %s | %.0f | %.0f | %.0f | ", w.name, shape, flop / gpu::median(t[0]),
                  flop / gpu::median(t[1]), flop / gpu::median(t[2]));
      if (other) std::printf("%.0f", flop / gpu::median(t[3]));
      std::printf(" | %.3f | %.3f | %d of %d: %s |\n", gpu::ratio(t[2], t[0]), gpu::ratio(t[2], t[1]), direct.best,
                  direct.found, direct.name(direct.best).c_str());
      std::fflush(stdout);
    }
  }
  std::printf(
      "\nHost time to enqueue, 256,256,256, 25 calls a round, the GPU idle before.\n\n| product | fp8_gemm us | "
      "cublasLtMatmul us | ratio "
      "|\n|---|---:|---:|---:|\n");
  for (const Way &w : kWays) {
    Problem p(heuristic, w, 256, 256, 256);
    lt::Matmul direct;
    set_direct(direct, w, p, 256, 256, 256);
    if (direct.plan()) continue;
    auto host = [&](const std::function<void()> &work) {
      std::vector<double> times;
      for (int round = 0; round < 41; ++round) {
        GPU_CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 25; ++i) work();
        times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
                        25);
      }
      GPU_CHECK(cudaDeviceSynchronize());
      return gpu::median(times);
    };
    const double ours = host([&] { GPU_CHECK(fp8_gemm(heuristic, &p.args, timer.stream)); });
    const double bare =
        host([&] { direct.run(0, p.direct_a(), p.direct_b(), p.d.data(), p.direct_workspace.data(), timer.stream); });
    std::printf("| %s | %.2f | %.2f | %.2f |\n", w.name, ours, bare, ours / bare);
  }
  return 0;
}
