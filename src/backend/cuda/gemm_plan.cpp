// SPDX-License-Identifier: Apache-2.0
#include "gemm_plan.h"

#include <algorithm>

#include "cuda/launch_cuda.h"
#include "fp8/recipe.h"

namespace fp8::cuda {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
int64_t size_of(int32_t dtype) {
  return dtype == FP8_DTYPE_F32 ? 4 : dtype == FP8_DTYPE_F16 || dtype == FP8_DTYPE_BF16 ? 2 : 1;
}
bool quantized(const ops::Side &s) { return s.scaling >= FP8_SCALING_TENSOR && s.scaling <= FP8_SCALING_32X32; }
bool aligned16(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

struct Carver {
  int64_t bytes = 0;
  int64_t take(int64_t n) {
    const int64_t at = bytes;
    bytes += round_up(n, 256);
    return at;
  }
};

// Unquantized: either order of strides serves; anything else is packed.
void plan_plain(const ops::Matrix &m, bool strict, OperandPlan *p, Carver *carver) {
  p->dtype = m.dtype;
  p->rows = m.rows;
  const int64_t row_stride = m.lead_stride[0];
  if (!strict && m.lead <= 1 && (m.col_stride == 1 || m.cols <= 1) && (row_stride >= m.cols || m.rows <= 1)) {
    p->k_major = 1;
    p->ld = m.rows <= 1 ? std::max(row_stride, std::max<int64_t>(m.cols, 1)) : row_stride;
    return;
  }
  if (!strict && m.lead <= 1 && (row_stride == 1 || m.rows <= 1) && m.col_stride >= m.rows) {
    p->k_major = 0;
    p->ld = m.col_stride;
    return;
  }
  p->copied = 1;
  p->k_major = 1;
  p->ld = round_up(m.cols, 16);
  p->at = carver->take(m.rows * p->ld * size_of(m.dtype));
}

int32_t scale_mode(int32_t scaling) {
  switch (scaling) {
    case FP8_SCALING_TENSOR:
      return kScalar32F;
    case FP8_SCALING_ROW:
      return kOuterVec32F;
    case FP8_SCALING_1X128:
      return kVec128;
    case FP8_SCALING_128X128:
      return kBlk128x128;
    default:
      return kVec32UE8M0;
  }
}

// Native strides for `rows` x `k` codes; repacked where the given ones differ or rows were added.
void plan_scale(const ops::Side &s, int64_t rows, OperandPlan *p, Carver *carver) {
  p->mode = scale_mode(s.scaling);
  const ops::Scale &c = s.scale;
  switch (s.scaling) {
    case FP8_SCALING_TENSOR:
      return;
    case FP8_SCALING_ROW:
      p->scale_row_stride = 1, p->scale_col_stride = 1;
      p->scale_size = rows;
      p->repacked = (c.row_stride != 1 && c.rows > 1) || rows != s.codes.rows;
      break;
    case FP8_SCALING_1X128:
      p->scale_row_stride = 1, p->scale_col_stride = round_up(rows, 4);
      p->scale_size = p->scale_col_stride * c.cols;
      p->repacked = (c.row_stride != 1 && c.rows > 1) || (c.col_stride != p->scale_col_stride && c.cols > 1) ||
                    rows != s.codes.rows;
      break;
    default:  // 128x128
      p->scale_row_stride = round_up(c.cols, 4), p->scale_col_stride = 1;
      p->scale_size = p->scale_row_stride * ceil_div(rows, 128);
      p->repacked = (c.col_stride != 1 && c.cols > 1) || (c.row_stride != p->scale_row_stride && c.rows > 1) ||
                    ceil_div(rows, 128) != c.rows;
  }
  p->repacked = p->repacked || !aligned16(c.data);  // a placed scale is aligned; a foreign one may not be
  p->scale_at = carver->take(p->scale_size * 4);    // always: a query does not see the alignment
}

// FP8 codes with the contraction contiguous: 16-byte rows, rows and k padded with zero codes where asked.
void plan_codes(const ops::Side &s, int64_t rows, int64_t k, OperandPlan *p, Carver *carver) {
  const ops::Matrix &m = s.codes;
  p->dtype = m.dtype;
  p->rows = rows;
  p->copied = rows != m.rows || k != m.cols || m.lead > 1 || (m.col_stride != 1 && m.cols > 1) || !aligned16(m.data) ||
              (m.rows > 1 && (m.lead_stride[0] % 16 != 0 || m.lead_stride[0] < m.cols));
  p->ld = p->copied || m.rows <= 1 ? round_up(k, 16) : m.lead_stride[0];
  if (p->copied) p->at = carver->take(rows * p->ld);
}

void plan_output(const ops::Gemm &g, bool fp8, bool strict, GemmPlan *p, Carver *carver) {
  const ops::Matrix &d = g.d;
  const int32_t in = p->a.dtype;
  const bool dtype_fits = fp8 || d.dtype == FP8_DTYPE_F32 || d.dtype == in;
  const bool rows_fit = d.lead <= 1 && (d.col_stride == 1 || d.cols <= 1) &&
                        (d.lead_stride[0] >= d.cols || d.rows <= 1) && p->n == d.cols && p->m == d.rows;
  const bool stride_fits = !fp8 || d.rows <= 1 || d.lead_stride[0] * size_of(d.dtype) % 16 == 0;
  p->direct =
      !(strict && p->way == Way::kPlain) && dtype_fits && rows_fit && stride_fits && (!fp8 || aligned16(d.data));
  if (fp8 && rows_fit && !stride_fits) p->padded = 1;
  // cuBLASLt 13.1 rounds a 16-bit output twice when it adds the old value (docs/cuda.md); gemm.h promises once
  if (d.dtype != FP8_DTYPE_F32 && g.accumulate) p->direct = 0;
  if (g.bias.data) {
    // with FP8 operands cuBLASLt adds a BF16 bias alone; to F32 output ours may be F32, the last kernel's work
    bool taken = g.bias.dtype == d.dtype && (!fp8 || (!strict && d.dtype == FP8_DTYPE_BF16));
    // the kernels for odd strides round a 16-bit sum before they add the bias, too
    const int64_t odd = p->a.ld | p->b.ld | d.lead_stride[0] | p->n | p->k;
    if (!fp8 && d.dtype != FP8_DTYPE_F32 && odd % 8 != 0) taken = false;
    p->fused_bias = p->direct && taken;
    p->bias_copied = p->fused_bias && ((g.bias.stride != 1 && g.bias.size > 1) || !aligned16(g.bias.data));
    p->bias_at = carver->take(g.bias.size * size_of(g.bias.dtype));
    if (!p->fused_bias) p->direct = 0;
  }
  p->d_dtype = p->direct ? d.dtype : FP8_DTYPE_F32;
  p->ldd = !p->direct ? p->n : d.rows <= 1 ? std::max(d.lead_stride[0], d.cols) : d.lead_stride[0];
}

}  // namespace

GemmPlan plan_gemm(const ops::Gemm &g, int32_t capability, bool strict) {
  GemmPlan p;
  Carver carver;
  const int64_t m = g.a.codes.rows, n = g.b.codes.rows, k = g.a.codes.cols;
  p.m = m, p.n = n, p.k = k;
  if (k == 0) {
    p.way = Way::kEmpty;
    return p;
  }
  if (!quantized(g.a)) {
    p.way = Way::kPlain;
    plan_plain(g.a.codes, strict, &p.a, &carver);
    plan_plain(g.b.codes, strict, &p.b, &carver);
    p.padded = strict;
    plan_output(g, false, strict, &p, &carver);
  } else {
    const bool mx = g.a.scaling == FP8_SCALING_1X32 || g.a.scaling == FP8_SCALING_32X32;
    const bool block = g.a.scaling == FP8_SCALING_1X128 || g.a.scaling == FP8_SCALING_128X128;
    const bool blackwell = capability >= 100, hopper = capability >= 90 && !blackwell;
    if (block && !hopper) {
      if (!blackwell) {
        p.refusal = "BLOCK scaling needs compute capability 9.0 (Hopper): cuBLASLt offers it nowhere else";
        return p;
      }
      if (g.a.rule != FP8_SCALE_POW2 || g.b.rule != FP8_SCALE_POW2) {
        p.refusal =
            "on Blackwell BLOCK scaling runs through MX, which needs the power-of-two scale rule stated with both "
            "operands";
        return p;
      }
    }
    if (g.a.scaling == FP8_SCALING_ROW && capability < 90) {
      p.refusal = "ROW scaling needs compute capability 9.0 or newer";
      return p;
    }
    if (mx && !blackwell && k <= kSmallK && m <= kSmallProduct && n <= kSmallProduct && m * n * k <= kSmallProduct) {
      p.way = Way::kSmall;
      return p;
    }
    if (mx && !blackwell) {
      p.way = Way::kWidened;
      for (OperandPlan *o : {&p.a, &p.b}) {
        const ops::Side &s = o == &p.a ? g.a : g.b;
        o->dtype = FP8_DTYPE_BF16;
        o->copied = 1;
        o->rows = s.codes.rows;
        o->ld = round_up(k, 16);
        o->at = carver.take(o->rows * o->ld * 2);
      }
      p.flags = widen_flags(p.a.rows, p.a.ld) + widen_flags(p.b.rows, p.b.ld);
      p.flag_at = carver.take(p.flags);
      plan_output(g, false, strict, &p, &carver);
    } else {
      const bool swizzled = blackwell && (mx || block);
      p.way = swizzled ? Way::kSwizzled : Way::kScaled;
      p.n = round_up(n, 16);
      p.k = round_up(k, swizzled ? 32 : 16);
      if (strict) p.m = round_up(m, 16);
      plan_codes(g.a, p.m, p.k, &p.a, &carver);
      plan_codes(g.b, p.n, p.k, &p.b, &carver);
      p.padded = p.m != m || p.n != n || p.k != k || p.a.copied || p.b.copied;
      if (swizzled) {
        for (OperandPlan *o : {&p.a, &p.b}) {
          o->mode = kVec32UE8M0;
          o->repacked = 1;
          o->scale_size = swizzle_bytes(o->rows, p.k / 32);
          o->scale_at = carver.take(o->scale_size);
        }
      } else {
        plan_scale(g.a, p.m, &p.a, &carver);
        plan_scale(g.b, p.n, &p.b, &carver);
      }
      plan_output(g, true, strict, &p, &carver);
    }
  }
  if (!p.direct) p.y_at = carver.take(p.m * p.ldd * 4);
  p.lt_bytes = kLtWorkspace;
  p.lt_at = carver.take(p.lt_bytes);
  p.bytes = carver.bytes;
  return p;
}

bool has_strict(const ops::Gemm &g, const GemmPlan &p) {
  if (p.way == Way::kScaled || p.way == Way::kSwizzled) return g.d.rows % 16 != 0 || p.fused_bias;
  if (p.way != Way::kPlain) return false;
  const int64_t odd = p.a.ld | p.b.ld | p.ldd | p.n | p.k;
  return odd % 8 != 0;
}

uint64_t gemm_bytes(const ops::Gemm &g, int32_t capability) {
  const GemmPlan loose = plan_gemm(g, capability, false);
  if (!has_strict(g, loose)) return static_cast<uint64_t>(loose.bytes);
  return static_cast<uint64_t>(std::max(loose.bytes, plan_gemm(g, capability, true).bytes));
}

size_t PlanKeyHash::operator()(const PlanKey &k) const {
  uint64_t words[sizeof(PlanKey) / 8], h = 0x9e3779b97f4a7c15ull;
  std::memcpy(words, &k, sizeof k);
  for (uint64_t w : words) {
    h = (h ^ w) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return static_cast<size_t>(h);
}

int32_t untuned_choice(const PlanKey &k, int32_t capability, const Candidate *candidates, int32_t count) {
  const bool halves = k.a_mode == kNoScale && k.a_dtype != FP8_DTYPE_F32;
  if (capability != 90 || !(halves || k.fast)) return 0;
  for (int32_t i = 0; i < count; ++i)
    if (candidates[i].tile == kTile176x128 && candidates[i].split == 1 && candidates[i].waves >= 2.0f) return i;
  return 0;
}

int32_t alignment_class(const void *p, int64_t ld_bytes) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(p) | static_cast<uint64_t>(ld_bytes) | 256u;
  return static_cast<int32_t>(bits & (~bits + 1));
}

PlanKey plan_key(const ops::Gemm &g, const GemmPlan &p, const void *a, const void *b, const void *d) {
  PlanKey k;
  std::memset(&k, 0, sizeof k);
  k.m = p.m, k.n = p.n, k.k = p.k;
  k.lda = p.a.ld, k.ldb = p.b.ld, k.ldd = p.ldd;
  k.a_dtype = p.a.dtype, k.b_dtype = p.b.dtype, k.d_dtype = p.d_dtype;
  k.bias_dtype = p.fused_bias ? g.bias.dtype : 0;
  k.a_k_major = p.a.k_major, k.b_k_major = p.b.k_major;
  k.a_mode = p.a.mode, k.b_mode = p.b.mode;
  k.accumulate = p.direct && g.accumulate;
  k.fast = g.fast_accumulation && (p.a.mode == kScalar32F || p.a.mode == kOuterVec32F);
  k.sms = g.max_sms;
  // the pointer's alignment alone: cuBLASLt sees the leading dimensions itself
  k.a_align = alignment_class(a, 0), k.b_align = alignment_class(b, 0), k.d_align = alignment_class(d, 0);
  k.strict = p.padded;
  return k;
}

}  // namespace fp8::cuda
