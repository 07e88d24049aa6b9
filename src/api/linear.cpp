// SPDX-License-Identifier: Apache-2.0
#include "core/linear.h"

#include "api/guard.h"

namespace {

using fp8::guard;
using fp8::need;

// The caller's nested struct as this library knows it; absent stays absent.
template <class T>
void take(T *&field, fp8_qtensor &ours, const char *name) {
  if (!field) return;
  ours = fp8::read_sized(field, name);
  field = &ours;
}

// Writes the view back and runs.
template <class Args>
void enqueue(const fp8_linear &l, const Args &args, fp8::LinearPlan &plan, fp8::Workspace &ws, fp8_qtensor *user_saved,
             const fp8_qtensor &saved, const char *saved_name, fp8_stream stream) {
  fp8::refuse_overlaps(args);
  fp8::check_contents(l, args, stream);
  if (plan.has_view) {
    fp8_qtensor back = saved;
    back.col = plan.view;
    fp8::write_sized(user_saved, back, saved_name);
  }
  fp8::run_linear(l, plan, ws, stream);
}

// Plans in the caller's workspace; without one, or in a short one, first without memory, for the bytes.
template <class Args, class PlanCall>
void run(const fp8_linear &l, const Args &args, PlanCall &&plan_call, fp8_qtensor *user_saved, const fp8_qtensor &saved,
         const char *saved_name, fp8_stream stream) {
  fp8::check_stream(*l.context, stream);
  if (args.workspace && args.workspace->data) {
    fp8::Workspace ws(*l.context, args.workspace, 0, stream);
    try {
      fp8::LinearPlan plan = plan_call(l, args, &ws);
      if (plan.total <= args.workspace->bytes) return enqueue(l, args, plan, ws, user_saved, saved, saved_name, stream);
    } catch (const fp8::ShortWorkspace &) {
    }
  }
  const uint64_t bytes = plan_call(l, args, nullptr).total;
  fp8::Workspace ws(*l.context, args.workspace, bytes, stream);
  fp8::LinearPlan plan = plan_call(l, args, &ws);
  enqueue(l, args, plan, ws, user_saved, saved, saved_name, stream);
}

}  // namespace

extern "C" {

fp8_status fp8_linear_create(const fp8_context *context, const fp8_linear_config *config, fp8_linear **linear) {
  return guard("fp8_linear_create", [&] {
    need(context, "context");
    need(linear, "linear");
    *linear = nullptr;
    *linear = fp8::create_linear(*context, fp8::read_sized(config, "config"));
  });
}

fp8_status fp8_linear_describe(const fp8_linear *linear, int32_t role, int64_t rows, uint32_t sides, fp8_qtensor *q) {
  return guard("fp8_linear_describe", [&] {
    need(linear, "linear");
    need(q, "q");
    fp8::write_sized(q, fp8::linear_describe(*linear, role, rows, sides), "q");
  });
}

fp8_status fp8_linear_workspace(const fp8_linear *linear, int64_t rows, uint32_t gemms, uint64_t *bytes) {
  return guard("fp8_linear_workspace", [&] {
    need(linear, "linear");
    need(bytes, "bytes");
    *bytes = fp8::linear_workspace(*linear, rows, gemms);
  });
}

fp8_status fp8_linear_prepare(const fp8_linear *linear, int64_t rows, uint32_t gemms) {
  return guard("fp8_linear_prepare", [&] {
    need(linear, "linear");
    fp8::linear_prepare(*linear, rows, gemms);
  });
}

fp8_status fp8_linear_forward(const fp8_linear *linear, const fp8_linear_forward_args *args, fp8_stream stream) {
  return guard("fp8_linear_forward", [&] {
    need(linear, "linear");
    fp8_linear_forward_args ours = fp8::read_sized(args, "args");
    fp8_qtensor *const user_saved = ours.saved_x;
    fp8_qtensor qx{}, w{}, saved{};
    take(ours.qx, qx, "qx");
    take(ours.w, w, "w");
    take(ours.saved_x, saved, "saved_x");
    run(*linear, ours, fp8::plan_forward, user_saved, saved, "saved_x", stream);
  });
}

fp8_status fp8_linear_backward(const fp8_linear *linear, const fp8_linear_backward_args *args, fp8_stream stream) {
  return guard("fp8_linear_backward", [&] {
    need(linear, "linear");
    fp8_linear_backward_args ours = fp8::read_sized(args, "args");
    fp8_qtensor *const user_saved = ours.saved_dy;
    fp8_qtensor qdy{}, w{}, saved_x{}, saved{};
    take(ours.qdy, qdy, "qdy");
    take(ours.w, w, "w");
    take(ours.saved_x, saved_x, "saved_x");
    take(ours.saved_dy, saved, "saved_dy");
    run(*linear, ours, fp8::plan_backward, user_saved, saved, "saved_dy", stream);
  });
}

void fp8_linear_destroy(fp8_linear *linear) { fp8::Ref<fp8_linear>::adopt(linear); }

}  // extern "C"
