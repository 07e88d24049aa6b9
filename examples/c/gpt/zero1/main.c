/* SPDX-License-Identifier: Apache-2.0 */
/* The data-parallel GPT: mpirun -n 2 gpt_mpi --recipe mx, or gpt_zero1 --ranks 2 --device cuda --recipe mx. Read
 * sharded.c for what a step is. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "../../common/clock.h"
#include "../../common/option.h"
#include "../statefile.h"
#include "accounts.h"
#include "checkpoint.h"

enum { WARM_UP = 3 }; /* steps before the speed is taken */

static const char help[] =
    "  --recipe LIST     every one of the list is a run: all (default), or some of tensor,row,block,mx,mx_w2d\n"
    "                    (any case, or names such as mxfp8, blockwise); none = the BF16 baseline\n"
    "  --steps N         optimizer steps of a run (default 20)\n"
    "  --param-gather W  fp8 (default): the block weights exist in FP8 only, and are gathered so;\n"
    "                    bf16: gathered in BF16, then quantized on every rank; both: one run of each,\n"
    "                    (and one with --columns late), and every loss must be the same to the last bit\n"
    "  --columns W       kept (default): both sides of each FP8 weight; late: the column side is made from\n"
    "                    the row side when backward needs it, in one buffer for all weights\n"
    "                    (tensor, block, mx_w2d: with the others it comes from the masters)\n"
    "  --checkpoint FILE written at the end, and after every K steps with --checkpoint-every K\n"
    "  --resume FILE     goes on from a checkpoint, of any number of ranks; --recipe, --steps, --seed, --rate, "
    "--data,\n"
    "                    --micro, --batch, --projection and the model's size must be what they were when it was "
    "written\n"
    "  --stop N          ends after step N of the --steps that the learning rate is planned for\n"
    "  --losses FILE     every loss, in full\n"
    "  --kill-at BYTES   planted fault: rank 0 dies when the last checkpoint is written so far\n"
    "  --kill-rank R     planted fault: rank R dies before step N of --kill-step N (default 3)\n"
    "  --accounts W      yes (default): a table of bytes, resident and on the wire, after each recipe; no\n"
    "\n"
    "and, as gpt takes them (--threads is of one rank, by default its share of all):\n\n";

typedef struct Extra {
  enum Gathered gathered;
  int late;
  const char *checkpoint, *resume, *losses;
  int64_t every, stop, kill_at, kill_rank, kill_step;
  StateLock lock; /* of the checkpoint, where rank is 0 */
  int silent;
} Extra;

static int64_t whole(const char *name, const char *value) { return option_integer(name, value, 0, INT64_MAX); }

static int take(Extra *x, const char *name, const char *value) {
  if (option_is("--param-gather", name, value)) {
    static const char *const names[] = {"fp8", "bf16", "both"};
    for (int i = 0; i < 3; ++i)
      if (!strcmp(value, names[i])) return x->gathered = (enum Gathered)i, 1;
    option_bad(name, value, "fp8, bf16 or both is needed");
  }
  if (option_is("--columns", name, value)) {
    x->late = !strcmp(value, "late");
    if (!x->late && strcmp(value, "kept")) option_bad(name, value, "kept or late is needed");
    return 1;
  }
  if (option_is("--accounts", name, value)) {
    x->silent = !strcmp(value, "no");
    if (!x->silent && strcmp(value, "yes")) option_bad(name, value, "yes or no is needed");
    return 1;
  }
  if (option_is("--checkpoint", name, value)) return x->checkpoint = value, 1;
  if (option_is("--resume", name, value)) return x->resume = value, 1;
  if (option_is("--losses", name, value)) return x->losses = value, 1;
  if (option_is("--checkpoint-every", name, value)) return x->every = whole(name, value), 1;
  if (option_is("--stop", name, value)) return x->stop = whole(name, value), 1;
  if (option_is("--kill-rank", name, value)) return x->kill_rank = whole(name, value), 1;
  if (option_is("--kill-step", name, value)) return x->kill_step = whole(name, value), 1;
  if (option_is("--kill-at", name, value)) return x->kill_at = whole(name, value), 1;
  return transport_option(name, value);
}

static void refuse(const char *name) {
  static const char *const of_gpt[] = {"--minutes", "--seeds", "--fault", "--out", "--until", "--only"};
  for (size_t i = 0; i < sizeof of_gpt / sizeof *of_gpt; ++i)
    if (!strcmp(name, of_gpt[i])) option_bad(name, NULL, "this is an option of gpt, and not taken here");
  option_unknown(name);
}

static void parse(Extra *x, Options *options, int count, char **arguments, int rank) {
  Extra none = {.gathered = GATHER_FP8, .kill_at = -1, .kill_rank = -1, .kill_step = 3};
  *x = none;
  options_begin(options);
  for (int i = 1; i < count; i += 2) {
    const char *name = arguments[i], *value = arguments[i + 1]; /* NULL after the last one */
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
      if (rank == 0) printf("%s%s%s", transport_help, help, options_help);
      transport_end();
      exit(0);
    }
    if (!take(x, name, value) && !options_set(options, name, value)) refuse(name);
  }
  options_end(options);
  if (!options->steps) options->steps = 20;
  if (options->text_count) option_bad("--recipe", options->texts[0], "names of presets are needed here");
  if (!x->stop || x->stop > options->steps) x->stop = options->steps;
  int runs = 0;
  for (int i = 1; i < PRESET_COUNT; ++i) {
    runs += options->chosen[i];
    if (options->chosen[i] && x->late && (!transposes(presets[i].preset) || x->gathered == GATHER_BF16))
      option_bad("--columns", "late", "%s",
                 x->gathered == GATHER_BF16 ? "with BF16 gathered, both sides are quantized at once"
                                            : "tensor, block and mx_w2d have column sides that are transposes");
  }
  if ((x->checkpoint || x->resume) && (runs > 1 || x->gathered == GATHER_BOTH))
    option_bad(x->checkpoint ? "--checkpoint" : "--resume", x->checkpoint ? x->checkpoint : x->resume,
               "a checkpoint is of one run: name one --recipe, and fp8 or bf16 for --param-gather");
  if (rank == 0 && x->checkpoint) { /* others may be on other machines */
    char path[sizeof x->lock.path];
    option_file("--checkpoint", x->checkpoint);
    snprintf(path, sizeof path, "%s.lock", x->checkpoint);
    if (!state_lock(&x->lock, path))
      option_bad("--checkpoint", x->checkpoint, "%s is locked: another process writes this checkpoint", path);
  }
  if (rank == 0 && x->losses) option_file("--losses", x->losses);
}

typedef struct Job {
  const Session *session;
  const Extra *extra;
  Parallel *parallel;
  FILE *losses; /* of rank 0 */
} Job;

/* Trains one configuration; losses[step] from the first step that it takes on. */
static void run(const Job *job, int32_t preset, enum Gathered gathered, int late, double *losses) {
  const Options *o = &job->session->options;
  const Extra *x = job->extra;
  const Preset *found = preset_find(preset);
  const char *way = preset == FP8_PRESET_NONE || gathered == GATHER_BF16 ? "bf16" : "fp8";
  Run what = {found->name, found->title, preset, FAULT_NONE, o->seed, 0, NULL};
  Sharded z;
  double norm = 0.0, start = seconds_now(), warm = start;
  int rank = job->parallel->rank;
  sharded_create(&z, job->session, job->parallel, &what, gathered, late);
  int64_t first = x->resume ? checkpoint_read(&z, x->resume, o->steps) : 0;
  for (int64_t step = first; step < x->stop; ++step) {
    if (rank == x->kill_rank && step + 1 == x->kill_step) raise(SIGKILL);
    if (step == first + WARM_UP) warm = seconds_now();
    losses[step] = sharded_step(&z, o->seed, step, train_rate(o, step, o->steps), &norm);
    if (job->losses) {
      fprintf(job->losses, "%s %s %lld %a\n", found->name, way, (long long)step + 1, losses[step]);
      fflush(job->losses);
    }
    int64_t every = (x->stop - first + 9) / 10;
    if (rank == 0 && ((step + 1) % every == 0 || step + 1 == x->stop)) {
      printf("%-7s gathers %s%-14s step %4lld  loss %.6f  gradient %.4f  %.1f s\n", found->title, way,
             late ? ", columns late" : "", (long long)step + 1, losses[step], norm, seconds_now() - start);
      fflush(stdout);
    }
    if (x->checkpoint && (step + 1 == x->stop || (x->every && (step + 1) % x->every == 0)))
      checkpoint_write(&z, x->checkpoint, o->steps, step + 1 == x->stop ? x->kill_at : -1);
  }
  if (rank == 0 && x->stop > first + WARM_UP)
    printf("%-7s gathers %s%s: %.0f tokens/s on %d ranks\n", found->title, way, late ? ", columns late" : "",
           (double)((x->stop - first - WARM_UP) * o->micro_batches * shape_rows(&o->shape)) / (seconds_now() - warm),
           job->parallel->world);
  if (x->checkpoint && first >= x->stop) checkpoint_write(&z, x->checkpoint, o->steps, x->kill_at);
  sharded_destroy(&z);
}

static void same(const Job *job, int32_t preset, const char *what, const double *a, const double *b) {
  for (int64_t step = 0; step < job->extra->stop; ++step)
    REQUIRE(!memcmp(&a[step], &b[step], sizeof *a), "%s: step %lld: the loss is %.17g with FP8 gathered, %.17g with %s",
            preset_find(preset)->name, (long long)step + 1, a[step], b[step], what);
}

static void runs_of(const Job *job, int32_t preset, double *losses[2]) {
  const Extra *x = job->extra;
  int late = transposes(preset);
  if (x->gathered != GATHER_BOTH || preset == FP8_PRESET_NONE) {
    run(job, preset, x->gathered, x->late, losses[0]);
    return;
  }
  run(job, preset, GATHER_FP8, 0, losses[0]);
  run(job, preset, GATHER_BF16, 0, losses[1]);
  same(job, preset, "BF16 gathered", losses[0], losses[1]);
  if (late) {
    run(job, preset, GATHER_FP8, 1, losses[1]);
    same(job, preset, "column sides made late", losses[0], losses[1]);
  }
  if (job->parallel->rank == 0)
    printf("%s: %lld losses are the same to the last bit, whichever was gathered%s\n", preset_find(preset)->title,
           (long long)x->stop, late ? ", and whenever the column sides were made" : "");
}

int main(int count, char **arguments) {
  Extra extra;
  Options options;
  Session session;
  Parallel parallel;
  Transport transport;
  memset(&transport, 0, sizeof transport);
  transport.timeout_ms = -1;
  int rank = transport_begin(&count, &arguments);
  parse(&extra, &options, count, arguments, rank);
  transport_start(&transport, &options);
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (!options.threads) options.threads = processors > transport.world ? (int)(processors / transport.world) : 1;
  session_open(&session, &options);
  transport_open(&transport, &session);
  parallel_open(&parallel, &session, &transport);
  Job job = {&session, &extra, &parallel, NULL};
  if (parallel.rank == 0 && extra.losses) {
    job.losses = fopen(extra.losses, "w");
    if (!job.losses) fail("cannot write %s: %s", extra.losses, strerror(errno));
  }
  double *losses[2] = {calloc((size_t)options.steps, sizeof(double)), calloc((size_t)options.steps, sizeof(double))};
  REQUIRE(losses[0] && losses[1], "out of memory");
  int runs = 0;
  for (int i = 1; i < PRESET_COUNT; ++i) {
    if (!options.chosen[i]) continue;
    ++runs;
    runs_of(&job, presets[i].preset, losses);
    if (!extra.silent) accounts_print(&session, &parallel, presets[i].preset);
  }
  if (!runs) {
    runs_of(&job, FP8_PRESET_NONE, losses);
    if (!extra.silent) accounts_print(&session, &parallel, FP8_PRESET_NONE);
  }
  if (job.losses && fclose(job.losses)) fail("cannot write %s: %s", extra.losses, strerror(errno));
  free(losses[0]);
  free(losses[1]);
  parallel_sum(&parallel, 0.0); /* all are done */
  if (parallel.rank == 0 && extra.checkpoint) state_unlock(&extra.lock);
  parallel_close(&parallel);
  transport.close(&transport);
  session_close(&session);
  transport_end();
  return 0;
}
