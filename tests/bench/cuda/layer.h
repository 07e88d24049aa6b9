// SPDX-License-Identifier: Apache-2.0
// A linear with all that its calls need: benchmarks time it, tests/cuda/device compares its results.
#pragma once
#include <memory>

#include "gpu.h"

namespace gpu {

struct Layer {
  const fp8_context *c;
  fp8_recipe *r;
  fp8_linear *l = nullptr;
  int64_t rows, in, out;
  Memory x, w, dy, y, dx, dw, dbias, workspace;
  std::unique_ptr<Quantized> qw, saved;
  bool with_dbias = false;

  // Without prepare the first calls plan, and tune, what they use alone.
  Layer(const fp8_context *context, int32_t preset, int64_t rows, int64_t in, int64_t out, bool prepare = true)
      : c(context),
        r(recipe(preset)),
        rows(rows),
        in(in),
        out(out),
        x(rows * in * 2, true),
        w(out * in * 2, true),
        dy(rows * out * 2, true),
        y(rows * out * 2),
        dx(rows * in * 2),
        dw(out * in * 4),
        dbias(out * 4) {
    fp8_linear_config config;
    FP8_INIT(&config);
    config.in_features = in, config.out_features = out, config.recipe = r;
    GPU_CHECK(fp8_linear_create(c, &config, &l));
    uint64_t bytes = 0;
    GPU_CHECK(fp8_linear_workspace(l, rows, 0, &bytes));
    workspace = Memory(bytes);
    qw = std::make_unique<Quantized>(c, r, FP8_ROLE_WEIGHT, out, in, FP8_SIDE_BOTH);
    saved = std::make_unique<Quantized>(c, r, FP8_ROLE_ACTIVATION, rows, in, FP8_SIDE_COL);
    if (prepare) GPU_CHECK(fp8_linear_prepare(l, rows, 0));
  }
  ~Layer() {
    fp8_linear_destroy(l);
    fp8_recipe_destroy(r);
  }
  void weight(cudaStream_t s) {
    quantize(c, r, FP8_ROLE_WEIGHT, tensor(w.data(), FP8_DTYPE_BF16, out, in), qw->q, &workspace.b, s);
  }
  void forward(cudaStream_t s) {
    fp8_tensor tx = tensor(x.data(), FP8_DTYPE_BF16, rows, in), ty = tensor(y.data(), FP8_DTYPE_BF16, rows, out);
    fp8_linear_forward_args a;
    FP8_INIT(&a);
    a.x = &tx, a.w = &qw->q, a.y = &ty, a.saved_x = &saved->q, a.workspace = &workspace.b;
    GPU_CHECK(fp8_linear_forward(l, &a, s));
  }
  void backward(cudaStream_t s, bool accumulate) {
    fp8_tensor tdy = tensor(dy.data(), FP8_DTYPE_BF16, rows, out), tdx = tensor(dx.data(), FP8_DTYPE_BF16, rows, in),
               tdw = tensor(dw.data(), FP8_DTYPE_F32, out, in), tdb = tensor(dbias.data(), FP8_DTYPE_F32, 1, out);
    fp8_linear_backward_args a;
    FP8_INIT(&a);
    a.dy = &tdy, a.w = &qw->q, a.saved_x = &saved->q, a.dx = &tdx, a.dw = &tdw, a.workspace = &workspace.b;
    a.dbias = with_dbias ? &tdb : nullptr;
    a.flags = accumulate ? FP8_LINEAR_ACCUMULATE_DW : 0;
    GPU_CHECK(fp8_linear_backward(l, &a, s));
  }
};

}  // namespace gpu
