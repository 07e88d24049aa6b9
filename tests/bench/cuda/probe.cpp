// SPDX-License-Identifier: Apache-2.0
// What this device's cuBLASLt accepts: scaling pair x output x bias x accumulate, the extents it refuses, k = 0; and
// how the device's casts treat NaN, Inf and subnormals. Prints Markdown.
#include <array>
#include <cmath>

#include "lt.h"

namespace {

constexpr const char *kModes[] = {"scalar", "", "vec32 E8M0", "outer vec", "1x128", "128x128"};
constexpr int kPairs[][2] = {{0, 0}, {3, 3}, {0, 3}, {4, 5}, {5, 4}, {4, 4}, {5, 5}, {2, 2}};  // cuBLASLt's A, B

struct Arena {
  gpu::Memory a, b, d, scale, bias, workspace;
  cudaStream_t stream = nullptr;
  Arena() : a(8 << 20), b(8 << 20), d(16 << 20), scale(1 << 20), bias(1 << 16), workspace(lt::kWorkspace) {
    GPU_CHECK(cudaStreamCreate(&stream));
    std::vector<float> ones(1 << 18, 1.0f);
    GPU_CHECK(cudaMemcpy(scale.data(), ones.data(), 1 << 20, cudaMemcpyHostToDevice));
  }
};

// "yes", or the step and status that refuses
std::string attempt(Arena &r, lt::Matmul &l) {
  l.a_scale = l.b_scale = r.scale.data();
  cublasStatus_t s = l.plan();
  if (s) return s == CUBLAS_STATUS_NOT_SUPPORTED ? "no" : std::string("no, ") + lt::api().cublasLtGetStatusName(s);
  s = l.run(0, r.a.data(), r.b.data(), r.d.data(), r.workspace.data(), r.stream);
  const cudaError_t e = cudaStreamSynchronize(r.stream);
  if (s || e) return std::string("planned, then ") + (s ? lt::api().cublasLtGetStatusName(s) : cudaGetErrorString(e));
  return "yes";
}

lt::Matmul base(int a_mode, int b_mode, int64_t m, int64_t n, int64_t k) {
  lt::Matmul l;
  l.m = m, l.n = n, l.k = k;
  l.lda = l.ldb = k, l.ldd = m;
  l.a_mode = a_mode, l.b_mode = b_mode;
  return l;
}

void combinations(Arena &r) {
  std::printf(
      "### Scaling pair x types x output x bias x accumulate (M = N = K = 512)\n\n| cuBLASLt A x B scales | types | D "
      "| accumulation | plain | += | BF16 bias | F32 bias | BF16 bias, += |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  struct Types {
    const char *name;
    cudaDataType_t a, b;
  };
  const Types types[] = {{"E4M3 E4M3", CUDA_R_8F_E4M3, CUDA_R_8F_E4M3},
                         {"E5M2 E4M3", CUDA_R_8F_E5M2, CUDA_R_8F_E4M3},
                         {"E4M3 E5M2", CUDA_R_8F_E4M3, CUDA_R_8F_E5M2},
                         {"E5M2 E5M2", CUDA_R_8F_E5M2, CUDA_R_8F_E5M2}};
  struct Output {
    const char *name;
    cudaDataType_t d;
  };
  const Output outputs[] = {{"BF16", CUDA_R_16BF}, {"F16", CUDA_R_16F}, {"F32", CUDA_R_32F}};
  for (const auto &pair : kPairs)
    for (const Types &t : types)
      for (const Output &out : outputs)
        for (int fast = 0; fast < 2; ++fast) {
          std::string cells[5];
          for (int variant = 0; variant < 5; ++variant) {
            lt::Matmul l = base(pair[0], pair[1], 512, 512, 512);
            l.a = t.a, l.b = t.b, l.d = out.d, l.fast = fast;
            l.accumulate = variant == 1 || variant == 4;
            if (variant >= 2) l.bias = r.bias.data(), l.bias_type = variant == 3 ? CUDA_R_32F : CUDA_R_16BF;
            cells[variant] = attempt(r, l);
            if (variant == 0 && cells[0] != "yes") break;
          }
          if (cells[0] != "yes" && (fast || out.d != CUDA_R_16BF)) continue;  // one line a refused pair of types
          std::printf("| %s x %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", kModes[pair[0]], kModes[pair[1]], t.name,
                      out.name, fast ? "fast" : "split", cells[0].c_str(), cells[1].c_str(), cells[2].c_str(),
                      cells[3].c_str(), cells[4].c_str());
        }
}

void extents(Arena &r) {
  std::printf(
      "\n### Extents (E4M3, BF16 out; the others 512; M is ours' N, N is ours' M)\n\n| scales | extent | accepted of 1 "
      "2 3 4 5 6 7 8 12 16 20 24 32 48 and 500 504 508 |\n|---|---|---|\n");
  const int64_t values[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 48, 500, 504, 508};
  for (const auto &pair : {kPairs[0], kPairs[1], kPairs[3], kPairs[4], kPairs[5]})
    for (int which = 0; which < 3; ++which) {
      std::string list;
      for (const int64_t v : values) {
        lt::Matmul l = base(pair[0], pair[1], which == 0 ? v : 512, which == 1 ? v : 512, which == 2 ? v : 512);
        l.lda = l.ldb = (l.k + 15) / 16 * 16;
        l.ldd = (l.m + 15) / 16 * 16;
        if (attempt(r, l) == "yes") list += " " + std::to_string(v);
      }
      std::printf("| %s x %s | %c |%s |\n", kModes[pair[0]], kModes[pair[1]], "MNK"[which], list.c_str());
    }
  std::printf("\nk = 0:");
  for (const auto &pair : {kPairs[0], kPairs[1], kPairs[3]}) {
    lt::Matmul l = base(pair[0], pair[1], 512, 512, 0);
    l.lda = l.ldb = 16;
    std::printf(" %s x %s: %s;", kModes[pair[0]], kModes[pair[1]], attempt(r, l).c_str());
  }
  std::printf("\n");
}

float of_16(cudaDataType_t type, uint16_t h) {
  float f;
  if (type == CUDA_R_16BF) {
    const uint32_t u = uint32_t(h) << 16;
    std::memcpy(&f, &u, 4);
    return f;
  }
  _Float16 v;
  std::memcpy(&v, &h, 2);
  return static_cast<float>(v);
}
uint16_t to_16(cudaDataType_t type, float f) {
  if (type == CUDA_R_16BF) return gpu::bf16(f);
  const auto v = static_cast<_Float16>(f);
  uint16_t h;
  std::memcpy(&h, &v, 2);
  return h;
}

// How often cuBLASLt rounds a 16-bit output: the worst of its candidates, against its own FP32 product with bias and
// sum in FP64. One rounding is about 1.66e-3 (BF16) or 2.1e-4 (F16), two about 1.4 times that.
void roundings(Arena &r) {
  std::printf(
      "\n### Rounding of 16-bit outputs: relative Frobenius error, the worst of all candidates\n\n| operands, scales | "
      "D "
      "| M,N,K | candidates, with split-K | plain | bias | += | bias, += | one rounding | plain, parts summed in 16 "
      "bits "
      "|\n|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  struct Kind {
    const char *name;
    cudaDataType_t in, out;
    int a_mode, b_mode;
  };
  const Kind kinds[] = {{"BF16", CUDA_R_16BF, CUDA_R_16BF, -1, -1},
                        {"F16", CUDA_R_16F, CUDA_R_16F, -1, -1},
                        {"E4M3 scalar", CUDA_R_8F_E4M3, CUDA_R_16BF, 0, 0},
                        {"E5M2 E4M3 scalar", CUDA_R_8F_E5M2, CUDA_R_16BF, 0, 0},
                        {"E4M3 scalar", CUDA_R_8F_E4M3, CUDA_R_16F, 0, 0},
                        {"E4M3 outer vectors", CUDA_R_8F_E4M3, CUDA_R_16BF, 3, 3},
                        {"E4M3 128x128 1x128", CUDA_R_8F_E4M3, CUDA_R_16BF, 5, 4},
                        {"E4M3 1x128 1x128", CUDA_R_8F_E4M3, CUDA_R_16BF, 4, 4}};
  uint64_t state = 7;
  const auto next = [&] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 40; };
  for (const Kind &kind : kinds)
    for (const auto &shape : {std::array<int64_t, 3>{512, 512, 512}, {256, 128, 8192}}) {
      const int64_t m = shape[0], n = shape[1], k = shape[2];
      const bool fp8 = kind.a_mode >= 0;
      const auto size = static_cast<size_t>(m * n);
      std::vector<uint16_t> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k)), c(size),
          bias(static_cast<size_t>(m));
      const float width = k > 4096 ? 4.0f : 1.0f;  // of the old value and the bias: about the product's
      for (auto *v : {&a, &b})
        for (auto &x : *v)
          x = fp8 ? static_cast<uint16_t>((next() & 0x8080) | (0x2020 + (next() & 0x1f1f)))
                  : to_16(kind.in, (static_cast<float>(next() & 0xffff) - 32768.0f) * 0x1p-15f);
      for (auto *v : {&c, &bias})
        for (auto &x : *v) x = to_16(kind.out, (static_cast<float>(next() & 0xffff) - 32768.0f) * 0x1p-12f * width);
      GPU_CHECK(cudaMemcpy(r.a.data(), a.data(), a.size() * 2, cudaMemcpyHostToDevice));
      GPU_CHECK(cudaMemcpy(r.b.data(), b.data(), b.size() * 2, cudaMemcpyHostToDevice));
      GPU_CHECK(cudaMemcpy(r.bias.data(), bias.data(), bias.size() * 2, cudaMemcpyHostToDevice));
      const auto planned = [&](lt::Matmul &l, int variant, cudaDataType_t d) {
        l.m = m, l.n = n, l.k = k, l.lda = l.ldb = k, l.ldd = m;
        l.a_mode = kind.a_mode, l.b_mode = kind.b_mode, l.a_scale = l.b_scale = r.scale.data();
        l.a = kind.in, l.b = fp8 ? CUDA_R_8F_E4M3 : kind.in, l.d = d;
        l.accumulate = variant & 2;
        if (variant & 1) l.bias = r.bias.data(), l.bias_type = kind.out;
        return l.plan();
      };
      std::vector<float> y(size);
      lt::Matmul exact;
      if (planned(exact, 0, CUDA_R_32F) ||
          exact.run(0, r.a.data(), r.b.data(), r.d.data(), r.workspace.data(), r.stream)) {
        std::printf("| %s | refused |\n", kind.name);
        continue;
      }
      GPU_CHECK(cudaStreamSynchronize(r.stream));
      GPU_CHECK(cudaMemcpy(y.data(), r.d.data(), size * 4, cudaMemcpyDeviceToHost));
      std::string cells, candidates;
      double once = 0, in_16 = 0;
      for (int variant = 0; variant < 4; ++variant) {
        lt::Matmul l;
        double worst = 0;
        int ran = 0, split = 0;
        if (!planned(l, variant, kind.out))
          for (int i = 0; i < l.found; ++i) {
            GPU_CHECK(cudaMemcpy(r.d.data(), c.data(), size * 2, cudaMemcpyHostToDevice));
            if (l.run(i, r.a.data(), r.b.data(), r.d.data(), r.workspace.data(), r.stream)) continue;
            GPU_CHECK(cudaStreamSynchronize(r.stream));
            std::vector<uint16_t> got(size);
            GPU_CHECK(cudaMemcpy(got.data(), r.d.data(), size * 2, cudaMemcpyDeviceToHost));
            double e2 = 0, y2 = 0, r2 = 0;
            for (size_t j = 0; j < size; ++j) {
              double want = static_cast<double>(y[j]);
              if (variant & 1) want += static_cast<double>(of_16(kind.out, bias[j % static_cast<size_t>(m)]));
              if (variant & 2) want += static_cast<double>(of_16(kind.out, c[j]));
              const double e = static_cast<double>(of_16(kind.out, got[j])) - want,
                           one = static_cast<double>(of_16(kind.out, to_16(kind.out, static_cast<float>(want)))) - want;
              e2 += e * e, r2 += one * one, y2 += want * want;
            }
            if (!variant) once = std::sqrt(r2 / y2);
            if (!l.promised[static_cast<size_t>(i)]) {
              if (!variant) in_16 = std::max(in_16, std::sqrt(e2 / y2));
              continue;
            }
            ++ran;
            split += l.config(i, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
            worst = std::max(worst, std::sqrt(e2 / y2));
          }
        if (!variant) candidates = std::to_string(ran) + ", " + std::to_string(split);
        char text[32];
        std::snprintf(text, sizeof text, ran ? " %.2e |" : " refused |", worst);
        cells += text;
      }
      char last[32] = "none";
      if (in_16 > 0) std::snprintf(last, sizeof last, "%.2e", in_16);
      std::printf("| %s | %s | %lld,%lld,%lld | %s |%s %.2e | %s |\n", kind.name,
                  kind.out == CUDA_R_16F ? "F16" : "BF16", static_cast<long long>(m), static_cast<long long>(n),
                  static_cast<long long>(k), candidates.c_str(), cells.c_str(), once, last);
      std::fflush(stdout);
    }
}

void casts(const fp8_context *c) {
  std::printf("\n### Casts by the device's instruction (multiplier 1)\n\n| F32 bits | E4M3 | E5M2 |\n|---|---|---|\n");
  const uint32_t bits[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7f800000, 0xff800000, 0x80000000,
                           0x00000001, 0x80000001, 0x43e80000, 0x43e80001, 0x3a800000, 0x3a800001,
                           0x37000000, 0x37000001, 0x476fffff, 0x47700000};
  constexpr int n = sizeof bits / sizeof *bits;
  gpu::Memory in(256);
  GPU_CHECK(cudaMemcpy(in.data(), bits, sizeof bits, cudaMemcpyHostToDevice));
  uint8_t codes[2][n];
  gpu::Memory amax(16);
  for (int f = 0; f < 2; ++f) {
    const fp8_tensor src = gpu::tensor(in.data(), FP8_DTYPE_F32, 1, n);
    // a recipe whose given amax makes the multiplier 1 goes through the quantizer's cvt
    fp8_recipe_config config;
    FP8_INIT(&config);
    GPU_CHECK(fp8_recipe_config_preset(FP8_PRESET_TENSOR, &config));
    fp8_recipe *r = nullptr;
    GPU_CHECK(fp8_recipe_create(&config, &r));
    const int32_t role = f ? FP8_ROLE_GRADIENT : FP8_ROLE_ACTIVATION;
    gpu::Quantized q(c, r, role, 1, n, FP8_SIDE_ROW);
    const float given = f ? 57344.0f : 448.0f;
    GPU_CHECK(cudaMemcpy(amax.data(), &given, 4, cudaMemcpyHostToDevice));
    fp8_tensor ta{};
    ta.data = amax.data(), ta.dtype = FP8_DTYPE_F32, ta.ndim = 1, ta.shape[0] = 1, ta.stride[0] = 1;
    fp8_quantize_args a;
    FP8_INIT(&a);
    a.x = &src, a.q = &q.q, a.role = role, a.amax = &ta, a.flags = FP8_AMAX_GIVEN;
    GPU_CHECK(fp8_quantize(c, r, &a, nullptr));
    GPU_CHECK(cudaMemcpy(codes[f], q.q.row.data, n, cudaMemcpyDeviceToHost));
    fp8_recipe_destroy(r);
  }
  for (int i = 0; i < n; ++i) std::printf("| %08x | %02x | %02x |\n", bits[i], codes[0][i], codes[1][i]);
}

}  // namespace

int main() {
  gpu::print_environment("Probe");
  gpu::Context context;
  std::printf("cuBLASLt %zu\n\n", lt::api().cublasLtGetVersion());
  Arena arena;
  combinations(arena);
  extents(arena);
  roundings(arena);
  casts(context);
  return 0;
}
