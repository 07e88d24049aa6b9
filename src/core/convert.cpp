// SPDX-License-Identifier: Apache-2.0
#include "core/convert.h"

#include "core/contents.h"

namespace fp8 {

namespace {

bool same_shape(const fp8_tensor &a, const fp8_tensor &b) {
  return tensor_rows(a) == tensor_rows(b) && tensor_cols(a) == tensor_cols(b);
}

// x has the logical shape of q, from either side
void check_upright(const fp8_tensor &x, const fp8_qtensor &q, Mode mode) {
  check_tensor(x, "x", {FP8_DTYPE_F32, FP8_DTYPE_F16, FP8_DTYPE_BF16}, 16, mode == Mode::kQuery);
  if (tensor_rows(x) != q.rows || tensor_cols(x) != q.cols)
    fail(FP8_ERR_ARGUMENT, "x is %lld x %lld, q is %lld x %lld", (long long)tensor_rows(x), (long long)tensor_cols(x),
         (long long)q.rows, (long long)q.cols);
}

ops::Side present_side(const fp8_qtensor &q, uint32_t side, Mode mode) {
  const int32_t s = one_side(side, "side");
  if (!side_kind(q, s))
    fail(FP8_ERR_ARGUMENT, "q has no %s side (%s_kind is 0)", s == FP8_SIDE_ROW ? "row" : "column",
         s == FP8_SIDE_ROW ? "row" : "col");
  return side_view(q, s, "q", mode == Mode::kQuery);
}

ops::Measure plan_measure(const fp8_tensor &x, const fp8_qtensor &q, uint32_t side, Mode mode) {
  ops::Measure op{};
  op.side = present_side(q, side, mode);
  op.is_col = side == FP8_SIDE_COL;
  check_upright(x, q, mode);
  op.x = matrix(x);
  return op;
}

}  // namespace

void dequantize(const fp8_context &c, const fp8_qtensor &q, uint32_t side, const fp8_tensor &x, fp8_stream stream) {
  ops::Dequantize op{};
  op.side = present_side(q, side, Mode::kRun);
  op.is_col = side == FP8_SIDE_COL;
  check_upright(x, q, Mode::kRun);
  op.x = matrix(x);
  Footprints f;
  f.side_in(q, static_cast<int32_t>(side), "q");
  f.out(&x, "x");
  check_scales(c, q, static_cast<int32_t>(side), "q", stream);
  if (is_quantized(op.side.scaling)) {
    check(c.api->dequantize(c.self, &op, stream));
  } else {
    ops::Cast cast{};
    cast.src = upright(op.side.codes, static_cast<int32_t>(side));
    cast.dst = op.x;
    check(c.api->cast(c.self, &cast, stream));
  }
}

void transpose(const fp8_context &c, const fp8_tensor &src, const fp8_tensor &dst, fp8_stream stream) {
  check_tensor(src, "src",
               {FP8_DTYPE_F32, FP8_DTYPE_F16, FP8_DTYPE_BF16, FP8_DTYPE_E4M3, FP8_DTYPE_E5M2, FP8_DTYPE_E8M0,
                FP8_DTYPE_U8, FP8_DTYPE_I32, FP8_DTYPE_I64, FP8_DTYPE_U64, FP8_DTYPE_F64},
               16, false);
  check_tensor(dst, "dst", {src.dtype}, 16, false);
  if (tensor_rows(dst) != tensor_cols(src) || tensor_cols(dst) != tensor_rows(src))
    fail(FP8_ERR_ARGUMENT, "dst is %lld x %lld, the transpose of src is %lld x %lld", (long long)tensor_rows(dst),
         (long long)tensor_cols(dst), (long long)tensor_cols(src), (long long)tensor_rows(src));
  Footprints f;
  f.in(&src, "src");
  f.out(&dst, "dst");
  ops::Transpose op{};
  op.src = matrix(src);
  op.dst = matrix(dst);
  check(c.api->transpose(c.self, &op, stream));
}

void cast(const fp8_context &c, const fp8_tensor &src, const fp8_tensor *scale, int32_t saturate, const fp8_tensor &dst,
          fp8_stream stream) {
  const auto dtypes = {int32_t{FP8_DTYPE_F32}, int32_t{FP8_DTYPE_F16}, int32_t{FP8_DTYPE_BF16}, int32_t{FP8_DTYPE_E4M3},
                       int32_t{FP8_DTYPE_E5M2}};
  check_tensor(src, "src", dtypes, 16, false);
  check_tensor(dst, "dst", dtypes, 16, false);
  if (saturate != 0 && saturate != 1) fail(FP8_ERR_ARGUMENT, "saturate is %d, must be 0 or 1", saturate);
  if (!same_shape(src, dst))
    fail(FP8_ERR_ARGUMENT, "dst is %lld x %lld, src is %lld x %lld", (long long)tensor_rows(dst),
         (long long)tensor_cols(dst), (long long)tensor_rows(src), (long long)tensor_cols(src));
  ops::Cast op{};
  if (scale) {
    check_tensor(*scale, "scale", {FP8_DTYPE_F32}, 0, false);
    if (tensor_rows(*scale) * tensor_cols(*scale) != 1)
      fail(FP8_ERR_ARGUMENT, "scale has %lld elements, must be F32[1]",
           (long long)(tensor_rows(*scale) * tensor_cols(*scale)));
    op.scale = static_cast<const float *>(scale->data);
  }
  Footprints f;
  f.in(&src, "src");
  f.in(scale, "scale");
  f.out(&dst, "dst");
  op.src = matrix(src);
  op.dst = matrix(dst);
  op.saturate = saturate;
  check(c.api->cast(c.self, &op, stream));
}

uint64_t measure_workspace(const fp8_context &c, const fp8_tensor &x, const fp8_qtensor &q, uint32_t side) {
  const ops::Measure op = plan_measure(x, q, side, Mode::kQuery);
  uint64_t bytes = 0;
  check(c.api->measure_workspace(c.self, &op, &bytes));
  Plan plan;
  plan.add(bytes);
  return plan.total();
}

void measure(const fp8_context &c, const fp8_tensor &x, const fp8_qtensor &q, uint32_t side, const fp8_tensor &sums,
             const fp8_buffer *workspace, fp8_stream stream) {
  ops::Measure op = plan_measure(x, q, side, Mode::kRun);
  check_tensor(sums, "sums", {FP8_DTYPE_F64}, 0, false);
  if (tensor_rows(sums) != 1 || tensor_cols(sums) != 4)
    fail(FP8_ERR_ARGUMENT, "sums is %lld x %lld, must be F64[4]", (long long)tensor_rows(sums),
         (long long)tensor_cols(sums));
  op.sums = vector(sums);
  Footprints f;
  f.in(&x, "x");
  f.side_in(q, static_cast<int32_t>(side), "q");
  f.out(&sums, "sums");
  f.workspace(workspace);
  check_scales(c, q, static_cast<int32_t>(side), "q", stream);
  uint64_t bytes = 0;
  check(c.api->measure_workspace(c.self, &op, &bytes));
  Plan plan;
  plan.add(bytes);
  Workspace ws(c, workspace, plan.total(), stream);
  op.workspace = ws.take(bytes);
  op.workspace_bytes = bytes;
  check(c.api->measure(c.self, &op, stream));
}

}  // namespace fp8
