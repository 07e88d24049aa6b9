// SPDX-License-Identifier: Apache-2.0
// What this device's cuBLASLt accepts: scaling pair x output x bias x accumulate, the extents it refuses, k = 0; and
// how the device's casts treat NaN, Inf and subnormals. Prints Markdown.
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

float of_bf16(uint16_t h) {
  const uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// How often cuBLASLt rounds a BF16 output: error against its own FP32 product, bias and sum in FP64. One rounding is
// about 1.66e-3, two about 2.35e-3.
void roundings(Arena &r) {
  std::printf(
      "\n### Rounding of BF16 outputs (M = N = K = 512), relative Frobenius error\n\n| operands | plain | BF16 bias | "
      "+= "
      "| bias, += | one rounding |\n|---|---:|---:|---:|---:|---:|\n");
  constexpr int64_t n = 512, size = n * n;
  uint64_t state = 7;
  const auto next = [&] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 40; };
  for (int fp8 = 0; fp8 < 2; ++fp8) {
    std::vector<uint16_t> a(size), b(size), c(size), bias(n);
    for (auto *v : {&a, &b})
      for (auto &x : *v)
        x = static_cast<uint16_t>(fp8 ? (next() & 0x8080) | (0x2020 + (next() & 0x1f1f))
                                      : (next() & 0x8000) | (0x3f00 + (next() & 0xff)));
    for (auto &x : c) x = static_cast<uint16_t>((next() & 0x8000) | (0x4100 + (next() & 0xff)));
    for (auto &x : bias) x = static_cast<uint16_t>((next() & 0x8000) | (0x4080 + (next() & 0xff)));
    GPU_CHECK(cudaMemcpy(r.a.data(), a.data(), size * 2, cudaMemcpyHostToDevice));
    GPU_CHECK(cudaMemcpy(r.b.data(), b.data(), size * 2, cudaMemcpyHostToDevice));
    GPU_CHECK(cudaMemcpy(r.bias.data(), bias.data(), n * 2, cudaMemcpyHostToDevice));
    const auto product = [&](int variant, cudaDataType_t d) {
      lt::Matmul l = base(fp8 ? 0 : -1, fp8 ? 0 : -1, n, n, n);
      if (!fp8) l.a = l.b = CUDA_R_16BF;
      l.d = d;
      l.accumulate = variant & 2;
      if (variant & 1) l.bias = r.bias.data();
      return attempt(r, l);
    };
    std::vector<float> y(size);
    std::string text = product(0, CUDA_R_32F);
    GPU_CHECK(cudaMemcpy(y.data(), r.d.data(), size * 4, cudaMemcpyDeviceToHost));
    std::printf("| %s |", fp8 ? "E4M3" : "BF16");
    double once = 0;
    for (int variant = 0; variant < 4; ++variant) {
      GPU_CHECK(cudaMemcpy(r.d.data(), c.data(), size * 2, cudaMemcpyHostToDevice));
      text = product(variant, CUDA_R_16BF);
      std::vector<uint16_t> got(size);
      GPU_CHECK(cudaMemcpy(got.data(), r.d.data(), size * 2, cudaMemcpyDeviceToHost));
      double e2 = 0, y2 = 0, r2 = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        double want = y[i];
        if (variant & 1) want += of_bf16(bias[i % n]);
        if (variant & 2) want += of_bf16(c[i]);
        const double e = of_bf16(got[i]) - want, one = of_bf16(gpu::bf16(static_cast<float>(want))) - want;
        e2 += e * e, r2 += one * one, y2 += want * want;
      }
      if (variant == 0) once = std::sqrt(r2 / y2);
      if (text == "yes")
        std::printf(" %.2e |", std::sqrt(e2 / y2));
      else
        std::printf(" %s |", text.c_str());
    }
    std::printf(" %.2e |\n", once);
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
