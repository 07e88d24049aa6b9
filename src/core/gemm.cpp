// SPDX-License-Identifier: Apache-2.0
#include "core/gemm.h"

#include "core/contents.h"
#include "core/quantize.h"
#include "core/recipe.h"

namespace fp8 {

namespace {

char g_placeholder;  // a wanted bias of a query: backends tell it by its data

bool takes_fast(int32_t scaling) { return scaling == FP8_SCALING_TENSOR || scaling == FP8_SCALING_ROW; }

void check_pair(const ops::Side &a, const ops::Side &b, const GemmNames &n) {
  const bool plain_a = !is_quantized(a.scaling), plain_b = !is_quantized(b.scaling);
  if (plain_a != plain_b)
    fail(FP8_ERR_UNSUPPORTED, "%s is %s and %s is %s: both are quantized or neither is", n.a, scaling_name(a.scaling),
         n.b, scaling_name(b.scaling));
  if (plain_a) {
    if (a.codes.dtype != b.codes.dtype)
      fail(FP8_ERR_UNSUPPORTED, "%s is %s and %s is %s: unquantized operands have one dtype", n.a,
           dtype_name(a.codes.dtype), n.b, dtype_name(b.codes.dtype));
    return;
  }
  if (!legal_pair(a.scaling, b.scaling))
    fail(FP8_ERR_UNSUPPORTED,
         "%s is %s and %s is %s: the legal pairs are tensor x tensor, row x row, 1x128 x 1x128, 1x128 x 128x128, "
         "1x32 x 1x32 and 1x32 x 32x32",
         n.a, scaling_name(a.scaling), n.b, scaling_name(b.scaling));
  if (a.codes.dtype == FP8_DTYPE_E5M2 && b.codes.dtype == FP8_DTYPE_E5M2)
    fail(FP8_ERR_UNSUPPORTED, "%s and %s are both E5M2, which no FP8 GEMM offers", n.a, n.b);
}

ops::Side gemm_side(const fp8_qtensor &q, uint32_t side, const char *name, const char *side_arg, bool query) {
  const int32_t s = one_side(side, side_arg);
  if (!side_kind(q, s))
    fail(FP8_ERR_ARGUMENT, "%s is %u and %s has no such side: %s_kind is 0", side_arg, side, name,
         s == FP8_SIDE_ROW ? "row" : "col");
  return side_view(q, s, name, query);
}

ops::Gemm plan_public(const fp8_context &c, const fp8_gemm_args &args, bool query) {
  const ops::Side a = gemm_side(*args.a, args.a_side, "a", "a_side", query);
  const ops::Side b = gemm_side(*args.b, args.b_side, "b", "b_side", query);
  return plan_gemm(c, a, b, args.bias, *args.d, args.flags, args.max_sms, GemmNames(), query);
}

}  // namespace

ops::Gemm plan_gemm(const fp8_context &c, const ops::Side &a, const ops::Side &b, const fp8_tensor *bias,
                    const fp8_tensor &d, uint32_t flags, int32_t max_sms, const GemmNames &n, bool query) {
  const uint32_t unknown = flags & ~uint32_t{FP8_GEMM_ACCUMULATE | FP8_GEMM_FAST_ACCUMULATION};
  if (unknown) fail(FP8_ERR_UNSUPPORTED, "flags has unknown bits 0x%x", unknown);
  check_pair(a, b, n);
  if (a.codes.cols != b.codes.cols)
    fail(FP8_ERR_ARGUMENT, "%s has contraction extent %lld, %s has %lld: they must be equal", n.a,
         (long long)a.codes.cols, n.b, (long long)b.codes.cols);
  ops::Gemm op{};
  op.a = a;
  op.b = b;
  op.accumulate = (flags & FP8_GEMM_ACCUMULATE) != 0;
  op.fast_accumulation = (flags & FP8_GEMM_FAST_ACCUMULATION) != 0;
  if (op.fast_accumulation && !takes_fast(a.scaling))
    fail(FP8_ERR_UNSUPPORTED, "FP8_GEMM_FAST_ACCUMULATION with %s scaling: only tensor and row have it",
         scaling_name(a.scaling));
  check_tensor(d, n.d, {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16}, 16, query);
  op.d = matrix(d);
  if (op.d.rows != a.codes.rows || op.d.cols != b.codes.rows)
    fail(FP8_ERR_ARGUMENT, "%s is %lld x %lld, the product of %s and %s is %lld x %lld", n.d, (long long)op.d.rows,
         (long long)op.d.cols, n.a, n.b, (long long)a.codes.rows, (long long)b.codes.rows);
  if (bias) {
    if (bias->dtype != FP8_DTYPE_F32 && bias->dtype != d.dtype)
      fail(FP8_ERR_ARGUMENT, "%s.dtype is %s, must be F32 or that of %s (%s)", n.bias, dtype_name(bias->dtype), n.d,
           dtype_name(d.dtype));
    check_tensor(*bias, n.bias, {FP8_DTYPE_F32, FP8_DTYPE_BF16, FP8_DTYPE_F16}, 0, query);
    if (tensor_rows(*bias) != 1 || tensor_cols(*bias) != op.d.cols)
      fail(FP8_ERR_ARGUMENT, "%s has shape [%lld, %lld], must be [%lld], one value per column of %s", n.bias,
           (long long)tensor_rows(*bias), (long long)tensor_cols(*bias), (long long)op.d.cols, n.d);
    op.bias = vector(*bias);
    if (query) op.bias.data = &g_placeholder;
  }
  op.max_sms = resolve_max_sms(c, max_sms);
  return op;
}

uint64_t gemm_backend_bytes(const fp8_context &c, const ops::Gemm &op) {
  if (op.d.rows == 0 || op.d.cols == 0) return 0;
  uint64_t bytes = 0;
  check(c.api->gemm_workspace(c.self, &op, &bytes));
  return bytes;
}

void run_gemm(const fp8_context &c, ops::Gemm &op, void *workspace, uint64_t bytes, fp8_stream stream) {
  if (op.d.rows == 0 || op.d.cols == 0) return;
  op.workspace = workspace;
  op.workspace_bytes = bytes;
  count(c, ops::Counters::kGemms);
  check(c.api->gemm(c.self, &op, stream));
}

uint64_t gemm_workspace(const fp8_context &c, const fp8_gemm_args &args) {
  Plan plan;
  plan.add(gemm_backend_bytes(c, plan_public(c, args, true)));
  return plan.total();
}

void gemm(const fp8_context &c, const fp8_gemm_args &args, fp8_stream stream) {
  check_stream(c, stream);
  ops::Gemm op = plan_public(c, args, false);
  Footprints f;
  f.side_in(*args.a, static_cast<int32_t>(args.a_side), "a");
  f.side_in(*args.b, static_cast<int32_t>(args.b_side), "b");
  f.in(args.bias, "bias");
  f.out(args.d, "d");
  f.workspace(args.workspace);
  check_scales(c, *args.a, static_cast<int32_t>(args.a_side), "a", stream);
  check_scales(c, *args.b, static_cast<int32_t>(args.b_side), "b", stream);
  const uint64_t bytes = gemm_backend_bytes(c, op);
  Plan plan;
  plan.add(bytes);
  Workspace ws(c, args.workspace, plan.total(), stream);
  run_gemm(c, op, ws.take(bytes), bytes, stream);
}

}  // namespace fp8
