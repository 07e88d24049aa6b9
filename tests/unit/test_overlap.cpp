// SPDX-License-Identifier: Apache-2.0
// Overlap of strided views against the sets of bytes that they touch: never missed; exact for rows of one stride.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "core/overlap.h"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
//
#include <cmocka.h>
}

namespace {

char g_memory[4096];

fp8_tensor view(int64_t at, int32_t dtype, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  fp8_tensor t{};
  t.data = g_memory + at * fp8::dtype_size(dtype);
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = cols;
  t.stride[0] = row_stride;
  t.stride[1] = col_stride;
  return t;
}

std::set<const char *> bytes_of(const fp8_tensor &t) {
  std::set<const char *> bytes;
  const int64_t size = fp8::dtype_size(t.dtype);
  for (int64_t r = 0; r < t.shape[0]; ++r)
    for (int64_t c = 0; c < t.shape[1]; ++c)
      for (int64_t b = 0; b < size; ++b)
        bytes.insert(static_cast<const char *>(t.data) + (r * t.stride[0] + c * t.stride[1]) * size + b);
  return bytes;
}

bool meet(const fp8_tensor &a, const fp8_tensor &b) {
  const std::set<const char *> first = bytes_of(a);
  for (const char *p : bytes_of(b))
    if (first.count(p)) return true;
  return false;
}

void test_random(void **) {
  std::srand(7);
  int found = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const int32_t da = std::rand() % 2 ? FP8_DTYPE_F32 : FP8_DTYPE_U8,
                  db = std::rand() % 2 ? FP8_DTYPE_F32 : FP8_DTYPE_U8;
    const int64_t step = 1 + std::rand() % 24, sa = da == FP8_DTYPE_F32 ? step : 4 * step;
    const int64_t sb = std::rand() % 8 ? (db == FP8_DTYPE_F32 ? step : 4 * step) : 1 + std::rand() % 40;
    const auto one = [&](int32_t d, int64_t s) {
      const int64_t col_stride = std::rand() % 5 ? 1 : 2;
      return view(std::rand() % (d == FP8_DTYPE_F32 ? 60 : 240), d, std::rand() % 6, std::rand() % (s + 2), s,
                  col_stride);
    };
    const fp8_tensor a = one(da, sa), b = one(db, sb);
    const bool truth = meet(a, b), said = fp8::overlap(a, b);
    if (truth) assert_true(said);
    const bool regular = a.stride[1] == 1 && b.stride[1] == 1 && a.shape[0] > 1 && b.shape[0] > 1 &&
                         a.shape[1] <= a.stride[0] && b.shape[1] <= b.stride[0] &&
                         a.stride[0] * fp8::dtype_size(da) == b.stride[0] * fp8::dtype_size(db);
    if (regular) {
      assert_int_equal(truth, said);
      ++(truth ? found : apart);
    }
    assert_int_equal(said, fp8::overlap(b, a));
  }
  assert_true(found > 500 && apart > 500);
}

void test_column_slices(void **) {  // q, k and v of one projection
  const fp8_tensor q = view(0, FP8_DTYPE_BF16, 8, 16, 48, 1), k = view(16, FP8_DTYPE_BF16, 8, 16, 48, 1);
  const fp8_tensor wide = view(15, FP8_DTYPE_BF16, 8, 2, 48, 1);
  assert_false(fp8::overlap(q, k));
  assert_true(fp8::overlap(q, wide));
  assert_true(fp8::overlap(wide, k));
}

void test_columns_of_columns(void **) {  // the same matrices, seen transposed: what lies together is a row
  const fp8_tensor q = view(0, FP8_DTYPE_BF16, 16, 8, 1, 48), k = view(16, FP8_DTYPE_BF16, 16, 8, 1, 48);
  const fp8_tensor line = view(40, FP8_DTYPE_BF16, 1, 8, 8, 1);  // in the gap of both
  assert_false(fp8::overlap(q, k));
  assert_false(fp8::overlap(q, line));
  assert_false(fp8::overlap(line, k));
  assert_true(fp8::overlap(q, view(15, FP8_DTYPE_BF16, 1, 2, 2, 1)));
}

bool refused(const std::vector<fp8_tensor> &views, const std::vector<bool> &out, std::string *why) {
  fp8::ListFootprints f;
  for (size_t i = 0; i < views.size(); ++i) f.add(views[i], out[i], out[i] ? "out" : "in", int32_t(i), "part");
  try {
    f.check();
  } catch (const fp8::Error &e) {
    *why = e.what();
    return true;
  }
  return false;
}

void test_list(void **) {  // against every pair; an error names a pair that meets, an output first
  std::srand(11);
  int found = 0, apart = 0;
  for (int round = 0; round < 6000; ++round) {
    const int count = 2 + std::rand() % 9;
    std::vector<fp8_tensor> views;
    std::vector<bool> out;
    for (int i = 0; i < count; ++i) {
      const int64_t step = std::rand() % 3 ? 64 : 1 + std::rand() % 64, rows = std::rand() % 5;
      views.push_back(view(std::rand() % 1500, FP8_DTYPE_U8, rows, std::rand() % 24, step, 1));
      if (std::rand() % 4 == 0) {
        std::swap(views[i].shape[0], views[i].shape[1]);
        std::swap(views[i].stride[0], views[i].stride[1]);
      }
      out.push_back(std::rand() % 2);
    }
    bool truth = false;
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < i; ++j) truth = truth || ((out[i] || out[j]) && fp8::overlap(views[i], views[j]));
    std::string why;
    const bool said = refused(views, out, &why);
    assert_int_equal(truth, said);
    ++(truth ? found : apart);
    if (!said) continue;
    int first = -1, second = -1;
    char kind[4] = "";
    assert_int_equal(
        std::sscanf(why.c_str(), "out[%d].part shares memory with %3[a-z][%d].part", &first, kind, &second), 3);
    assert_true(out[first] && fp8::overlap(views[first], views[second]));
    assert_string_equal(kind, out[second] ? "out" : "in");
  }
  assert_true(found > 1000 && apart > 1000);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_column_slices),
                              cmocka_unit_test(test_columns_of_columns), cmocka_unit_test(test_list)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
