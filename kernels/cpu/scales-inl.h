// SPDX-License-Identifier: Apache-2.0
// Amaxes to scales, as numerics/scale.h defines them, a vector at a time. Included once per SIMD target.
#if defined(FP8_SCALES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8_SCALES_INL_H
#undef FP8_SCALES_INL_H
#else
#define FP8_SCALES_INL_H
#endif

#include "cpu/lines-inl.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace fp8::cpu {
namespace HWY_NAMESPACE {

struct ScaleLanes {
  VF multiplier, inverse;
  VI code;
};

// 2^(code - 127); its ends are subnormal and NaN.
HWY_INLINE VF PowerOf(VI code) {
  const VI r = hn::IfThenElse(hn::Eq(code, hn::Zero(DI())), Int(0x00400000), hn::ShiftLeft<23>(code));
  return Float(hn::IfThenElse(hn::Eq(code, Int(255)), Int(0x7fc00000), r));
}

template <class F>  // of num
HWY_INLINE ScaleLanes ScalesOf(int32_t rule, VF amax, VF floor) {
  const VF a = hn::IfThenElse(hn::Lt(amax, floor), floor, amax);
  const VI u = Bits(a), inf = Int(0x7f800000);
  const MI finite = hn::Lt(u, inf);
  if (rule == num::kRuleFp32) {
    const VF one = hn::Set(DF(), 1.0f);
    const VF m = hn::Div(hn::Set(DF(), F::fmax), a);
    const VF most = Float(hn::IfThenElse(hn::Eq(Bits(m), inf), Int(0x7f7fffff), Bits(m)));
    const MI usual = hn::And(finite, hn::Gt(u, hn::Zero(DI())));
    const VF multiplier = Float(hn::IfThenElse(usual, Bits(most), Bits(one)));
    return {multiplier, Float(hn::IfThenElse(usual, Bits(hn::Div(one, most)), Bits(one))), Int(127)};
  }
  // a subnormal amax needs no normalising: its code is 0 either way, as zero's is
  VI c = hn::ShiftRight<23>(u);
  const MI up = hn::Gt(hn::And(u, Int(0x7fffff)), Int(0x600000));
  if (rule != num::kRuleE8m0Floor) c = hn::Add(c, hn::IfThenElseZero(up, Int(1)));
  c = hn::Min(hn::Max(hn::Sub(c, Int(F::emax)), hn::Zero(DI())), Int(254));
  if (rule == num::kRulePow2) {
    c = hn::IfThenElse(hn::And(finite, hn::Gt(u, hn::Zero(DI()))), c, Int(127));
  } else {
    const VI special = rule == num::kRuleE8m0 ? hn::IfThenElse(hn::Eq(u, inf), Int(254), Int(255)) : Int(255);
    c = hn::IfThenElse(finite, c, special);
  }
  const VI back = hn::IfThenElse(hn::Eq(c, Int(255)), c, hn::Sub(Int(254), c));
  return {PowerOf(back), PowerOf(c), c};
}

void Scales(int32_t dtype, int32_t rule, float floor, const float *amax, int64_t n, float *m, float *inverse,
            uint8_t *codes) {
  const DF df;
  const hn::Rebind<uint8_t, DI> d8;
  const VF least = hn::Set(df, floor);
  ForCodes(dtype, [&](auto t) HWY_ATTR {
    using F = std::conditional_t<decltype(t)::value == num::kE4M3, num::E4M3, num::E5M2>;
    int64_t i = 0;
    for (; i + Lanes() <= n; i += Lanes()) {
      const ScaleLanes s = ScalesOf<F>(rule, hn::LoadU(df, amax + i), least);
      hn::StoreU(s.multiplier, df, m + i);
      if (inverse) hn::StoreU(s.inverse, df, inverse + i);
      if (codes) hn::StoreU(hn::DemoteTo(d8, s.code), d8, codes + i);
    }
    for (; i < n; ++i) {
      const num::ScaleOf s = num::scale_of<F>(rule, amax[i], floor);
      m[i] = s.multiplier;
      if (inverse) inverse[i] = s.inverse;
      if (codes) codes[i] = s.code;
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8::cpu
HWY_AFTER_NAMESPACE();
#endif
#endif  // FP8_SCALES_INL_H
