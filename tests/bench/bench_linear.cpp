// SPDX-License-Identifier: Apache-2.0
// Linear forward and backward (dx and dw), each recipe against preset NONE; x and dy are quantized inside, the weight
// once before, as a trainer does for its micro-batches.
#include <cstdio>
#include <memory>

#include "harness.h"

using namespace bench;

namespace {

struct Layer {
  const fp8_context *context;
  fp8_recipe *recipe;
  fp8_linear *linear = nullptr;
  Memory x_memory, y_memory, dy_memory, dx_memory, w_memory, dw_memory;
  fp8_tensor x, y, dy, dx, w, dw;
  std::unique_ptr<Quantized> qw, saved;
  std::unique_ptr<Memory> workspace;

  Layer(const fp8_context *c, const RecipeCase &which, int64_t tokens, int64_t in, int64_t out)
      : context(c),
        recipe(make_recipe(which)),
        x_memory(tokens * in * 2),
        y_memory(tokens * out * 2),
        dy_memory(tokens * out * 2),
        dx_memory(tokens * in * 2),
        w_memory(out * in * 2),
        dw_memory(out * in * 4) {
    fill_bf16(x_memory.data(), tokens * in, 1.0f, 1);
    fill_bf16(dy_memory.data(), tokens * out, 1e-3f, 2);
    fill_bf16(w_memory.data(), out * in, 0.02f, 3);
    x = tensor(x_memory.data(), FP8_DTYPE_BF16, tokens, in);
    y = tensor(y_memory.data(), FP8_DTYPE_BF16, tokens, out);
    dy = tensor(dy_memory.data(), FP8_DTYPE_BF16, tokens, out);
    dx = tensor(dx_memory.data(), FP8_DTYPE_BF16, tokens, in);
    w = tensor(w_memory.data(), FP8_DTYPE_BF16, out, in);
    dw = tensor(dw_memory.data(), FP8_DTYPE_F32, out, in);
    fp8_linear_config config;
    FP8_INIT(&config);
    config.in_features = in;
    config.out_features = out;
    config.recipe = recipe;
    check(fp8_linear_create(context, &config, &linear), which.name);
    qw.reset(new Quantized(context, recipe, FP8_ROLE_WEIGHT, out, in, FP8_SIDE_BOTH));
    saved.reset(new Quantized(context, recipe, FP8_ROLE_ACTIVATION, tokens, in, FP8_SIDE_COL));
    const Memory ww(quantize_workspace(context, recipe, FP8_ROLE_WEIGHT, w, qw->q));
    quantize(context, recipe, FP8_ROLE_WEIGHT, w, qw->q, ww.buffer());
    uint64_t bytes = 0;
    check(fp8_linear_workspace(linear, tokens, FP8_FPROP | FP8_DGRAD | FP8_WGRAD, &bytes), which.name);
    workspace.reset(new Memory(bytes));
    check(fp8_linear_prepare(linear, tokens, FP8_FPROP | FP8_DGRAD | FP8_WGRAD), which.name);
  }
  ~Layer() {
    fp8_linear_destroy(linear);
    fp8_recipe_destroy(recipe);
  }
  void operator()() {
    fp8_linear_forward_args f;
    FP8_INIT(&f);
    f.x = &x;
    f.w = &qw->q;
    f.y = &y;
    f.saved_x = &saved->q;
    f.workspace = workspace->buffer();
    check(fp8_linear_forward(linear, &f, nullptr), "forward");
    fp8_linear_backward_args b;
    FP8_INIT(&b);
    b.dy = &dy;
    b.w = &qw->q;
    b.saved_x = &saved->q;
    b.dx = &dx;
    b.dw = &dw;
    b.flags = FP8_LINEAR_ACCUMULATE_DW;
    b.workspace = workspace->buffer();
    check(fp8_linear_backward(linear, &b, nullptr), "backward");
  }
};

}  // namespace

int main(int argc, char **argv) {
  const Options o = parse(argc, argv, "A linear's forward and backward, each recipe against preset NONE.");
  const int64_t tokens = o.smoke ? 64 : 4096, in = o.smoke ? 128 : 2048, out = o.smoke ? 96 : 2048;
  print_environment(o, "preset NONE (BF16) of libfp8 itself");
  std::printf("%lld tokens, %lld in, %lld out; y, dx BF16, dw FP32 accumulated\n\n", static_cast<long long>(tokens),
              static_cast<long long>(in), static_cast<long long>(out));
  std::printf(
      "| recipe | forward + backward ms | GFLOP/s | NONE ms | speed against NONE (quartiles) "
      "|\n|---|---|---|---|---|\n");
  fp8_context *context = make_context(o);
  {
    Layer none(context, {"NONE", FP8_PRESET_NONE, 0}, tokens, in, out);
    for (const RecipeCase &c : kRecipes) {
      if (!wanted(o, c.name)) continue;
      Layer layer(context, c, tokens, in, out);
      const Result r = compare(
          o.repeats, [&] { layer(); }, [&] { none(); });
      std::printf("| %s | %.2f | %.0f | %.2f | **%.2f** (%.2f-%.2f) |\n", c.name, r.ours * 1e3,
                  6e-9 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out) / r.ours,
                  r.peer * 1e3, r.ratio, r.low, r.high);
      std::fflush(stdout);
    }
  }
  fp8_context_destroy(context);
  return 0;
}
