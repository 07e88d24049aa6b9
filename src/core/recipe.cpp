// SPDX-License-Identifier: Apache-2.0
#include "core/recipe.h"

#include <cmath>

#include "core/error.h"
#include "core/tensor.h"

namespace fp8 {

namespace {

struct Preset {
  int32_t preset;
  int32_t dtype[3], scaling[3];  // activation, weight, gradient
  int32_t rule;
  uint32_t coverage, fast;
};

constexpr int32_t kE4 = FP8_DTYPE_E4M3, kE5 = FP8_DTYPE_E5M2, kBf = FP8_DTYPE_BF16;
constexpr uint32_t kAll = FP8_FPROP | FP8_DGRAD | FP8_WGRAD;
constexpr Preset kPresets[] = {
    {FP8_PRESET_NONE,
     {kBf, kBf, kBf},
     {FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED, FP8_SCALING_UNQUANTIZED},
     0,
     FP8_NO_GEMM,
     FP8_NO_GEMM},
    {FP8_PRESET_TENSOR,
     {kE4, kE4, kE5},
     {FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, FP8_SCALING_TENSOR},
     FP8_SCALE_FP32,
     kAll,
     FP8_FPROP},
    {FP8_PRESET_TENSOR_DELAYED,
     {kE4, kE4, kE5},
     {FP8_SCALING_TENSOR, FP8_SCALING_TENSOR, FP8_SCALING_TENSOR},
     FP8_SCALE_FP32,
     kAll,
     FP8_FPROP},
    {FP8_PRESET_ROW,
     {kE4, kE4, kE4},
     {FP8_SCALING_ROW, FP8_SCALING_ROW, FP8_SCALING_ROW},
     FP8_SCALE_POW2,
     kAll,
     FP8_FPROP},
    {FP8_PRESET_BLOCK,
     {kE4, kE4, kE4},
     {FP8_SCALING_1X128, FP8_SCALING_128X128, FP8_SCALING_1X128},
     FP8_SCALE_POW2,
     kAll,
     FP8_NO_GEMM},
    {FP8_PRESET_MX,
     {kE4, kE4, kE4},
     {FP8_SCALING_1X32, FP8_SCALING_1X32, FP8_SCALING_1X32},
     FP8_SCALE_E8M0,
     kAll,
     FP8_NO_GEMM},
    {FP8_PRESET_MX_W2D,
     {kE4, kE4, kE4},
     {FP8_SCALING_1X32, FP8_SCALING_32X32, FP8_SCALING_1X32},
     FP8_SCALE_E8M0,
     kAll,
     FP8_NO_GEMM},
};
// A refusal says what a text would say, x=e4m3/1x128, and the config's fields beside it.
constexpr const char *kRoleName[] = {"x", "w", "dy"};
constexpr const char *kFieldName[] = {"activation", "weight", "gradient"};

const Preset &preset_of(int32_t preset) {
  for (const Preset &p : kPresets)
    if (p.preset == preset) return p;
  fail(FP8_ERR_ARGUMENT, "config.preset is %d, not an enum fp8_preset", preset);
}

bool is_mx(int32_t scaling) { return scaling == FP8_SCALING_1X32 || scaling == FP8_SCALING_32X32; }
bool is_block(int32_t scaling) { return scaling == FP8_SCALING_1X128 || scaling == FP8_SCALING_128X128; }
// A role's dtype where its GEMM is not covered.
int32_t plain_dtype(int32_t dtype) { return is_fp8(dtype) ? int32_t{FP8_DTYPE_BF16} : dtype; }

uint32_t gemm_bits(uint32_t given, uint32_t preset, const char *name) {
  if (given & ~(kAll | FP8_NO_GEMM))
    fail(FP8_ERR_ARGUMENT, "config.%s is 0x%x, not bits of enum fp8_gemm_kind", name, given);
  if ((given & FP8_NO_GEMM) && (given & kAll))
    fail(FP8_ERR_ARGUMENT, "config.%s is 0x%x: FP8_NO_GEMM stands alone", name, given);
  return given ? given : preset;
}

void check_role(const fp8_recipe_config &c, int role, int32_t dtype, int32_t scaling) {
  if (scaling < FP8_SCALING_UNQUANTIZED || scaling > FP8_SCALING_32X32)
    fail(FP8_ERR_ARGUMENT, "config.%s_scaling is %d, not a scaling of a recipe", kFieldName[role], scaling);
  if (!is_quantized(scaling)) {
    if (dtype != FP8_DTYPE_BF16 && dtype != FP8_DTYPE_F16)
      fail(FP8_ERR_UNSUPPORTED, "%s=%s (config.%s_dtype, _scaling): an unquantized role is bf16 or f16, as %s=bf16/%s",
           kRoleName[role], role_text(dtype, scaling).c_str(), kFieldName[role], kRoleName[role],
           scaling_name(scaling));
    return;
  }
  if (!is_fp8(dtype))
    fail(FP8_ERR_UNSUPPORTED,
         "%s=%s (config.%s_dtype, _scaling): a quantized role is e4m3 or e5m2; one that is not quantized is "
         "%s=bf16/unquantized",
         kRoleName[role], role_text(dtype, scaling).c_str(), kFieldName[role], kRoleName[role]);
  const bool e8m0 = c.scale_rule == FP8_SCALE_E8M0 || c.scale_rule == FP8_SCALE_E8M0_FLOOR;
  if (is_mx(scaling) != e8m0)
    fail(FP8_ERR_UNSUPPORTED,
         "%s=%s with scale=%s (config.%s_scaling, scale_rule): 1x32 and 32x32 take scale=e8m0 or e8m0_floor, the "
         "others fp32 or pow2",
         kRoleName[role], role_text(dtype, scaling).c_str(), rule_text(c.scale_rule), kFieldName[role]);
}

void check_pairs(const fp8_recipe_config &c) {
  const int32_t dtype[] = {c.activation_dtype, c.weight_dtype, c.gradient_dtype};
  const int32_t scaling[] = {c.activation_scaling, c.weight_scaling, c.gradient_scaling};
  const struct {
    int32_t gemm;
    const char *name;
    int a, b;
  } gemms[] = {{FP8_FPROP, "fprop", 0, 1}, {FP8_DGRAD, "dgrad", 2, 1}, {FP8_WGRAD, "wgrad", 2, 0}};
  for (const auto &g : gemms) {
    if (!(c.coverage & g.gemm)) {
      const int32_t a = plain_dtype(dtype[g.a]), b = plain_dtype(dtype[g.b]);
      if (a != b)
        fail(FP8_ERR_UNSUPPORTED,
             "%s is outside the coverage and would multiply %s by %s (%s=%s by %s=%s; config.%s_dtype, %s_dtype, "
             "coverage): unquantized operands have one dtype, and e4m3 and e5m2 become BF16 there",
             g.name, dtype_name(a), dtype_name(b), kRoleName[g.a], role_text(dtype[g.a], scaling[g.a]).c_str(),
             kRoleName[g.b], role_text(dtype[g.b], scaling[g.b]).c_str(), kFieldName[g.a], kFieldName[g.b]);
      continue;
    }
    if (!legal_pair(scaling[g.a], scaling[g.b]))
      fail(FP8_ERR_UNSUPPORTED,
           "%s would multiply %s (%s) by %s (%s), which is not a legal pair of scalings; legal are tensor by tensor, "
           "row by row, 1x128 by 1x128 or 128x128, 1x32 by 1x32 or 32x32. A GEMM that the coverage leaves out runs in "
           "BF16",
           g.name, kRoleName[g.a], scaling_name(scaling[g.a]), kRoleName[g.b], scaling_name(scaling[g.b]));
    if (dtype[g.a] == FP8_DTYPE_E5M2 && dtype[g.b] == FP8_DTYPE_E5M2)
      fail(FP8_ERR_UNSUPPORTED, "%s would multiply E5M2 by E5M2 (%s by %s), which no FP8 GEMM offers", g.name,
           kRoleName[g.a], kRoleName[g.b]);
    if ((c.fast_accumulation & g.gemm) && (is_block(scaling[g.a]) || is_mx(scaling[g.a])))
      fail(FP8_ERR_UNSUPPORTED,
           "fast=%s (config.fast_accumulation): its operands have block scales, which need promoted accumulation",
           g.name);
  }
}

fp8_recipe_config resolve(fp8_recipe_config c) {
  const Preset &p = preset_of(c.preset);
  if (c.preset == FP8_PRESET_TENSOR_DELAYED)
    fail(FP8_ERR_UNSUPPORTED,
         "preset tensor_delayed (FP8_PRESET_TENSOR_DELAYED): scales from a history of amaxes are not offered yet; "
         "tensor (FP8_PRESET_TENSOR) takes the scale from the tensor in hand");
  int32_t *dtype[] = {&c.activation_dtype, &c.weight_dtype, &c.gradient_dtype};
  int32_t *scaling[] = {&c.activation_scaling, &c.weight_scaling, &c.gradient_scaling};
  for (int role = 0; role < 3; ++role) {
    if (!*dtype[role]) *dtype[role] = p.dtype[role];
    if (!*scaling[role]) *scaling[role] = p.scaling[role];
  }
  if (!c.scale_rule) c.scale_rule = p.rule;
  if (c.scale_rule < 0 || c.scale_rule > FP8_SCALE_E8M0_FLOOR)
    fail(FP8_ERR_ARGUMENT, "config.scale_rule is %d, not an enum fp8_scale_rule", c.scale_rule);
  c.coverage = gemm_bits(c.coverage, p.coverage, "coverage");
  c.fast_accumulation = gemm_bits(c.fast_accumulation, p.fast, "fast_accumulation");
  if (!(c.amax_floor >= 0) || std::isinf(c.amax_floor))
    fail(FP8_ERR_ARGUMENT, "amax_floor=%g (config.amax_floor): must be finite and >= 0", double(c.amax_floor));
  if (c.history || c.margin)
    fail(FP8_ERR_ARGUMENT, "config.%s is %d, it belongs to delayed scaling", c.history ? "history" : "margin",
         c.history ? c.history : c.margin);
  if (!c.master_rounding) c.master_rounding = FP8_MASTER_BF16;
  if (c.master_rounding < FP8_MASTER_BF16 || c.master_rounding > FP8_MASTER_DIRECT)
    fail(FP8_ERR_ARGUMENT, "config.master_rounding is %d, not an enum fp8_master_rounding", c.master_rounding);
  for (int role = 0; role < 3; ++role) check_role(c, role, *dtype[role], *scaling[role]);
  check_pairs(c);
  if (!(c.coverage & kAll)) c.fast_accumulation = FP8_NO_GEMM;
  if (c.fast_accumulation & kAll) {  // only where FP8 runs
    c.fast_accumulation &= c.coverage;
    if (!c.fast_accumulation) c.fast_accumulation = FP8_NO_GEMM;
  }
  c.struct_size = sizeof c;
  return c;
}

}  // namespace

bool legal_pair(int32_t a, int32_t b) {
  if (a == b) return a == FP8_SCALING_TENSOR || a == FP8_SCALING_ROW || a == FP8_SCALING_1X128 || a == FP8_SCALING_1X32;
  if (a > b) std::swap(a, b);
  return (a == FP8_SCALING_1X128 && b == FP8_SCALING_128X128) || (a == FP8_SCALING_1X32 && b == FP8_SCALING_32X32);
}

fp8_recipe_config preset_config(int32_t preset) {
  preset_of(preset);
  fp8_recipe_config c{};
  c.struct_size = sizeof c;
  c.preset = preset;
  return preset == FP8_PRESET_TENSOR_DELAYED ? c : resolve(c);
}

fp8_recipe *create_recipe(const fp8_recipe_config &config) {
  const fp8_recipe_config resolved = resolve(config);
  fp8_recipe *recipe = new fp8_recipe;
  recipe->config = resolved;
  return recipe;
}

int32_t role_dtype(const fp8_recipe &r, int32_t role) {
  const fp8_recipe_config &c = r.config;
  return role == FP8_ROLE_ACTIVATION ? c.activation_dtype : role == FP8_ROLE_WEIGHT ? c.weight_dtype : c.gradient_dtype;
}

int32_t role_scaling(const fp8_recipe &r, int32_t role) {
  const fp8_recipe_config &c = r.config;
  return role == FP8_ROLE_ACTIVATION ? c.activation_scaling
         : role == FP8_ROLE_WEIGHT   ? c.weight_scaling
                                     : c.gradient_scaling;
}

int32_t gemm_of(int32_t role, int32_t side) {
  const bool row = side == FP8_SIDE_ROW;
  if (role == FP8_ROLE_ACTIVATION) return row ? FP8_FPROP : FP8_WGRAD;
  if (role == FP8_ROLE_WEIGHT) return row ? FP8_FPROP : FP8_DGRAD;
  return row ? FP8_DGRAD : FP8_WGRAD;
}

bool covered(const fp8_recipe &r, int32_t gemm) { return (r.config.coverage & gemm) != 0; }

bool fast_accumulation(const fp8_recipe &r, int32_t gemm) { return (r.config.fast_accumulation & gemm) != 0; }

int32_t side_scaling(const fp8_recipe &r, int32_t role, int32_t side) {
  return covered(r, gemm_of(role, side)) ? role_scaling(r, role) : int32_t{FP8_SCALING_UNQUANTIZED};
}

int32_t side_dtype(const fp8_recipe &r, int32_t role, int32_t side) {
  const int32_t dtype = role_dtype(r, role);
  return is_quantized(side_scaling(r, role, side)) ? dtype : plain_dtype(dtype);
}

namespace {

void matrix_tensor(fp8_tensor &t, int32_t dtype, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  t = fp8_tensor{};
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = cols;
  t.stride[0] = row_stride;
  t.stride[1] = col_stride;
}

// rows, cols in the side's own orientation
void describe_side(int32_t scaling, int32_t dtype, int64_t rows, int64_t cols, bool is_col, fp8_tensor &codes,
                   fp8_tensor &scale) {
  if (!is_quantized(scaling)) {  // one row-major matrix; col is row with swapped strides
    matrix_tensor(codes, dtype, rows, cols, is_col ? 1 : cols, is_col ? rows : 1);
    return;
  }
  matrix_tensor(codes, dtype, rows, cols, cols, 1);
  int64_t shape[2], stride[2];
  scale_shape(scaling, rows, cols, shape);
  native_scale_strides(scaling, rows, cols, stride);
  matrix_tensor(scale, is_mx(scaling) ? FP8_DTYPE_E8M0 : FP8_DTYPE_F32, shape[0], shape[1], stride[0], stride[1]);
  if (scaling == FP8_SCALING_TENSOR || scaling == FP8_SCALING_ROW) {
    scale.ndim = 1;
    scale.shape[1] = scale.stride[1] = 0;
  }
}

}  // namespace

fp8_qtensor describe(const fp8_recipe &r, int32_t role, int64_t rows, int64_t cols, uint32_t sides) {
  if (role < FP8_ROLE_ACTIVATION || role > FP8_ROLE_GRADIENT)
    fail(FP8_ERR_ARGUMENT, "role is %d, not an enum fp8_role", role);
  if (rows < 0) fail(FP8_ERR_ARGUMENT, "rows is %lld, must be >= 0", static_cast<long long>(rows));
  if (cols < 0) fail(FP8_ERR_ARGUMENT, "cols is %lld, must be >= 0", static_cast<long long>(cols));
  int64_t product;
  if (__builtin_mul_overflow(rows, cols, &product) || product > INT64_MAX / 8)
    fail(FP8_ERR_ARGUMENT, "rows x cols is %lld x %lld, too large to address", static_cast<long long>(rows),
         static_cast<long long>(cols));
  if (!(sides & FP8_SIDE_BOTH) || (sides & ~uint32_t(FP8_SIDE_BOTH | FP8_SIDE_COPY)))
    fail(FP8_ERR_ARGUMENT, "sides is 0x%x, must hold FP8_SIDE_ROW or FP8_SIDE_COL, and FP8_SIDE_COPY at most", sides);
  fp8_qtensor q{};
  q.struct_size = sizeof q;
  q.rows = rows;
  q.cols = cols;
  auto kind = [&](int32_t side) {
    const int32_t scaling = side_scaling(r, role, side);
    return !is_quantized(scaling) && (sides & FP8_SIDE_COPY) ? int32_t{FP8_SCALING_COPY} : scaling;
  };
  if (sides & FP8_SIDE_ROW) {
    q.row_kind = kind(FP8_SIDE_ROW);
    describe_side(q.row_kind, side_dtype(r, role, FP8_SIDE_ROW), rows, cols, false, q.row, q.row_scale);
  }
  if (sides & FP8_SIDE_COL) {
    q.col_kind = kind(FP8_SIDE_COL);
    describe_side(q.col_kind, side_dtype(r, role, FP8_SIDE_COL), cols, rows, true, q.col, q.col_scale);
  }
  return q;
}

}  // namespace fp8
