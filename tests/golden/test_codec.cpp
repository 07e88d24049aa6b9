// SPDX-License-Identifier: Apache-2.0
// Families table, exhaustive, f32, scale: the definitions in kernels/numerics, and fp8_cast's kernel on every SIMD
// target.
#include "kernel.h"

using namespace golden;

static bool same(float got, uint32_t want) {
  return num::is_nan_bits(want) ? num::is_nan_bits(num::bits_of(got)) : num::bits_of(got) == want;
}

static void tables(void **) {
  for (const Case &c : cases("table")) {
    const Array f32 = c.output("f32");
    if (c.name == "e8m0") {
      const Array rcp = c.output("rcp_f32");
      for (int i = 0; i < 256; ++i) {
        assert_true(same(num::decode_e8m0(uint8_t(i)), f32.as<uint32_t>()[i]));
        assert_true(same(num::reciprocal_e8m0(uint8_t(i)), rcp.as<uint32_t>()[i]));
      }
      continue;
    }
    const int32_t f = format_of(c.name);
    const Array bf16 = c.output("bf16"), f16 = c.output("f16");
    std::vector<uint8_t> codes(256);
    for (int i = 0; i < 256; ++i) {
      codes[size_t(i)] = uint8_t(i);
      const float v = num::decode_fp8(f, uint8_t(i));
      assert_true(same(v, f32.as<uint32_t>()[i]));
      if (num::is_nan_bits(num::bits_of(v))) continue;
      assert_int_equal(num::encode_bf16(v), bf16.as<uint16_t>()[i]);
      assert_int_equal(num::encode_f16(v), f16.as<uint16_t>()[i]);
      assert_int_equal(num::encode_fp8(f, v), f == num::kE5M2 && (i & 0x7f) == 0x7c ? (i & 0x80) | 0x7b : i);
      assert_int_equal(num::encode_fp8(f, v, false), i);
    }
    for (const cpu::Simd target : targets()) {
      cpu::force_simd(target);
      for (const int32_t to : {num::kF32, num::kBF16, num::kF16}) {
        const Array &want = to == num::kF32 ? f32 : to == num::kBF16 ? bf16 : f16;
        std::vector<char> out(256 * 4);
        cpu::cast(ops::Cast{matrix(codes.data(), f, 1, 256), matrix(out.data(), to, 1, 256), nullptr, 1, 0}, {});
        for (int i = 0; i < 256; ++i) {
          const float got = num::load(to, out.data(), i), expected = num::load(to, want.bytes.data(), i);
          assert_true(same(got, num::bits_of(expected)));
        }
      }
    }
  }
}

// n inputs of dtype -> codes, through the scalar definition and every target; odd widths reach the tails
static int64_t check_casts(const char *what, const void *in, int32_t dtype, int64_t n, int32_t f, bool saturate,
                           const uint8_t *want) {
  int64_t bad = 0;
  std::vector<uint8_t> got(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) got[size_t(i)] = num::encode_fp8(f, num::load(dtype, in, i), saturate);
  bad += differences(what, got.data(), want, n, 1);
  for (const cpu::Simd target : targets()) {
    cpu::force_simd(target);
    for (const int64_t cols : {n, int64_t{257}, int64_t{7}}) {
      const int64_t rows = n / cols;
      std::fill(got.begin(), got.end(), uint8_t{0xee});
      ops::Cast c{matrix(const_cast<void *>(in), dtype, rows, cols), matrix(got.data(), f, rows, cols), nullptr,
                  saturate, 0};
      cpu::cast(c, {});
      bad += differences((std::string(what) + " " + cpu::tile_ops().name).c_str(), got.data(), want, rows * cols, 1);
    }
  }
  cpu::force_simd(cpu::Simd::kAvx512);
  return bad;
}

// The same over those inputs that may be cast as Range::kTame.
static int64_t check_tame(const void *in, int32_t dtype, int64_t n, int32_t f, const uint8_t *want) {
  std::vector<char> tame;
  std::vector<uint8_t> codes, got;
  const int64_t size = num::element_size(dtype);
  for (int64_t i = 0; i < n; ++i) {
    const float a = num::float_of(num::bits_of(num::load(dtype, in, i)) & num::kF32Abs);
    if (!(a <= (f == num::kE4M3 ? 463.9f : 61439.0f))) continue;
    tame.insert(tame.end(), static_cast<const char *>(in) + i * size, static_cast<const char *>(in) + (i + 1) * size);
    codes.push_back(want[i]);
  }
  int64_t bad = 0;
  const int64_t m = static_cast<int64_t>(codes.size());
  assert_true(m > n / 4);
  const std::vector<float> ones(static_cast<size_t>(m), 1.0f);
  for (const cpu::Simd target : targets()) {
    cpu::force_simd(target);
    got.assign(codes.size(), 0xee);
    const cpu::Tile x{tame.data(), dtype, m * size, 1, m};
    cpu::tile_ops().cast_rows(x, f, cpu::Range::kTame, m, ones.data(), got.data(), m);
    bad += differences((std::string("tame ") + cpu::tile_ops().name).c_str(), got.data(), codes.data(), m, 1);
  }
  cpu::force_simd(cpu::Simd::kAvx512);
  return bad;
}

static void exhaustive(void **) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
  int64_t bad = 0;
  for (const Case &c : cases("exhaustive")) {
    const int32_t from = c.name.rfind("bf16", 0) == 0 ? num::kBF16 : num::kF16;
    const int32_t f = format_of(c.name.substr(c.name.size() - 4));
    for (const char *mode : {"sat", "nosat"})
      bad += check_casts((c.name + " " + mode).c_str(), all.data(), from, 65536, f, mode[0] == 's',
                         c.output(mode).as<uint8_t>());
    bad += check_tame(all.data(), from, 65536, f, c.output("sat").as<uint8_t>());
  }
  assert_int_equal(bad, 0);
}

static void f32_points(void **) {
  int64_t bad = 0;
  for (const Case &c : cases("f32")) {
    const Array bits = c.input("bits");
    for (const char *mode : {"sat", "nosat"})
      bad += check_casts((c.name + " " + mode).c_str(), bits.bytes.data(), num::kF32, bits.size(), format_of(c.name),
                         mode[0] == 's', c.output(mode).as<uint8_t>());
    bad += check_tame(bits.bytes.data(), num::kF32, bits.size(), format_of(c.name), c.output("sat").as<uint8_t>());
    // the vectors have teeth: they see a double rounding, as often as the manifest says
    const Array want = c.output("sat"), via = c.output("wrong_via_bf16");
    int64_t seen = 0, as_recorded = 0;
    for (int64_t i = 0; i < bits.size(); ++i) {
      const float twice = num::decode_bf16(num::encode_bf16(bits.as<float>()[i]));
      const uint8_t code = num::encode_fp8(format_of(c.name), twice);
      seen += code != want.as<uint8_t>()[i];
      as_recorded += code == via.as<uint8_t>()[i];
    }
    assert_int_equal(seen, int64_t(c.params["differ_via_bf16"].number));
    assert_int_equal(as_recorded, bits.size());
  }
  assert_int_equal(bad, 0);
}

template <class T, class F>
static int64_t check_scale(const Case &c, const char *key, const Array &amax, F &&f) {
  const Array want = c.output(key);
  std::vector<T> got(size_t(amax.size()));
  for (int64_t i = 0; i < amax.size(); ++i) got[size_t(i)] = f(num::float_of(amax.as<uint32_t>()[i]));
  return differences((c.name + "." + key).c_str(), got.data(), want.bytes.data(), amax.size(), sizeof(T));
}

static void scales(void **) {
  int64_t bad = 0;
  for (const Case &c : cases("scale")) {
    const Array amax = c.input("amax_bits");
    const int32_t f = format_of(c.name);
    auto rule = [&](int32_t r) { return [=](float a) { return num::scale_of(f, r, a, 0.0f); }; };
    auto m = [&](int32_t r) { return [=](float a) { return num::bits_of(rule(r)(a).multiplier); }; };
    auto inv = [&](int32_t r) { return [=](float a) { return num::bits_of(rule(r)(a).inverse); }; };
    auto code = [&](int32_t r) { return [=](float a) { return rule(r)(a).code; }; };
    bad += check_scale<uint32_t>(c, "s_fp32", amax, m(num::kRuleFp32));
    bad += check_scale<uint32_t>(c, "inv_fp32", amax, inv(num::kRuleFp32));
    bad += check_scale<uint32_t>(c, "s_pow2", amax, m(num::kRulePow2));
    bad += check_scale<uint32_t>(c, "inv_pow2", amax, inv(num::kRulePow2));
    bad += check_scale<uint8_t>(c, "e8m0_rceil", amax, code(num::kRuleE8m0));
    bad += check_scale<uint8_t>(c, "e8m0_floor", amax, code(num::kRuleE8m0Floor));
  }
  assert_int_equal(bad, 0);
  // a floor under the amax
  const num::ScaleOf low = num::scale_of(num::kE4M3, num::kRuleFp32, 1e-9f, 1e-4f),
                     at = num::scale_of(num::kE4M3, num::kRuleFp32, 1e-4f, 0);
  assert_int_equal(num::bits_of(low.multiplier), num::bits_of(at.multiplier));
  assert_int_equal(num::scale_of(num::kE4M3, num::kRuleE8m0, 0.0f, 1e-4f).code,
                   num::scale_of(num::kE4M3, num::kRuleE8m0, 1e-4f, 0).code);
}

// S0 step by step: NaN is skipped, subnormals and infinities count, signs do not.
static void amax_steps(void **) {
  const float nan = num::float_of(0x7fc00000u), negative_nan = num::float_of(0xffc00001u), least = num::float_of(1u),
              inf = num::float_of(0x7f800000u);
  float a = num::amax_step(0.0f, -0.0f);
  assert_int_equal(num::bits_of(a), 0);
  for (const float x : {nan, negative_nan}) assert_int_equal(num::bits_of(num::amax_step(a, x)), 0);
  a = num::amax_step(a, -least);
  assert_int_equal(num::bits_of(a), 1);
  a = num::amax_step(a, nan);
  assert_int_equal(num::bits_of(a), 1);
  a = num::amax_step(num::amax_step(a, -3.0f), 2.0f);
  assert_true(a == 3.0f);
  assert_true(num::amax_step(a, -inf) == inf);
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(amax_steps), cmocka_unit_test(tables), cmocka_unit_test(exhaustive),
                              cmocka_unit_test(f32_points), cmocka_unit_test(scales)};
  return cmocka_run_group_tests_name("golden.codec", tests, nullptr, nullptr);
}
