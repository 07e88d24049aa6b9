// SPDX-License-Identifier: Apache-2.0
// On a GPU: products against FP64 of the dequantized operands, gates of the numerics; every pair, output, bias,
// accumulate, ragged extents; fast accumulation stated per K; 100 times the same; two streams; captured.
#include <cmath>
#include <thread>

#include "../../unit/quantize_case.h"
#include "cpu/launch_cpu.h"
#include "module.h"

using namespace fp8;
using test::Device;

namespace {

struct Operand {  // quantized by the CPU backend, native strides
  ops::Side host{}, device{};
  std::vector<uint8_t> codes, scale;
  std::vector<float> values;  // dequantized, [rows, k]
  std::unique_ptr<Device> dcodes, dscale;

  Operand(int kind, int32_t dtype, int64_t rows, int64_t k, uint64_t seed, bool positive = false) {
    std::vector<uint16_t> x(static_cast<size_t>(rows * k));
    test::Random r(seed);
    for (auto &v : x) v = num::encode_bf16(positive ? std::fabs(r.gauss()) : r.gauss());
    ops::Matrix m{};
    m.data = x.data(), m.dtype = num::kBF16, m.lead = 1, m.rows = rows, m.cols = k;
    m.lead_shape[0] = rows, m.lead_stride[0] = k, m.col_stride = 1;
    values.resize(x.size());
    host.scaling = kind;
    host.rule = kind >= num::k1x32 ? num::kRuleE8m0 : kind == num::kTensor ? num::kRuleFp32 : num::kRulePow2;
    if (kind == FP8_SCALING_UNQUANTIZED) {
      host.codes = m;
      codes.assign(reinterpret_cast<uint8_t *>(x.data()), reinterpret_cast<uint8_t *>(x.data() + x.size()));
      for (size_t i = 0; i < x.size(); ++i) values[i] = num::decode_bf16(x[i]);
    } else {
      codes.resize(x.size());
      host.codes = m;
      host.codes.data = codes.data(), host.codes.dtype = dtype;
      const int64_t tr = num::scale_tile_rows(kind), tc = num::scale_tile_cols(kind);
      ops::Scale &s = host.scale;
      s.rows = kind == num::kTensor ? 1 : (rows + tr - 1) / tr;
      s.cols = tc ? (k + tc - 1) / tc : 1;
      s.dtype = kind >= num::k1x32 ? num::kE8M0 : num::kF32;
      s.row_stride = kind == num::k1x128 ? 1 : kind == num::k128x128 ? (s.cols + 3) / 4 * 4 : s.cols;
      s.col_stride = kind == num::k1x128 ? (s.rows + 3) / 4 * 4 : 1;
      scale.resize(static_cast<size_t>(4 * (s.rows + 4) * (s.cols + 4)));
      s.data = scale.data();
      ops::Quantize q{};
      q.x = m;
      q.row.side = host;
      std::vector<uint8_t> workspace(cpu::quantize_workspace(q) + 256);
      q.workspace = workspace.data(), q.workspace_bytes = workspace.size();
      cpu::quantize(q, {nullptr, nullptr});
      ops::Dequantize d{};
      d.side = host;
      d.x = m;
      d.x.data = values.data(), d.x.dtype = num::kF32;
      cpu::dequantize(d, {nullptr, nullptr});
    }
    dcodes = std::make_unique<Device>(codes.data(), codes.size());
    dscale = std::make_unique<Device>(scale.data(), scale.size());
    device = host;
    device.codes.data = dcodes->p;
    device.scale.data = kind == FP8_SCALING_UNQUANTIZED ? nullptr : dscale->p;
  }
};

struct Product {
  int64_t m, n, k;
  ops::Gemm g{};
  std::unique_ptr<Device> d, bias, workspace;
  std::vector<float> before, hbias;

  Product(test::Module &module, const Operand &a, const Operand &b, int32_t out, bool with_bias, bool accumulate,
          bool fast)
      : m(a.host.codes.rows), n(b.host.codes.rows), k(a.host.codes.cols) {
    test::Random r(77);
    std::vector<uint8_t> bytes(static_cast<size_t>(m * n * num::element_size(out)));
    before.resize(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m * n; ++i) {
      num::store(out, bytes.data(), i, r.gauss() * 10.0f);
      before[static_cast<size_t>(i)] = num::load(out, bytes.data(), i);
    }
    d = std::make_unique<Device>(bytes.data(), bytes.size());
    g.a = a.device, g.b = b.device;
    g.d.data = d->p, g.d.dtype = out, g.d.lead = 1, g.d.rows = m, g.d.cols = n, g.d.lead_shape[0] = m,
    g.d.lead_stride[0] = n, g.d.col_stride = 1;
    g.accumulate = accumulate, g.fast_accumulation = fast;
    if (with_bias) {
      std::vector<uint8_t> b16(static_cast<size_t>(n * num::element_size(out)));
      for (int64_t j = 0; j < n; ++j) {
        num::store(out, b16.data(), j, r.gauss() * 5.0f);
        hbias.push_back(num::load(out, b16.data(), j));
      }
      bias = std::make_unique<Device>(b16.data(), b16.size());
      g.bias = {bias->p, out, 0, n, 1};
    }
    uint64_t need = 0;
    module.api->gemm_workspace(module.self, &g, &need);
    workspace = std::make_unique<Device>(need);
    g.workspace = workspace->p, g.workspace_bytes = need;
  }
  struct Error {
    double relative;     // Frobenius
    double signed_mean;  // over the mean
    double rounding;     // relative error of the exact result once rounded to d's type: no output can be better
  };
  Error error(const Operand &a, const Operand &b) const {
    const std::vector<uint8_t> got = d->get();
    double e2 = 0, y2 = 0, r2 = 0, signed_error = 0, sum = 0;
    const int64_t step = std::max<int64_t>(1, m * n * k / (int64_t{1} << 26));  // of rows
    for (int64_t i = 0; i < m; i += step)
      for (int64_t j = 0; j < n; ++j) {
        double y = 0;
        const float *pa = &a.values[static_cast<size_t>(i * k)], *pb = &b.values[static_cast<size_t>(j * k)];
        for (int64_t c = 0; c < k; ++c) y += double(pa[c]) * pb[c];
        if (!hbias.empty()) y += hbias[static_cast<size_t>(j)];
        if (g.accumulate) y += before[static_cast<size_t>(i * n + j)];
        const double e = num::load(g.d.dtype, got.data(), i * n + j) - y;
        uint8_t rounded[4];
        num::store(g.d.dtype, rounded, 0, static_cast<float>(y));
        const double r = num::load(g.d.dtype, rounded, 0) - y;
        r2 += r * r, e2 += e * e, y2 += y * y, signed_error += e, sum += y;
      }
    y2 = y2 > 0 ? y2 : 1;
    return {std::sqrt(e2 / y2), signed_error / (sum != 0 ? sum : 1), std::sqrt(r2 / y2)};
  }
};

struct Pair {
  const char *name;
  int a, b;
  int32_t da, db;
};
constexpr Pair kPairs[] = {{"BF16", 1, 1, 0, 0},
                           {"tensor E4M3 E4M3", num::kTensor, num::kTensor, num::kE4M3, num::kE4M3},
                           {"tensor E5M2 E4M3", num::kTensor, num::kTensor, num::kE5M2, num::kE4M3},
                           {"tensor E4M3 E5M2", num::kTensor, num::kTensor, num::kE4M3, num::kE5M2},
                           {"row row", num::kRow, num::kRow, num::kE4M3, num::kE4M3},
                           {"1x128 128x128", num::k1x128, num::k128x128, num::kE4M3, num::kE4M3},
                           {"128x128 1x128", num::k128x128, num::k1x128, num::kE4M3, num::kE4M3},
                           {"1x128 1x128", num::k1x128, num::k1x128, num::kE4M3, num::kE4M3},
                           {"1x32 1x32", num::k1x32, num::k1x32, num::kE4M3, num::kE4M3},
                           {"1x32 32x32", num::k1x32, num::k32x32, num::kE4M3, num::kE4M3}};

int gates(test::Module &m) {
  const int64_t shapes[][3] = {{256, 384, 512}, {128, 128, 4096}, {100, 77, 130}, {17, 16, 16},
                               {1, 48, 257},    {250, 520, 1040}, {33, 1, 64}};
  int bad = 0;
  std::printf(
      "| pair | M,N,K | out | relative error: plain / bias / += / bias += | gate | padded | emulated "
      "|\n|---|---|---|---|---:|---:|---:|\n");
  for (const Pair &p : kPairs)
    for (const auto &s : shapes)
      for (const int32_t out : {num::kF32, num::kBF16}) {
        const Operand a(p.a, p.da, s[0], s[2], 1), b(p.b, p.db, s[1], s[2], 2);
        const uint64_t padded = m.counts[ops::Counters::kPaddedGemms],
                       emulated = m.counts[ops::Counters::kEmulatedGemms];
        // FP32 sums where the tensor core multiplies BF16; its own truncation where it multiplies FP8
        const double gate = out == num::kBF16 ? 1.8e-3 : p.a == 1 || p.a >= num::k1x32 ? 1e-5 : 2e-4;
        double errors[4] = {0, 0, 0, 0};
        bool over = false;
        for (int v = 0; v < 4; ++v) {
          Product g(m, a, b, out, v & 1, v & 2, false);
          if (m.api->gemm(m.self, &g.g, nullptr)) {
            std::printf("%s %lld,%lld,%lld out %d variant %d: %s\n", p.name, static_cast<long long>(s[0]),
                        static_cast<long long>(s[1]), static_cast<long long>(s[2]), out, v,
                        test::Module::last().c_str());
            ++bad;
            continue;
          }
          CUDA_OK(cudaDeviceSynchronize());
          const Product::Error e = g.error(a, b);
          errors[v] = e.relative;
          // One rounding to BF16 errs by 1.66e-3 over many outputs; a few hundred of them scatter about that, more so
          // where most lie just above a power of two. So outputs of fewer than 1024 elements may reach the error that
          // rounding the FP64 result once has, plus what FP8 accumulation adds.
          const bool few = out == num::kBF16 && s[0] * s[1] < 1024;
          over = over || !(e.relative <= std::max(gate, few ? e.rounding + 2e-4 : 0.0));
        }
        bad += over;
        std::printf("| %s | %lld,%lld,%lld | %s | %.2e / %.2e / %.2e / %.2e%s | %.1e | %llu | %llu |\n", p.name,
                    static_cast<long long>(s[0]), static_cast<long long>(s[1]), static_cast<long long>(s[2]),
                    out == num::kF32 ? "F32" : "BF16", errors[0], errors[1], errors[2], errors[3], over ? " OVER" : "",
                    gate, static_cast<unsigned long long>(m.counts[ops::Counters::kPaddedGemms] - padded),
                    static_cast<unsigned long long>(m.counts[ops::Counters::kEmulatedGemms] - emulated));
        std::fflush(stdout);
      }
  return bad;
}

int accumulation(test::Module &m) {
  int bad = 0;
  std::printf("\n| accumulation, FP32 out | K | signs | relative error | signed mean |\n|---|---:|---|---:|---:|\n");
  for (const int kind : {num::kTensor, num::kRow})
    for (const int64_t k : {int64_t{512}, int64_t{4096}, int64_t{16384}})
      for (int positive = 0; positive < 2; ++positive)
        for (int fast = 0; fast < 2; ++fast) {
          const Operand a(kind, num::kE4M3, 128, k, 3, positive), b(kind, num::kE4M3, 128, k, 4, positive);
          Product g(m, a, b, num::kF32, false, false, fast);
          if (m.api->gemm(m.self, &g.g, nullptr)) std::printf("%s\n", test::Module::last().c_str()), ++bad;
          CUDA_OK(cudaDeviceSynchronize());
          const Product::Error e = g.error(a, b);
          std::printf("| %s %s | %lld | %s | %.2e | %+.2e |\n", kind == num::kTensor ? "tensor" : "row",
                      fast ? "fast" : "split", static_cast<long long>(k), positive ? "positive" : "both", e.relative,
                      e.signed_mean);
          bad += !fast && !positive && e.relative > 2e-4;
        }
  return bad;
}

int empty_k(test::Module &m) {
  int bad = 0;
  for (int v = 0; v < 4; ++v) {
    const Operand a(num::kTensor, num::kE4M3, 16, 16, 1), b(num::kTensor, num::kE4M3, 32, 16, 2);
    Product g(m, a, b, num::kF32, v & 1, v & 2, false);
    g.g.a.codes.cols = g.g.b.codes.cols = 0;
    bad += m.api->gemm(m.self, &g.g, nullptr) != 0;
    const auto got = g.d->get();
    for (int64_t i = 0; i < 16 * 32; ++i) {
      const float want =
          (v & 1 ? g.hbias[static_cast<size_t>(i % 32)] : 0.0f) + (v & 2 ? g.before[static_cast<size_t>(i)] : 0.0f);
      bad += num::load(num::kF32, got.data(), i) != want;
    }
  }
  return bad;
}

int repeats(test::Module &m) {
  int bad = 0;
  for (const Pair &p : kPairs) {
    const Operand a(p.a, p.da, 250, 1040, 1), b(p.b, p.db, 520, 1040, 2);
    Product g(m, a, b, num::kBF16, true, false, false), h(m, a, b, num::kBF16, true, false, false);
    cudaStream_t one, two;
    CUDA_OK(cudaStreamCreate(&one));
    CUDA_OK(cudaStreamCreate(&two));
    bad += m.api->gemm(m.self, &g.g, one) != 0;
    CUDA_OK(cudaStreamSynchronize(one));
    const auto first = g.d->get();
    for (int i = 0; i < 100; ++i) {  // two streams and two threads at once, workspaces apart
      std::thread t([&] { (void)m.api->gemm(m.self, &h.g, two); });
      bad += m.api->gemm(m.self, &g.g, one) != 0;
      t.join();
      CUDA_OK(cudaStreamSynchronize(one));
      CUDA_OK(cudaStreamSynchronize(two));
      if (i % 10 == 0) bad += g.d->get() != first || h.d->get() != first;
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    bad += m.api->gemm(m.self, &g.g, one) != 0;
    CUDA_OK(cudaStreamEndCapture(one, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaMemset(g.d->p, 0, g.d->bytes));
    CUDA_OK(cudaGraphLaunch(exec, one));
    CUDA_OK(cudaStreamSynchronize(one));
    bad += g.d->get() != first;
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    g.g.max_sms = 32;
    bad += m.api->gemm(m.self, &g.g, one) != 0;
    CUDA_OK(cudaStreamSynchronize(one));
    CUDA_OK(cudaStreamDestroy(one));
    CUDA_OK(cudaStreamDestroy(two));
  }
  return bad;
}

}  // namespace

int main() {
  test::Module m;
  int total = gates(m);
  total += accumulation(m);
  std::printf("\n| test | failures |\n|---|---:|\n");
  const auto report = [&](const char *name, int bad) {
    std::printf("| %s | %d |\n", name, bad);
    std::fflush(stdout);
    total += bad;
  };
  report("gates and accumulation", total);
  report("k = 0", empty_k(m));
  report("100 times the same on two streams and threads, graph replay", repeats(m));
  char text[4096];
  uint64_t needed = 0;
  m.api->explain(m.self, text, sizeof text, &needed);
  std::printf("\n%s", text);
  return total != 0;
}
