/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a byte-level GPT in BF16 and with FP8 recipes, all through the same calls, and compares them. Read train.c for
 * the loop, model.c for forward and backward, layer.c for what a trainer asks of libfp8. */
#include "../common/clock.h"
#include "pieces.h"
#include "report.h"

typedef struct Runs {
  Run *items;
  int count;
} Runs;

static void add(Runs *runs, int32_t preset, enum Fault fault, int outliers, uint64_t seed) {
  static char texts[2][PRESET_COUNT + FAULT_COUNT][64]; /* names and titles of what is more than a preset */
  const Preset *p = preset_find(preset);
  Run run = {p->name, p->title, preset, fault, seed, outliers, NULL};
  if (fault != FAULT_NONE || outliers) {
    const char *what = fault != FAULT_NONE ? fault_name(fault) : "outliers";
    int slot = fault != FAULT_NONE ? PRESET_COUNT + (int)fault : (int)(p - presets);
    snprintf(texts[0][slot], sizeof texts[0][slot], "%s+%s", p->name, what);
    snprintf(texts[1][slot], sizeof texts[1][slot], "%s %s", p->title, what);
    run.name = texts[0][slot];
    run.title = texts[1][slot];
  }
  runs->items[runs->count++] = run;
}

static void add_text(Runs *runs, const char *text, int slot, uint64_t seed) {
  static char titles[MOST_TEXTS][RECIPE_TEXT + 8]; /* a preset's title, and the text's fields */
  fp8_recipe *recipe;
  fp8_recipe_config config;
  CHECK(fp8_recipe_from_string(text, &recipe));
  CHECK(fp8_recipe_query(recipe, (FP8_INIT(&config), &config)));
  fp8_recipe_destroy(recipe);
  snprintf(titles[slot], sizeof titles[0], "%s%s", preset_find(config.preset)->title, strchr(text, ';'));
  for (char *at = titles[slot]; *at; ++at)
    if (*at == ';') *at = ' ';
  Run run = {text, titles[slot], config.preset, FAULT_NONE, seed, 0, text};
  runs->items[runs->count++] = run;
}

/* The demo: two seeds of the baseline show the noise, one of each recipe is paired with the first. With --seeds every
 * run has that many seeds. */
static void list_runs(const Options *o, Runs *runs) {
  for (int s = 0; s < (o->seeds ? o->seeds : 1); ++s) {
    uint64_t seed = o->seed + (uint64_t)s;
    int before = runs->count;
    add(runs, FP8_PRESET_NONE, FAULT_NONE, 0, seed);
    for (int i = 1; i < PRESET_COUNT; ++i)
      if (o->chosen[i]) add(runs, presets[i].preset, FAULT_NONE, 0, seed);
    for (int i = 0; i < o->text_count; ++i) add_text(runs, o->texts[i], i, seed);
    for (int f = 1; f < FAULT_COUNT; ++f) {
      if (!o->faults[f]) continue;
      int outliers = f == FAULT_FLOOR_OUTLIERS;
      if (outliers) { /* the setting is not the fault: it has a baseline, and the recipe without the fault */
        add(runs, FP8_PRESET_NONE, FAULT_NONE, 1, seed);
        add(runs, fault_preset((enum Fault)f), FAULT_NONE, 1, seed);
      }
      add(runs, fault_preset((enum Fault)f), (enum Fault)f, outliers, seed);
    }
    if (!o->seeds && runs->count > before + 1) add(runs, FP8_PRESET_NONE, FAULT_NONE, 0, seed + 1);
  }
}

static int is_listed(const char *list, const Run *run) {
  char name[RECIPE_TEXT + 24];
  size_t length = (size_t)snprintf(name, sizeof name, "%s-%llu", run->name, (unsigned long long)run->seed);
  for (const char *at = list; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
    if (strcspn(at, ",") == length && !strncmp(at, name, length)) return 1;
  return 0;
}

/* --only: the runs that are this process's. */
static void keep_listed(const char *list, Runs *runs) {
  int kept = 0, listed = *list != 0, found = 0;
  for (const char *at = list; *at; ++at) listed += *at == ',';
  for (int i = 0; i < runs->count; ++i) found += is_listed(list, &runs->items[i]);
  if (!listed || found != listed) {
    fprintf(stderr, "gpt: --only %s: names of runs are needed, which are", list);
    for (int i = 0; i < runs->count; ++i)
      fprintf(stderr, " %s-%llu", runs->items[i].name, (unsigned long long)runs->items[i].seed);
    fputc('\n', stderr);
    exit(2);
  }
  for (int i = 0; i < runs->count; ++i)
    if (is_listed(list, &runs->items[i])) runs->items[kept++] = runs->items[i];
  runs->count = kept;
}

/* Measures one run of each kind; seconds[i] is then what a step of run i takes, and forwards[i] a validation batch. */
static void measure(Session *session, const Run *runs, int count, double *seconds, double *forwards) {
  int measured = 0;
  for (int i = 0; i < count; ++i) {
    int same = 0;
    if (piece_finished(session, &runs[i])) continue;
    while (same < i && !(seconds[same] > 0.0 && run_same_kind(&runs[same], &runs[i]))) ++same;
    if (same < i) {
      seconds[i] = seconds[same];
      forwards[i] = forwards[same];
      continue;
    }
    if (!measured++) fprintf(stderr, "measuring");
    train_measure(session, &runs[i], &seconds[i], &forwards[i]);
    fprintf(stderr, "  %s %.2f s", runs[i].title, seconds[i]);
  }
  if (measured) fprintf(stderr, " a step\n");
}

static void describe(const Session *session, int64_t steps, int runs) {
  const Options *o = &session->options;
  const Shape *s = &o->shape;
  double parameters =
      (double)(s->layers * (12 * s->dim * s->dim + 13 * s->dim) + (2 * VOCABULARY + s->seq + 2) * s->dim);
  int64_t threads;
  CHECK(fp8_context_query(session->context, FP8_QUERY_THREADS, &threads));
  printf("text        %s: %.1f MB, last twentieth held out\n", session->text.source, (double)session->text.size / 1e6);
  printf("model       %lld layers of %lld, %lld heads, %.1f M parameters; sequences of %lld bytes\n",
         (long long)s->layers, (long long)s->dim, (long long)s->heads, parameters / 1e6, (long long)s->seq);
  printf("training    %d runs of %lld steps, %lld bytes a step in %lld micro-batches; %d threads\n", runs,
         (long long)steps, (long long)(shape_rows(s) * o->micro_batches), (long long)o->micro_batches, (int)threads);
  printf(
      "precision   qkv, projection, fc1, fc2 in the recipe; head in BF16; embeddings, norms, attention, optimizer "
      "FP32\n\n");
  fflush(stdout);
}

/* What ran is part of the result: which implementations, on which instruction set, and why others declined. */
static void explain(const Session *session) {
  uint64_t needed;
  CHECK(fp8_context_explain(session->context, NULL, 0, &needed));
  char *text = malloc((size_t)needed);
  REQUIRE(text, "out of memory");
  CHECK(fp8_context_explain(session->context, text, needed, &needed));
  printf("\nwhat libfp8 ran:\n%s\n", text);
  free(text);
}

int main(int count, char **arguments) {
  Options options;
  Session session;
  options_parse(&options, count, arguments);
  double start = seconds_now();
  session_open(&session, &options);
  if (options.checkpoint) pieces_begin();

  size_t most = (size_t)(options.seeds ? options.seeds : 1) * (PRESET_COUNT + MOST_TEXTS + FAULT_COUNT + 2);
  Run *runs = calloc(most, sizeof *runs);
  Result *results = calloc(most, sizeof *results);
  double *seconds = calloc(2 * most, sizeof *seconds), *forwards = seconds + most;
  REQUIRE(runs && results && seconds, "out of memory");
  Runs list = {runs, 0};
  list_runs(&options, &list);
  if (options.only) keep_listed(options.only, &list);
  int run_count = list.count, finished = 0;
  for (int i = 0; options.checkpoint && i < run_count; ++i) /* said before anything is measured */
    if (piece_take(&session, &runs[i])) piece_leave();
  if (!options.only) measure(&session, runs, run_count, seconds, forwards); /* else others know of the time left */

  double per_step = 0.0, validation = 0.0;
  for (int i = 0; i < run_count; ++i) {
    per_step += seconds[i];
    validation += forwards[i] * (double)train_validation_batches(&session);
  }
  int64_t steps = options.steps;
  if (!steps) { /* the rest of the time, less a reserve for tables and a busy machine */
    double left = 0.95 * (60.0 * options.minutes - (seconds_now() - start)) - validation;
    steps = left > LEAST_STEPS * per_step ? (int64_t)(left / per_step) : LEAST_STEPS;
    if (left < LEAST_STEPS * per_step)
      printf(
          "note        --minutes %g is too short: each run gets the least number of steps, %d, all of it takes\n"
          "            about %.0f s, and verdicts mean nothing with so few steps\n",
          options.minutes, LEAST_STEPS, seconds_now() - start + LEAST_STEPS * per_step + validation);
  }
  describe(&session, steps, run_count);
  session.progress.total_seconds = (double)steps * per_step + validation;
  for (int i = 0; i < run_count; ++i) {
    double expected = (double)steps * seconds[i] + forwards[i] * (double)train_validation_batches(&session);
    finished += train(&session, &runs[i], steps, expected, &results[i]);
  }

  if (!options.only && finished == run_count) {
    Report report = {&session, results, run_count, steps};
    report_write(&report);
  }
  explain(&session);
  printf("took %.0f s\n", seconds_now() - start);
  for (int i = 0; i < run_count; ++i) free(results[i].losses);
  free(results);
  free(runs);
  free(seconds);
  session_close(&session);
  return finished == run_count ? 0 : TO_BE_CONTINUED;
}
