/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <string.h>

static const char help[] =
    "gpt: trains a byte-level GPT with FP8 linears through libfp8 and compares recipes with BF16\n"
    "\n"
    "  --recipe LIST    recipes to compare with the BF16 baseline: all (default), or some of\n"
    "                   tensor,row,block,mx,mx_w2d (any case, or names such as mxfp8, blockwise);\n"
    "                   none = the baseline alone\n"
    "  --minutes M      time for everything (default 6): speed is measured at the start, and every\n"
    "                   run gets the same number of steps, at least 10\n"
    "  --steps N        that many optimizer steps a run, however long they take\n"
    "  --seed S         of initial weights and batches (default 1)\n"
    "  --seeds N        the long comparison: every run with N seeds, paired with BF16 of the same seed\n"
    "  --fault LIST     also train recipes with planted faults, which the table must show; all, or some of:\n"
    "                     wgrad-axis        MX, scales of the wgrad operands read along the wrong axis\n"
    "                     dy-e4m3-tensor    TENSOR, dy in E4M3 under one frozen scale, loss scale 2^-12\n"
    "                     floor-outliers    MX with the OCP floor rule, where some channels are outliers;\n"
    "                                       beside it BF16 and MX with the same outliers\n"
    "  --data FILE      text to learn (default: the Perl manual, Debian package perl-doc)\n"
    "  --layers N       default 4          --dim N      default 256 (a multiple of 64)\n"
    "  --seq N          default 128        --batch N    sequences of a micro-batch (default 4)\n"
    "  --micro N        micro-batches a step (default 2)\n"
    "  --rate R         peak learning rate (default 1e-3)\n"
    "  --projection W   what the attention projection keeps for backward: passed (default: attention's\n"
    "                   own BF16 output, which is kept anyway) or saved (an FP8 copy beside it)\n"
    "  --device D       cpu (default), cuda or cuda:N\n"
    "  --threads N      of the CPU (default: all)\n"
    "  --out DIR        where CSV and tables go (default: out/gpt)\n"
    "  --checkpoint DIR keeps each finished run's result there, and every minute the state of the run in\n"
    "                   progress: the same command goes on (needs --steps). SIGTERM saves, and ends with 75\n"
    "  --checkpoint-every N   steps between states, instead of a minute\n"
    "  --help           this text\n";

#if defined(__GNUC__)
__attribute__((noreturn))
#endif
static void
bad(const char *name, const char *value, const char *rule) {
  fprintf(stderr, "gpt: %s%s%s: %s (see --help)\n", name, value ? " " : "", value ? value : "", rule);
  exit(2);
}

static int64_t integer(const char *name, const char *value, int64_t least, int64_t most) {
  char *end, rule[96];
  errno = 0;
  long long n = strtoll(value, &end, 10);
  snprintf(rule, sizeof rule, "a whole number from %lld to %lld is needed", (long long)least, (long long)most);
  if (errno || end == value || *end || n < least || n > most) bad(name, value, rule);
  return n;
}

static double real(const char *name, const char *value, double least, double most) {
  char *end, rule[96];
  errno = 0;
  double x = strtod(value, &end);
  snprintf(rule, sizeof rule, "a number from %g to %g is needed", least, most);
  if (errno || end == value || *end || !(x >= least && x <= most)) bad(name, value, rule);
  return x;
}

static void parse_faults(Options *o, const char *value) {
  char name[32];
  for (const char *at = value; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
    enum Fault fault = fault_parse(name);
    if (fault == FAULT_NONE && strcmp(name, "all"))
      bad("--fault", value, "all, wgrad-axis, dy-e4m3-tensor or floor-outliers is needed");
    for (int f = 1; f < FAULT_COUNT; ++f) o->faults[f] |= fault == FAULT_NONE || (int)fault == f;
  }
}

static void set(Options *o, const char *name, const char *value) {
  if (!strcmp(name, "--device")) {
    if (!place_parse(value, &o->place)) bad(name, value, "cpu, cuda or cuda:N is needed");
    if (!place_built(&o->place))
      bad(name, value, "this program was built without CUDA (nvcc 13 and cublasLt.h, then cmake -DFP8_CUDA=ON)");
  } else if (!strcmp(name, "--recipe"))
    presets_parse(value, o->chosen);
  else if (!strcmp(name, "--minutes"))
    o->minutes = real(name, value, 0.05, 1e5);
  else if (!strcmp(name, "--steps"))
    o->steps = integer(name, value, 1, 1000000000);
  else if (!strcmp(name, "--seed"))
    o->seed = (uint64_t)integer(name, value, 0, INT64_MAX);
  else if (!strcmp(name, "--seeds"))
    o->seeds = (int)integer(name, value, 1, 1000);
  else if (!strcmp(name, "--data"))
    o->data = value;
  else if (!strcmp(name, "--layers"))
    o->shape.layers = integer(name, value, 1, 256);
  else if (!strcmp(name, "--dim"))
    o->shape.dim = integer(name, value, 64, 16384);
  else if (!strcmp(name, "--seq"))
    o->shape.seq = integer(name, value, 16, 8192);
  else if (!strcmp(name, "--batch"))
    o->shape.batch = integer(name, value, 1, 65536);
  else if (!strcmp(name, "--micro"))
    o->micro_batches = integer(name, value, 1, 65536);
  else if (!strcmp(name, "--rate"))
    o->rate = (float)real(name, value, 1e-8, 1.0);
  else if (!strcmp(name, "--threads"))
    o->threads = (int)integer(name, value, 1, 4096);
  else if (!strcmp(name, "--out"))
    o->out = value;
  else if (!strcmp(name, "--checkpoint"))
    o->checkpoint = value;
  else if (!strcmp(name, "--checkpoint-every"))
    o->checkpoint_every = integer(name, value, 1, 1000000000);
  else if (!strcmp(name, "--projection")) {
    o->save_projection = !strcmp(value, "saved");
    if (!o->save_projection && strcmp(value, "passed")) bad(name, value, "passed or saved is needed");
  } else if (!strcmp(name, "--fault")) {
    parse_faults(o, value);
  } else {
    bad(name, NULL, "there is no such option");
  }
}

void options_parse(Options *options, int count, char **arguments) {
  Options defaults = {.place = {FP8_BACKEND_CPU, 0},
                      .shape = {.layers = 4, .dim = 256, .seq = 128, .batch = 4},
                      .micro_batches = 2,
                      .minutes = 6.0,
                      .rate = 1e-3f,
                      .seed = 1,
                      .out = "out/gpt"};
  *options = defaults;
  presets_parse("all", options->chosen);
  for (int i = 1; i < count; i += 2) {
    if (!strcmp(arguments[i], "--help") || !strcmp(arguments[i], "-h")) {
      fputs(help, stdout);
      exit(0);
    }
    if (i + 1 == count)
      bad(arguments[i], NULL, strncmp(arguments[i], "--", 2) ? "there is no such option" : "a value is needed");
    set(options, arguments[i], arguments[i + 1]);
  }
  Shape *s = &options->shape;
  if (s->dim % 64) bad("--dim", NULL, "a multiple of 64 is needed: heads are 64 wide");
  if (s->seq % 16) bad("--seq", NULL, "a multiple of 16 is needed");
  if (options->checkpoint && !options->steps) bad("--checkpoint", options->checkpoint, "--steps is needed with it");
  s->heads = s->dim / 64;
}
