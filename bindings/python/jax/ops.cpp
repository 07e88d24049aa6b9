// SPDX-License-Identifier: Apache-2.0
// XLA FFI handlers of the operations. Each takes its arrays in the order of its comment; [x] only if the attribute says
// so.
#include "handlers.h"

namespace fp8_jax {
namespace {

enum { kAmaxGiven = 1, kBias = 2, kSave = 4, kDx = 8, kDw = 16, kDbias = 32, kAccumulate = 64, kFromX = 128 };

// x, [amax], [amax_col] -> row codes, row scales, col codes, col scales (of `sides`), scratch
void quantize(Call &call) {
  const fp8_recipe *r = call.recipe();
  const uint32_t sides = static_cast<uint32_t>(call.number("sides"));
  const fp8_tensor x = call.in();
  fp8_qtensor q = describe(r, call.number("role"), rows_of(x), cols_of(x), sides);
  for (uint32_t side : {FP8_SIDE_ROW, FP8_SIDE_COL})
    if (sides & side) bind(q, side, [&] { return call.out(); });
  fp8_tensor amax[2];
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.q = &q;
  args.role = static_cast<int32_t>(call.number("role"));
  if (call.number("mask") & kAmaxGiven) {
    args.flags = FP8_AMAX_GIVEN;
    for (uint32_t side : {FP8_SIDE_ROW, FP8_SIDE_COL}) {
      if (!(sides & side) || !call.inputs_left()) continue;
      fp8_tensor &a = amax[side - 1] = call.in();
      (side == FP8_SIDE_ROW ? args.amax : args.amax_col) = &a;
    }
  }
  uint64_t needed = 0;
  check(fp8_quantize_workspace(call.context, r, &args, &needed));
  args.workspace = call.workspace(needed);
  check(fp8_quantize(call.context, r, &args, call.stream));
}

// x -> amax of each of `sides` (one where the two are the same), scratch
void amax(Call &call) {
  const fp8_recipe *r = call.recipe();
  const uint32_t sides = static_cast<uint32_t>(call.number("sides"));
  const fp8_tensor x = call.in();
  fp8_qtensor q = describe(r, call.number("role"), rows_of(x), cols_of(x), sides);
  fp8_tensor out[2];
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.q = &q;
  args.role = static_cast<int32_t>(call.number("role"));
  if (sides & FP8_SIDE_ROW) args.amax = &(out[0] = call.out());
  if (sides & FP8_SIDE_COL) args.amax_col = &(out[1] = call.out());
  uint64_t needed = 0;
  check(fp8_quantize_workspace(call.context, r, &args, &needed));
  args.workspace = call.workspace(needed);
  check(fp8_amax(call.context, r, &args, call.stream));
}

fp8_qtensor operand(Call &call, const fp8_recipe *r, const char *prefix) {
  const std::string p = prefix;
  const uint32_t side = static_cast<uint32_t>(call.number((p + "side").c_str()));
  fp8_qtensor q = describe(r, call.number((p + "role").c_str()), call.number((p + "rows").c_str()),
                           call.number((p + "cols").c_str()), side);
  bind(q, side, [&] { return call.in(); });
  return q;
}

// codes, scales -> x, scratch
void dequantize(Call &call) {
  const fp8_qtensor q = operand(call, call.recipe(), "");
  fp8_tensor x = call.out();
  check(fp8_dequantize(call.context, &q, static_cast<uint32_t>(call.number("side")), &x, call.stream));
}

// a codes, a scales, b codes, b scales, [bias] -> d, scratch
void gemm(Call &call) {
  const fp8_recipe *r = call.recipe();
  const fp8_qtensor a = operand(call, r, "a_"), b = operand(call, r, "b_");
  fp8_tensor bias, d = call.out();
  fp8_gemm_args args;
  FP8_INIT(&args);
  args.a = &a;
  args.b = &b;
  args.a_side = static_cast<uint32_t>(call.number("a_side"));
  args.b_side = static_cast<uint32_t>(call.number("b_side"));
  args.d = &d;
  args.flags = static_cast<uint32_t>(call.number("flags"));
  if (call.number("mask") & kBias) args.bias = &(bias = call.in());
  uint64_t needed = 0;
  check(fp8_gemm_workspace(call.context, &args, &needed));
  args.workspace = call.workspace(needed);
  check(fp8_gemm(call.context, &args, call.stream));
}

// x, w row codes, [w row scales], [bias], [amax] -> y, [saved codes, saved scales], scratch
void linear_forward(Call &call) {
  const int64_t mask = call.number("mask"), out = call.number("out_features");
  const fp8_recipe *r = call.recipe();
  const fp8_tensor x = call.in();
  fp8_qtensor w = describe(r, FP8_ROLE_WEIGHT, out, cols_of(x), FP8_SIDE_ROW);
  bind(w, FP8_SIDE_ROW, [&] { return call.in(); });
  fp8_tensor bias, amax, y = call.out();
  fp8_qtensor saved;
  fp8_linear_forward_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.w = &w;
  args.y = &y;
  if (mask & kBias) args.bias = &(bias = call.in());
  if (mask & kAmaxGiven) {
    args.amax_x = &(amax = call.in());
    args.flags = FP8_LINEAR_AMAX_GIVEN;
  }
  if (mask & kSave) {
    saved = describe(r, FP8_ROLE_ACTIVATION, rows_of(x), cols_of(x), FP8_SIDE_COL);
    bind(saved, FP8_SIDE_COL, [&] { return call.out(); });
    args.saved_x = &saved;
  }
  const fp8_linear *linear = linear_of(call.context, call.text("recipe"), cols_of(x), out, x.dtype, y.dtype);
  args.workspace = call.workspace(linear_scratch(linear, rows_of(x)));
  check(fp8_linear_forward(linear, &args, call.stream));
}

// dy, [w col codes, [w col scales]], [saved codes, saved scales | x], [amax of dy], [dw so far] -> [dx], [dw], [dbias],
// scratch
void linear_backward(Call &call) {
  const int64_t mask = call.number("mask"), in = call.number("in_features");
  const fp8_recipe *r = call.recipe();
  const fp8_tensor dy = call.in();
  fp8_qtensor w, saved;
  fp8_tensor x, amax, dx, dw, dbias;
  fp8_linear_backward_args args;
  FP8_INIT(&args);
  args.dy = &dy;
  if (mask & kDx) {
    w = describe(r, FP8_ROLE_WEIGHT, cols_of(dy), in, FP8_SIDE_COL);
    bind(w, FP8_SIDE_COL, [&] { return call.in(); });
    args.w = &w;
  }
  if (mask & kDw) {
    if (mask & kFromX) {
      args.x = &(x = call.in());
    } else {
      saved = describe(r, FP8_ROLE_ACTIVATION, rows_of(dy), in, FP8_SIDE_COL);
      bind(saved, FP8_SIDE_COL, [&] { return call.in(); });
      args.saved_x = &saved;
    }
  }
  if (mask & kAmaxGiven) {
    args.amax_dy = &(amax = call.in());
    args.flags |= FP8_LINEAR_AMAX_GIVEN;
  }
  if (mask & kAccumulate) {
    call.in();  // XLA gave dw its memory
    args.flags |= FP8_LINEAR_ACCUMULATE_DW;
  }
  if (mask & kDx) args.dx = &(dx = call.out());
  if (mask & kDw) args.dw = &(dw = call.out());
  if (mask & kDbias) args.dbias = &(dbias = call.out());
  const int32_t input = static_cast<int32_t>(call.number("input_dtype"));
  const fp8_linear *linear = linear_of(call.context, call.text("recipe"), in, cols_of(dy), input, dy.dtype);
  args.workspace = call.workspace(linear_scratch(linear, rows_of(dy)));
  check(fp8_linear_backward(linear, &args, call.stream));
}

}  // namespace
}  // namespace fp8_jax

FP8_JAX_HANDLER(fp8_jax_quantize, fp8_jax::quantize);
FP8_JAX_HANDLER(fp8_jax_amax, fp8_jax::amax);
FP8_JAX_HANDLER(fp8_jax_dequantize, fp8_jax::dequantize);
FP8_JAX_HANDLER(fp8_jax_gemm, fp8_jax::gemm);
FP8_JAX_HANDLER(fp8_jax_linear_forward, fp8_jax::linear_forward);
FP8_JAX_HANDLER(fp8_jax_linear_backward, fp8_jax::linear_backward);

// Called while tracing, so that nothing is created under a command buffer's capture: the device's context and, with
// rows > 0, the linear's plans. Returns a status.
extern "C" int32_t fp8_jax_prepare(int32_t cuda, int32_t device, const char *recipe, int64_t rows, int64_t in,
                                   int64_t out, int32_t input, int32_t output) {
  try {
    const fp8_context *c = fp8_jax::context_of(cuda != 0, device);
    if (rows <= 0) return FP8_OK;
    return fp8_linear_prepare(fp8_jax::linear_of(c, recipe, in, out, input, output), rows, 0);
  } catch (...) {
    return FP8_ERR_BACKEND;  // the call itself will say why
  }
}

// What the handlers of a device have done so far. Returns a status.
extern "C" int32_t fp8_jax_counters(int32_t cuda, int32_t device, fp8_counters *counters) {
  try {
    return fp8_context_counters(fp8_jax::context_of(cuda != 0, device), counters);
  } catch (...) {
    return FP8_ERR_BACKEND;
  }
}
