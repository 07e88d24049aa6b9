/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <math.h>

#include "../common/clock.h"
#include "pieces.h"

enum { MOST_COUNTED = 32 }; /* steps with statistics, which cost time */

void session_open(Session *session, const Options *options) {
  memset(session, 0, sizeof *session);
  session->options = *options;
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = options->place.backend;
  config.device = options->place.device;
  config.threads = options->threads;
  config.flags = options->tune ? FP8_CONTEXT_TUNE : 0;
  CHECK(fp8_context_create(&config, &session->context));
  session->stream = place_open(&options->place);
  session->kernels = PLACE_KERNELS(&options->place, &kernels_cpu, &kernels_cuda);
  session->pool = pool_create(options->threads);
  text_load(&session->text, options->data, options->shape.seq);
}

void session_close(Session *session) {
  text_free(&session->text);
  pool_destroy(session->pool);
  place_close(&session->options.place, session->stream);
  fp8_context_destroy(session->context);
}

ModelConfig train_config(const Session *session, const Run *run) {
  const Options *o = &session->options;
  ModelConfig config = {.context = session->context,
                        .stream = session->stream,
                        .kernels = session->kernels,
                        .pool = session->pool,
                        .shape = o->shape,
                        .micro_batches = o->micro_batches,
                        .preset = run->preset,
                        .recipe = run->recipe,
                        .seed = run->seed,
                        .fault = run->fault,
                        .outlier = run->outliers ? FAULT_OUTLIER : 1.0f,
                        .save_projection = o->save_projection};
  return config;
}

static void create(const Session *session, const Run *run, Model *model) {
  ModelConfig config = train_config(session, run);
  model_create(model, &config);
}

/* Warm-up over the first tenth, then a cosine down to a tenth of the peak. */
float train_rate(const Options *o, int64_t step, int64_t steps) {
  double warm = fmax(1.0, fmin(100.0, 0.1 * (double)steps));
  if ((double)step < warm) return (float)(o->rate * ((double)step + 1.0) / warm);
  double part = ((double)step - warm) / fmax(1.0, (double)steps - warm);
  return (float)(o->rate * (0.55 + 0.45 * cos(3.141592653589793 * part)));
}

/* With `counting`, the statistics are of the weights and of the first micro-batch. */
static double one_step(const Session *session, Model *model, uint64_t seed, int64_t step, int counting, float rate,
                       double *norm) {
  const Options *o = &session->options;
  int64_t rows = shape_rows(&o->shape);
  uint8_t *tokens = malloc(2 * (size_t)rows), *targets = tokens + rows;
  REQUIRE(tokens, "out of memory");
  double loss = 0.0;
  model->counting = counting;
  model_quantize_weights(model); /* once: all micro-batches of the step read these */
  for (int64_t micro = 0; micro < o->micro_batches; ++micro) {
    text_batch(&session->text, &o->shape, seed, step * o->micro_batches + micro, tokens, targets);
    loss += model_forward(model, tokens, targets, 1) / (double)o->micro_batches;
    model_backward(model);
    model->counting = 0;
  }
  *norm = model_update(model, rate);
  free(tokens);
  return loss;
}

int64_t train_validation_batches(const Session *session) {
  int64_t rows = shape_rows(&session->options.shape), held_out = session->text.size - session->text.train;
  int64_t most = (held_out + rows - 1) / rows, wanted = 32768 / rows;
  int64_t least = 16 * session->options.micro_batches; /* the same text however a step is split */
  wanted = wanted < least ? least : wanted;
  return wanted < most ? wanted : most;
}

static double validate(const Session *session, Model *model) {
  const Options *o = &session->options;
  int64_t rows = shape_rows(&o->shape), count = train_validation_batches(session);
  uint8_t *tokens = malloc(2 * (size_t)rows), *targets = tokens + rows;
  REQUIRE(tokens, "out of memory");
  double loss = 0.0;
  model_quantize_weights(model);
  for (int64_t i = 0; i < count; ++i) {
    text_held_out(&session->text, &o->shape, i, count, tokens, targets);
    loss += model_forward(model, tokens, targets, 0) / (double)count;
  }
  free(tokens);
  return loss;
}

void train_measure(Session *session, const Run *run, double *step_seconds, double *forward_seconds) {
  Model model;
  double norm, start = 0.0;
  int64_t rows = shape_rows(&session->options.shape);
  create(session, run, &model);
  one_step(session, &model, run->seed, 0, 0, 1e-6f, &norm); /* the first one pays for plans and cold memory */
  start = seconds_now();
  for (int i = 0; i < 2; ++i) one_step(session, &model, run->seed, 0, 0, 1e-6f, &norm);
  *step_seconds = (seconds_now() - start) / 2.0;
  uint8_t *tokens = malloc(2 * (size_t)rows);
  REQUIRE(tokens, "out of memory");
  text_held_out(&session->text, &session->options.shape, 0, 1, tokens, tokens + rows);
  start = seconds_now();
  model_forward(&model, tokens, tokens + rows, 0);
  *forward_seconds = seconds_now() - start;
  free(tokens);
  model_destroy(&model);
}

int train(Session *session, const Run *run, int64_t steps, double expected_seconds, Result *result) {
  const Options *o = &session->options;
  int64_t tail = steps - (steps + 9) / 10;
  int64_t counted = (steps - tail + MOST_COUNTED - 1) / MOST_COUNTED; /* of this many steps, one */
  double tokens = (double)(shape_rows(&o->shape) * o->micro_batches);
  Piece piece = {0.0, 0.0};
  char label[sizeof session->progress.label], detail[96];
  Model model;
  memset(result, 0, sizeof *result);
  result->run = *run;
  result->losses = calloc((size_t)steps, sizeof *result->losses);
  REQUIRE(result->losses, "out of memory");
  if (o->checkpoint && !piece_take(session, run)) {
    piece_result(session, run, steps, result);
    return 1;
  }
  create(session, run, &model);
  int64_t first = o->checkpoint ? piece_resume(session, run, steps, &model, result, &piece) : 0;
  snprintf(label, sizeof label, "%-22s seed %llu", run->title, (unsigned long long)run->seed);
  progress_begin(&session->progress, label, steps, expected_seconds);
  double start = seconds_now() - piece.seconds;
  int64_t end = o->until && o->until < steps ? o->until : steps;
  for (int64_t step = first; step < end; ++step) {
    double loss = one_step(session, &model, run->seed, step, step >= tail && (step - tail) % counted == 0,
                           train_rate(o, step, steps), &result->gradient_norm);
    result->losses[step] = (float)loss;
    if (step >= tail) result->tail += loss / (double)(steps - tail);
    piece.smooth = step ? 0.9 * piece.smooth + 0.1 * loss : loss;
    piece.seconds = seconds_now() - start;
    if (step < tail || !tail) result->tokens_per_second = tokens * (double)(step + 1) / piece.seconds;
    snprintf(detail, sizeof detail, "smoothed loss %.3f  %.0f tokens/s", piece.smooth, result->tokens_per_second);
    progress_show(&session->progress, step + 1, detail);
    if (o->checkpoint) piece_step(session, run, steps, &model, result, &piece);
  }
  if (end < steps) { /* piece_step() has saved it */
    model_destroy(&model);
    piece_leave();
    snprintf(detail, sizeof detail, "kept at step %lld  smoothed loss %.3f  %.0f tokens/s",
             (long long)(first > end ? first : end), piece.smooth, result->tokens_per_second);
    progress_end(&session->progress, detail);
    return 0;
  }
  model_counts(&model, result->counts);
  model_saved_bytes(&model, &result->saved);
  result->weight_bytes = model_weight_bytes(&model);
  result->validation = validate(session, &model);
  model_destroy(&model);
  if (o->checkpoint) {
    piece_end(session, run, steps, result);
    piece_leave();
  }
  snprintf(detail, sizeof detail, "validation %.4f  %.0f tokens/s", result->validation, result->tokens_per_second);
  progress_end(&session->progress, detail);
  return 1;
}
