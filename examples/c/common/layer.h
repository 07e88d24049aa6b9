/* SPDX-License-Identifier: Apache-2.0 */
/* One linear of a trainer, on top of fp8_linear: the quantized weight, what it saves for backward, its statistics. */
#ifndef EXAMPLE_LAYER_H
#define EXAMPLE_LAYER_H
#include "faults.h"
#include "memory.h"
#include "tensor.h"

typedef struct Counts { /* one stats tensor of libfp8 */
  uint64_t count, nan, inf, nonzero, underflow, saturated, unused[2];
} Counts;

typedef struct Layer {
  const fp8_linear *plan; /* shared by all layers of this kind */
  int64_t in, out, rows;
  float *weight, *bias, *dweight, *dbias; /* FP32 master and gradient; bias may be NULL */
  bf16 *rounded_bias;                     /* what forward adds, in y's dtype, as products add it themselves */
  fp8_qtensor quantized;                  /* the weight, both sides, once per optimizer step */
  int late_columns;                       /* its column side is placed by the caller, and made when backward needs it */
  fp8_qtensor saved; /* x for wgrad: an FP8 column side, or a view of a BF16 x that the caller keeps */
  int passes_x;      /* nothing is saved: backward is given x, which somebody keeps anyway */
  Counts *counts;    /* device memory: [x, w, dy], shared by all layers of this kind; or NULL */
  float *amax_dy;    /* FAULT_DY_E4M3_TENSOR: the frozen amax */
  int misread;       /* FAULT_WGRAD_AXIS: x and dy are quantized here, both sides, and dw misreads */
  fp8_qtensor misread_x, misread_dy;
} Layer;

typedef struct LayerCall { /* what all calls of a step share */
  const fp8_context *context;
  const fp8_recipe *recipe;
  fp8_stream stream;
  const fp8_buffer *workspace;
  int counting; /* fill the statistics */
  int frozen;   /* FAULT_DY_E4M3_TENSOR: amax_dy is used now, not written */
} LayerCall;

/* Describes and places the weight and what is saved. */
void layer_create(Layer *layer, Memory *memory);
int layer_views_x(const Layer *layer);                           /* x must outlive backward */
void layer_quantize_weight(const LayerCall *call, Layer *layer); /* and rounds the bias */
void layer_round_bias(const LayerCall *call, Layer *layer);
void layer_forward(const LayerCall *call, Layer *layer, const bf16 *x, bf16 *y, int training);
/* dw and dbias accumulate in FP32; x is read only by a layer that passes_x; dx may be NULL. */
void layer_backward(const LayerCall *call, Layer *layer, const bf16 *x, const bf16 *dy, bf16 *dx);
#endif
