// SPDX-License-Identifier: Apache-2.0
// On a GPU: every quantizer, byte for byte the CPU's, over random calls; all 16-bit inputs; 100 times the same;
// captured. usage: test_quantize_device [CASES [alone]]; alone: the random calls and nothing more
#include <algorithm>
#include <cmath>

#include "../../unit/quantize_case.h"
#include "cpu/launch_cpu.h"
#include "module.h"

using namespace fp8;
using test::Device;

namespace {

constexpr int64_t kSizes[] = {0,   1,   2,   5,   17,  31,  32,  33,  64,   100,  127,
                              128, 129, 136, 200, 256, 300, 512, 777, 1024, 2048, 4096};
constexpr int kCount = sizeof kSizes / sizeof *kSizes;

int random_cases(test::Module &m, int cases) {
  int bad = 0;
  for (int seed = 0; seed < cases; ++seed) {
    const test::Case shape = test::make_case(static_cast<uint64_t>(seed), nullptr, kSizes, kCount);
    const size_t bytes = shape.arena.size();
    void *host = nullptr;
    if (posix_memalign(&host, 4096, bytes + 1)) return 1;
    Device arena(bytes);
    test::Case c = test::make_case(static_cast<uint64_t>(seed), host, kSizes, kCount),
               g = test::make_case(static_cast<uint64_t>(seed), arena.p, kSizes, kCount);
    std::memcpy(host, c.arena.data(), bytes);
    std::vector<uint8_t> scratch(cpu::quantize_workspace(c.q) + 256);
    c.q.workspace = scratch.data(), c.q.workspace_bytes = scratch.size();
    cpu::quantize(c.q, {nullptr, nullptr});
    CUDA_OK(cudaMemcpy(arena.p, g.arena.data(), bytes, cudaMemcpyHostToDevice));
    uint64_t need = 0;
    m.api->quantize_workspace(m.self, &g.q, &need);
    if (seed % 5 == 4) g.q.max_sms = 1 + seed % 50;
    Device workspace(need);
    CUDA_OK(cudaMemset(workspace.p, 0xee, workspace.bytes));
    g.q.workspace = workspace.p, g.q.workspace_bytes = need;
    const int32_t status = m.api->quantize(m.self, &g.q, nullptr);
    if (status) std::printf("%s: %s\n", shape.text.c_str(), test::Module::last().c_str());
    CUDA_OK(cudaDeviceSynchronize());
    const std::vector<uint8_t> want(static_cast<uint8_t *>(host), static_cast<uint8_t *>(host) + bytes);
    bad += status || !test::same(want, arena.get(), shape.text);
    free(host);
    if (bad > 10) break;
  }
  return bad;
}

ops::Matrix matrix(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  ops::Matrix m{};
  m.data = data, m.dtype = dtype, m.lead = 1, m.rows = rows, m.cols = cols;
  m.lead_shape[0] = rows, m.lead_stride[0] = cols, m.col_stride = 1;
  return m;
}

// Multiplier 1 by a given amax: the cast itself. F32: 2^24 patterns spread over all 2^32.
int all_inputs(test::Module &m) {
  int bad = 0;
  for (const int32_t from : {num::kBF16, num::kF16, num::kF32})
    for (const int32_t to : {num::kE4M3, num::kE5M2}) {
      const int64_t rows = from == num::kF32 ? 4096 : 16, cols = 4096, n = rows * cols;
      std::vector<uint8_t> x(static_cast<size_t>(n * num::element_size(from)));
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t u = static_cast<uint32_t>(i) * 257u;
        if (from == num::kF32)
          std::memcpy(&x[static_cast<size_t>(4 * i)], &u, 4);
        else
          x[static_cast<size_t>(2 * i)] = static_cast<uint8_t>(i),
                                    x[static_cast<size_t>(2 * i + 1)] = static_cast<uint8_t>(i >> 8);
      }
      const float amax = to == num::kE4M3 ? 448.0f : 57344.0f;
      Device dx(x.data(), x.size()), codes(static_cast<size_t>(n)), scale(4), da(&amax, 4), workspace(1 << 20);
      ops::Quantize q{};
      q.x = matrix(dx.p, from, rows, cols);
      q.row.side.scaling = num::kTensor, q.row.side.rule = num::kRuleFp32;
      q.row.side.codes = matrix(codes.p, to, rows, cols);
      q.row.side.scale = {scale.p, num::kF32, 0, 1, 1, 1, 1};
      q.row.amax = {da.p, num::kF32, 0, 1, 1, 1, 1};
      q.row.amax_given = 1;
      q.workspace = workspace.p, q.workspace_bytes = workspace.bytes;
      bad += m.api->quantize(m.self, &q, nullptr) != 0;
      const std::vector<uint8_t> got = codes.get();
      int64_t wrong = 0;
      for (int64_t i = 0; i < n; ++i)
        wrong += got[static_cast<size_t>(i)] != num::encode_fp8(to, num::load(from, x.data(), i));
      if (wrong)
        std::printf("cast %d -> %d: %lld of %lld differ\n", from, to, static_cast<long long>(wrong),
                    static_cast<long long>(n));
      bad += wrong != 0;
    }
  return bad;
}

// The same bytes 100 times, and from a captured graph replayed with new data.
int repeats(test::Module &m) {
  int bad = 0;
  for (const int kind : {num::kTensor, num::kRow, num::k1x128, num::k1x32}) {
    const int64_t n = 1536;
    std::vector<uint16_t> x(static_cast<size_t>(n * n));
    test::Random r(3);
    for (auto &v : x) v = num::encode_bf16(r.gauss());
    Device dx(x.data(), x.size() * 2), row(static_cast<size_t>(n * n)), col(static_cast<size_t>(n * n)),
        scales(static_cast<size_t>(n * n)), dbias(static_cast<size_t>(4 * n));
    ops::Quantize q{};
    q.x = matrix(dx.p, num::kBF16, n, n);
    const int64_t blocks = kind == num::k1x128  ? n / 128
                           : kind == num::k1x32 ? n / 32
                                                : 1,
                  lines = kind == num::kTensor ? 1 : n;
    for (int s = 0; s < 2; ++s) {
      ops::QuantizeSide &side = s ? q.col : q.row;
      side.side.scaling = kind;
      side.side.rule = kind == num::k1x32 ? num::kRuleE8m0 : num::kRuleFp32;
      side.side.codes = matrix(s ? col.p : row.p, num::kE4M3, n, n);
      side.side.scale = {static_cast<char *>(scales.p) + s * n * n / 2,
                         kind == num::k1x32 ? num::kE8M0 : num::kF32,
                         0,
                         lines,
                         blocks,
                         kind == num::k1x128 ? 1 : blocks,
                         kind == num::k1x128 ? n : 1};
    }
    q.dbias = {dbias.p, num::kF32, 0, n, 1};
    uint64_t need = 0;
    m.api->quantize_workspace(m.self, &q, &need);
    Device workspace(need);
    q.workspace = workspace.p, q.workspace_bytes = need;
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreate(&stream));
    bad += m.api->quantize(m.self, &q, stream) != 0;
    CUDA_OK(cudaStreamSynchronize(stream));
    const auto first_row = row.get(), first_col = col.get(), first_bias = dbias.get();
    for (int i = 0; i < 100 && !bad; ++i) {
      CUDA_OK(cudaMemsetAsync(row.p, 0, row.bytes, stream));
      bad += m.api->quantize(m.self, &q, stream) != 0;
      CUDA_OK(cudaStreamSynchronize(stream));
      bad += row.get() != first_row || col.get() != first_col || dbias.get() != first_bias;
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    bad += m.api->quantize(m.self, &q, stream) != 0;
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (auto &v : x) v = num::encode_bf16(r.gauss() * 3.0f);
    CUDA_OK(cudaMemcpy(dx.p, x.data(), x.size() * 2, cudaMemcpyHostToDevice));
    bad += m.api->quantize(m.self, &q, stream) != 0;
    CUDA_OK(cudaStreamSynchronize(stream));
    const auto want = row.get();
    CUDA_OK(cudaMemset(row.p, 0, row.bytes));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    bad += row.get() != want || want == first_row;
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
  }
  return bad;
}

}  // namespace

int main(int argc, char **argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 600;
  test::Module m;
  int other = 0, before = 0, after = 0;
  (void)cudaGetDeviceCount(&other);
  CUDA_OK(cudaSetDevice(0));
  (void)cudaGetDevice(&before);
  std::printf("| test | failures |\n|---|---:|\n");
  int total = 0;
  const auto report = [&](const char *name, int bad) {
    std::printf("| %s | %d |\n", name, bad);
    std::fflush(stdout);
    total += bad;
  };
  report("random calls equal the CPU's bytes", random_cases(m, cases));
  if (argc > 2) return total != 0;
  report("all 16-bit inputs, 2^24 F32", all_inputs(m));
  report("100 times the same, graph replay", repeats(m));
  (void)cudaGetDevice(&after);
  report("current device kept", before != after);
  return total != 0;
}
