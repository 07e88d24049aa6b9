// SPDX-License-Identifier: Apache-2.0
// The oneDNN module by its table: every implementation that this CPU has, against FP64, and what must be declined.
#include <dlfcn.h>

#include <algorithm>
#include <thread>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
//
#include <cmocka.h>
}

#include "fp8/context.h"
#include "gemm_data.h"
#include "ops/gemm_module.h"

using namespace gemm_test;
using namespace fp8;

namespace {

int32_t set_error(int32_t status, int32_t, int64_t, const char *message) {
  std::printf("error: %s\n", message);
  return status;
}
void parallel_for(void *, int64_t n, void (*body)(void *, int64_t, int64_t), void *arg) {
  std::thread other(body, arg, n / 2, n);
  body(arg, 0, n / 2);
  other.join();
}
void count(void *, int32_t, uint64_t) {}
const ops::HostApi kHost = {ops::kBackendAbi, sizeof(ops::HostApi), set_error, count, nullptr,
                            nullptr,          parallel_for,         nullptr};

const ops::GemmModule *module;
std::vector<void *> selves;  // contexts of few and of many threads
std::vector<ops::GemmImpl> impls;

bool is_half(const ops::GemmImpl &impl) { return std::strstr(impl.name, "bf16") != nullptr; }

int32_t run(const ops::GemmImpl &impl, Gemm g, char *why, uint64_t bytes) {
  if (impl.accepts(impl.self, &g, why, bytes) != FP8_OK) return ops::kDeclined;
  std::vector<char> memory(impl.scratch(impl.self, &g) + 2, 0x5a);
  g.workspace = memory.data() + 1;
  g.workspace_bytes = memory.size() - 2;
  const int32_t status = impl.run(impl.self, &g, why, bytes);
  assert_true(memory.back() == 0x5a);
  return status;
}

double relative_error(const std::vector<double> &y, const std::vector<double> &exact) {
  double e = 0, n = 0;
  for (size_t i = 0; i < y.size(); ++i) e += (y[i] - exact[i]) * (y[i] - exact[i]), n += exact[i] * exact[i];
  return std::sqrt(e / n);
}

float from_bf16(uint16_t h) {
  const uint32_t u = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

struct Pair {
  int32_t a, b;
};
constexpr Pair kPairs[] = {{FP8_SCALING_TENSOR, FP8_SCALING_TENSOR}, {FP8_SCALING_ROW, FP8_SCALING_ROW},
                           {FP8_SCALING_1X128, FP8_SCALING_128X128}, {FP8_SCALING_128X128, FP8_SCALING_1X128},
                           {FP8_SCALING_1X128, FP8_SCALING_1X128},   {FP8_SCALING_1X32, FP8_SCALING_1X32},
                           {FP8_SCALING_1X32, FP8_SCALING_32X32}};

// Every pair, scale rule, bias, accumulation and output type.
void quantized(void **) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  char why[256];
  for (const ops::GemmImpl &impl : impls) {
    for (const auto &shape : {std::vector<int64_t>{65, 97, 321}, std::vector<int64_t>{1, 333, 64},
                              std::vector<int64_t>{97, 128, 64}, std::vector<int64_t>{40, 1, 33}}) {
      for (const Pair pair : kPairs) {
        for (int variant = 0; variant < 16; ++variant) {
          const bool pow2 = variant & 1, bias = variant & 2, accumulate = variant & 4;
          const int32_t dtype = variant & 8 ? FP8_DTYPE_BF16 : FP8_DTYPE_F32;
          const int64_t m = shape[0], n = shape[1], k = shape[2], ld = n + 5;
          Operand a, b;
          a.shape(variant & 2 ? FP8_DTYPE_E5M2 : FP8_DTYPE_E4M3, pair.a, m, k);
          b.shape(FP8_DTYPE_E4M3, pair.b, n, k);
          std::vector<float> x(m * k), w(n * k), shift(n);
          for (auto *v : {&x, &w, &shift})
            for (float &f : *v) f = normal(rng);
          a.quantize(pow2, [&](int64_t r, int64_t c) { return x[r * k + c]; });
          b.quantize(pow2, [&](int64_t r, int64_t c) { return 0.02f * w[r * k + c]; });
          std::vector<float> d(m * ld, 0.5f);
          std::vector<uint16_t> half(m * ld, 0x3f00);
          Gemm g{};
          g.a = a.side(), g.b = b.side();
          g.d = matrix(dtype == FP8_DTYPE_F32 ? static_cast<void *>(d.data()) : half.data(), dtype, m, n, ld);
          g.accumulate = accumulate;
          if (bias) g.bias = {shift.data(), FP8_DTYPE_F32, 0, n, 1};
          const int32_t status = run(impl, g, why, sizeof why);
          const bool block = ops::tile_cols(pair.a) == 128;
          if (is_half(impl) && block && !pow2) {
            assert_int_equal(status, ops::kDeclined);
            for (float f : d) assert_true(f == 0.5f);
            continue;
          }
          if (status != FP8_OK) fail_msg("%s: %s", impl.name, why);
          std::vector<double> got, exact, va(m * k), vb(n * k);
          for (int64_t i = 0; i < m * k; ++i) va[i] = a.dequantized(i / k, i % k);
          for (int64_t i = 0; i < n * k; ++i) vb[i] = b.dequantized(i / k, i % k);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t c = 0; c < k; ++c) sum += va[i * k + c] * vb[j * k + c];
              exact.push_back(sum + (bias ? shift[j] : 0) + (accumulate ? 0.5 : 0));
              got.push_back(dtype == FP8_DTYPE_F32 ? d[i * ld + j] : from_bf16(half[i * ld + j]));
            }
          }
          const double e = relative_error(got, exact);
          if (!(e <= (dtype == FP8_DTYPE_F32 ? 1e-6 : 2.5e-3))) {
            fail_msg("%s: pair %d x %d, variant %d: error %g", impl.name, pair.a, pair.b, variant, e);
          }
          for (int64_t i = 0; i < m; ++i)  // nothing between the rows
            for (int64_t j = n; j < ld; ++j) assert_true(d[i * ld + j] == 0.5f && half[i * ld + j] == 0x3f00);
        }
      }
    }
  }
}

// BF16 views in both orientations, as fprop, dgrad and wgrad pass them.
void unquantized(void **) {
  std::mt19937 rng(6);
  char why[256];
  const int64_t m = 70, n = 90, k = 130;
  for (const ops::GemmImpl &impl : impls) {
    for (int turned = 0; turned < 4; ++turned) {
      std::vector<uint16_t> a(m * k), b(n * k);
      for (auto *v : {&a, &b})
        for (uint16_t &h : *v) h = static_cast<uint16_t>(0x3f80 + (rng() & 0x807f));
      Gemm g{};
      g.a.scaling = FP8_SCALING_UNQUANTIZED, g.b.scaling = FP8_SCALING_COPY;
      g.a.codes = turned & 1 ? matrix(a.data(), FP8_DTYPE_BF16, m, k, 1, m) : matrix(a.data(), FP8_DTYPE_BF16, m, k, k);
      g.b.codes = turned & 2 ? matrix(b.data(), FP8_DTYPE_BF16, n, k, 1, n) : matrix(b.data(), FP8_DTYPE_BF16, n, k, k);
      std::vector<float> d(m * n);
      g.d = matrix(d.data(), FP8_DTYPE_F32, m, n, n);
      if (run(impl, g, why, sizeof why) != FP8_OK) fail_msg("%s: %s", impl.name, why);
      std::vector<double> exact, got(d.begin(), d.end());
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < k; ++c) {
            sum += static_cast<double>(from_bf16(a[turned & 1 ? c * m + i : i * k + c])) *
                   from_bf16(b[turned & 2 ? c * n + j : j * k + c]);
          }
          exact.push_back(sum);
        }
      assert_true(relative_error(got, exact) <= 1e-6);
    }
  }
}

// A workspace sized for dense operands serves strided ones or is declined; it is never overrun.
void short_workspace(void **) {
  char why[256];
  for (const ops::GemmImpl &impl : impls) {
    Operand a, b;
    a.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X32, 64, 96), b.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X32, 80, 96);
    std::fill(a.codes.begin(), a.codes.end(), 0x38), std::fill(b.codes.begin(), b.codes.end(), 0x38);
    std::vector<float> d(64 * 200, -1.0f);
    Gemm g{};
    g.a = a.side(), g.b = b.side();
    g.d = matrix(d.data(), FP8_DTYPE_F32, 64, 80, 80);
    const uint64_t dense = impl.scratch(impl.self, &g);
    g.d = matrix(d.data(), FP8_DTYPE_F32, 64, 80, 161, 2);
    for (const uint64_t size : {uint64_t{0}, dense, impl.scratch(impl.self, &g)}) {
      std::vector<char> memory(size + 1, 0x5a);
      g.workspace = memory.data(), g.workspace_bytes = size;
      const int32_t status = impl.run(impl.self, &g, why, sizeof why);
      assert_true(memory.back() == 0x5a);
      assert_true(status == FP8_OK || (status == ops::kDeclined && d[0] == -1.0f));
      if (size == 0) assert_int_equal(status, ops::kDeclined);
    }
    assert_true(d[0] == 96.0f && d[1] == -1.0f && d[63 * 161 + 158] == 96.0f);
  }
}

int setup(void **) {
  void *handle = dlopen(FP8_ONEDNN_MODULE, RTLD_NOW | RTLD_LOCAL);
  if (!handle) std::printf("%s\n", dlerror());
  assert_non_null(handle);
  module = reinterpret_cast<ops::GemmModuleFn>(dlsym(handle, ops::kOnednnEntry))();
  for (const int32_t threads : {2, 7}) {
    const ops::BackendConfig config{nullptr, 0, 0, threads, 0};
    char why[256] = "";
    void *self = nullptr;
    assert_int_equal(module->open(&kHost, &config, &self, why, sizeof why), FP8_OK);
    selves.push_back(self);
    for (int i = 0;; ++i) {
      ops::GemmImpl impl{};
      const int32_t status = module->list(self, i, &impl, why, sizeof why);
      if (status == FP8_ERR_ARGUMENT) break;
      std::printf("%s: %s\n", impl.name, status == FP8_OK ? impl.about : why);
      if (status == FP8_OK) impls.push_back(impl);
    }
  }
  assert_true(!impls.empty());
  return 0;
}

int teardown(void **) {
  for (void *self : selves) module->close(self);
  return 0;
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(quantized), cmocka_unit_test(unquantized),
                              cmocka_unit_test(short_workspace)};
  return cmocka_run_group_tests_name("gemm_onednn", tests, setup, teardown);
}
