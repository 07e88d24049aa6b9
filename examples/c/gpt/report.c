/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <math.h>

#include "../common/table.h"

/* Results of one recipe (and fault) over its seeds; gaps are paired with the baseline of the same seed. */
typedef struct Group {
  const Result *first;
  int seeds;
  double validation, validation_gap, tail_gap, tail_error, validation_error, tokens_per_second, gradient_norm;
} Group;

static int is_baseline(const Run *run) { return run->preset == FP8_PRESET_NONE; }

static const Result *baseline_of(const Report *report, const Run *run) {
  for (int i = 0; i < report->count; ++i) {
    const Run *other = &report->results[i].run;
    if (is_baseline(other) && other->seed == run->seed && other->outliers == run->outliers) return &report->results[i];
  }
  fail("%s of seed %llu has no baseline", run->title, (unsigned long long)run->seed);
}

/* The demo trains the baseline with a seed more than the recipes: that one shows the noise, and pairs with nothing. */
static int is_paired(const Report *report, const Run *baseline) {
  int others = 0;
  for (int i = 0; i < report->count; ++i) {
    const Run *run = &report->results[i].run;
    if (is_baseline(run) || run->outliers != baseline->outliers) continue;
    if (run->seed == baseline->seed) return 1;
    ++others;
  }
  return others == 0;
}

static double standard_error(double sum, double squares, int n) {
  return n > 1 ? sqrt(fmax(0.0, squares - sum * sum / n) / (n - 1) / n) : NAN;
}

static Group group_of(const Report *report, const Result *first) {
  Group g = {.first = first};
  double tail[2] = {0, 0}, validation[2] = {0, 0}; /* sums and sums of squares of the gaps */
  for (int i = 0; i < report->count; ++i) {
    const Result *r = &report->results[i], *b = baseline_of(report, &r->run);
    if (!run_same_kind(&r->run, &first->run)) continue;
    if (is_baseline(&r->run) && !is_paired(report, &r->run)) continue;
    double tail_gap = r->tail - b->tail, validation_gap = r->validation - b->validation;
    g.seeds += 1;
    g.validation += r->validation;
    g.tokens_per_second += r->tokens_per_second;
    g.gradient_norm += r->gradient_norm;
    tail[0] += tail_gap, tail[1] += tail_gap * tail_gap;
    validation[0] += validation_gap, validation[1] += validation_gap * validation_gap;
  }
  g.validation /= g.seeds;
  g.tokens_per_second /= g.seeds;
  g.gradient_norm /= g.seeds;
  g.tail_gap = tail[0] / g.seeds;
  g.validation_gap = validation[0] / g.seeds;
  g.tail_error = standard_error(tail[0], tail[1], g.seeds);
  g.validation_error = standard_error(validation[0], validation[1], g.seeds);
  return g;
}

/* How far seeds of the baseline lie apart: the standard deviation over them, NaN with one. Returns how many. */
static int baseline_spread(const Report *report, int outliers, double *tail, double *validation) {
  double t[2] = {0, 0}, v[2] = {0, 0};
  int n = 0;
  for (int i = 0; i < report->count; ++i) {
    const Result *r = &report->results[i];
    if (!is_baseline(&r->run) || r->run.outliers != outliers) continue;
    t[0] += r->tail, t[1] += r->tail * r->tail;
    v[0] += r->validation, v[1] += r->validation * r->validation;
    ++n;
  }
  *tail = standard_error(t[0], t[1], n) * sqrt((double)n);
  *validation = standard_error(v[0], v[1], n) * sqrt((double)n);
  return n;
}

static double percent(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0.0; }

/* How far another seed may lie, in units of the seeds' standard deviation: one-sided 95 % of Student's distribution,
 * for few seeds know their deviation badly. */
static double reach(int seeds) {
  static const double table[] = {6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83}; /* of 2 to 10 seeds */
  return seeds < 2 ? NAN : seeds <= 10 ? table[seeds - 2] : 1.75;
}

/* Two kinds of failure, and neither hides the other. The loss: worse only where the gap is beyond its own error (when
 * seeds give one) and beyond what a seed changes. */
static const char *verdict_of_loss(double gap, double error, double spread) {
  if (!isfinite(gap)) return "DIVERGED";
  if (!isfinite(spread)) return "-";
  return gap > spread && !(isfinite(error) && gap <= 2.0 * error) ? "WORSE" : "within noise";
}

/* The counters: current scaling leaves nothing to saturate, and of a gradient no more than 1 % should vanish. NULL: as
 * they should be. */
static const char *verdict_of_counters(const Counts counts[3]) {
  for (int c = 0; c < 3; ++c)
    if (counts[c].nan || counts[c].inf) return "NOT FINITE";
  for (int c = 0; c < 3; ++c)
    if (counts[c].saturated) return "SATURATED";
  return percent(counts[2].underflow, counts[2].nonzero) > 1.0 ? "UNDERFLOW" : NULL;
}

static int is_first(const Report *report, int i) {
  for (int j = 0; j < i; ++j)
    if (run_same_kind(&report->results[j].run, &report->results[i].run)) return 0;
  return 1;
}

static void gap_cell(Table *t, double gap, double error) {
  if (isfinite(error))
    table_cell(t, "%+.4f ± %.4f", gap, error);
  else
    table_cell(t, "%+.4f", gap);
}

static void loss_table(const Report *report, FILE *file) {
  static Table t;
  double tail, validation;
  table_begin(&t, 7);
  const char *head[] = {"run", "seeds", "validation loss", "gap to BF16", "gap, last tenth", "verdict", "tokens/s"};
  for (int c = 0; c < 7; ++c) table_cell(&t, "%s", head[c]);
  for (int i = 0; i < report->count; ++i) {
    if (!is_first(report, i)) continue;
    Group g = group_of(report, &report->results[i]);
    int baseline = is_baseline(&g.first->run);
    int n = baseline_spread(report, g.first->run.outliers, &tail, &validation);
    table_cell(&t, "%s", g.first->run.title);
    if (baseline && g.seeds < n) /* the loss is of those that recipes share, the deviation of all */
      table_cell(&t, "%d of %d", g.seeds, n);
    else
      table_cell(&t, "%d", g.seeds);
    table_cell(&t, "%.4f", g.validation);
    if (baseline) {
      table_cell(&t, isfinite(validation) ? "sd of %d seeds %.4f" : "-", n, validation);
      table_cell(&t, isfinite(tail) ? "sd of %d seeds %.4f" : "-", n, tail);
      table_cell(&t, "baseline");
    } else {
      gap_cell(&t, g.validation_gap, g.validation_error);
      gap_cell(&t, g.tail_gap, g.tail_error);
      const char *loss = verdict_of_loss(g.tail_gap, g.tail_error, reach(n) * tail);
      const char *counters = verdict_of_counters(g.first->counts);
      table_cell(&t, counters ? "%s, %s" : "%s", loss, counters);
    }
    table_cell(&t, "%.0f", g.tokens_per_second);
  }
  fprintf(file, "Loss in nats a byte after %lld steps; gaps are paired: same initial weights, same batches.\n\n",
          (long long)report->steps);
  table_print(&t, file);
  fprintf(
      file,
      "BF16's loss is of the seeds that recipes share, its sd of all its seeds. Verdicts are of the last tenth, first\n"
      "of the loss: within noise = no worse than another seed of BF16 may be (its sd times Student's t, 95 %%) or "
      "than\n"
      "two standard errors of the gap; WORSE = beyond both; DIVERGED = NaN or Inf; - = a single seed of BF16 shows no\n"
      "noise. Then, if there is something to say, of the counters: NOT FINITE = NaN or Inf in the operands; SATURATED "
      "=\n"
      "elements were cut to the largest value; UNDERFLOW = more than 1 %% of dy became zero. tokens/s: each run was\n"
      "timed in its own minutes; what else the machine did then is in them.\n%s\n",
      report->steps <= LEAST_STEPS ? "With so few steps verdicts mean nothing.\n" : "");
}

static void memory_table(const Report *report, FILE *file) {
  static Table t;
  table_begin(&t, 8);
  const char *head[] = {"run", "qkv", "projection saved", "projection passed", "fc1", "fc2", "all linears", "weights"};
  for (int c = 0; c < 8; ++c) table_cell(&t, "%s", head[c]);
  for (int i = 0; i < report->count; ++i) {
    const Result *r = &report->results[i];
    if (!is_first(report, i) || r->run.fault != FAULT_NONE || r->run.outliers) continue;
    const double *b = r->saved.linear;
    table_cell(&t, "%s", r->run.title);
    table_cell(&t, "%.1f", b[QKV]);
    table_cell(&t, "%.1f", b[PROJECTION]);
    table_cell(&t, "%.1f", r->saved.projection_passed);
    table_cell(&t, "%.1f", b[FC1]);
    table_cell(&t, "%.1f", b[FC2]);
    table_cell(&t, "%.1f", b[QKV] + r->saved.projection_passed + b[FC1] + b[FC2]);
    table_cell(&t, "%.2f MB", (double)r->weight_bytes / 1e6);
  }
  fprintf(file,
          "Bytes kept for backward, per token and block, beside what attention keeps anyway (its BF16 output): the\n"
          "projection can save an FP8 side of its own, or be passed that output. Weights: as the GEMMs read them,\n"
          "beside the FP32 masters; FP8 weights count two sides of a byte each, for forward and for dgrad, so they\n"
          "weigh what BF16 does (docs/memory.md says how to keep one).\n\n");
  table_print(&t, file);
}

static void health_table(const Report *report, FILE *file) {
  static Table t;
  int rows = 0;
  table_begin(&t, 8);
  const char *head[] = {"run",         "x underflow",  "x saturated",  "w underflow",
                        "w saturated", "dy underflow", "dy saturated", "NaN, Inf"};
  for (int c = 0; c < 8; ++c) table_cell(&t, "%s", head[c]);
  for (int i = 0; i < report->count; ++i) {
    const Result *r = &report->results[i];
    if (!is_first(report, i) || is_baseline(&r->run)) continue;
    uint64_t broken = 0;
    ++rows;
    table_cell(&t, "%s", r->run.title);
    for (int c = 0; c < 3; ++c) {
      table_cell(&t, "%.4f %%", percent(r->counts[c].underflow, r->counts[c].nonzero));
      table_cell(&t, "%.4f %%", percent(r->counts[c].saturated, r->counts[c].count));
      broken += r->counts[c].nan + r->counts[c].inf;
    }
    table_cell(&t, "%llu", (unsigned long long)broken);
  }
  if (!rows) return;
  fprintf(file,
          "Elements of the linears' operands in the first micro-batch of the last tenth of the steps, of up to 32 of "
          "them:\n"
          "nonzero ones that FP8 made zero, and ones cut to the largest value.\n\n");
  table_print(&t, file);
}

static FILE *open_out(const Report *report, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", report->session->options.out, name);
  FILE *file = fopen(path, "w");
  if (!file) fail("cannot write %s: %s", path, strerror(errno));
  return file;
}

static void write_csv(const Report *report) {
  FILE *curves = open_out(report, "curves.csv"), *runs = open_out(report, "runs.csv");
  fprintf(curves, "run,seed,step,loss\n");
  fprintf(
      runs,
      "run,seed,steps,validation,validation_gap,tail,tail_gap,tokens_per_second,gradient_norm,saved_qkv,saved_"
      "projection,"
      "saved_fc1,saved_fc2,weight_bytes,x_underflow,x_saturated,w_underflow,w_saturated,dy_underflow,dy_saturated\n");
  for (int i = 0; i < report->count; ++i) {
    const Result *r = &report->results[i], *b = baseline_of(report, &r->run);
    for (int64_t s = 0; s < report->steps; ++s)
      fprintf(curves, "%s,%llu,%lld,%.6g\n", r->run.name, (unsigned long long)r->run.seed, (long long)s + 1,
              r->losses[s]);
    fprintf(runs, "%s,%llu,%lld,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g", r->run.name, (unsigned long long)r->run.seed,
            (long long)report->steps, r->validation, r->validation - b->validation, r->tail, r->tail - b->tail,
            r->tokens_per_second, r->gradient_norm);
    for (int k = 0; k < LINEAR_KINDS; ++k) fprintf(runs, ",%.6g", r->saved.linear[k]);
    fprintf(runs, ",%llu", (unsigned long long)r->weight_bytes);
    for (int c = 0; c < 3; ++c)
      fprintf(runs, ",%.6g,%.6g", percent(r->counts[c].underflow, r->counts[c].nonzero) / 100.0,
              percent(r->counts[c].saturated, r->counts[c].count) / 100.0);
    fputc('\n', runs);
  }
  fclose(curves);
  fclose(runs);
}

void report_write(const Report *report) {
  const char *out = report->session->options.out;
  FILE *markdown = open_out(report, "table.md");
  FILE *files[] = {markdown, stdout};
  for (int i = 0; i < 2; ++i) {
    if (i) fputc('\n', stdout);
    loss_table(report, files[i]);
    memory_table(report, files[i]);
    health_table(report, files[i]);
  }
  fclose(markdown);
  write_csv(report);
  printf("tables in %s/table.md, one line a run in %s/runs.csv, curves in %s/curves.csv\n", out, out, out);
}
