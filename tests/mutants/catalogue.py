# SPDX-License-Identifier: Apache-2.0
"""The faults to plant: (name, file, text, replacement). The text occurs exactly once in the file."""

CODEC, SCALE, BLOCK = "kernels/numerics/codec.h", "kernels/numerics/scale.h", "kernels/numerics/block.h"
QUANTIZE, PART, TILE = "kernels/cpu/quantize.cpp", "kernels/cpu/quantize_part.cpp", "kernels/cpu/tile_plain.cpp"
REF, LANES, AMAX = "kernels/cpu/gemm_ref.cpp", "kernels/cpu/lanes-inl.h", "kernels/cpu/amax-inl.h"
ROUND = "const uint32_t rounded = a + ((1u << (drop - 1)) - 1) + ((a >> drop) & 1);"

MUTANTS = [
    # scales
    ("E8M0 threshold one too low", SCALE, "0x1fffffu", "0x200000u"),
    ("E8M0 threshold one too high", SCALE, "0x1fffffu", "0x1ffffeu"),
    ("scale from ceil of log2 amax", SCALE, "0x1fffffu", "0x7fffffu"),
    ("OCP floor where up is asked for", SCALE, "rule == kRuleE8m0Floor ? 0u : 0x1fffffu", "0u"),
    ("multiplier rebuilt from the stored scale", SCALE, "s.multiplier = m;", "s.multiplier = div_rn(1.0f, div_rn(1.0f, m));"),
    ("stored scale is amax / max", SCALE, "s.inverse = div_rn(1.0f, m);", "s.inverse = div_rn(a, F::fmax);"),
    ("no FLT_MAX rule", SCALE, "if (bits_of(m) == kF32Inf) m = float_of(kF32Max);", ""),
    ("NaN spreads through the amax", SCALE, "return a <= kF32Inf && a > bits_of(amax)", "return a > bits_of(amax)"),
    ("amax ignores subnormals", SCALE, "const uint32_t a = bits_of(x) & kF32Abs;\n  return",
     "const uint32_t a = (bits_of(x) & kF32Abs) < 0x800000u ? 0 : bits_of(x) & kF32Abs;\n  return"),
    ("infinite amax in an MX block gives NaN", SCALE, "return rule == kRuleE8m0Floor || a > kF32Inf ? 255 : 254;", "return 255;"),
    ("amax floor ignored", SCALE, "return amax < floor ? floor : amax;", "return amax;"),
    ("E8M0 code 0 decodes to zero", CODEC, "c == 0 ? 0x00400000u : uint32_t(c) << 23); }\nFP8_HD float reciprocal",
     "c == 0 ? 0u : uint32_t(c) << 23); }\nFP8_HD float reciprocal"),
    # casts
    ("cast truncates", CODEC, ROUND, "const uint32_t rounded = a;"),
    ("cast rounds half away from zero", CODEC, ROUND, "const uint32_t rounded = a + (1u << (drop - 1));"),
    ("subnormals round half away from zero", CODEC, "code = (s + ((1u << (shift - 1)) - 1) + ((s >> shift) & 1)) >> shift;\n  }",
     "code = (s + (1u << (shift - 1))) >> shift;\n  }"),
    ("cast goes through BF16", CODEC,
     "FP8_HD uint8_t encode(float x, bool saturate = true) {\n  const uint32_t u = bits_of(x), sign",
     "FP8_HD uint8_t encode(float x, bool saturate = true) {\n  const uint32_t w = bits_of(x);\n"
     "  const uint32_t u = (w & kF32Abs) > kF32Inf ? w : (w + 0x7fffu + ((w >> 16) & 1)) & 0xffff0000u, sign"),
    ("FP8 subnormals are flushed", CODEC, "if (shift > 24) return uint8_t(sign);                           // below half a quantum",
     "return uint8_t(sign);"),
    ("sign of zero is lost", CODEC, "if (shift > 24) return uint8_t(sign);                           // below half a quantum",
     "if (shift > 24) return 0;"),
    ("negative NaN keeps its sign", CODEC, "if (a > kF32Inf) return 0x7f;", "if (a > kF32Inf) return uint8_t(sign | 0x7f);"),
    ("E5M2 ties at 61440 to the largest value", CODEC,
     "if (code > F::max_code) code = saturate ? F::max_code : F::overflow_code;",
     "if (code > F::max_code) code = saturate || a == 0x47700000u ? F::max_code : F::overflow_code;"),
    ("saturating cast lets E5M2 infinity pass", CODEC,
     "if (code > F::max_code) code = saturate ? F::max_code : F::overflow_code;",
     "if (code > F::max_code + 1) code = saturate ? F::max_code : F::overflow_code;"),
    # the same, in vectors
    ("SIMD: subnormals round at their own place", LANES, "hn::Max(hn::And(a, Int(0x7f800000)), Int(low))", "hn::And(a, Int(0x7f800000))"),
    ("SIMD: sign lost", LANES, "hn::Or(EncodeMagnitude<F>(a, limit), sign)", "EncodeMagnitude<F>(a, limit)"),
    ("SIMD: negative NaN keeps its sign", LANES, "hn::IfThenElse(IsNan(a), nan, hn::Or(", "hn::IfThenElse(IsNan(a), hn::Or(nan, sign), hn::Or("),
    ("SIMD: E5M2 saturates at the tie", LANES, "saturated = 0x47600000,", "saturated = 0x47700000,"),
    ("SIMD: NaN spreads through the amax", AMAX, "*finite = false;\n    if (v <= kInfBits<T> && v > most) most = v;",
     "*finite = false;\n    if (v > most) most = v;"),
    ("SIMD: an infinite element counts as tame", AMAX, "if (v >= kInfBits<T>) *finite = false;", "if (v > kInfBits<T>) *finite = false;"),
    ("SIMD: FP32 stores keep a NaN's payload", LANES, "v = {Canonical(v.even), Canonical(v.odd)};", ""),
    ("SIMD: the narrow cast rounds half away from zero", LANES, "return hn::ShiftRight<drop>(hn::Add(u, odd));",
     "(void)odd;\n  return hn::ShiftRight<drop>(hn::Add(u, hn::Set(d, 1)));"),
    ("SIMD: the narrow cast takes subnormal codes too", LANES,
     "if (HWY_UNLIKELY(!hn::AllTrue(du, hn::Eq(hn::Max(nearest, most), nearest)))) return false;", "(void)nearest, (void)most;"),
    ("SIMD: BF16 stores truncate", LANES, "kScale == ScaleIs::kExact ? Bits(v.odd) : RoundBf16(v.odd)", "Bits(v.odd)"),
    # blocks
    ("1x128 tiles are 64 wide", BLOCK, "return scaling == k1x128 || scaling == k128x128 ? 128", "return scaling == k1x128 ? 64 : scaling == k128x128 ? 128"),
    ("1x128 tiles are 256 wide", BLOCK, "return scaling == k1x128 || scaling == k128x128 ? 128", "return scaling == k1x128 ? 256 : scaling == k128x128 ? 128"),
    ("1x32 tiles are 16 wide", BLOCK, "scaling == k1x32 || scaling == k32x32 ? 32 : 0", "scaling == k1x32 ? 16 : scaling == k32x32 ? 32 : 0"),
    ("column side taken from the row side's codes", QUANTIZE, "num::symmetric(row_.scaling) &&", "true &&"),
    ("FP32 weights are not rounded to BF16", QUANTIZE, "if (q_.round_bf16 && x.dtype == num::kF32)", "if (false && q_.round_bf16)"),
    ("amaxes are added, not compared", PART, "const uint32_t v = num::bits_of(value);",
     "const uint32_t v = num::bits_of(value + *cell);"),
    # counters
    ("underflow counts zeros", BLOCK, "stats[kUnderflow] += a != 0 && a < kF32Inf", "stats[kUnderflow] += a < kF32Inf"),
    ("saturated counts what ties to the largest value", CODEC, "saturated_from = 0x43e80001u;", "saturated_from = 0x43e80000u;"),
    ("E5M2 tie at 61440 is not counted as saturated", CODEC, "saturated_from = 0x47700000u;", "saturated_from = 0x47700001u;"),
    ("column sums in other chunks", BLOCK, "return add_rn64(sum, double(chunk));", "return double(add_rn(float(sum), chunk));"),
    # control word
    ("FTZ and DAZ of the caller stay on", "src/core/fpcontrol.h",
     "if ((saved_ & ~kStatus) != kDefault) _mm_setcsr(kDefault);", ""),
    ("the caller's control word is not put back", "src/core/fpcontrol.h",
     "if ((saved_ & ~kStatus) != kDefault) _mm_setcsr(saved_);", ""),
    # products and layers
    ("reference GEMM rounds once for all of K", REF, "for (int64_t sub = 0; sub < kc; sub += kb) {\n      const int64_t n = std::min(kb, kc - sub);",
     "for (int64_t sub = 0; sub < kc; sub += kc) {\n      const int64_t n = kc;"),
    ("scales multiplied together before the product", REF, "(static_cast<float>(from[c]) * s) * sb[c]", "static_cast<float>(from[c]) * (s * sb[c])"),
    ("wgrad contracts gradient rows", "src/core/linear_backward.cpp",
     "plan_gemm(*l.context, dy.col, x, nullptr, *a.dw", "plan_gemm(*l.context, x, dy.col, nullptr, *a.dw"),
    ("dgrad of the row side", "src/core/linear_backward.cpp", "w = weight_side(l, *a.w, FP8_SIDE_COL, temps.query())",
     "w = weight_side(l, *a.w, FP8_SIDE_ROW, temps.query())"),
    # sharding
    ("the group's maximum is a sum", "src/comm/local.cpp", "dst[i] = from[i] > dst[i] ? from[i] : dst[i];",
     "dst[i] = static_cast<T>(dst[i] + from[i]);"),
    ("a rank casts one element beyond its shard", "kernels/cpu/partial_cast.cpp",
     "              own.begin + own.count,\n", "              own.begin + own.count + 1,\n"),
    ("combine adds the slots backwards", "kernels/cpu/route.cpp",
     "for (int64_t j = 0; j < r.k; ++j) {\n        if (index[j] < 0) continue;",
     "for (int64_t j = r.k - 1; j >= 0; --j) {\n        if (index[j] < 0) continue;"),
]
