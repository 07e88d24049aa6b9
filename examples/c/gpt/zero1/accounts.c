/* SPDX-License-Identifier: Apache-2.0 */
#include "accounts.h"

#include <math.h>

#include "../../common/table.h"

typedef struct Account { /* bytes per block parameter, means over the ranks */
  double weights, bf16, gradient, optimizer, scratch;
  double shared; /* one buffer for the column side that backward needs next */
  double wire;   /* block weights, as libfp8 counts */
  double reduced,
      other;    /* the trainer's own, per parameter of any kind: gradients; FP32 replicas, per block parameter */
  double total; /* all memory of a rank, activations too, in bytes */
} Account;

static const char *const titles[] = {"BF16 baseline", "FP8 beside BF16 weights", "FP8 primary weights",
                                     "... column sides late"};
enum { BASELINE, DROP_IN, PRIMARY, LATE };

/* Bytes of scales for each element of both sides, before any alignment. */
static double scale_bytes(int32_t preset, const Shape *s) {
  double elements = 0.0, sum = 0.0;
  for (int k = 0; k < LINEAR_KINDS; ++k) {
    double in = (double)linear_in(s, (enum LinearKind)k), out = (double)linear_out(s, (enum LinearKind)k);
    elements += in * out;
    switch (preset) {
      case FP8_PRESET_TENSOR:
        sum += 8.0;
        break;
      case FP8_PRESET_ROW:
        sum += 4.0 * (in + out);
        break;
      case FP8_PRESET_BLOCK:
        sum += 2.0 * 4.0 * ceil(in / 128.0) * ceil(out / 128.0);
        break;
      case FP8_PRESET_MX_W2D:
        sum += 2.0 * ceil(in / 32.0) * ceil(out / 32.0);
        break;
      case FP8_PRESET_MX:
        sum += in * ceil(out / 32.0) + out * ceil(in / 32.0);
        break;
    }
  }
  return sum / elements;
}

/* What travels to make scales: a maximum for each of them; one serves both sides where the column side is the
 * transpose. */
static double amax_bytes(int32_t preset, const Shape *s) {
  double scales = scale_bytes(preset, s);
  return preset == FP8_PRESET_ROW || preset == FP8_PRESET_MX ? scales : scales / 2.0;
}

static Account predict(int configuration, int32_t preset, const Shape *s, int world) {
  Account a = {.gradient = 4.0, .optimizer = 12.0 / world};
  double away = (double)(world - 1) / world;                          /* a rank takes what it does not have */
  int one_side = preset != FP8_PRESET_ROW && preset != FP8_PRESET_MX; /* the other is its transpose */
  if (configuration < PRIMARY) a.bf16 = 2.0;
  if (configuration != BASELINE) a.weights = 2.0 + scale_bytes(preset, s);
  if (configuration == LATE) a.weights /= 2.0;
  a.wire = configuration >= PRIMARY ? (one_side ? 1.0 : 2.0) * away + amax_bytes(preset, s) : 2.0 * away;
  a.reduced = 4.0 * away;
  return a;
}

static Account measure(const Session *session, Parallel *parallel, int configuration, int32_t preset) {
  const Preset *found = preset_find(configuration == BASELINE ? FP8_PRESET_NONE : preset);
  Run run = {found->name, found->title, found->preset, FAULT_NONE, session->options.seed, 0, NULL};
  Sharded z;
  sharded_create(&z, session, parallel, &run, configuration >= PRIMARY ? GATHER_FP8 : GATHER_BF16,
                 configuration == LATE);
  uint64_t reduced = parallel->reduced_bytes, replicated = parallel->replicated_bytes;
  sharded_publish(&z);
  parallel_reduce_scatter(parallel, z.model.parameters.grad, z.model.parameters.size);
  int64_t owned, elements = sharded_block_elements(&z, &owned);
  double all = (double)elements * parallel->world, weights = (double)model_weight_bytes(&z.model);
  Account own = {.weights = configuration == BASELINE ? 0.0 : weights,
                 .bf16 = configuration == BASELINE ? weights : (double)z.bf16_bytes,
                 .gradient = (double)elements * sizeof(float),
                 .optimizer = 3.0 * sizeof(float) * (double)owned,
                 .scratch = (double)z.scratch,
                 .shared = (double)z.model.columns.bytes,
                 .wire = (double)z.wire,
                 .other = (double)(parallel->replicated_bytes - replicated)};
  Account mean = {.weights = parallel_sum(parallel, own.weights) / all,
                  .bf16 = parallel_sum(parallel, own.bf16) / all,
                  .gradient = parallel_sum(parallel, own.gradient) / all,
                  .optimizer = parallel_sum(parallel, own.optimizer) / all,
                  .scratch = parallel_sum(parallel, own.scratch) / all,
                  .shared = parallel_sum(parallel, own.shared) / all,
                  .wire = parallel_sum(parallel, own.wire) / all,
                  .other = parallel_sum(parallel, own.other) / all,
                  .reduced = parallel_sum(parallel, (double)(parallel->reduced_bytes - reduced)) /
                             ((double)z.model.parameters.size * parallel->world),
                  .total = parallel_sum(parallel, (double)z.model.memory.bytes) / parallel->world};
  sharded_destroy(&z);
  return mean;
}

static double resident(const Account *a) { return a->weights + a->bf16 + a->gradient + a->optimizer; }

/* 256 bytes of alignment for each of a weight's four parts (codes and scales of two sides) at most, and for MX scales
 * in tiles of 128 x 4. */
static void expect(const char *title, const char *what, double measured, double predicted, const Shape *s) {
  double smallest = (double)(s->dim * s->dim), allowed = 4.0 * 256.0 / smallest + 1e-9;
  REQUIRE(fabs(measured - predicted) <= allowed, "%s: %s is %.6f bytes per parameter, the formula gives %.6f", title,
          what, measured, predicted);
}

void accounts_print(const Session *session, Parallel *parallel, int32_t preset) {
  static Table t;
  const Shape *s = &session->options.shape;
  int world = parallel->world, first = preset == FP8_PRESET_NONE ? BASELINE : 0,
      last = preset == FP8_PRESET_NONE ? BASELINE
             : transposes(preset)      ? LATE
                                       : PRIMARY;
  const char *head[] = {"configuration", "FP8",       "BF16",          "gradient",  "optimizer",
                        "resident",      "formula",   "weights' wire", "formula",   "gradients' wire",
                        "formula",       "FP32 wire", "transient",     "all memory"};
  table_begin(&t, 14);
  for (int c = 0; c < 14; ++c) table_cell(&t, "%s", head[c]);
  double scratch = 0.0;
  for (int i = first; i <= last; ++i) {
    Account m = measure(session, parallel, i, preset), f = predict(i, preset, s, world);
    table_cell(&t, "%s", titles[i]);
    table_cell(&t, "%.4f", m.weights);
    table_cell(&t, "%.4f", m.bf16);
    table_cell(&t, "%.4f", m.gradient);
    table_cell(&t, "%.4f", m.optimizer);
    table_cell(&t, "%.4f", resident(&m));
    table_cell(&t, "%.4f", resident(&f));
    table_cell(&t, "%.4f", m.wire);
    table_cell(&t, "%.4f", f.wire);
    table_cell(&t, "%.4f", m.reduced);
    table_cell(&t, "%.4f", f.reduced);
    table_cell(&t, "%.4f", m.other);
    table_cell(&t, "%.4f", m.shared);
    table_cell(&t, "%.2f MB", m.total / 1e6);
    scratch = fmax(scratch, m.scratch);
    expect(titles[i], "what is resident", resident(&m), resident(&f), s);
    expect(titles[i], "what the weights' collectives move", m.wire, f.wire, s);
    expect(titles[i], "what the gradients' reduction moves", m.reduced, f.reduced, s);
  }
  if (parallel->rank) return;
  printf("\n%s on %d ranks: bytes per block parameter and rank, resident and on the wire of one step.\n\n",
         preset_find(preset)->title, world);
  table_print(&t, stdout);
  printf(
      "Formulas, d ranks: BF16 6 + 12/d; FP8 beside BF16 8 + scales + 12/d; FP8 primary 6 + scales + 12/d with both\n"
      "sides kept, 5 + scales + 12/d with late column sides, which take turns in one buffer (transient). Wire: "
      "(d-1)/d\n"
      "of 2 for BF16, of 1 for each FP8 side that travels, and one maximum for each scale; gradients 4 (d-1)/d.\n"
      "Differences: each side's codes and scales begin at 256 bytes; a cut inside a block. The gathers' buffers lie "
      "in\n"
      "the gradient's, and need %.4f bytes beside it.\n",
      scratch);
}
