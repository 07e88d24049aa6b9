// SPDX-License-Identifier: Apache-2.0
// gemm_ref against the golden family `linear` and against a plain S7 in 64-bit integers; gemm_portable against FP64.
#include <sys/mman.h>

#include <algorithm>
#include <thread>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
//
#include <cmocka.h>
}

#include "cpu/launch_gemm.h"
#include "cpu/simd.h"
#include "gemm_data.h"

using namespace gemm_test;
using namespace fp8;

namespace {

void on_threads(void *owner, int64_t n, void (*body)(void *, int64_t, int64_t), void *arg) {
  const int64_t threads = *static_cast<int *>(owner);
  std::vector<std::thread> crew;
  for (int64_t t = 0; t < threads; ++t) crew.emplace_back(body, arg, n * t / threads, n * (t + 1) / threads);
  for (std::thread &t : crew) t.join();
}

enum Kernel { kRef, kPortable };

void run(Kernel kernel, const Gemm &g, int threads = 1) {
  const cpu::GemmPool pool{&threads, on_threads, threads};
  std::vector<char> scratch(
      1 + (kernel == kRef ? cpu::gemm_ref_scratch(g, threads) : cpu::gemm_portable_scratch(g, threads)));
  (kernel == kRef ? cpu::gemm_ref : cpu::gemm_portable)(g, pool, scratch.data() + 1);  // any address
}

// S7 as it is written.
std::vector<float> s7(const Operand &a, const Operand &b) {
  std::vector<float> y(a.rows * b.rows);
  const int64_t kb = a.mx() ? 32 : 128;
  const bool at_end = fp8::ops::tile_cols(a.scaling) == 0;
  const double ua = a.dtype == FP8_DTYPE_E4M3 ? 0x1p9 : 0x1p16, ub = b.dtype == FP8_DTYPE_E4M3 ? 0x1p9 : 0x1p16;
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.rows; ++j) {
      float acc = 0;
      for (int64_t k0 = 0; k0 < a.cols; k0 += kb) {
        int64_t sum = 0;
        double special = 0;
        for (int64_t k = k0; k < std::min(a.cols, k0 + kb); ++k) {
          const double x = a.value(i, k), w = b.value(j, k);
          if (std::isfinite(x) && std::isfinite(w))
            sum += static_cast<int64_t>(x * ua) * static_cast<int64_t>(w * ub);
          else
            special += x * w;
        }
        const float p =
            special == 0 ? static_cast<float>(static_cast<float>(sum) / (ua * ub)) : static_cast<float>(special);
        acc = at_end ? acc + p : acc + (p * a.scale(i, k0)) * b.scale(j, k0);
      }
      if (at_end && a.cols) acc = acc * (a.scale(i, 0) * b.scale(j, 0));
      y[i * b.rows + j] = acc;
    }
  }
  return y;
}

std::vector<double> product64(const Operand &a, const Operand &b) {
  std::vector<double> y(a.rows * b.rows), x(a.rows * a.cols), w(b.rows * b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.cols; ++k) x[i * a.cols + k] = a.dequantized(i, k);
  for (int64_t j = 0; j < b.rows; ++j)
    for (int64_t k = 0; k < b.cols; ++k) w[j * b.cols + k] = b.dequantized(j, k);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.rows; ++j)
      for (int64_t k = 0; k < a.cols; ++k) y[i * b.rows + j] += x[i * a.cols + k] * w[j * b.cols + k];
  return y;
}

double relative_error(const std::vector<float> &y, const std::vector<double> &exact) {
  double e = 0, n = 0;
  for (size_t i = 0; i < y.size(); ++i) e += (y[i] - exact[i]) * (y[i] - exact[i]), n += exact[i] * exact[i];
  return n > 0 ? std::sqrt(e / n) : std::sqrt(e);
}

uint32_t bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return f != f ? 0x7fc00000u : u;
}

void expect_same(const std::vector<float> &got, const std::vector<float> &want, const char *what) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (bits(got[i]) != bits(want[i])) fail_msg("%s: element %zu is %.9g, must be %.9g", what, i, got[i], want[i]);
  }
}

Gemm gemm_of(Operand &a, Operand &b, std::vector<float> &d) {
  Gemm g{};
  g.a = a.side();
  g.b = b.side();
  d.assign(a.rows * b.rows, -7.0f);
  g.d = matrix(d.data(), FP8_DTYPE_F32, a.rows, b.rows, b.rows);
  return g;
}

struct GoldenRecipe {
  const char *name;
  int32_t x, w, dy_dtype;
  bool pow2;
  bool w2d;
};
constexpr GoldenRecipe kRecipes[] = {
    {"tensor_hybrid", FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, FP8_DTYPE_E5M2, false, true},
    {"row_e4m3", FP8_SCALING_ROW, FP8_SCALING_ROW, FP8_DTYPE_E4M3, false, false},
    {"block_fp32", FP8_SCALING_1X128, FP8_SCALING_128X128, FP8_DTYPE_E4M3, false, true},
    {"block_pow2", FP8_SCALING_1X128, FP8_SCALING_128X128, FP8_DTYPE_E4M3, true, true},
    {"mx", FP8_SCALING_1X32, FP8_SCALING_1X32, FP8_DTYPE_E4M3, true, false},
    {"mx_w2d", FP8_SCALING_1X32, FP8_SCALING_32X32, FP8_DTYPE_E4M3, true, true},
    {"mx_hybrid", FP8_SCALING_1X32, FP8_SCALING_1X32, FP8_DTYPE_E5M2, true, false},
};

float bf16(uint16_t h) {
  const uint32_t u = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

void golden_linear(void **) {
  struct Input {
    const char *name;
    int64_t t, o, i;
    int recipes;
  };
  for (const Input in : {Input{"a", 160, 64, 160, 7}, Input{"ragged", 33, 150, 129, 4}}) {
    const std::string base = std::string(FP8_GOLDEN_DIR "/linear__") + in.name + "_";
    const auto x = read_npy<uint16_t>(base + "in__x.npy"), w = read_npy<uint16_t>(base + "in__w.npy"),
               dy = read_npy<uint16_t>(base + "in__dy.npy");
    const auto fx = [&](int64_t r, int64_t c) { return bf16(x[r * in.i + c]); };
    const auto fw = [&](int64_t r, int64_t c) { return bf16(w[r * in.i + c]); };
    const auto fdy = [&](int64_t r, int64_t c) { return bf16(dy[r * in.o + c]); };
    const auto turned = [](auto f) { return [f](int64_t r, int64_t c) { return f(c, r); }; };
    for (int n = 0; n < in.recipes; ++n) {
      const GoldenRecipe &r = kRecipes[n];
      for (int which = 0; which < 3; ++which) {
        Operand a, b;
        if (which == 0) {  // y = x w^T
          a.shape(FP8_DTYPE_E4M3, r.x, in.t, in.i), a.quantize(r.pow2, fx);
          b.shape(FP8_DTYPE_E4M3, r.w, in.o, in.i), b.quantize(r.pow2, fw);
        } else if (which == 1) {  // dx = dy w
          a.shape(r.dy_dtype, r.x, in.t, in.o), a.quantize(r.pow2, fdy);
          b.shape(FP8_DTYPE_E4M3, r.w, in.i, in.o), b.quantize(r.pow2, turned(fw));
        } else {  // dw = dy^T x
          a.shape(r.dy_dtype, r.x, in.o, in.t), a.quantize(r.pow2, turned(fdy));
          b.shape(FP8_DTYPE_E4M3, r.x, in.i, in.t), b.quantize(r.pow2, turned(fx));
        }
        const std::string name = base + r.name + (which == 0 ? "_fprop" : which == 1 ? "_dgrad" : "_wgrad");
        const auto want = read_npy<float>(name + "__ref_f32.npy");
        const auto exact = read_npy<double>(name + "__y64.npy");
        std::vector<float> d;
        const Gemm g = gemm_of(a, b, d);
        assert_int_equal(want.size(), d.size());
        run(kRef, g);
        expect_same(d, want, name.c_str());
        assert_true(relative_error(d, exact) <= 2e-6);
        run(kPortable, g);
        assert_true(relative_error(d, exact) <= 1e-5);
      }
    }
  }
}

struct Pair {
  int32_t a, b;
};
constexpr Pair kPairs[] = {{FP8_SCALING_TENSOR, FP8_SCALING_TENSOR}, {FP8_SCALING_ROW, FP8_SCALING_ROW},
                           {FP8_SCALING_1X128, FP8_SCALING_128X128}, {FP8_SCALING_128X128, FP8_SCALING_1X128},
                           {FP8_SCALING_1X128, FP8_SCALING_1X128},   {FP8_SCALING_1X32, FP8_SCALING_1X32},
                           {FP8_SCALING_1X32, FP8_SCALING_32X32},    {FP8_SCALING_32X32, FP8_SCALING_1X32}};

void fill(Operand &x, std::mt19937 &rng, bool specials) {
  for (uint8_t &c : x.codes) {
    c = static_cast<uint8_t>(rng());  // every exponent alike: the widest spread
    const int mag = c & 0x7f, last = x.dtype == FP8_DTYPE_E4M3 ? 0x7e : 0x7b;
    if (mag > last) c = static_cast<uint8_t>((c & 0x80) | 1);
  }
  if (specials && !x.codes.empty()) {
    x.codes[rng() % x.codes.size()] = 0x7f;
    if (x.dtype == FP8_DTYPE_E5M2) x.codes[rng() % x.codes.size()] = 0xfc;
  }
  for (size_t i = 0; i < x.scales.size(); ++i) {
    if (x.mx())
      x.set_e8m0(i, 120 + static_cast<int>(rng() % 12));
    else
      x.scales[i] = std::ldexp(1.0f + (rng() % 8388608) * 0x1p-23f, static_cast<int>(rng() % 9) - 4);
  }
}

void ref_is_s7(void **) {
  std::mt19937 rng(7);
  const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 31}, {33, 70, 129}, {101, 150, 300}, {7, 9, 0}};
  for (const Pair pair : kPairs) {
    for (int dtypes = 0; dtypes < 3; ++dtypes) {
      for (const auto &s : shapes) {
        Operand a, b;
        a.shape(dtypes == 1 ? FP8_DTYPE_E5M2 : FP8_DTYPE_E4M3, pair.a, s[0], s[2]);
        b.shape(dtypes == 2 ? FP8_DTYPE_E5M2 : FP8_DTYPE_E4M3, pair.b, s[1], s[2]);
        fill(a, rng, s[0] > 30);
        fill(b, rng, s[0] > 30);
        const auto want = s7(a, b);
        std::vector<float> d;
        const Gemm g = gemm_of(a, b, d);
        run(kRef, g, 1 + static_cast<int>(rng() % 3));
        expect_same(d, want, "gemm_ref");
      }
    }
  }
}

void same_bits_everywhere(void **) {
  std::mt19937 rng(11);
  Operand a, b;
  a.shape(FP8_DTYPE_E5M2, FP8_SCALING_1X128, 130, 400);
  b.shape(FP8_DTYPE_E4M3, FP8_SCALING_128X128, 200, 400);
  fill(a, rng, true), fill(b, rng, true);
  std::vector<float> d, plain_d(130 * 200);
  const Gemm g = gemm_of(a, b, d);
  std::vector<float> xa(130 * 400), xb(200 * 400);
  for (float &v : xa) v = std::ldexp(static_cast<float>(static_cast<int32_t>(rng())), -31);
  for (float &v : xb) v = std::ldexp(static_cast<float>(static_cast<int32_t>(rng())), -31);
  Gemm plain{};
  plain.a.scaling = plain.b.scaling = FP8_SCALING_UNQUANTIZED;
  plain.a.codes = matrix(xa.data(), FP8_DTYPE_F32, 130, 400, 400);
  plain.b.codes = matrix(xb.data(), FP8_DTYPE_F32, 200, 400, 400);
  plain.d = matrix(plain_d.data(), FP8_DTYPE_F32, 130, 200, 200);
  std::vector<float> first, first_plain;
  for (int level = 3; level >= 0; --level) {
    cpu::force_simd(static_cast<cpu::Simd>(level));
    std::vector<float> portable;
    for (int threads : {1, 2, 5}) {
      run(kRef, g, threads), run(kRef, plain, threads);
      if (first.empty()) first = d, first_plain = plain_d;
      expect_same(d, first, "FP8 gemm_ref");
      expect_same(plain_d, first_plain, "FP32 gemm_ref");
      run(kPortable, plain, threads);
      if (portable.empty()) portable = plain_d;
      expect_same(plain_d, portable, "gemm_portable");
    }
  }
  cpu::force_simd(cpu::Simd::kAvx512);
}

// Strided codes, scales and output, leading dimensions, bias, accumulation, 16-bit outputs.
void strides_and_last_step(void **) {
  std::mt19937 rng(3);
  Operand a, b;
  a.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X128, 12, 200);
  b.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X128, 10, 200);
  fill(a, rng, false), fill(b, rng, false);
  const auto want = s7(a, b);
  std::vector<float> d;
  Gemm g = gemm_of(a, b, d);
  // codes of a: [3, 4] leading, holes between; of b: column-major
  std::vector<uint8_t> wide(3 * 5 * 411, 0x7f), across(200 * 13, 0x7f);
  for (int64_t r = 0; r < 12; ++r)
    for (int64_t c = 0; c < 200; ++c) wide[(r / 4 * 5 + r % 4) * 411 + c * 2] = a.codes[r * 200 + c];
  for (int64_t r = 0; r < 10; ++r)
    for (int64_t c = 0; c < 200; ++c) across[c * 13 + r] = b.codes[r * 200 + c];
  g.a.codes = matrix(wide.data(), FP8_DTYPE_E4M3, 12, 200, 0, 2);
  g.a.codes.lead = 2;
  g.a.codes.lead_shape[0] = 3, g.a.codes.lead_shape[1] = 4;
  g.a.codes.lead_stride[0] = 5 * 411, g.a.codes.lead_stride[1] = 411;
  g.b.codes = matrix(across.data(), FP8_DTYPE_E4M3, 10, 200, 1, 13);
  std::vector<float> tall(2 * 16, NAN);  // scales of a as {1, r4}
  for (int64_t r = 0; r < 12; ++r)
    for (int64_t c = 0; c < 2; ++c) tall[c * 16 + r] = a.scales[r * 2 + c];
  g.a.scale.data = tall.data(), g.a.scale.row_stride = 1, g.a.scale.col_stride = 16;
  std::vector<float> out(10 * 14, 5.0f);
  g.d = matrix(out.data(), FP8_DTYPE_F32, 12, 10, 1, 14);
  std::vector<float> bias(20);
  for (float &v : bias) v = static_cast<float>(static_cast<int32_t>(rng())) * 0x1p-20f;
  g.bias = {bias.data(), FP8_DTYPE_F32, 0, 10, 2};
  g.accumulate = 1;
  run(kRef, g);
  for (int64_t r = 0; r < 12; ++r)
    for (int64_t c = 0; c < 10; ++c) {
      const float y = want[r * 10 + c] + bias[c * 2];
      assert_int_equal(bits(out[c * 14 + r]), bits(5.0f + y));
    }
  assert_true(out[12] == 5.0f && out[13] == 5.0f);  // nothing between
  for (int32_t dtype : {FP8_DTYPE_BF16, FP8_DTYPE_F16}) {
    std::vector<uint16_t> half(120, dtype == FP8_DTYPE_BF16 ? 0x3f80 : 0x3c00);  // ones
    g.d = matrix(half.data(), dtype, 12, 10, 10);
    run(kRef, g);
    for (int64_t i = 0; i < 120; ++i) {
      const double y = 1.0f + (want[i] + bias[i % 10 * 2]);
      const int e = std::max(std::ilogb(y), dtype == FP8_DTYPE_BF16 ? -126 : -14);
      const double unit = std::ldexp(1.0, e - (dtype == FP8_DTYPE_BF16 ? 7 : 10));
      double rounded = std::nearbyint(y / unit) * unit;
      double got = bf16(half[i]);
      if (dtype == FP8_DTYPE_F16) {
        const int h = half[i] & 0x7fff;
        got = h >= 0x7c00 ? INFINITY : h < 0x400 ? h * 0x1p-24 : std::ldexp(1024 + (h & 1023), (h >> 10) - 25);
        if (half[i] & 0x8000) got = -got;
        if (std::fabs(rounded) >= 65536) rounded = std::copysign(INFINITY, rounded);
      }
      assert_true(got == rounded);
    }
  }
}

void unquantized_views(void **) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  const int64_t m = 37, n = 45, k = 300;
  std::vector<uint16_t> a(k * m), b(n * k);  // a is the turned view of [k, m]
  for (auto *x : {&a, &b})
    for (uint16_t &h : *x) {
      const float f = normal(rng);
      uint32_t u;
      std::memcpy(&u, &f, 4);
      h = static_cast<uint16_t>(u >> 16);
    }
  for (int turned = 0; turned < 2; ++turned) {  // the turned view once as A, once as B
    Gemm g{};
    g.a.scaling = g.b.scaling = FP8_SCALING_UNQUANTIZED;
    Matrix first = matrix(a.data(), FP8_DTYPE_BF16, m, k, 1, m), second = matrix(b.data(), FP8_DTYPE_BF16, n, k, k);
    g.a.codes = turned ? second : first;
    g.b.codes = turned ? first : second;
    const int64_t rows = g.a.codes.rows, cols = g.b.codes.rows;
    std::vector<float> d(rows * cols);
    std::vector<double> exact(rows * cols);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < k; ++c) sum += static_cast<double>(bf16(a[c * m + i])) * bf16(b[j * k + c]);
        exact[turned ? j * m + i : i * n + j] = sum;
      }
    g.d = matrix(d.data(), FP8_DTYPE_F32, rows, cols, cols);
    run(kRef, g);
    for (size_t i = 0; i < d.size(); ++i) assert_int_equal(bits(d[i]), bits(static_cast<float>(exact[i])));
    run(kPortable, g);
    assert_true(relative_error(d, exact) <= 1e-6);
  }
}

void portable_is_close(void **) {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  for (const Pair pair : kPairs) {
    for (int dtypes = 0; dtypes < 3; ++dtypes) {
      Operand a, b;
      a.shape(dtypes == 1 ? FP8_DTYPE_E5M2 : FP8_DTYPE_E4M3, pair.a, 70, 700);
      b.shape(dtypes == 2 ? FP8_DTYPE_E5M2 : FP8_DTYPE_E4M3, pair.b, 90, 700);
      const auto given = [&](int64_t, int64_t) { return normal(rng); };
      std::vector<float> x(70 * 700), w(90 * 700);
      for (float &v : x) v = given(0, 0);
      for (float &v : w) v = 0.02f * given(0, 0);
      a.quantize(false, [&](int64_t r, int64_t c) { return x[r * 700 + c]; });
      b.quantize(false, [&](int64_t r, int64_t c) { return w[r * 700 + c]; });
      std::vector<float> d;
      const Gemm g = gemm_of(a, b, d);
      run(kPortable, g, 2);
      assert_true(relative_error(d, product64(a, b)) <= 2e-6);
      run(kRef, g, 2);
      assert_true(relative_error(d, product64(a, b)) <= 2e-6);
    }
  }
}

// Rows that lie more than 2^31 elements apart, in memory of which few pages exist.
void far_rows(void **) {
  constexpr int64_t kApart = (int64_t{1} << 31) + 4096;
  const auto reserve = [](int64_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
  };
  uint8_t *far = static_cast<uint8_t *>(reserve(3 * kApart));
  float *out = static_cast<float *>(reserve(12 * kApart));
  if (!far || !out) skip();
  std::mt19937 rng(8);
  Operand a, b;
  a.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X128, 3, 150);
  b.shape(FP8_DTYPE_E4M3, FP8_SCALING_1X128, 5, 150);
  fill(a, rng, false), fill(b, rng, false);
  for (int64_t r = 0; r < 3; ++r) std::copy_n(&a.codes[r * 150], 150, far + r * kApart);
  const auto want = s7(a, b);
  std::vector<float> d;
  Gemm g = gemm_of(a, b, d);
  g.a.codes = matrix(far, FP8_DTYPE_E4M3, 3, 150, kApart);
  g.d = matrix(out, FP8_DTYPE_F32, 3, 5, kApart);
  run(kRef, g);
  for (int64_t i = 0; i < 15; ++i) assert_int_equal(bits(out[i / 5 * kApart + i % 5]), bits(want[i]));
  run(kPortable, g);
  for (int64_t i = 0; i < 15; ++i)
    assert_true(std::fabs(out[i / 5 * kApart + i % 5] - want[i]) <= 1e-4 * std::fabs(want[i]) + 1);
  munmap(far, 3 * kApart);
  munmap(out, 12 * kApart);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(golden_linear),
                              cmocka_unit_test(ref_is_s7),
                              cmocka_unit_test(same_bits_everywhere),
                              cmocka_unit_test(strides_and_last_step),
                              cmocka_unit_test(unquantized_views),
                              cmocka_unit_test(portable_is_close),
                              cmocka_unit_test(far_rows)};
  return cmocka_run_group_tests_name("gemm_kernels", tests, nullptr, nullptr);
}
