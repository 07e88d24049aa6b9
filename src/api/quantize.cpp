// SPDX-License-Identifier: Apache-2.0
#include "fp8/quantize.h"

#include "api/guard.h"
#include "core/contents.h"
#include "core/convert.h"
#include "core/quantize.h"

namespace {

using fp8::guard;
using fp8::Mode;
using fp8::need;

struct Args {  // the caller's structs as this library knows them
  fp8_quantize_args args;
  fp8_qtensor q;
  fp8_qtensor *user_q;
  explicit Args(const fp8_quantize_args *user) : args(fp8::read_sized(user, "args")), user_q(args.q) {
    need(args.x, "x");
    need(args.q, "q");
    q = fp8::read_sized(args.q, "q");
    args.q = &q;
  }
  Args(const Args &) = delete;
};

void run(const fp8_context &c, const fp8_recipe &r, const fp8_quantize_args *user, bool amax_only, fp8_stream stream) {
  fp8::check_stream(c, stream);
  const Args ours(user);
  const fp8::QuantizeNames names;
  fp8::QuantizePlan plan = fp8::plan_quantize(c, r, ours.args, names, Mode::kRun, amax_only);
  fp8::Footprints f;
  fp8::add_footprints(f, ours.args, plan, names, amax_only);
  f.workspace(ours.args.workspace);
  if (ours.args.flags & FP8_AMAX_GIVEN) {
    fp8::check_given_amax(c, ours.args.amax, "amax", stream);
    fp8::check_given_amax(c, ours.args.amax_col, "amax_col", stream);
  }
  fp8::Plan pieces;
  pieces.add(plan.workspace);
  fp8::Workspace ws(c, ours.args.workspace, pieces.total(), stream);
  if (plan.views) fp8::write_sized(ours.user_q, plan.q, "q");
  fp8::run_quantize(c, plan, ws.take(plan.workspace), plan.workspace, stream);
}

}  // namespace

extern "C" {

fp8_status fp8_quantize_workspace(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args,
                                  uint64_t *bytes) {
  return guard("fp8_quantize_workspace", [&] {
    need(c, "context");
    need(r, "recipe");
    need(bytes, "bytes");
    const Args ours(args);
    // fp8_amax has the same workspace: the larger of the two
    const fp8::QuantizeNames names;
    fp8::Plan pieces, amax_pieces;
    pieces.add(fp8::plan_quantize(*c, *r, ours.args, names, Mode::kQuery).workspace);
    const bool asks_amax = (ours.args.amax || ours.args.amax_col) && !(ours.args.flags & FP8_AMAX_GIVEN);
    if (asks_amax) amax_pieces.add(fp8::plan_quantize(*c, *r, ours.args, names, Mode::kQuery, true).workspace);
    *bytes = pieces.total() > amax_pieces.total() ? pieces.total() : amax_pieces.total();
  });
}

fp8_status fp8_quantize(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args, fp8_stream stream) {
  return guard("fp8_quantize", [&] {
    need(c, "context");
    need(r, "recipe");
    run(*c, *r, args, false, stream);
  });
}

fp8_status fp8_amax(const fp8_context *c, const fp8_recipe *r, const fp8_quantize_args *args, fp8_stream stream) {
  return guard("fp8_amax", [&] {
    need(c, "context");
    need(r, "recipe");
    run(*c, *r, args, true, stream);
  });
}

fp8_status fp8_dequantize(const fp8_context *c, const fp8_qtensor *q, uint32_t side, fp8_tensor *x, fp8_stream stream) {
  return guard("fp8_dequantize", [&] {
    need(c, "context");
    need(x, "x");
    fp8::check_stream(*c, stream);
    fp8::dequantize(*c, fp8::read_sized(q, "q"), side, *x, stream);
  });
}

fp8_status fp8_requantize_workspace(const fp8_context *c, const fp8_recipe *r, const fp8_qtensor *q,
                                    const fp8_qtensor *other_side, uint64_t *bytes) {
  return guard("fp8_requantize_workspace", [&] {
    need(c, "context");
    need(r, "recipe");
    need(bytes, "bytes");
    const fp8_qtensor from = fp8::read_sized(q, "q"), to = fp8::read_sized(other_side, "other_side");
    *bytes = fp8::plan_requantize(*c, *r, from, to, nullptr, Mode::kQuery).workspace;
  });
}

fp8_status fp8_requantize(const fp8_context *c, const fp8_recipe *r, const fp8_qtensor *q, fp8_qtensor *other_side,
                          const fp8_buffer *workspace, fp8_stream stream) {
  return guard("fp8_requantize", [&] {
    need(c, "context");
    need(r, "recipe");
    fp8::check_stream(*c, stream);
    const fp8_qtensor from = fp8::read_sized(q, "q"), to = fp8::read_sized(other_side, "other_side");
    fp8::RequantizePlan plan = fp8::plan_requantize(*c, *r, from, to, workspace, Mode::kRun);
    fp8::check_scales(*c, from, plan.from, "q", stream);
    fp8::Workspace ws(*c, workspace, plan.workspace, stream);
    if (plan.view) fp8::write_sized(other_side, plan.other, "other_side");
    fp8::run_requantize(*c, plan, ws.take(plan.op.workspace_bytes), stream);
  });
}

fp8_status fp8_transpose(const fp8_context *c, const fp8_tensor *src, fp8_tensor *dst, fp8_stream stream) {
  return guard("fp8_transpose", [&] {
    need(c, "context");
    need(src, "src");
    need(dst, "dst");
    fp8::check_stream(*c, stream);
    fp8::transpose(*c, *src, *dst, stream);
  });
}

fp8_status fp8_cast(const fp8_context *c, const fp8_tensor *src, const fp8_tensor *scale, int32_t saturate,
                    fp8_tensor *dst, fp8_stream stream) {
  return guard("fp8_cast", [&] {
    need(c, "context");
    need(src, "src");
    need(dst, "dst");
    fp8::check_stream(*c, stream);
    fp8::cast(*c, *src, scale, saturate, *dst, stream);
  });
}

fp8_status fp8_measure_workspace(const fp8_context *c, const fp8_tensor *x, const fp8_qtensor *q, uint32_t side,
                                 uint64_t *bytes) {
  return guard("fp8_measure_workspace", [&] {
    need(c, "context");
    need(x, "x");
    need(bytes, "bytes");
    *bytes = fp8::measure_workspace(*c, *x, fp8::read_sized(q, "q"), side);
  });
}

fp8_status fp8_measure(const fp8_context *c, const fp8_tensor *x, const fp8_qtensor *q, uint32_t side, fp8_tensor *sums,
                       const fp8_buffer *workspace, fp8_stream stream) {
  return guard("fp8_measure", [&] {
    need(c, "context");
    need(x, "x");
    need(sums, "sums");
    fp8::check_stream(*c, stream);
    fp8::measure(*c, *x, fp8::read_sized(q, "q"), side, *sums, workspace, stream);
  });
}

}  // extern "C"
