// SPDX-License-Identifier: Apache-2.0
// Host logic of the module: from a product to cuBLASLt's terms, scratch, keys, where cuBLASLt is looked for.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "backend/cuda/gemm_plan.h"
#include "fp8/recipe.h"
#ifdef FP8_HAVE_CUBLASLT
#include "backend/cuda/lt_api.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fp8;
using cuda::GemmPlan;
using cuda::Way;

alignas(256) char g_memory[4096];

ops::Matrix matrix(int32_t dtype, int64_t rows, int64_t cols, int64_t ld) {
  ops::Matrix m{};
  m.data = g_memory, m.dtype = dtype, m.lead = 1, m.rows = rows, m.cols = cols;
  m.lead_shape[0] = rows, m.lead_stride[0] = ld, m.col_stride = 1;
  return m;
}

ops::Side side(int32_t scaling, int64_t rows, int64_t k) {
  ops::Side s{};
  s.scaling = scaling;
  s.rule = FP8_SCALE_POW2;
  if (scaling == FP8_SCALING_UNQUANTIZED) {
    s.codes = matrix(FP8_DTYPE_BF16, rows, k, k);
    return s;
  }
  s.codes = matrix(FP8_DTYPE_E4M3, rows, k, k);
  const int64_t tr = ops::tile_rows(scaling), tc = ops::tile_cols(scaling);
  s.scale.data = g_memory;
  s.scale.dtype = scaling >= FP8_SCALING_1X32 ? FP8_DTYPE_E8M0 : FP8_DTYPE_F32;
  s.scale.rows = tr ? (rows + tr - 1) / tr : 1;
  s.scale.cols = tc ? (k + tc - 1) / tc : 1;
  s.scale.row_stride = scaling == FP8_SCALING_1X128     ? 1
                       : scaling == FP8_SCALING_128X128 ? (s.scale.cols + 3) / 4 * 4
                                                        : s.scale.cols;
  s.scale.col_stride = scaling == FP8_SCALING_1X128 ? (s.scale.rows + 3) / 4 * 4 : 1;
  return s;
}

ops::Gemm product(int32_t sa, int32_t sb, int64_t m, int64_t n, int64_t k, int32_t out = FP8_DTYPE_BF16) {
  ops::Gemm g{};
  g.a = side(sa, m, k), g.b = side(sb, n, k);
  g.d = matrix(out, m, n, n);
  return g;
}

void aligned_products_are_direct(void **) {
  const int32_t pairs[][2] = {{FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED},
                              {FP8_SCALING_TENSOR, FP8_SCALING_TENSOR},
                              {FP8_SCALING_ROW, FP8_SCALING_ROW},
                              {FP8_SCALING_1X128, FP8_SCALING_128X128},
                              {FP8_SCALING_128X128, FP8_SCALING_1X128},
                              {FP8_SCALING_1X128, FP8_SCALING_1X128}};
  for (const auto &p : pairs) {
    const ops::Gemm g = product(p[0], p[1], 256, 512, 1024);
    const GemmPlan plan = cuda::plan_gemm(g, 90, false);
    assert_int_equal(plan.way, p[0] == FP8_SCALING_UNQUANTIZED ? Way::kPlain : Way::kScaled);
    assert_true(plan.direct && !plan.padded && !plan.a.copied && !plan.b.copied && !plan.a.repacked &&
                !plan.b.repacked);
    assert_int_equal(plan.m, 256);
    assert_int_equal(plan.n, 512);
    assert_true(plan.bytes >= plan.lt_at + plan.lt_bytes);
    assert_false(cuda::has_strict(g, plan));
  }
}

void ragged_products_are_padded(void **) {
  for (const int32_t s : {FP8_SCALING_TENSOR, FP8_SCALING_ROW, FP8_SCALING_1X128}) {
    const ops::Gemm g = product(s, s, 100, 77, 130);
    const GemmPlan plan = cuda::plan_gemm(g, 90, false), strict = cuda::plan_gemm(g, 90, true);
    assert_true(plan.padded && plan.a.copied && plan.b.copied && !plan.direct);
    assert_int_equal(plan.m, 100);
    assert_int_equal(plan.n, 80);
    assert_int_equal(plan.k, 144);
    assert_int_equal(plan.a.ld, 144);
    assert_int_equal(plan.ldd, 80);
    assert_int_equal(plan.d_dtype, FP8_DTYPE_F32);
    assert_int_equal(strict.m, 112);
    assert_true(cuda::has_strict(g, plan));
    assert_true(cuda::gemm_bytes(g, 90) >= static_cast<uint64_t>(strict.bytes));
    // no two pieces of the workspace overlap: each begins after what the one before it holds
    assert_true(strict.b.at >= strict.a.at + strict.a.rows * strict.a.ld);
    assert_true(strict.y_at >= strict.b.at + strict.b.rows * strict.b.ld);
    assert_true(strict.lt_at >= strict.y_at + strict.m * strict.ldd * 4);
  }
  ops::Gemm wide = product(FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, 64, 64, 64);
  wide.a.codes.lead_stride[0] = 72;  // not a multiple of 16
  assert_true(cuda::plan_gemm(wide, 90, false).a.copied);
}

void scales_are_repacked_only_when_foreign(void **) {
  ops::Gemm g = product(FP8_SCALING_1X128, FP8_SCALING_128X128, 256, 256, 384);
  const uint64_t native = cuda::gemm_bytes(g, 90);
  g.a.scale.row_stride = 3, g.a.scale.col_stride = 1;  // compact, as a framework has it
  g.b.scale.row_stride = 3;
  const GemmPlan plan = cuda::plan_gemm(g, 90, false);
  assert_true(plan.a.repacked && plan.b.repacked);
  assert_int_equal(plan.a.scale_row_stride, 1);
  assert_int_equal(plan.a.scale_col_stride, 256);
  assert_int_equal(plan.a.scale_size, 256 * 3);
  assert_int_equal(plan.b.scale_row_stride, 4);
  assert_int_equal(plan.b.scale_size, 2 * 4);
  assert_int_equal(cuda::gemm_bytes(g, 90), native);  // a query need not see the alignment
  g = product(FP8_SCALING_ROW, FP8_SCALING_ROW, 64, 64, 64);
  g.a.scale.data = g_memory + 4;
  assert_true(cuda::plan_gemm(g, 90, false).a.repacked);
}

void bias_and_outputs(void **) {
  ops::Gemm g = product(FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, 64, 64, 64);
  g.bias = {g_memory, FP8_DTYPE_BF16, 0, 64, 1};  // cuBLASLt adds it before its one rounding
  GemmPlan plan = cuda::plan_gemm(g, 90, false);
  assert_true(plan.direct && plan.fused_bias && !plan.padded && plan.d_dtype == FP8_DTYPE_BF16);
  assert_true(cuda::has_strict(g, plan));  // refused by cuBLASLt: the last kernel's
  plan = cuda::plan_gemm(g, 90, true);
  assert_true(!plan.direct && !plan.fused_bias && !plan.padded && plan.d_dtype == FP8_DTYPE_F32);
  assert_true(cuda::gemm_bytes(g, 90) >= static_cast<uint64_t>(plan.bytes));
  g.bias.dtype = FP8_DTYPE_F32;
  assert_false(cuda::plan_gemm(g, 90, false).direct);
  g.bias.dtype = FP8_DTYPE_F16, g.d.dtype = FP8_DTYPE_F16;
  assert_false(cuda::plan_gemm(g, 90, false).direct);  // FP8 operands take a BF16 bias alone
  g.bias.dtype = FP8_DTYPE_BF16, g.d.dtype = FP8_DTYPE_BF16, g.accumulate = 1;
  assert_false(cuda::plan_gemm(g, 90, false).direct);  // the sum would be rounded twice
  g.accumulate = 0, g.bias.data = nullptr;
  assert_true(cuda::plan_gemm(g, 90, false).direct);
  g.accumulate = 1;
  assert_false(cuda::plan_gemm(g, 90, false).direct);
  g.d.dtype = FP8_DTYPE_F32;
  assert_true(cuda::plan_gemm(g, 90, false).direct);
  g = product(FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, 64, 64, 64, FP8_DTYPE_F32);
  g.bias = {g_memory, FP8_DTYPE_F32, 0, 64, 1};
  plan = cuda::plan_gemm(g, 90, false);
  assert_true(plan.direct && plan.fused_bias && !plan.bias_copied);
  const uint64_t bytes = cuda::gemm_bytes(g, 90);
  g.bias.data = g_memory + 4;
  plan = cuda::plan_gemm(g, 90, false);
  assert_true(plan.direct && plan.fused_bias && plan.bias_copied);
  assert_int_equal(cuda::gemm_bytes(g, 90), bytes);
  g = product(FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, 64, 64, 64);
  g.d.col_stride = 2;
  assert_false(cuda::plan_gemm(g, 90, false).direct);
  g = product(FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, 64, 64, 64, FP8_DTYPE_F16);
  assert_false(cuda::plan_gemm(g, 90, false).direct);  // BF16 operands to F16: through F32
}

void views_of_bf16_cost_no_copy(void **) {
  ops::Gemm g = product(FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, 96, 80, 48);
  g.a.codes.lead_stride[0] = 1, g.a.codes.col_stride = 100;  // column side: a transposed view
  GemmPlan plan = cuda::plan_gemm(g, 90, false);
  assert_true(!plan.a.copied && !plan.a.k_major && plan.b.k_major);
  assert_int_equal(plan.a.ld, 100);
  g.a.codes.lead_stride[0] = 2;
  plan = cuda::plan_gemm(g, 90, false);
  assert_true(plan.a.copied && plan.a.k_major);
  assert_int_equal(plan.a.ld, 48);
  g = product(FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, 96, 81, 47);
  plan = cuda::plan_gemm(g, 90, false);
  assert_true(plan.direct && !plan.a.copied && cuda::has_strict(g, plan));
  plan = cuda::plan_gemm(g, 90, true);
  assert_true(plan.a.copied && plan.b.copied && !plan.direct && plan.padded);
}

// A bias rounded with the sum: only where every stride serves the kernels that round once.
void bias_of_16_bit_products(void **) {
  struct Case {
    int64_t m, n, k;
    bool fused;
  };
  for (const Case &c :
       {Case{100, 80, 128, true}, Case{100, 77, 130, false}, Case{100, 80, 130, false}, Case{100, 84, 128, false}}) {
    ops::Gemm g = product(FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, c.m, c.n, c.k);
    g.bias = {g_memory, FP8_DTYPE_BF16, 0, c.n, 1};
    const GemmPlan plan = cuda::plan_gemm(g, 90, false);
    assert_int_equal(plan.fused_bias, c.fused);
    assert_int_equal(plan.direct, c.fused);
    assert_int_equal(plan.d_dtype, c.fused ? FP8_DTYPE_BF16 : FP8_DTYPE_F32);
    assert_true(cuda::gemm_bytes(g, 90) >= static_cast<uint64_t>(plan.bytes));
  }
}

void the_untuned_choice(void **) {
  cuda::PlanKey k{};
  k.a_mode = cuda::kScalar32F, k.a_dtype = FP8_DTYPE_E4M3, k.fast = 1;
  const cuda::Candidate c[] = {{24, 1, 6.8f}, {200, 1, 9.9f}, {201, 2, 9.9f}, {201, 1, 1.9f}, {201, 1, 9.9f}};
  assert_int_equal(cuda::untuned_choice(k, 90, c, 5), 4);
  assert_int_equal(cuda::untuned_choice(k, 90, c, 4), 0);
  assert_int_equal(cuda::untuned_choice(k, 100, c, 5), 0);
  assert_int_equal(cuda::untuned_choice(k, 90, c, 0), 0);
  k.fast = 0;  // split accumulation: cuBLASLt's first
  assert_int_equal(cuda::untuned_choice(k, 90, c, 5), 0);
  k.a_mode = cuda::kNoScale, k.a_dtype = FP8_DTYPE_BF16;
  assert_int_equal(cuda::untuned_choice(k, 90, c, 5), 4);
  k.a_dtype = FP8_DTYPE_F32;
  assert_int_equal(cuda::untuned_choice(k, 90, c, 5), 0);
}

void what_each_device_takes(void **) {
  ops::Gemm mx = product(FP8_SCALING_1X32, FP8_SCALING_32X32, 256, 256, 256);
  GemmPlan plan = cuda::plan_gemm(mx, 90, false);
  assert_int_equal(plan.way, Way::kSmall);
  assert_true(plan.bytes == 0 && cuda::gemm_bytes(mx, 90) == 0);
  mx = product(FP8_SCALING_1X32, FP8_SCALING_32X32, 256, 257, 256);
  plan = cuda::plan_gemm(mx, 90, false);
  assert_int_equal(plan.way, Way::kWidened);
  assert_int_equal(plan.a.dtype, FP8_DTYPE_BF16);
  assert_true(plan.direct && plan.flag_at >= plan.b.at + 257 * 256 * 2);
  assert_int_equal(cuda::plan_gemm(product(FP8_SCALING_1X32, FP8_SCALING_32X32, 8, 8, 544), 90, false).way,
                   Way::kWidened);
  assert_int_equal(
      cuda::plan_gemm(product(FP8_SCALING_1X32, FP8_SCALING_32X32, int64_t{1} << 40, int64_t{1} << 30, 32), 90, false)
          .way,
      Way::kWidened);
  mx = product(FP8_SCALING_1X32, FP8_SCALING_32X32, 100, 64, 96);
  plan = cuda::plan_gemm(mx, 100, false);
  assert_int_equal(plan.way, Way::kSwizzled);
  assert_int_equal(plan.a.mode, cuda::kVec32UE8M0);
  assert_int_equal(plan.a.scale_size, 512);
  ops::Gemm block = product(FP8_SCALING_1X128, FP8_SCALING_128X128, 128, 128, 256);
  assert_int_equal(cuda::plan_gemm(block, 89, false).way, Way::kRefused);
  assert_int_equal(cuda::plan_gemm(block, 100, false).way, Way::kSwizzled);
  block.b.rule = FP8_SCALE_FP32;
  assert_int_equal(cuda::plan_gemm(block, 100, false).way, Way::kRefused);
  assert_non_null(strstr(cuda::plan_gemm(block, 100, false).refusal, "power-of-two"));
  assert_int_equal(cuda::plan_gemm(product(FP8_SCALING_ROW, FP8_SCALING_ROW, 16, 16, 16), 89, false).way,
                   Way::kRefused);
  assert_int_equal(cuda::plan_gemm(product(FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, 16, 16, 16), 89, false).way,
                   Way::kScaled);
  assert_int_equal(cuda::plan_gemm(product(FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, 16, 16, 0), 90, false).way,
                   Way::kEmpty);
}

void keys_tell_plans_apart(void **) {
  ops::Gemm g = product(FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, 64, 64, 64);
  const GemmPlan plan = cuda::plan_gemm(g, 90, false);
  const auto key = [&](const ops::Gemm &x) {
    return cuda::plan_key(x, cuda::plan_gemm(x, 90, false), g_memory, g_memory, g_memory);
  };
  const cuda::PlanKey base = key(g);
  assert_true(base == key(g));
  assert_int_equal(cuda::PlanKeyHash()(base), cuda::PlanKeyHash()(key(g)));
  ops::Gemm other = g;
  other.accumulate = 1;
  assert_false(base == key(other));
  other = g, other.fast_accumulation = 1;
  assert_false(base == key(other));
  other = g, other.max_sms = 16;
  assert_false(base == key(other));
  other = g, other.d.dtype = FP8_DTYPE_F32;
  assert_false(base == key(other));
  other = g, other.a.codes.dtype = FP8_DTYPE_E5M2;
  assert_false(base == key(other));
  other = g, other.bias = {g_memory, FP8_DTYPE_BF16, 0, 64, 1};
  assert_false(base == key(other));
  assert_false(base == cuda::plan_key(g, plan, g_memory + 16, g_memory, g_memory));
  // block scaling has no fast accumulation: the flag does not reach cuBLASLt
  ops::Gemm block = product(FP8_SCALING_1X128, FP8_SCALING_1X128, 64, 64, 128);
  block.fast_accumulation = 1;
  assert_int_equal(key(block).fast, 0);
  assert_int_equal(cuda::alignment_class(g_memory + 48, 0), 16);
  assert_int_equal(cuda::alignment_class(g_memory, 0), 256);
  assert_int_equal(cuda::alignment_class(g_memory, 6), 2);
}

#ifdef FP8_HAVE_CUBLASLT
void cublaslt_is_looked_for_in_order(void **) {
  char root[] = "/tmp/fp8_lt_XXXXXX";
  assert_non_null(mkdtemp(root));
  const std::string site = std::string(root) + "/site";
  for (const char *folder : {"", "/fp8", "/nvidia", "/nvidia/cu13", "/nvidia/cublas"})
    assert_int_equal(mkdir((site + folder).c_str(), 0700), 0);
  const std::string list = cuda::lt_candidates(site + "/fp8", "", ':');
  const size_t beside = list.find(site + "/fp8/libcublasLt.so.13"),
               pip = list.find("/nvidia/cu13/lib/libcublasLt.so.13"), system = list.rfind(":libcublasLt.so.13:");
  assert_true(beside != std::string::npos && pip != std::string::npos && system != std::string::npos);
  assert_true(beside < pip && pip < system);
  assert_true(cuda::lt_candidates("/nowhere", site, ':').find(site + "/nvidia/cublas/lib/") != std::string::npos);
  for (const char *folder : {"/nvidia/cublas", "/nvidia/cu13", "/nvidia", "/fp8", ""}) rmdir((site + folder).c_str());
  rmdir(root);
}
#endif

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(aligned_products_are_direct),
      cmocka_unit_test(ragged_products_are_padded),
      cmocka_unit_test(scales_are_repacked_only_when_foreign),
      cmocka_unit_test(bias_and_outputs),
      cmocka_unit_test(bias_of_16_bit_products),
      cmocka_unit_test(views_of_bf16_cost_no_copy),
      cmocka_unit_test(what_each_device_takes),
      cmocka_unit_test(keys_tell_plans_apart),
      cmocka_unit_test(the_untuned_choice),
#ifdef FP8_HAVE_CUBLASLT
      cmocka_unit_test(cublaslt_is_looked_for_in_order),
#endif
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
