// SPDX-License-Identifier: Apache-2.0
// Families quant, requant, transpose: the CPU quantizer, every SIMD target of this machine.
#include "kernel.h"

using namespace golden;

static Array g_x;

static const Array &input_named(const std::string &name) {
  static std::string loaded;
  if (loaded != name) g_x = load("qinput__" + name + "__x.npy");
  loaded = name;
  return g_x;
}

static int64_t quant_case(const Case &c) {
  const std::string input = c.params["input"].text;
  const Array &x = input_named(input);
  const Kind k = kind_of(c.params["kind"].text);
  const int32_t f = format_of(c.params["fmt"].text);
  const int64_t rows = x.rows(), cols = x.cols();
  Out row(k, f, rows, cols), col(k, f, cols, rows);
  ops::Quantize q{};
  q.x = matrix(const_cast<char *>(x.bytes.data()), source_of(x, input), rows, cols);
  q.row = row.view;
  q.col = col.view;
  run(q);
  int64_t bad = 0;
  const Array codes = c.output("q"), scales = c.output("s");
  const int64_t size = k.e8m0() ? 1 : 4;
  bad += differences((c.name + ".q").c_str(), row.codes.data(), codes.bytes.data(), codes.size(), 1);
  bad += differences((c.name + ".s").c_str(), row.scales.data(), scales.bytes.data(), scales.size(), size);
  if (c.expected.has("qT")) {
    const Array ct = c.output("qT"), st = c.output("sT");
    bad += differences((c.name + ".qT").c_str(), col.codes.data(), ct.bytes.data(), ct.size(), 1);
    bad += differences((c.name + ".sT").c_str(), col.scales.data(), st.bytes.data(), st.size(), size);
  } else {  // one scale for both sides: the exact transpose
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < cols; ++i) bad += col.codes[size_t(i * rows + r)] != codes.as<uint8_t>()[r * cols + i];
  }
  const char *names[6] = {"n", "nan", "inf", "nonzero", "underflow", "saturated"};
  for (int i = 0; i < 6; ++i) {
    const uint64_t want = uint64_t(c.params["stats"][names[i]].number);
    if (row.stats[size_t(i)] == want) continue;
    std::fprintf(stderr, "%s: %s is %llu, golden has %llu\n", c.name.c_str(), names[i],
                 (unsigned long long)row.stats[size_t(i)], (unsigned long long)want);
    ++bad;
  }
  return bad;
}

static void every_target(int64_t (*one)(const Case &), const char *family) {
  const std::vector<Case> all = cases(family);
  for (const cpu::Simd target : targets()) {
    cpu::force_simd(target);
    int64_t bad = 0;
    for (const Case &c : all) bad += one(c);
    std::printf("%s: %zu cases on %s, %lld mismatches\n", family, all.size(), cpu::tile_ops().name, (long long)bad);
    assert_int_equal(bad, 0);
  }
  cpu::force_simd(cpu::Simd::kAvx512);
}

static void quant(void **) { every_target(quant_case, "quant"); }

static int64_t requant_case(const Case &c) {
  const Array q = c.input("q"), s = c.input("s"), qt = c.output("qT"), st = c.output("sT");
  const Kind k = kind_of(c.params["kind"].text);
  const int32_t f = format_of(c.params["fmt"].text);
  const int64_t rows = q.rows(), cols = q.cols();
  Out col(k, f, cols, rows);
  ops::Quantize op{};
  op.source.scaling = k.scaling;
  op.source.codes = matrix(const_cast<char *>(q.bytes.data()), f, rows, cols);
  op.source.scale = scale(const_cast<char *>(s.bytes.data()), k.e8m0() ? num::kE8M0 : num::kF32, s.rows(), s.cols());
  op.col = col.view;
  run(op);
  int64_t bad = differences((c.name + ".qT").c_str(), col.codes.data(), qt.bytes.data(), qt.size(), 1);
  bad += differences((c.name + ".sT").c_str(), col.scales.data(), st.bytes.data(), st.size(), k.e8m0() ? 1 : 4);
  // and from the column side back: the same rule the other way
  Out row(k, f, cols, rows);
  ops::Quantize back{};
  back.source = op.source;
  back.source_is_col = 1;  // the matrix is now [cols, rows], its column side what was the row side
  back.row = row.view;
  run(back);
  bad += differences((c.name + ".flipped").c_str(), row.codes.data(), qt.bytes.data(), qt.size(), 1);
  bad +=
      differences((c.name + ".flipped scale").c_str(), row.scales.data(), st.bytes.data(), st.size(), k.e8m0() ? 1 : 4);
  return bad;
}

static void requant(void **) { every_target(requant_case, "requant"); }

static int64_t transpose_case(const Case &c) {
  const Array q = c.input("q"), qt = c.output("qT");
  std::vector<uint8_t> out(size_t(qt.size()), 0xee);
  cpu::transpose(ops::Transpose{matrix(const_cast<char *>(q.bytes.data()), num::kE4M3, q.rows(), q.cols()),
                                matrix(out.data(), num::kE4M3, q.cols(), q.rows())},
                 {});
  return differences(c.name.c_str(), out.data(), qt.bytes.data(), qt.size(), 1);
}

static void transposed(void **) { every_target(transpose_case, "transpose"); }

static int64_t ep_case(const Case &c) {  // Q(dispatch(x)) = dispatch(Q(x))
  const Array x = c.input("x"), idx = c.input("idx"), q = c.output("q"), s = c.output("s");
  const Kind k = kind_of(c.params["kind"].text);
  Out row(k, format_of(c.params["fmt"].text), x.rows(), x.cols());
  ops::Quantize op{};
  op.x = matrix(const_cast<char *>(x.bytes.data()), num::kBF16, x.rows(), x.cols());
  op.row = row.view;
  run(op);
  const int64_t size = (k.e8m0() ? 1 : 4) * s.cols();
  int64_t bad = 0;
  for (int64_t i = 0; i < idx.size(); ++i) {
    const int64_t from = idx.as<int32_t>()[i];
    bad += differences("ep.q", row.codes.data() + from * x.cols(), q.bytes.data() + i * x.cols(), x.cols(), 1);
    bad += differences("ep.s", row.scales.data() + from * size, s.bytes.data() + i * size, size, 1);
  }
  return bad;
}

static void ep(void **) { every_target(ep_case, "ep"); }

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(quant), cmocka_unit_test(requant), cmocka_unit_test(transposed),
                              cmocka_unit_test(ep)};
  return cmocka_run_group_tests_name("golden.quantize", tests, nullptr, nullptr);
}
