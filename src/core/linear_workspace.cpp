// SPDX-License-Identifier: Apache-2.0
// The largest legal call of a linear: the planners themselves, over made-up arguments without memory.
#include <algorithm>

#include "core/linear.h"

namespace fp8 {

namespace {

fp8_tensor plain(int32_t dtype, int64_t rows, int64_t cols, bool strided) {
  fp8_tensor t{};
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = cols;
  t.stride[1] = strided ? 2 : 1;
  t.stride[0] = cols * t.stride[1] + (strided ? 1 : 0);
  return t;
}

fp8_tensor vector_of(int32_t dtype, int64_t size) {
  fp8_tensor t{};
  t.dtype = dtype;
  t.ndim = 1;
  t.shape[0] = size;
  t.stride[0] = 1;
  return t;
}

void stride_apart(fp8_tensor &t) {
  for (int i = 0; i < t.ndim; ++i) t.stride[i] = 2 * std::max<int64_t>(t.stride[i], 1) + 1;
}

// Foreign: no stride is native, so that what a backend must repack is counted.
fp8_qtensor described(const fp8_linear &l, int32_t role, int64_t rows, uint32_t sides, bool foreign) {
  fp8_qtensor q = linear_describe(l, role, rows, sides);
  if (!foreign) return q;
  if (q.row_kind) stride_apart(q.row), stride_apart(q.row_scale);
  if (q.col_kind) stride_apart(q.col), stride_apart(q.col_scale);
  return q;
}

// An unquantized side may be of either 16-bit dtype, whatever the recipe describes.
void set_plain_dtype(fp8_qtensor &q, int32_t dtype) {
  if (!dtype) return;
  if (q.row_kind && !is_quantized(q.row_kind)) q.row.dtype = dtype;
  if (q.col_kind && !is_quantized(q.col_kind)) q.col.dtype = dtype;
}

// Dtypes of w and of the other operands where they are unquantized; 0 = as described.
struct PlainDtypes {
  int32_t w, others;
};
constexpr PlainDtypes kPlainDtypes[] = {{FP8_DTYPE_BF16, FP8_DTYPE_BF16},
                                        {FP8_DTYPE_BF16, FP8_DTYPE_F16},
                                        {FP8_DTYPE_F16, FP8_DTYPE_BF16},
                                        {FP8_DTYPE_F16, FP8_DTYPE_F16}};

// Plans a call and visits it, unless its dtypes are refused.
template <class Planner, class Visit>
void try_call(Planner &&planner, Visit &&visit) {
  LinearPlan plan;
  try {
    plan = planner();
  } catch (const Error &e) {
    if (e.status != FP8_ERR_UNSUPPORTED) throw;
    return;
  }
  visit(plan);
}

uint32_t check_gemms(uint32_t gemms) {
  const uint32_t all = FP8_FPROP | FP8_DGRAD | FP8_WGRAD;
  if (gemms & ~(all | FP8_NO_GEMM)) fail(FP8_ERR_ARGUMENT, "gemms is 0x%x, not bits of enum fp8_gemm_kind", gemms);
  if ((gemms & FP8_NO_GEMM) && (gemms & all)) fail(FP8_ERR_ARGUMENT, "gemms is 0x%x: FP8_NO_GEMM stands alone", gemms);
  return gemms ? gemms & all : all;
}

template <class Visit>
void forward_calls(const fp8_linear &l, int64_t rows, bool foreign, PlainDtypes dtypes, Visit &&visit) {
  const fp8_tensor x = plain(l.input_dtype, rows, l.in_features, foreign);
  fp8_qtensor qx = described(l, FP8_ROLE_ACTIVATION, rows, FP8_SIDE_ROW, foreign);
  fp8_qtensor w = described(l, FP8_ROLE_WEIGHT, rows, FP8_SIDE_ROW, foreign);
  fp8_qtensor saved = described(l, FP8_ROLE_ACTIVATION, rows, FP8_SIDE_COL | FP8_SIDE_COPY, foreign);
  set_plain_dtype(w, dtypes.w);
  set_plain_dtype(qx, dtypes.others);
  set_plain_dtype(saved, dtypes.others);
  fp8_tensor y = plain(l.output_dtype, rows, l.out_features, foreign);
  const fp8_tensor bias = vector_of(FP8_DTYPE_F32, l.out_features);
  fp8_tensor stats = plain(FP8_DTYPE_U64, 2, 8, false);
  for (int variant = 0; variant < 6; ++variant) {
    fp8_linear_forward_args a{};
    if (variant / 2 == 2) {
      a.qx = &qx;
    } else {
      a.x = &x;
      a.stats_x = &stats;
      if (variant / 2) a.saved_x = &saved;
    }
    a.w = &w;
    a.y = &y;
    if (variant % 2) a.bias = &bias;
    try_call([&] { return plan_forward(l, a, nullptr); }, visit);
  }
}

template <class Visit>
void backward_calls(const fp8_linear &l, int64_t rows, uint32_t gemms, bool foreign, PlainDtypes dtypes,
                    Visit &&visit) {
  const fp8_tensor dy = plain(l.output_dtype, rows, l.out_features, foreign);
  const fp8_tensor x = plain(l.input_dtype, rows, l.in_features, foreign);
  fp8_qtensor qdy = described(l, FP8_ROLE_GRADIENT, rows, FP8_SIDE_BOTH, foreign);
  fp8_qtensor w = described(l, FP8_ROLE_WEIGHT, rows, FP8_SIDE_COL, foreign);
  fp8_qtensor saved = described(l, FP8_ROLE_ACTIVATION, rows, FP8_SIDE_COL, foreign);
  fp8_tensor dbias = vector_of(FP8_DTYPE_F32, l.out_features);
  fp8_tensor stats = plain(FP8_DTYPE_U64, 2, 8, false);
  const bool want_dx = gemms & FP8_DGRAD, want_dw = gemms & FP8_WGRAD;
  fp8_qtensor saved_dy = described(l, FP8_ROLE_GRADIENT, rows, FP8_SIDE_COL | FP8_SIDE_COPY, foreign);
  set_plain_dtype(w, dtypes.w);
  for (fp8_qtensor *q : {&qdy, &saved, &saved_dy}) set_plain_dtype(*q, dtypes.others);
  for (int variant = 0; variant < 64; ++variant) {
    fp8_tensor dx = plain(variant & 1 ? int32_t{FP8_DTYPE_F32} : l.input_dtype, rows, l.in_features, foreign);
    fp8_tensor dw = plain(variant & 1 ? FP8_DTYPE_F32 : FP8_DTYPE_BF16, l.out_features, l.in_features, foreign);
    fp8_linear_backward_args a{};
    if (variant & 2) a.flags = FP8_LINEAR_ACCUMULATE_DX | FP8_LINEAR_ACCUMULATE_DW;
    if (variant & 4) {
      a.qdy = &qdy;
    } else {
      a.dy = &dy;
      if (variant & 16) a.dbias = &dbias, a.stats_dy = &stats;
      if (variant & 32) a.saved_dy = &saved_dy;
    }
    if (want_dx) a.dx = &dx, a.w = &w;
    if (want_dw) {
      a.dw = &dw;
      if (variant & 8)
        a.saved_x = &saved;
      else
        a.x = &x;
    }
    try_call([&] { return plan_backward(l, a, nullptr); }, visit);
  }
}

// fp8_quantize of x, dy and w, both sides.
uint64_t quantize_bytes(const fp8_linear &l, int32_t role, int32_t dtype, int64_t rows, bool foreign) {
  fp8_qtensor q = described(l, role, rows, FP8_SIDE_BOTH | FP8_SIDE_COPY, foreign);
  const fp8_tensor x = plain(dtype, q.rows, q.cols, foreign);
  fp8_tensor dbias = vector_of(FP8_DTYPE_F32, q.cols), stats = plain(FP8_DTYPE_U64, 2, 8, false);
  fp8_quantize_args a{};
  a.x = &x;
  a.q = &q;
  a.dbias = &dbias;
  a.stats = &stats;
  a.role = role;
  return plan_quantize(*l.context, *l.recipe, a, QuantizeNames(), Mode::kQuery).workspace;
}

bool all_quantized(const fp8_linear &l) {
  for (const int32_t role : {FP8_ROLE_ACTIVATION, FP8_ROLE_WEIGHT, FP8_ROLE_GRADIENT})
    for (const int32_t side : {FP8_SIDE_ROW, FP8_SIDE_COL})
      if (!is_quantized(side_scaling(*l.recipe, role, side))) return false;
  return true;
}

uint64_t largest_call(const fp8_linear &l, int64_t rows, uint32_t wanted) {
  uint64_t total = 0, alone = 0;
  const bool one_dtype = all_quantized(l);
  for (const bool foreign : {false, true}) {
    const auto largest = [&](const LinearPlan &plan) { total = std::max(total, plan.total); };
    for (const PlainDtypes &dtypes : kPlainDtypes) {
      if (one_dtype && &dtypes != kPlainDtypes) break;
      if (wanted & FP8_FPROP) forward_calls(l, rows, foreign, dtypes, largest);
      if (wanted & (FP8_DGRAD | FP8_WGRAD)) backward_calls(l, rows, wanted, foreign, dtypes, largest);
    }
    alone = std::max(alone, quantize_bytes(l, FP8_ROLE_ACTIVATION, l.input_dtype, rows, foreign));
    alone = std::max(alone, quantize_bytes(l, FP8_ROLE_GRADIENT, l.output_dtype, rows, foreign));
    for (const int32_t dtype : {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16})
      alone = std::max(alone, quantize_bytes(l, FP8_ROLE_WEIGHT, dtype, rows, foreign));
  }
  Plan pieces;
  pieces.add(alone);
  return std::max(total, pieces.total());
}

}  // namespace

uint64_t linear_workspace(const fp8_linear &l, int64_t rows, uint32_t gemms) {
  const uint32_t wanted = check_gemms(gemms);
  {
    const std::lock_guard<std::mutex> lock(l.answers_mutex);
    for (const fp8_linear::Answer &a : l.answers)
      if (a.rows == rows && a.gemms == wanted && rows >= 0) return a.bytes;
  }
  const uint64_t bytes = largest_call(l, rows, wanted);
  const std::lock_guard<std::mutex> lock(l.answers_mutex);
  l.answers[l.next_answer++ % (sizeof l.answers / sizeof *l.answers)] = {rows, wanted, bytes};
  return bytes;
}

void linear_prepare(const fp8_linear &l, int64_t rows, uint32_t gemms) {
  const uint32_t wanted = check_gemms(gemms);
  const auto prepare = [&](const LinearPlan &plan) {
    for (int i = 0; i < plan.gemm_count; ++i)
      if (plan.gemm[i].d.rows && plan.gemm[i].d.cols)
        check(l.context->api->gemm_prepare(l.context->self, &plan.gemm[i]));
  };
  if (rows < 0) fail(FP8_ERR_ARGUMENT, "rows is %lld, must be >= 0", (long long)rows);
  const PlainDtypes described{0, 0};
  if (wanted & FP8_FPROP) forward_calls(l, rows, false, described, prepare);
  if (wanted & (FP8_DGRAD | FP8_WGRAD)) backward_calls(l, rows, wanted, false, described, prepare);
}

}  // namespace fp8
