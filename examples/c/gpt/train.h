/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: the baseline and the recipes, each from the same weights and over the same batches for one seed. */
#ifndef GPT_TRAIN_H
#define GPT_TRAIN_H
#include "../common/place.h"
#include "../common/progress.h"
#include "data.h"
#include "model.h"
#include "options.h"

typedef struct Run {
  const char *name, *title; /* "mx", "MX" */
  int32_t preset;
  enum Fault fault;
  uint64_t seed;
  int outliers;       /* some channels of the norms' outputs are amplified: a setting with a baseline of its own */
  const char *recipe; /* text of a recipe that is more than the preset; NULL = the preset */
} Run;

typedef struct Result {
  Run run;
  float *losses;            /* of every step, mean over its micro-batches */
  double tail;              /* mean over the last tenth of the steps */
  double validation;        /* at the end, over the held-out part */
  double tokens_per_second; /* of training steps, before the last tenth, which counts */
  double gradient_norm;     /* of the last step */
  Counts counts[3];         /* x, w, dy, in up to 32 of the last tenth of the steps, of each one's first micro-batch */
  SavedBytes saved;
  uint64_t weight_bytes;
} Result;

typedef struct Session {
  Options options;
  fp8_context *context;
  fp8_stream stream;
  const Kernels *kernels;
  Pool *pool;
  Text text;
  Progress progress;
} Session;

static inline int run_same_kind(const Run *a, const Run *b) { /* all but the seed */
  return a->preset == b->preset && a->fault == b->fault && a->outliers == b->outliers && a->recipe == b->recipe;
}

void session_open(Session *session, const Options *options);
ModelConfig train_config(const Session *session, const Run *run);
float train_rate(const Options *options, int64_t step, int64_t steps);
void session_close(Session *session);
/* Seconds of one optimizer step and of one forward of a micro-batch. */
void train_measure(Session *session, const Run *run, double *step_seconds, double *forward_seconds);
/* To the end, or to --until; to be continued then: returns 0. */
int train(Session *session, const Run *run, int64_t steps, double expected_seconds, Result *result);
int64_t train_validation_batches(const Session *session); /* micro-batches of the last evaluation */
#endif
