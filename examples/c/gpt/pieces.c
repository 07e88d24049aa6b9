/* SPDX-License-Identifier: Apache-2.0 */
#include "pieces.h"

#include <signal.h>
#include <unistd.h>

#include "../common/clock.h"
#include "../common/option.h"
#include "statefile.h"

enum { FIELDS = 19, PART = 1 << 20, SAVED_SECONDS = 60, RESULT = 1, STATE = 2 };

static volatile sig_atomic_t stop;
static double saved_at;
static StateLock lock; /* of the run in progress */

static void ask_to_stop(int signal) {
  (void)signal;
  stop = 1;
}

void pieces_begin(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = ask_to_stop;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  saved_at = seconds_now();
}

static const char *path_of(const Session *session, const Run *run, const char *what) {
  static char path[512];
  int n = snprintf(path, sizeof path, "%s/%s-%llu.%s", session->options.checkpoint, run->name,
                   (unsigned long long)run->seed, what);
  if (n >= (int)sizeof path) fail("--checkpoint %s: the path is too long", session->options.checkpoint);
  for (char *at = path + strlen(session->options.checkpoint) + 1; *at; ++at)
    if (*at == '/') *at = '_'; /* of a recipe's text: w=bf16/unquantized */
  return path;
}

static int64_t text_number(const char *text) { /* 0 = a preset */
  uint64_t sum = 0;
  for (; text && *text; ++text) sum = sum * 0x100000001b3u + (unsigned char)*text;
  return (int64_t)(sum >> 1);
}

static void list_fields(const Session *session, const Run *run, int64_t steps, int64_t kind, int64_t values,
                        int64_t taken, Field fields[FIELDS]) {
  const Options *o = &session->options;
  float rate = o->rate;
  int32_t rate_bits;
  memcpy(&rate_bits, &rate, sizeof rate_bits);
  Field all[FIELDS] = {{"the kind of file", kind},
                       {"layers", o->shape.layers},
                       {"dim", o->shape.dim},
                       {"seq", o->shape.seq},
                       {"batch", o->shape.batch},
                       {"micro-batches", o->micro_batches},
                       {"the recipe", run->preset},
                       {"the recipe's text, as a number,", text_number(run->recipe)},
                       {"the fault", run->fault},
                       {"outliers", run->outliers},
                       {"the seed", (int64_t)run->seed},
                       {"the rate's bits", rate_bits},
                       {"--steps", steps},
                       {"the text, as a number,", session->text.sum},
                       {"projection saved", o->save_projection},
                       {"the device", o->place.backend},
                       {"--tune (1 = yes)", o->tune},
                       {"the number of values", values},
                       {"steps taken", taken}};
  memcpy(fields, all, sizeof all);
}

int piece_finished(const Session *session, const Run *run) {
  return session->options.checkpoint && access(path_of(session, run, "result"), F_OK) == 0;
}

int piece_take(const Session *session, const Run *run) {
  if (piece_finished(session, run)) return 0;
  const char *path = path_of(session, run, "lock");
  if (!state_lock(&lock, path))
    option_bad("--checkpoint", session->options.checkpoint, "%s is locked: another process trains %s, seed %llu", path,
               run->title, (unsigned long long)run->seed);
  if (!piece_finished(session, run)) return 1;
  piece_leave(); /* finished meanwhile */
  return 0;
}

void piece_leave(void) { state_unlock(&lock); }

typedef struct Numbers { /* what a result is, beside the losses */
  double tail, validation, tokens_per_second, gradient_norm;
  Counts counts[3];
  SavedBytes saved;
  uint64_t weight_bytes;
} Numbers;

void piece_result(const Session *session, const Run *run, int64_t steps, Result *r) {
  Field fields[FIELDS];
  Numbers n;
  int64_t last, losses = steps * (int64_t)sizeof *r->losses;
  list_fields(session, run, steps, RESULT, 0, steps, fields);
  FILE *file = state_open(path_of(session, run, "result"), fields, FIELDS, losses + (int64_t)sizeof n, &last);
  state_get(file, &n, sizeof n);
  state_get(file, r->losses, (size_t)losses);
  fclose(file);
  r->tail = n.tail;
  r->validation = n.validation;
  r->tokens_per_second = n.tokens_per_second;
  r->gradient_norm = n.gradient_norm;
  memcpy(r->counts, n.counts, sizeof n.counts);
  r->saved = n.saved;
  r->weight_bytes = n.weight_bytes;
}

void piece_end(const Session *session, const Run *run, int64_t steps, const Result *r) {
  Field fields[FIELDS];
  StateWriter w;
  Numbers n;
  memset(&n, 0, sizeof n);
  n.tail = r->tail;
  n.validation = r->validation;
  n.tokens_per_second = r->tokens_per_second;
  n.gradient_norm = r->gradient_norm;
  memcpy(n.counts, r->counts, sizeof n.counts);
  n.saved = r->saved;
  n.weight_bytes = r->weight_bytes;
  list_fields(session, run, steps, RESULT, 0, steps, fields);
  state_begin(&w, path_of(session, run, "result"), fields, FIELDS, -1);
  state_put(&w, &n, sizeof n);
  state_put(&w, r->losses, (size_t)steps * sizeof *r->losses);
  state_end(&w);
  unlink(path_of(session, run, "state"));
}

typedef struct Progressed { /* what a state is, beside arrays */
  double tail, gradient_norm, tokens_per_second, smooth, seconds;
  int64_t frozen;
  Counts counts[LINEAR_KINDS][3];
} Progressed;

typedef struct Array {
  void *data;
  int64_t bytes;
} Array;

/* Everything in device memory that a step hands to the next one. */
static int list_arrays(const Model *m, Array *arrays) {
  const Parameters *p = &m->parameters;
  int64_t bytes = p->size * (int64_t)sizeof(float);
  Array flat[3] = {{p->master, bytes}, {p->m, bytes}, {p->v, bytes}};
  int count = 3;
  memcpy(arrays, flat, sizeof flat);
  for (int64_t l = 0; l < m->config.shape.layers; ++l)
    for (int k = 0; k < LINEAR_KINDS; ++k)
      if (m->blocks[l].layers[k].amax_dy) { /* of the planted fault that freezes it */
        Array amax = {m->blocks[l].layers[k].amax_dy, sizeof(float)};
        arrays[count++] = amax;
      }
  return count;
}

static Array *new_list(const Model *m, int *count, int64_t *bytes) {
  Array *arrays = calloc((size_t)(3 + LINEAR_KINDS * m->config.shape.layers), sizeof *arrays);
  REQUIRE(arrays, "out of memory");
  *count = list_arrays(m, arrays);
  *bytes = 0;
  for (int i = 0; i < *count; ++i) *bytes += arrays[i].bytes;
  return arrays;
}

static void save(const Session *session, const Run *run, int64_t steps, const Model *m, const Result *r,
                 const Piece *piece) {
  Field fields[FIELDS];
  StateWriter w;
  Progressed all;
  int count;
  int64_t bytes;
  Array *arrays = new_list(m, &count, &bytes);
  char *part = malloc(PART);
  REQUIRE(part, "out of memory");
  memset(&all, 0, sizeof all);
  all.tail = r->tail;
  all.gradient_norm = r->gradient_norm;
  all.tokens_per_second = r->tokens_per_second;
  all.smooth = piece->smooth;
  all.seconds = piece->seconds;
  all.frozen = m->frozen;
  memory_read(&m->memory, all.counts, m->counts, sizeof all.counts);
  list_fields(session, run, steps, STATE, bytes, m->step, fields);
  state_begin(&w, path_of(session, run, "state"), fields, FIELDS, -1);
  state_put(&w, &all, sizeof all);
  state_put(&w, r->losses, (size_t)steps * sizeof *r->losses);
  for (int i = 0; i < count; ++i)
    for (int64_t at = 0; at < arrays[i].bytes; at += PART) {
      size_t n = (size_t)(arrays[i].bytes - at < PART ? arrays[i].bytes - at : PART);
      memory_read(&m->memory, part, (char *)arrays[i].data + at, n);
      state_put(&w, part, n);
    }
  state_end(&w);
  free(part);
  free(arrays);
}

int64_t piece_resume(const Session *session, const Run *run, int64_t steps, Model *m, Result *r, Piece *piece) {
  Field fields[FIELDS];
  Progressed all;
  int count;
  int64_t bytes, losses = steps * (int64_t)sizeof *r->losses;
  if (access(path_of(session, run, "state"), F_OK)) return 0;
  Array *arrays = new_list(m, &count, &bytes);
  char *part = malloc(PART);
  REQUIRE(part, "out of memory");
  list_fields(session, run, steps, STATE, bytes, 0, fields);
  FILE *file =
      state_open(path_of(session, run, "state"), fields, FIELDS, (int64_t)sizeof all + losses + bytes, &m->step);
  state_get(file, &all, sizeof all);
  state_get(file, r->losses, (size_t)losses);
  r->tail = all.tail;
  r->gradient_norm = all.gradient_norm;
  r->tokens_per_second = all.tokens_per_second;
  piece->smooth = all.smooth;
  piece->seconds = all.seconds;
  m->frozen = (int)all.frozen;
  memory_write(&m->memory, m->counts, all.counts, sizeof all.counts);
  for (int i = 0; i < count; ++i)
    for (int64_t at = 0; at < arrays[i].bytes; at += PART) {
      size_t n = (size_t)(arrays[i].bytes - at < PART ? arrays[i].bytes - at : PART);
      state_get(file, part, n);
      memory_write(&m->memory, (char *)arrays[i].data + at, part, n);
    }
  fclose(file);
  free(part);
  free(arrays);
  return m->step;
}

void piece_step(const Session *session, const Run *run, int64_t steps, const Model *m, const Result *r,
                const Piece *piece) {
  int64_t every = session->options.checkpoint_every;
  if (m->step == steps && !stop) return; /* its result follows at once */
  int here = m->step == session->options.until;
  if (stop || here || (every ? m->step % every == 0 : seconds_now() - saved_at > SAVED_SECONDS)) {
    save(session, run, steps, m, r, piece);
    saved_at = seconds_now();
  }
  if (!stop) return;
  fprintf(stderr, "\nstopped after step %lld of %s, seed %llu: the same command goes on\n", (long long)m->step,
          run->title, (unsigned long long)run->seed);
  piece_leave();
  exit(TO_BE_CONTINUED);
}
