/* SPDX-License-Identifier: Apache-2.0 */
/* What fp8_gemm refuses, and that it names function, tensor, dimension, value and rule. */
#include "support.h"

typedef struct gemm_case {
  fp8_recipe *r;
  fp8_qtensor a, b;
  fp8_tensor d, bias;
  fp8_gemm_args args;
} gemm_case;

static void setup(gemm_case *g, int32_t preset) {
  fp8_tensor xa = random2(FP8_DTYPE_BF16, 32, 64, 1.0f), xb = random2(FP8_DTYPE_BF16, 16, 64, 1.0f);
  g->r = recipe_of(preset);
  g->a = quantized(g->r, FP8_ROLE_ACTIVATION, &xa, FP8_SIDE_BOTH);
  g->b = quantized(g->r, FP8_ROLE_WEIGHT, &xb, FP8_SIDE_BOTH);
  g->d = random2(FP8_DTYPE_F32, 32, 16, 1.0f);
  g->bias = random2(FP8_DTYPE_F32, 1, 16, 1.0f);
  FP8_INIT(&g->args);
  g->args.a = &g->a, g->args.b = &g->b, g->args.d = &g->d, g->args.bias = &g->bias;
  g->args.a_side = g->args.b_side = FP8_SIDE_ROW;
}

#define GEMM fp8_gemm(g_context, &g.args, NULL)

/* each refusal leaves d as it was */
static void test_lattice(void **state) {
  gemm_case g;
  fp8_tensor t, large;
  fp8_qtensor q, small;
  float *before, *after;
  uint64_t bytes;
  fp8_buffer ws;
  struct {
    fp8_gemm_args args;
    uint64_t later;
  } newer;
  (void)state;
  setup(&g, FP8_PRESET_TENSOR);
  before = get(&g.d);

  REFUSED(FP8_ERR_ARGUMENT, "fp8_gemm|context|NULL", fp8_gemm(NULL, &g.args, NULL));
  REFUSED(FP8_ERR_ARGUMENT, "fp8_gemm|args|NULL", fp8_gemm(g_context, NULL, NULL));
  g.args.a = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "a is NULL", GEMM);
  g.args.a = &g.a, g.args.b = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "b is NULL", GEMM);
  g.args.b = &g.b, g.args.d = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "d is NULL", GEMM);
  g.args.d = &g.d;

  g.args.a_side = 0;
  REFUSED(FP8_ERR_ARGUMENT, "a_side is 0", GEMM);
  g.args.a_side = FP8_SIDE_BOTH;
  REFUSED(FP8_ERR_ARGUMENT, "a_side is 3", GEMM);
  g.args.a_side = FP8_SIDE_ROW, g.args.b_side = FP8_SIDE_COL;
  REFUSED(FP8_ERR_ARGUMENT, "a|64|b|16", GEMM); /* contraction */
  g.args.b_side = FP8_SIDE_ROW;
  q = g.a, q.row_kind = 0;
  g.args.a = &q;
  REFUSED(FP8_ERR_ARGUMENT, "a_side|row_kind is 0", GEMM);
  q = g.a, q.rows = -1;
  REFUSED(FP8_ERR_ARGUMENT, "a.rows is -1", GEMM);
  q = g.a, q.row.shape[0] = 31;
  REFUSED(FP8_ERR_ARGUMENT, "a.row|31|32", GEMM);
  q = g.a, q.row.dtype = FP8_DTYPE_U8;
  REFUSED(FP8_ERR_ARGUMENT, "a.row.dtype|U8", GEMM);
  q = g.a, q.row.data = NULL;
  REFUSED(FP8_ERR_ARGUMENT, "a.row.data is NULL", GEMM);
  q = g.a, q.row.data = (char *)q.row.data + 1;
  REFUSED(FP8_ERR_ARGUMENT, "a.row.data|aligned to 16", GEMM);
  q = g.a, q.row_scale.data = (char *)q.row_scale.data + 1;
  REFUSED(FP8_ERR_ARGUMENT, "a.row_scale.data|aligned to 4", GEMM);
  q = g.a, q.row_scale.dtype = FP8_DTYPE_F16;
  REFUSED(FP8_ERR_ARGUMENT, "a.row_scale.dtype|F16", GEMM);
  q = g.a, q.row_scale.shape[0] = 2;
  REFUSED(FP8_ERR_ARGUMENT, "a.row_scale|2", GEMM);
  q = g.a, q.row.stride[0] = 0;
  REFUSED(FP8_ERR_ARGUMENT, "a.row.stride[0] is 0", GEMM);
  q = g.a, q.row.stride[1] = -1;
  REFUSED(FP8_ERR_ARGUMENT, "a.row.stride[1] is -1", GEMM);
  q = g.a, q.row_kind = 99;
  REFUSED(FP8_ERR_ARGUMENT, "a.row_kind is 99", GEMM);
  q = g.a, q.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "a|struct_size", GEMM);
  g.args.a = &g.a;

  t = g.d, t.shape[0] = 33;
  g.args.d = &t;
  REFUSED(FP8_ERR_ARGUMENT, "d is 33 x 16|32 x 16", GEMM);
  t = g.d, t.dtype = FP8_DTYPE_E4M3;
  REFUSED(FP8_ERR_ARGUMENT, "d.dtype|E4M3", GEMM);
  t = g.d, t.ndim = 5;
  REFUSED(FP8_ERR_ARGUMENT, "d.ndim is 5", GEMM);
  t = g.d, t.data = (char *)t.data + 4;
  REFUSED(FP8_ERR_ARGUMENT, "d.data|aligned to 16", GEMM);
  t = g.d, t.data = g.a.row.data;
  REFUSED(FP8_ERR_ARGUMENT, "d shares memory with a.row", GEMM);
  t = g.d, t.data = g.a.row_scale.data;
  REFUSED(FP8_ERR_ARGUMENT, "d shares memory with a.row_scale", GEMM);
  large = random2(FP8_DTYPE_F32, 32, 16, 1.0f); /* d at a bias alone would reach its neighbours in memory */
  t = g.bias, t.data = large.data;
  g.args.bias = &t, g.args.d = &large;
  REFUSED(FP8_ERR_ARGUMENT, "d shares memory with bias", GEMM);
  g.args.bias = &g.bias, g.args.d = &g.d;

  t = g.bias, t.shape[1] = 15;
  g.args.bias = &t;
  REFUSED(FP8_ERR_ARGUMENT, "bias|15|16", GEMM);
  t = g.bias, t.dtype = FP8_DTYPE_BF16;
  REFUSED(FP8_ERR_ARGUMENT, "bias.dtype is BF16|F32", GEMM);
  t = g.bias, t.data = (char *)t.data + 2;
  REFUSED(FP8_ERR_ARGUMENT, "bias.data|aligned to 4", GEMM);
  g.args.bias = &g.bias;

  g.args.flags = 8;
  REFUSED(FP8_ERR_UNSUPPORTED, "flags|0x8", GEMM);
  g.args.flags = 0, g.args.max_sms = -1;
  REFUSED(FP8_ERR_ARGUMENT, "max_sms is -1", GEMM);
  g.args.max_sms = 0;
  if (test_backend() == FP8_BACKEND_CPU)
    REFUSED(FP8_ERR_ARGUMENT, "stream", fp8_gemm(g_context, &g.args, (fp8_stream)&g));

  OK(fp8_gemm_workspace(g_context, &g.args, &bytes));
  REFUSED(FP8_ERR_ARGUMENT, "bytes is NULL", fp8_gemm_workspace(g_context, &g.args, NULL));
  if (bytes) {
    ws.data = dev_alloc(bytes), ws.bytes = bytes - 1;
    g.args.workspace = &ws;
    REFUSED(FP8_ERR_ARGUMENT, "workspace.bytes", GEMM);
    ws.data = NULL, ws.bytes = bytes;
    REFUSED(FP8_ERR_ARGUMENT, "workspace.data is NULL", GEMM);
    ws.data = g.d.data;
    REFUSED(FP8_ERR_ARGUMENT, "workspace shares memory", GEMM);
    g.args.workspace = NULL;
  }

  /* sized structs: zero, too small, older, newer with zero and with non-zero fields */
  g.args.struct_size = 0;
  REFUSED(FP8_ERR_ARGUMENT, "args|struct_size", GEMM);
  g.args.struct_size = 4;
  REFUSED(FP8_ERR_ARGUMENT, "args|struct_size", GEMM);
  memset(&newer, 0, sizeof newer);
  newer.args = g.args;
  newer.args.struct_size = sizeof newer;
  newer.later = 1;
  REFUSED(FP8_ERR_UNSUPPORTED, "args|byte", fp8_gemm(g_context, &newer.args, NULL));
  g.args.struct_size = sizeof g.args;

  after = get(&g.d);
  assert_memory_equal(before, after, 32 * 16 * 4); /* nothing was written */
  newer.later = 0;
  OK(fp8_gemm(g_context, &newer.args, NULL));
  small = g.a; /* an older qtensor that ends before the column side */
  small.struct_size = offsetof(fp8_qtensor, col);
  small.col_kind = 0;
  g.args.a = &small;
  OK(GEMM);
  free(before);
  free(after);
  fp8_recipe_destroy(g.r);
}

/* The list of pairs is closed; each refusal says why. */
static void test_pairs(void **state) {
  static const int32_t presets[] = {FP8_PRESET_NONE, FP8_PRESET_TENSOR, FP8_PRESET_ROW, FP8_PRESET_BLOCK,
                                    FP8_PRESET_MX};
  fp8_recipe *block = recipe_of(FP8_PRESET_BLOCK), *mx2 = recipe_of(FP8_PRESET_MX_W2D), *e5;
  fp8_recipe_config config;
  gemm_case g[5];
  fp8_tensor xw = random2(FP8_DTYPE_BF16, 16, 64, 1.0f), x16 = random2(FP8_DTYPE_F16, 16, 64, 1.0f);
  fp8_qtensor w2d = quantized(block, FP8_ROLE_WEIGHT, &xw, FP8_SIDE_ROW);
  fp8_qtensor w32 = quantized(mx2, FP8_ROLE_WEIGHT, &xw, FP8_SIDE_ROW), f16, e5a, e5b;
  int i, j;
  (void)state;
  for (i = 0; i < 5; ++i) setup(&g[i], presets[i]);
  for (i = 0; i < 5; ++i)
    for (j = 0; j < 5; ++j) {
      fp8_gemm_args args = g[i].args;
      args.b = &g[j].b;
      if (i == j)
        OK(fp8_gemm(g_context, &args, NULL));
      else
        REFUSED(FP8_ERR_UNSUPPORTED, i == 0 || j == 0 ? "unquantized|both" : "legal pairs",
                fp8_gemm(g_context, &args, NULL));
    }
  g[3].args.a = &w2d, g[3].args.b = &w2d; /* 2D by 2D */
  g[3].d.shape[0] = 16;
  REFUSED(FP8_ERR_UNSUPPORTED, "128x128|legal pairs", fp8_gemm(g_context, &g[3].args, NULL));
  g[3].args.a = &w32, g[3].args.b = &w32;
  REFUSED(FP8_ERR_UNSUPPORTED, "32x32|legal pairs", fp8_gemm(g_context, &g[3].args, NULL));
  FP8_INIT(&config);
  config.preset = FP8_PRESET_TENSOR;
  OK(fp8_recipe_create(&config, &e5));
  e5a = quantized(e5, FP8_ROLE_GRADIENT, &xw, FP8_SIDE_ROW);
  e5b = quantized(e5, FP8_ROLE_GRADIENT, &xw, FP8_SIDE_ROW);
  g[3].args.a = &e5a, g[3].args.b = &e5b;
  REFUSED(FP8_ERR_UNSUPPORTED, "E5M2", fp8_gemm(g_context, &g[3].args, NULL));
  f16 = quantized(g[0].r, FP8_ROLE_WEIGHT, &x16, FP8_SIDE_ROW);
  g[0].args.b = &f16;
  REFUSED(FP8_ERR_UNSUPPORTED, "BF16|F16|one dtype", fp8_gemm(g_context, &g[0].args, NULL));
  g[0].args.b = &g[0].b;
  g[0].args.flags = FP8_GEMM_FAST_ACCUMULATION;
  REFUSED(FP8_ERR_UNSUPPORTED, "FAST_ACCUMULATION", fp8_gemm(g_context, &g[0].args, NULL));
  for (i = 0; i < 5; ++i) fp8_recipe_destroy(g[i].r);
  fp8_recipe_destroy(e5);
  fp8_recipe_destroy(block);
  fp8_recipe_destroy(mx2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_lattice, free_all),
      cmocka_unit_test_teardown(test_pairs, free_all),
  };
  return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
