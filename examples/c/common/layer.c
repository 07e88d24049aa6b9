/* SPDX-License-Identifier: Apache-2.0 */
#include "layer.h"

enum { COUNT_X, COUNT_W, COUNT_DY };

void layer_create(Layer *layer, Memory *memory) {
  /* COPY: where the weight is not quantized (BF16), it still needs memory of its own, since the master is FP32. */
  FP8_INIT(&layer->quantized);
  CHECK(fp8_linear_describe(layer->plan, FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH | FP8_SIDE_COPY, &layer->quantized));
  memory_place(memory, &layer->quantized, FP8_SIDE_BOTH);
  FP8_INIT(&layer->saved);
  CHECK(fp8_linear_describe(layer->plan, FP8_ROLE_ACTIVATION, layer->rows, FP8_SIDE_COL, &layer->saved));
  if (!layer->passes_x) memory_place(memory, &layer->saved, FP8_SIDE_COL);
}

int layer_views_x(const Layer *layer) { return layer->passes_x || layer->saved.col_kind == FP8_SCALING_UNQUANTIZED; }

static fp8_tensor *counts(const LayerCall *call, const Layer *layer, int which, fp8_tensor *view) {
  if (!call->counting || !layer->counts) return NULL;
  *view = vector(layer->counts + which, FP8_DTYPE_U64, 8);
  return view;
}

void layer_quantize_weight(const LayerCall *call, Layer *layer) {
  fp8_tensor master = matrix(layer->weight, FP8_DTYPE_F32, layer->out, layer->in), view;
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &master;
  args.q = &layer->quantized;
  args.role = FP8_ROLE_WEIGHT;
  args.stats = counts(call, layer, COUNT_W, &view);
  args.workspace = call->workspace;
  CHECK(fp8_quantize(call->context, call->recipe, &args, call->stream));
}

void layer_forward(const LayerCall *call, Layer *layer, const bf16 *x, bf16 *y, int training) {
  fp8_tensor tx = matrix(x, FP8_DTYPE_BF16, layer->rows, layer->in), view;
  fp8_tensor ty = matrix(y, FP8_DTYPE_BF16, layer->rows, layer->out);
  fp8_tensor bias = vector(layer->bias, FP8_DTYPE_F32, layer->out);
  fp8_linear_forward_args args;
  FP8_INIT(&args);
  args.x = &tx;
  args.w = &layer->quantized;
  args.bias = layer->bias ? &bias : NULL;
  args.y = &ty;
  args.saved_x = training && !layer->passes_x ? &layer->saved : NULL;
  args.stats_x = training ? counts(call, layer, COUNT_X, &view) : NULL;
  args.workspace = call->workspace;
  CHECK(fp8_linear_forward(layer->plan, &args, call->stream));
}

/* FAULT_WGRAD_AXIS. The wgrad GEMM alone, from dy's column side that the dx call saved; both operands misread. */
static void backward_misread(const LayerCall *call, Layer *layer, fp8_linear_backward_args *args) {
  fp8_tensor *dw = args->dw;
  args->dw = NULL;
  args->saved_x = NULL; /* dx alone needs no x */
  args->saved_dy = call->fault_dy;
  CHECK(fp8_linear_backward(layer->plan, args, call->stream));
  fp8_qtensor x = layer->saved, dy = *call->fault_dy;
  fault_misread(&x);
  fault_misread(&dy);
  FP8_INIT(args);
  args->qdy = &dy;
  args->saved_x = &x;
  args->dw = dw;
  args->workspace = call->workspace;
  args->flags = FP8_LINEAR_ACCUMULATE_DW;
  CHECK(fp8_linear_backward(layer->plan, args, call->stream));
}

void layer_backward(const LayerCall *call, Layer *layer, const bf16 *x, const bf16 *dy, bf16 *dx) {
  fp8_tensor tdy = matrix(dy, FP8_DTYPE_BF16, layer->rows, layer->out), view;
  fp8_tensor tx = matrix(x, FP8_DTYPE_BF16, layer->rows, layer->in);
  fp8_tensor tdx = matrix(dx, FP8_DTYPE_BF16, layer->rows, layer->in);
  fp8_tensor dw = matrix(layer->dweight, FP8_DTYPE_F32, layer->out, layer->in);
  fp8_tensor dbias = vector(layer->dbias, FP8_DTYPE_F32, layer->out), amax = vector(layer->amax_dy, FP8_DTYPE_F32, 1);
  fp8_linear_backward_args args;
  FP8_INIT(&args);
  args.dy = &tdy;
  args.w = dx ? &layer->quantized : NULL; /* only dx needs the weight */
  args.saved_x = layer->passes_x ? NULL : &layer->saved;
  args.x = layer->passes_x ? &tx : NULL;
  args.dx = dx ? &tdx : NULL;
  args.dw = &dw;
  args.dbias = layer->dbias ? &dbias : NULL;
  args.stats_dy = counts(call, layer, COUNT_DY, &view);
  args.workspace = call->workspace;
  args.flags = FP8_LINEAR_ACCUMULATE_DW | FP8_LINEAR_ACCUMULATE_DBIAS;
  if (layer->amax_dy) {
    args.amax_dy = &amax;
    if (call->frozen) args.flags |= FP8_LINEAR_AMAX_GIVEN;
  }
  if (call->fault_dy)
    backward_misread(call, layer, &args);
  else
    CHECK(fp8_linear_backward(layer->plan, &args, call->stream));
}
