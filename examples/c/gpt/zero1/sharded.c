/* SPDX-License-Identifier: Apache-2.0 */
#include "sharded.h"

static void gather_begin(Gather *g, int count, uint32_t sides) {
  size_t n = (size_t)count;
  memset(g, 0, sizeof *g);
  g->count = count;
  g->sides = sides;
  g->items = calloc(n, sizeof *g->items);
  g->params = calloc(n, sizeof *g->params);
  g->full = calloc(n, sizeof *g->full);
  g->masters = calloc(n, sizeof *g->masters);
  g->master_at = calloc(n, sizeof *g->master_at);
  REQUIRE(g->items && g->params && g->full && g->masters && g->master_at, "out of memory");
}

/* Shares are cut from the flat order, so a weight's cuts are where the shares' ends fall in it: anywhere. */
static void gather_add(Sharded *z, Gather *g, int i, int item, const fp8_recipe *recipe, fp8_qtensor *full) {
  const Parameters *p = &z->model.parameters;
  const Parameter *w = &p->items[item];
  int rank = z->parallel->rank, world = z->parallel->world;
  int64_t *cuts = malloc(((size_t)world + 1) * sizeof *cuts), size = w->rows * w->cols;
  REQUIRE(cuts, "out of memory");
  for (int r = 0; r <= world; ++r) {
    int64_t at = share_begin(p->size, r, world) - w->offset;
    cuts[r] = at < 0 ? 0 : at > size ? size : at;
  }
  fp8_param_config config;
  FP8_INIT(&config);
  config.rows = w->rows;
  config.cols = w->cols;
  config.cuts = cuts;
  config.world = world;
  config.rank = rank;
  config.recipe = recipe;
  CHECK(fp8_param_create(z->session->context, &config, &g->params[i]));
  int64_t count = cuts[rank + 1] - cuts[rank];
  float *owned = count ? p->master + (w->offset + cuts[rank] - p->begin) : NULL;
  g->items[i] = item;
  g->full[i] = full;
  g->masters[i] = vector(owned, FP8_DTYPE_F32, count);
  g->master_at[i] = &g->masters[i];
  free(cuts);
}

/* The gradient is not needed between a step's update and the next step's first backward: its buffer holds what the
 * gathers send and receive. */
static void gather_end(Sharded *z, Gather *g) {
  const Parameters *p = &z->model.parameters;
  const fp8_param *const *params = (const fp8_param *const *)g->params;
  fp8_param_layout layout;
  FP8_INIT(&layout);
  CHECK(fp8_param_sizes(params, g->count, g->sides, &layout));
  CHECK(fp8_param_check(z->session->context, z->parallel->comm, params, g->count));
  fp8_buffer *buffers[3] = {&g->amax, &g->shard, &g->workspace};
  uint64_t bytes[3] = {layout.amax_bytes, layout.row_bytes + layout.col_bytes, layout.workspace_bytes}, used = 0;
  for (int i = 0; i < 3; ++i) {
    if (!bytes[i]) continue;
    if (used + bytes[i] <= (uint64_t)p->size * sizeof(float)) {
      buffers[i]->data = (char *)p->grad + used;
      buffers[i]->bytes = bytes[i];
      used += (bytes[i] + 255) / 256 * 256;
    } else {
      *buffers[i] = memory_buffer(&z->model.memory, bytes[i]);
      z->scratch += bytes[i];
    }
  }
}

static void gather_run(Sharded *z, Gather *g) {
  fp8_param_args args;
  FP8_INIT(&args);
  args.params = (const fp8_param *const *)g->params;
  args.masters = g->master_at;
  args.full = g->full;
  args.amax = &g->amax;
  args.shard = &g->shard;
  args.workspace = &g->workspace;
  args.count = g->count;
  args.sides = g->sides;
  CHECK(fp8_param_quantize(z->session->context, z->parallel->comm, &args, z->model.device.stream));
  CHECK(fp8_param_gather(z->session->context, z->parallel->comm, &args, z->model.device.stream));
}

static void gather_free(Gather *g) {
  for (int i = 0; i < g->count; ++i) fp8_param_destroy(g->params[i]);
  free(g->items);
  free(g->params);
  free(g->full);
  free(g->masters);
  free(g->master_at);
}

static Layer *layer_at(Model *m, int i) { return &m->blocks[i / LINEAR_KINDS].layers[i % LINEAR_KINDS]; }

static void make_columns(void *user, int64_t block, enum LinearKind kind) {
  Sharded *z = user;
  int64_t i = block * LINEAR_KINDS + (int64_t)kind;
  fp8_param_args args;
  FP8_INIT(&args);
  args.params = (const fp8_param *const *)&z->blocks.params[i];
  args.full = &z->blocks.full[i];
  args.workspace = &z->model.workspace;
  args.count = 1;
  args.sides = FP8_SIDE_COL; /* nothing was gathered for it: made from the row side */
  CHECK(fp8_param_assemble(z->session->context, &args, z->model.device.stream));
}

static void create_bf16(Sharded *z, int i) {
  const Layer *layer = layer_at(&z->model, i);
  fp8_qtensor *w = &z->bf16[i];
  uint64_t bytes;
  FP8_INIT(w);
  CHECK(fp8_recipe_describe(z->model.head_recipe, z->session->context, FP8_ROLE_WEIGHT, layer->out, layer->in,
                            FP8_SIDE_ROW | FP8_SIDE_COPY, w));
  CHECK(fp8_qtensor_bytes(w, FP8_SIDE_ROW, &bytes));
  memory_place(&z->model.memory, w, FP8_SIDE_ROW);
  z->bf16_bytes += bytes;
}

void sharded_create(Sharded *z, const Session *session, Parallel *parallel, const Run *run, enum Gathered gathered,
                    int late) {
  memset(z, 0, sizeof *z);
  z->session = session;
  z->parallel = parallel;
  ModelConfig config = train_config(session, run);
  config.rank = parallel->rank;
  config.world = parallel->world;
  int count = (int)config.shape.layers * LINEAR_KINDS, quantized = run->preset != FP8_PRESET_NONE;
  z->primary = quantized && gathered == GATHER_FP8;
  z->late = late && z->primary;
  if (z->late) {
    config.make_columns = make_columns;
    config.user = z;
  }
  Model *m = &z->model;
  model_create(m, &config);
  if (quantized && !z->primary) {
    z->bf16 = calloc((size_t)count, sizeof *z->bf16);
    REQUIRE(z->bf16, "out of memory");
  }
  gather_begin(&z->blocks, count, z->primary && !z->late ? FP8_SIDE_BOTH : FP8_SIDE_ROW);
  for (int i = 0; i < count; ++i) {
    if (z->bf16) create_bf16(z, i);
    gather_add(z, &z->blocks, i, m->parameters.blocks[i / LINEAR_KINDS].weight[i % LINEAR_KINDS],
               z->primary ? m->recipe : m->head_recipe, z->bf16 ? &z->bf16[i] : &layer_at(m, i)->quantized);
  }
  gather_end(z, &z->blocks);
  gather_begin(&z->head, 1, FP8_SIDE_ROW);
  gather_add(z, &z->head, 0, m->parameters.head, m->head_recipe, &m->head.quantized);
  gather_end(z, &z->head);
}

static uint64_t communicated(const Sharded *z) {
  fp8_counters counters;
  FP8_INIT(&counters);
  CHECK(fp8_context_counters(z->session->context, &counters));
  return counters.bytes_communicated;
}

void sharded_publish(Sharded *z) {
  Model *m = &z->model;
  const Parameters *p = &m->parameters;
  uint64_t before = communicated(z);
  gather_run(z, &z->blocks);
  z->wire += communicated(z) - before;
  for (int i = 0; z->bf16 && i < z->blocks.count; ++i) { /* drop-in FP8: every rank quantizes every weight */
    fp8_quantize_args args;
    FP8_INIT(&args);
    args.x = &z->bf16[i].row;
    args.q = &layer_at(m, i)->quantized;
    args.role = FP8_ROLE_WEIGHT;
    args.workspace = &m->workspace;
    CHECK(fp8_quantize(z->session->context, m->recipe, &args, m->device.stream));
  }
  gather_run(z, &z->head);
  int64_t first = p->items[p->head].offset;
  parallel_replicate(z->parallel, p->master, p->size, 0, first, p->items[0].value);
  parallel_replicate(z->parallel, p->master, p->size, p->decayed, p->size, value_of(p, p->blocks[0].bias[0]));
  model_round_biases(m);
  memory_zero(&m->memory, p->grad, (uint64_t)p->size * sizeof(float));
  parallel_wait(z->parallel);
}

double sharded_step(Sharded *z, uint64_t seed, int64_t step, float rate, double *norm) {
  const Options *o = &z->session->options;
  Model *m = &z->model;
  const Parameters *p = &m->parameters;
  int rank = z->parallel->rank, world = z->parallel->world;
  int64_t rows = shape_rows(&o->shape), first = share_begin(o->micro_batches, rank, world),
          last = share_begin(o->micro_batches, rank + 1, world);
  uint8_t *tokens = malloc(2 * (size_t)rows), *targets = tokens + rows;
  double *losses = calloc(2 * (size_t)o->micro_batches, sizeof *losses), *all = losses + o->micro_batches, loss = 0.0;
  REQUIRE(tokens && losses, "out of memory");
  sharded_publish(z);
  for (int64_t micro = first; micro < last; ++micro) {
    text_batch(&z->session->text, &o->shape, seed, step * o->micro_batches + micro, tokens, targets);
    losses[micro - first] = model_forward(m, tokens, targets, 1);
    model_backward(m);
  }
  parallel_reduce_scatter(z->parallel, p->grad, p->size);
  *norm = model_step(m, rate, parallel_sum(z->parallel, model_square_sum(m)));
  parallel_losses(z->parallel, losses, o->micro_batches, all);
  for (int64_t micro = 0; micro < o->micro_batches; ++micro) loss += all[micro] / (double)o->micro_batches;
  free(tokens);
  free(losses);
  return loss;
}

int64_t sharded_block_elements(const Sharded *z, int64_t *owned) {
  int64_t total = 0;
  *owned = 0;
  for (int i = 0; i < z->blocks.count; ++i) {
    const Parameter *w = &z->model.parameters.items[z->blocks.items[i]];
    total += w->rows * w->cols;
    *owned += z->blocks.masters[i].shape[0];
  }
  return total;
}

void sharded_destroy(Sharded *z) {
  gather_free(&z->blocks);
  gather_free(&z->head);
  free(z->bf16);
  model_destroy(&z->model);
}
