/* SPDX-License-Identifier: Apache-2.0 */
#include "layer.h"

enum { COUNT_X, COUNT_W, COUNT_DY };

void layer_create(Layer *layer, Memory *memory) {
  if (layer->bias) layer->rounded_bias = memory_alloc(memory, (uint64_t)layer->out * sizeof(bf16));
  /* COPY: where the weight is not quantized (BF16), it still needs memory of its own, since the master is FP32. */
  FP8_INIT(&layer->quantized);
  CHECK(fp8_linear_describe(layer->plan, FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH | FP8_SIDE_COPY, &layer->quantized));
  memory_place(memory, &layer->quantized, layer->late_columns ? FP8_SIDE_ROW : FP8_SIDE_BOTH);
  FP8_INIT(&layer->saved);
  CHECK(fp8_linear_describe(layer->plan, FP8_ROLE_ACTIVATION, layer->rows, FP8_SIDE_COL, &layer->saved));
  if (!layer->passes_x && !layer->misread) memory_place(memory, &layer->saved, FP8_SIDE_COL);
  if (!layer->misread) return;
  FP8_INIT(&layer->misread_x);
  FP8_INIT(&layer->misread_dy);
  CHECK(fp8_linear_describe(layer->plan, FP8_ROLE_ACTIVATION, layer->rows, FP8_SIDE_BOTH, &layer->misread_x));
  CHECK(fp8_linear_describe(layer->plan, FP8_ROLE_GRADIENT, layer->rows, FP8_SIDE_BOTH, &layer->misread_dy));
  memory_place(memory, &layer->misread_x, FP8_SIDE_BOTH);
  memory_place(memory, &layer->misread_dy, FP8_SIDE_BOTH);
}

int layer_views_x(const Layer *layer) { return layer->passes_x || layer->saved.col_kind == FP8_SCALING_UNQUANTIZED; }

static fp8_tensor *counts(const LayerCall *call, const Layer *layer, int which, fp8_tensor *view) {
  if (!call->counting || !layer->counts) return NULL;
  *view = vector(layer->counts + which, FP8_DTYPE_U64, 8);
  return view;
}

static void quantize(const LayerCall *call, const fp8_tensor *x, fp8_qtensor *q, int32_t role, fp8_tensor *stats,
                     fp8_tensor *dbias) {
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = x;
  args.q = q;
  args.role = role;
  args.stats = stats;
  args.dbias = dbias;
  args.flags = dbias ? FP8_ACCUMULATE_DBIAS : 0;
  args.workspace = call->workspace;
  CHECK(fp8_quantize(call->context, call->recipe, &args, call->stream));
}

/* A BF16 bias is added inside the product; to add an FP32 one to a BF16 output takes a pass over FP32 sums. */
void layer_round_bias(const LayerCall *call, Layer *layer) {
  fp8_tensor master = vector(layer->bias, FP8_DTYPE_F32, layer->out);
  fp8_tensor rounded = vector(layer->rounded_bias, FP8_DTYPE_BF16, layer->out);
  if (layer->bias) CHECK(fp8_cast(call->context, &master, NULL, 0, &rounded, call->stream));
}

void layer_quantize_weight(const LayerCall *call, Layer *layer) {
  fp8_tensor master = matrix(layer->weight, FP8_DTYPE_F32, layer->out, layer->in), view;
  quantize(call, &master, &layer->quantized, FP8_ROLE_WEIGHT, counts(call, layer, COUNT_W, &view), NULL);
  layer_round_bias(call, layer);
}

void layer_forward(const LayerCall *call, Layer *layer, const bf16 *x, bf16 *y, int training) {
  fp8_tensor tx = matrix(x, FP8_DTYPE_BF16, layer->rows, layer->in), view;
  fp8_tensor ty = matrix(y, FP8_DTYPE_BF16, layer->rows, layer->out);
  fp8_tensor bias = vector(layer->rounded_bias, FP8_DTYPE_BF16, layer->out);
  fp8_linear_forward_args args;
  FP8_INIT(&args);
  args.x = &tx;
  args.w = &layer->quantized;
  args.bias = layer->bias ? &bias : NULL;
  args.y = &ty;
  args.saved_x = training && !layer->passes_x ? &layer->saved : NULL;
  args.stats_x = training ? counts(call, layer, COUNT_X, &view) : NULL;
  args.workspace = call->workspace;
  if (layer->misread && training) {
    quantize(call, &tx, &layer->misread_x, FP8_ROLE_ACTIVATION, args.stats_x, NULL);
    args.x = NULL;
    args.qx = &layer->misread_x;
    args.saved_x = NULL;
    args.stats_x = NULL;
  }
  CHECK(fp8_linear_forward(layer->plan, &args, call->stream));
}

/* FAULT_WGRAD_AXIS: quantize dy on its own, both sides; dx as it should be; dw with both operands misread. */
static void backward_misread(const LayerCall *call, Layer *layer, fp8_linear_backward_args *args) {
  fp8_qtensor x = layer->misread_x, dy = layer->misread_dy;
  quantize(call, args->dy, &layer->misread_dy, FP8_ROLE_GRADIENT, args->stats_dy, args->dbias);
  fp8_linear_backward_args dx = *args, dw = *args;
  dx.dy = dw.dy = NULL;
  dx.stats_dy = dw.stats_dy = dx.dbias = dw.dbias = NULL;
  dx.dw = dw.dx = NULL;
  dx.qdy = &layer->misread_dy;
  dx.saved_x = NULL;
  dx.flags = 0;
  if (dx.dx) CHECK(fp8_linear_backward(layer->plan, &dx, call->stream));
  fault_misread(call->context, &x, call->stream);
  fault_misread(call->context, &dy, call->stream);
  dw.qdy = &dy;
  dw.saved_x = &x;
  dw.w = NULL;
  dw.flags = FP8_LINEAR_ACCUMULATE_DW;
  CHECK(fp8_linear_backward(layer->plan, &dw, call->stream));
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
  if (layer->misread)
    backward_misread(call, layer, &args);
  else
    CHECK(fp8_linear_backward(layer->plan, &args, call->stream));
}
