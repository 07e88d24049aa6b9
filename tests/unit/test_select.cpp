// SPDX-License-Identifier: Apache-2.0
// The ordered list: who runs, who is skipped and why, what a user reads of it, and the worst scratch.
#include <string>

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
//
#include <cmocka.h>
}

#include "gemm_data.h"
#include "ops/select.h"

using namespace gemm_test;
using fp8::ops::GemmImpl;
using fp8::ops::GemmList;
using fp8::ops::kDeclined;

namespace {

struct Fake {
  bool accepts, runs;
  int32_t status;
  uint64_t bytes;
  int ran = 0, prepared = 0;
};

int32_t accepts(void *self, const Gemm *, char *why, uint64_t bytes) {
  std::snprintf(why, bytes, "odd shape");
  return static_cast<Fake *>(self)->accepts ? FP8_OK : kDeclined;
}
uint64_t scratch(void *self, const Gemm *) { return static_cast<Fake *>(self)->bytes; }
int32_t prepare(void *self, const Gemm *) { return ++static_cast<Fake *>(self)->prepared, FP8_OK; }
int32_t run(void *self, const Gemm *, char *why, uint64_t bytes) {
  Fake &f = *static_cast<Fake *>(self);
  ++f.ran;
  std::snprintf(why, bytes, "scale out of range");
  return f.runs ? f.status : kDeclined;
}

std::string lines;
void verbose(const char *line) { lines += std::string(line) + "\n"; }

void order_and_reasons(void **) {
  Fake shape{false, true, FP8_OK, 1000}, data{true, false, FP8_OK, 300}, last{true, true, FP8_OK, 200};
  GemmList list(verbose, true);
  list.absent("module", "no such file");
  list.add({"first", "fast", &shape, accepts, scratch, prepare, run});
  list.add({"second", "faster than the third", &data, accepts, scratch, prepare, run});
  list.add({"third", "takes all", &last, nullptr, scratch, nullptr, run});
  Gemm g{};
  g.a.scaling = FP8_SCALING_1X128, g.b.scaling = FP8_SCALING_128X128;
  g.a.codes = matrix(nullptr, FP8_DTYPE_E4M3, 5, 7, 7);
  g.b.codes = matrix(nullptr, FP8_DTYPE_E5M2, 6, 7, 7);
  g.d.dtype = FP8_DTYPE_BF16;
  g.accumulate = 1;
  assert_int_equal(list.scratch(g),
                   300);  // the one that refuses the shape does not count, the one that may refuse data does
  assert_int_equal(list.prepare(g), FP8_OK);
  assert_true(shape.prepared == 0 && data.prepared == 1);
  assert_int_equal(list.run(g), FP8_OK);
  assert_true(shape.ran == 0 && data.ran == 1 && last.ran == 1);
  const std::string what = "gemm e4m3 1x128 [5, 7] . e5m2 128x128 [6, 7]^T -> bf16 +=: ";
  assert_string_equal(lines.c_str(), (what + "first declined: odd shape\n" + what +
                                      "second declined: scale out of range\n" + what + "third\n")
                                         .c_str());
  assert_string_equal(list.explain().c_str(),
                      "gemm module: absent: no such file\n"
                      "gemm first: fast; ran 0, declined 1, last: odd shape\n"
                      "gemm second: faster than the third; ran 0, declined 1, last: scale out of range\n"
                      "gemm third: takes all; ran 1, declined 0\n");
}

// A failure is no refusal: nobody else is asked.
void errors_end_the_search(void **) {
  Fake broken{true, true, FP8_ERR_BACKEND, 0}, last{true, true, FP8_OK, 0};
  GemmList list(verbose, false);
  Gemm g{};
  assert_int_equal(list.run(g), kDeclined);  // nobody there
  list.add({"broken", "", &broken, accepts, scratch, prepare, run});
  list.add({"last", "", &last, accepts, scratch, prepare, run});
  lines.clear();
  assert_int_equal(list.run(g), FP8_ERR_BACKEND);
  assert_int_equal(last.ran, 0);
  assert_true(lines.empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(order_and_reasons), cmocka_unit_test(errors_end_the_search)};
  return cmocka_run_group_tests_name("select", tests, nullptr, nullptr);
}
