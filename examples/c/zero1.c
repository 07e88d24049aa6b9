/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallel with ZeRO-1 over MPI: each rank keeps a flat shard of the FP32 masters and of AdamW's moments, and the
 * layers' weights exist in FP8 only. Trains a two-layer network twice, gathering FP8 and gathering BF16 (then
 * quantizing): the losses are the same to the last bit, at half the bytes.
 *   mpirun -n 2 zero1 [steps] */
#include <fp8_mpi/fp8_mpi.h>
#include <math.h>
#include <mpi.h>

#include "common/memory.h"
#include "common/option.h"
#include "common/random.h"
#include "common/recipes.h"
#include "common/tensor.h"

enum { TOKENS = 64, LAYERS = 2, MAX_RANKS = 64 };
static const int64_t width[LAYERS + 1] = {96, 200, 72}; /* cuts fall anywhere: inside rows, inside tiles */

typedef struct Trainer {
  int rank, world;
  fp8_context *context;
  fp8_comm *comm;
  Memory memory;
  fp8_recipe *recipe, *bf16; /* of the layers; of the gather in BF16 */
  fp8_linear *linear[LAYERS];
  fp8_qtensor w[LAYERS], w16[LAYERS], saved[LAYERS];
  fp8_param *params[LAYERS];
  int64_t cuts[LAYERS][MAX_RANKS + 1], first[LAYERS + 1]; /* first: of each weight in the flat order */
  int64_t begin, count;                                   /* this rank's shard of the flat order */
  float *master, *m, *v, *dw, *parts;
  fp8_buffer amax, shard, workspace;
  bf16 *x, *h, *r, *y, *dy, *dh, *target;
} Trainer;

/* Equal shards of all weights laid end to end; a weight's cuts are where the shards' ends fall in it. */
static void plan_shards(Trainer *t) {
  for (int l = 0; l < LAYERS; ++l) t->first[l + 1] = t->first[l] + width[l] * width[l + 1];
  for (int r = 0; r <= t->world; ++r) {
    const int64_t cut = t->first[LAYERS] * r / t->world;
    for (int l = 0; l < LAYERS; ++l) {
      const int64_t at = cut - t->first[l], size = width[l] * width[l + 1];
      t->cuts[l][r] = at < 0 ? 0 : at > size ? size : at;
    }
    if (r == t->rank) t->begin = cut;
    if (r == t->rank + 1) t->count = cut - t->begin;
  }
}

static void trainer_open(Trainer *t, int32_t preset, int gather_fp8) {
  MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &t->world);
  REQUIRE(t->world <= MAX_RANKS, "at most %d ranks", MAX_RANKS);
  CHECK(fp8_comm_create_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), 0, &t->comm));
  fp8_context_config context;
  FP8_INIT(&context);
  context.backend = FP8_BACKEND_CPU;
  context.threads = 1;
  CHECK(fp8_context_create(&context, &t->context));
  memory_open(&t->memory, t->context, NULL);
  t->recipe = preset_create(preset);
  t->bf16 = preset_create(FP8_PRESET_NONE);
  plan_shards(t);
  uint64_t most = 0;
  for (int l = 0; l < LAYERS; ++l) {
    fp8_linear_config config;
    FP8_INIT(&config);
    config.in_features = width[l];
    config.out_features = width[l + 1];
    config.recipe = t->recipe;
    CHECK(fp8_linear_create(t->context, &config, &t->linear[l]));
    FP8_INIT(&t->w[l]);
    FP8_INIT(&t->w16[l]);
    FP8_INIT(&t->saved[l]);
    CHECK(fp8_linear_describe(t->linear[l], FP8_ROLE_WEIGHT, 0, FP8_SIDE_BOTH, &t->w[l]));
    CHECK(fp8_linear_describe(t->linear[l], FP8_ROLE_ACTIVATION, TOKENS, FP8_SIDE_COL, &t->saved[l]));
    memory_place(&t->memory, &t->w[l], FP8_SIDE_BOTH);
    memory_place(&t->memory, &t->saved[l], FP8_SIDE_COL);
    if (!gather_fp8) {
      CHECK(fp8_recipe_describe(t->bf16, t->context, FP8_ROLE_WEIGHT, width[l + 1], width[l],
                                FP8_SIDE_ROW | FP8_SIDE_COPY, &t->w16[l]));
      memory_place(&t->memory, &t->w16[l], FP8_SIDE_ROW);
    }
    fp8_param_config param;
    FP8_INIT(&param);
    param.rows = width[l + 1];
    param.cols = width[l];
    param.cuts = t->cuts[l];
    param.world = t->world;
    param.rank = t->rank;
    param.recipe = gather_fp8 ? t->recipe : t->bf16;
    CHECK(fp8_param_create(t->context, &param, &t->params[l]));
    uint64_t bytes;
    CHECK(fp8_linear_workspace(t->linear[l], TOKENS, 0, &bytes));
    if (bytes > most) most = bytes;
  }
  const fp8_param *const *params = (const fp8_param *const *)t->params;
  fp8_param_layout layout;
  FP8_INIT(&layout);
  CHECK(fp8_param_sizes(params, LAYERS, gather_fp8 ? FP8_SIDE_BOTH : FP8_SIDE_ROW, &layout));
  CHECK(fp8_param_check(t->context, t->comm, params, LAYERS));
  if (layout.workspace_bytes > most) most = layout.workspace_bytes;
  t->amax = memory_buffer(&t->memory, layout.amax_bytes);
  t->shard = memory_buffer(&t->memory, layout.row_bytes + layout.col_bytes);
  t->workspace = memory_buffer(&t->memory, most);
  const uint64_t shard = (uint64_t)t->count * sizeof(float), all = (uint64_t)t->first[LAYERS] * sizeof(float);
  t->master = memory_alloc(&t->memory, shard + 4);
  t->m = memory_alloc(&t->memory, shard + 4);
  t->v = memory_alloc(&t->memory, shard + 4);
  t->parts = memory_alloc(&t->memory, shard * (uint64_t)t->world + 4);
  t->dw = memory_alloc(&t->memory, all);
  for (int64_t i = 0; i < t->count; ++i) t->master[i] = 0.1f * random_normal(7, (uint64_t)(t->begin + i));
  bf16 **buffers[] = {&t->x, &t->h, &t->r, &t->y, &t->dy, &t->dh, &t->target};
  const int64_t cols[] = {width[0], width[1], width[1], width[2], width[2], width[1], width[2]};
  for (int i = 0; i < 7; ++i) *buffers[i] = memory_alloc(&t->memory, (uint64_t)(TOKENS * cols[i]) * sizeof(bf16));
}

static void trainer_close(Trainer *t) {
  for (int l = 0; l < LAYERS; ++l) {
    fp8_linear_destroy(t->linear[l]);
    fp8_param_destroy(t->params[l]);
  }
  fp8_recipe_destroy(t->recipe);
  fp8_recipe_destroy(t->bf16);
  memory_close(&t->memory);
  fp8_comm_destroy(t->comm);
  fp8_context_destroy(t->context);
}

/* Masters -> the layers' weights: one amax reduction and one gather for all of them. */
static void publish_weights(Trainer *t, int gather_fp8) {
  fp8_tensor masters[LAYERS];
  const fp8_tensor *master_at[LAYERS];
  fp8_qtensor *full[LAYERS];
  for (int l = 0; l < LAYERS; ++l) {
    const int64_t begin = t->cuts[l][t->rank], n = t->cuts[l][t->rank + 1] - begin;
    masters[l] = vector(n ? t->master + (t->first[l] + begin - t->begin) : NULL, FP8_DTYPE_F32, n);
    master_at[l] = &masters[l];
    full[l] = gather_fp8 ? &t->w[l] : &t->w16[l];
  }
  fp8_param_args args;
  FP8_INIT(&args);
  args.params = (const fp8_param *const *)t->params;
  args.masters = master_at;
  args.full = full;
  args.amax = &t->amax;
  args.shard = &t->shard;
  args.workspace = &t->workspace;
  args.count = LAYERS;
  args.sides = gather_fp8 ? FP8_SIDE_BOTH : FP8_SIDE_ROW;
  CHECK(fp8_param_quantize(t->context, t->comm, &args, NULL));
  CHECK(fp8_param_gather(t->context, t->comm, &args, NULL));
  for (int l = 0; !gather_fp8 && l < LAYERS; ++l) {
    fp8_quantize_args quantize;
    FP8_INIT(&quantize);
    quantize.x = &t->w16[l].row;
    quantize.q = &t->w[l];
    quantize.role = FP8_ROLE_WEIGHT;
    CHECK(fp8_quantize(t->context, t->recipe, &quantize, NULL));
  }
}

static void forward(Trainer *t, int l, const bf16 *in, bf16 *out) {
  fp8_tensor x = matrix(in, FP8_DTYPE_BF16, TOKENS, width[l]), y = matrix(out, FP8_DTYPE_BF16, TOKENS, width[l + 1]);
  fp8_linear_forward_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.w = &t->w[l];
  args.y = &y;
  args.saved_x = &t->saved[l];
  args.workspace = &t->workspace;
  CHECK(fp8_linear_forward(t->linear[l], &args, NULL));
}

static void backward(Trainer *t, int l, const bf16 *dout, bf16 *din) {
  fp8_tensor dy = matrix(dout, FP8_DTYPE_BF16, TOKENS, width[l + 1]),
             dx = matrix(din, FP8_DTYPE_BF16, TOKENS, width[l]);
  fp8_tensor dw = matrix(t->dw + t->first[l], FP8_DTYPE_F32, width[l + 1], width[l]);
  fp8_linear_backward_args args;
  FP8_INIT(&args);
  args.dy = &dy;
  args.w = din ? &t->w[l] : NULL;
  args.saved_x = &t->saved[l];
  args.dx = din ? &dx : NULL;
  args.dw = &dw;
  args.workspace = &t->workspace;
  CHECK(fp8_linear_backward(t->linear[l], &args, NULL));
}

/* Each rank receives every rank's gradient of its own shard, sums them in rank order, and steps: runs repeat bit for
 * bit. */
static void update(Trainer *t, int step) {
  int send[MAX_RANKS], send_at[MAX_RANKS], take[MAX_RANKS], take_at[MAX_RANKS];
  for (int r = 0; r < t->world; ++r) {
    send_at[r] = (int)(t->first[LAYERS] * r / t->world);
    send[r] = (int)(t->first[LAYERS] * (r + 1) / t->world) - send_at[r];
    take[r] = (int)t->count;
    take_at[r] = (int)(t->count * r);
  }
  MPI_Alltoallv(t->dw, send, send_at, MPI_FLOAT, t->parts, take, take_at, MPI_FLOAT, MPI_COMM_WORLD);
  const float rate = 2e-3f, c1 = 1.0f - powf(0.9f, (float)(step + 1)), c2 = 1.0f - powf(0.99f, (float)(step + 1));
  for (int64_t i = 0; i < t->count; ++i) {
    float g = 0.0f;
    for (int r = 0; r < t->world; ++r) g += t->parts[t->count * r + i];
    g /= (float)t->world;
    t->m[i] = 0.9f * t->m[i] + 0.1f * g;
    t->v[i] = 0.99f * t->v[i] + 0.01f * g * g;
    t->master[i] -= rate * ((t->m[i] / c1) / (sqrtf(t->v[i] / c2) + 1e-8f) + 0.01f * t->master[i]);
  }
}

/* One step on this rank's own batch; the loss is the mean over all ranks, added in rank order. */
static double train_step(Trainer *t, int step, int gather_fp8) {
  const uint64_t stream = (uint64_t)(100 + step * t->world + t->rank);
  for (int i = 0; i < TOKENS * (int)width[0]; ++i) t->x[i] = bf16_from_float(random_normal(stream, (uint64_t)i));
  for (int i = 0; i < TOKENS; ++i) /* a target that a layer can learn: sums of neighbours, rectified */
    for (int o = 0; o < width[2]; ++o) {
      const float a = bf16_to_float(t->x[i * width[0] + o]), b = bf16_to_float(t->x[i * width[0] + o + 1]);
      t->target[i * width[2] + o] = bf16_from_float(a + b > 0.0f ? a + b : 0.0f);
    }
  publish_weights(t, gather_fp8);
  forward(t, 0, t->x, t->h);
  for (int i = 0; i < TOKENS * (int)width[1]; ++i) t->r[i] = t->h[i] & 0x8000u ? 0 : t->h[i];
  forward(t, 1, t->r, t->y);
  double own = 0.0, mean = 0.0, all[MAX_RANKS];
  for (int i = 0; i < TOKENS * (int)width[2]; ++i) {
    const float d = bf16_to_float(t->y[i]) - bf16_to_float(t->target[i]);
    t->dy[i] = bf16_from_float(d / (float)TOKENS);
    own += 0.5 * d * d / (TOKENS * width[2]);
  }
  backward(t, 1, t->dy, t->dh);
  for (int i = 0; i < TOKENS * (int)width[1]; ++i)
    if (t->h[i] & 0x8000u) t->dh[i] = 0;
  backward(t, 0, t->dh, NULL);
  update(t, step);
  MPI_Allgather(&own, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int r = 0; r < t->world; ++r) mean += all[r] / t->world;
  return mean;
}

/* Bytes that this rank took from its peers in one step for the weights. */
static uint64_t run(int32_t preset, int gather_fp8, int steps, double *losses) {
  Trainer t = {0};
  trainer_open(&t, preset, gather_fp8);
  for (int step = 0; step < steps; ++step) losses[step] = train_step(&t, step, gather_fp8);
  fp8_counters counters, before;
  FP8_INIT(&counters);
  FP8_INIT(&before);
  CHECK(fp8_context_counters(t.context, &before));
  publish_weights(&t, gather_fp8);
  CHECK(fp8_context_counters(t.context, &counters));
  trainer_close(&t);
  return counters.bytes_communicated - before.bytes_communicated;
}

int main(int argc, char **argv) {
  enum { MAX_STEPS = 1000 };
  static double fp8[MAX_STEPS], bf[MAX_STEPS];
  int rank, world, steps = 30;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  option_program = "zero1";
  if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
    if (rank == 0)
      printf(
          "zero1: ZeRO-1 over MPI with FP8 weights, gathered in FP8 and in BF16: the same losses\n\n"
          "  mpirun -n RANKS zero1 [STEPS]   1 to %d steps (default 30)\n",
          MAX_STEPS);
    MPI_Finalize();
    return 0;
  }
  if (argc > 1) steps = (int)option_integer("STEPS", argv[1], 1, MAX_STEPS);
  if (rank == 0)
    printf("%d ranks, %d steps; bytes a weight element that rank 0 takes from its peers in a step\n", world, steps);
  const double elements = (double)(width[0] * width[1] + width[1] * width[2]);
  for (int p = 1; p < PRESET_COUNT; ++p) {
    const uint64_t a = run(presets[p].preset, 1, steps, fp8), b = run(presets[p].preset, 0, steps, bf);
    if (rank == 0)
      printf("%-8s loss %.6f -> %.6f; FP8 gather %.3f bytes, BF16 gather %.3f\n", presets[p].name, fp8[0],
             fp8[steps - 1], (double)a / elements, (double)b / elements);
    for (int step = 0; step < steps; ++step)
      REQUIRE(memcmp(&fp8[step], &bf[step], sizeof(double)) == 0,
              "%s: step %d: %.17g with the FP8 gather, %.17g with BF16", presets[p].name, step, fp8[step], bf[step]);
    if (steps >= 20) REQUIRE(fp8[steps - 1] < 0.8 * fp8[0], "%s did not learn", presets[p].name);
  }
  if (rank == 0) printf("every loss of every step is the same to the last bit, whichever was gathered\n");
  MPI_Finalize();
  return 0;
}
