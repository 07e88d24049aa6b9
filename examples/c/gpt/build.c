/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a model: recipe, linears, parameters, and every byte that training touches, before the first step. */
#include "../common/recipes.h"
#include "model.h"

static fp8_recipe *create_recipe(const ModelConfig *config) {
  fp8_recipe_config recipe_config;
  fp8_recipe *recipe;
  if (config->recipe) {
    CHECK(fp8_recipe_from_string(config->recipe, &recipe));
    return recipe;
  }
  FP8_INIT(&recipe_config);
  CHECK(fp8_recipe_config_preset(config->preset, &recipe_config));
  fault_recipe(config->fault, &recipe_config);
  CHECK(fp8_recipe_create(&recipe_config, &recipe));
  return recipe;
}

static fp8_linear *create_plan(Model *m, const fp8_recipe *recipe, int64_t in, int64_t out, uint64_t *workspace) {
  fp8_linear_config config;
  fp8_linear *plan;
  uint64_t bytes;
  FP8_INIT(&config);
  config.in_features = in;
  config.out_features = out;
  config.recipe = recipe; /* input and output dtypes: BF16 by default */
  CHECK(fp8_linear_create(m->config.context, &config, &plan));
  CHECK(fp8_linear_prepare(plan, shape_rows(&m->config.shape), 0));
  CHECK(fp8_linear_workspace(plan, shape_rows(&m->config.shape), 0, &bytes));
  if (bytes > *workspace) *workspace = bytes; /* calls follow one another: one workspace serves them all */
  return plan;
}

static void create_layer(Model *m, Block *block, int64_t l, enum LinearKind kind) {
  const Shape *s = &m->config.shape;
  Parameters *p = &m->parameters;
  Layer *layer = &block->layers[kind];
  int weight = p->blocks[l].weight[kind], bias = p->blocks[l].bias[kind];
  layer->plan = m->plans[kind];
  layer->in = linear_in(s, kind);
  layer->out = linear_out(s, kind);
  layer->rows = shape_rows(s);
  layer->weight = value_of(p, weight);
  layer->dweight = grad_of(p, weight);
  layer->bias = value_of(p, bias);
  layer->dbias = grad_of(p, bias);
  layer->passes_x = kind == PROJECTION && !m->config.save_projection && m->config.fault != FAULT_WGRAD_AXIS;
  layer->counts = m->config.preset == FP8_PRESET_NONE ? NULL : m->counts + 3 * kind;
  layer->late_columns = m->config.make_columns != NULL;
  layer->misread = m->config.fault == FAULT_WGRAD_AXIS;
  if (m->config.fault == FAULT_DY_E4M3_TENSOR) layer->amax_dy = memory_alloc(&m->memory, sizeof(float));
  layer_create(layer, &m->memory);
}

static void create_columns(Model *m) {
  uint64_t most = 0, bytes;
  for (int k = 0; k < LINEAR_KINDS; ++k) {
    CHECK(fp8_qtensor_bytes(&m->blocks[0].layers[k].quantized, FP8_SIDE_COL, &bytes));
    if (bytes > most) most = bytes;
  }
  m->columns = memory_buffer(&m->memory, most);
  for (int64_t l = 0; l < m->config.shape.layers; ++l)
    for (int k = 0; k < LINEAR_KINDS; ++k)
      CHECK(fp8_qtensor_place(&m->blocks[l].layers[k].quantized, FP8_SIDE_COL, &m->columns));
}

static bf16 *alloc_bf16(Model *m, int64_t count) { return memory_alloc(&m->memory, (uint64_t)count * sizeof(bf16)); }
static float *alloc_float(Model *m, int64_t count) { return memory_alloc(&m->memory, (uint64_t)count * sizeof(float)); }

/* What a linear was given lives until backward if it is only viewed; else all blocks share one: the FP8 side is kept.
 */
static bf16 *alloc_input(Model *m, const Layer *layer, bf16 **shared) {
  int64_t count = layer->rows * layer->in;
  if (layer_views_x(layer)) return alloc_bf16(m, count);
  if (!*shared) *shared = alloc_bf16(m, count);
  return *shared;
}

static void create_activations(Model *m) {
  const Shape *s = &m->config.shape;
  int64_t rows = shape_rows(s), dim = s->dim;
  bf16 *shared_narrow = NULL, *shared_wide = NULL;
  for (int64_t l = 0; l < s->layers; ++l) {
    Block *b = &m->blocks[l];
    for (int n = 0; n < 2; ++n) {
      b->residual[n] = alloc_float(m, rows * dim);
      b->mean[n] = alloc_float(m, rows);
      b->scale[n] = alloc_float(m, rows);
      b->normed[n] = alloc_input(m, &b->layers[n ? FC1 : QKV], &shared_narrow);
    }
    b->qkv = alloc_bf16(m, rows * 3 * dim);
    b->attended =
        alloc_bf16(m, rows * dim); /* attention's backward needs it, so the projection may pass it for nothing */
    b->logsum = alloc_float(m, rows * s->heads);
    b->up = alloc_bf16(m, rows * 4 * dim);
    b->activated = alloc_input(m, &b->layers[FC2], &shared_wide);
  }
  m->residual = alloc_float(m, rows * dim);
  m->mean = alloc_float(m, rows);
  m->scale = alloc_float(m, rows);
  m->normed = alloc_bf16(m, rows * dim);
  m->logits = alloc_bf16(m, rows * VOCABULARY);
  m->branch = alloc_bf16(m, rows * dim);
  m->dlogits = alloc_bf16(m, rows * VOCABULARY);
  m->dnormed = alloc_bf16(m, rows * dim);
  m->dbranch = alloc_bf16(m, rows * dim);
  m->dqkv = alloc_bf16(m, rows * 3 * dim);
  m->dwide = alloc_bf16(m, rows * 4 * dim);
  m->dup = alloc_bf16(m, rows * 4 * dim);
  m->dresidual = alloc_float(m, rows * dim);
  m->losses = alloc_float(m, rows);
  m->tokens = memory_alloc(&m->memory, (uint64_t)rows);
  m->targets = memory_alloc(&m->memory, (uint64_t)rows);
}

void model_create(Model *m, const ModelConfig *config) {
  memset(m, 0, sizeof *m);
  m->config = *config;
  const Shape *s = &m->config.shape;
  uint64_t workspace = 0;
  memory_open(&m->memory, config->context, config->stream);
  m->device.pool = config->pool;
  m->device.stream = config->stream;
  m->device.scratch = memory_alloc(&m->memory, config->kernels->scratch_bytes(s, pool_threads(config->pool)));
  parameters_create(&m->parameters, s, &m->memory, config->pool, config->seed, config->rank,
                    config->world ? config->world : 1);
  m->counts = memory_alloc(&m->memory, LINEAR_KINDS * 3 * sizeof *m->counts);

  m->recipe = create_recipe(config);
  m->head_recipe = preset_create(FP8_PRESET_NONE);
  for (int k = 0; k < LINEAR_KINDS; ++k) {
    int64_t in = linear_in(s, (enum LinearKind)k), out = linear_out(s, (enum LinearKind)k);
    m->plans[k] = create_plan(m, m->recipe, in, out, &workspace);
  }
  m->head_plan = create_plan(m, m->head_recipe, s->dim, VOCABULARY, &workspace);
  m->workspace = memory_buffer(&m->memory, workspace ? workspace : 256);

  m->blocks = calloc((size_t)s->layers, sizeof *m->blocks);
  REQUIRE(m->blocks, "out of memory");
  for (int64_t l = 0; l < s->layers; ++l)
    for (int k = 0; k < LINEAR_KINDS; ++k) create_layer(m, &m->blocks[l], l, (enum LinearKind)k);
  if (config->make_columns) create_columns(m);
  m->head.plan = m->head_plan;
  m->head.in = s->dim;
  m->head.out = VOCABULARY;
  m->head.rows = shape_rows(s);
  m->head.weight = value_of(&m->parameters, m->parameters.head);
  m->head.dweight = grad_of(&m->parameters, m->parameters.head);
  layer_create(&m->head, &m->memory);
  create_activations(m);
}

void model_destroy(Model *m) {
  for (int k = 0; k < LINEAR_KINDS; ++k) fp8_linear_destroy(m->plans[k]);
  fp8_linear_destroy(m->head_plan);
  fp8_recipe_destroy(m->recipe);
  fp8_recipe_destroy(m->head_recipe);
  parameters_destroy(&m->parameters);
  memory_close(&m->memory);
  free(m->blocks);
}
