/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <string.h>

#include "../common/option.h"

static const char help[] =
    "gpt: trains a byte-level GPT with FP8 linears through libfp8 and compares recipes with BF16\n"
    "\n"
    "  --recipe LIST    recipes to compare with the BF16 baseline: all (default), or some of\n"
    "                   tensor,row,block,mx,mx_w2d (any case, or names such as mxfp8, blockwise), or\n"
    "                   texts of docs/recipes.md: tensor,'tensor;fast=none'; none = the baseline alone\n"
    "  --minutes M      time for everything (default 6, at least 0.05): speed is measured at the start,\n"
    "                   and every run gets the same number of steps, at least 10: then it may take longer\n"
    "  --steps N        that many optimizer steps a run, however long they take\n"
    "  --seeds N        the long comparison: every run with N seeds, paired with BF16 of the same seed\n"
    "  --fault LIST     also train recipes with planted faults, which the table must show; all, or some of:\n"
    "                     wgrad-axis        MX, scales of the wgrad operands read along the wrong axis\n"
    "                     dy-e4m3-tensor    TENSOR, dy in E4M3 under one frozen scale, loss scale 2^-12\n"
    "                     floor-outliers    MX with the OCP floor rule, where some channels are outliers;\n"
    "                                       beside it BF16 and MX with the same outliers\n"
    "  --out DIR        where CSV and tables go (default: out/gpt)\n"
    "  --checkpoint DIR keeps each finished run's result there, and every minute the state of the run in\n"
    "                   progress: the same command goes on (needs --steps). SIGTERM saves, and ends with 75\n"
    "  --checkpoint-every N   steps between states, instead of a minute\n"
    "  --until N        with --checkpoint: takes every run to step N only, and ends with 75\n"
    "  --only LIST      with --checkpoint: makes only these of the runs, by name and seed (none-1,mx-1),\n"
    "                   and no tables: processes on several GPUs share a comparison. A run that another process\n"
    "                   trains at the time is refused\n";

const char options_help[] =
    "  --seed S         of initial weights and batches (default 1)\n"
    "  --data FILE      text to learn (default: the Perl manual, Debian package perl-doc)\n"
    "  --layers N       default 4          --dim N      default 256 (a multiple of 64)\n"
    "  --seq N          default 128        --batch N    sequences of a micro-batch (default 4)\n"
    "  --micro N        micro-batches a step (default 2)\n"
    "  --rate R         peak learning rate (default 1e-3)\n"
    "  --projection W   what the attention projection keeps for backward: passed (default: attention's\n"
    "                   own BF16 output, which is kept anyway) or saved (an FP8 copy beside it)\n"
    "  --device D       cpu (default), cuda or cuda:N\n"
    "  --tune W         no (default) or yes: the GPU's products are chosen by timing, which takes seconds,\n"
    "                   and runs no longer repeat bit for bit\n"
    "  --threads N      of the CPU (default: all)\n"
    "  --help           this text\n";

static void parse_faults(Options *o, const char *value) {
  char name[32];
  for (const char *at = value; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
    enum Fault fault = fault_parse(name);
    if (fault == FAULT_NONE && strcmp(name, "all"))
      option_bad("--fault", value, "all, wgrad-axis, dy-e4m3-tensor or floor-outliers is needed");
    for (int f = 1; f < FAULT_COUNT; ++f) o->faults[f] |= fault == FAULT_NONE || (int)fault == f;
  }
}

static fp8_recipe_config config_of(const char *text) {
  fp8_recipe *recipe;
  fp8_recipe_config config;
  fp8_error error;
  if (fp8_recipe_from_string(text, &recipe) != FP8_OK) {
    FP8_INIT(&error);
    fp8_last_error(&error);
    option_bad("--recipe", text, "%s", error.message);
  }
  FP8_INIT(&config);
  CHECK(fp8_recipe_query(recipe, &config));
  fp8_recipe_destroy(recipe);
  return config;
}

/* A text is checked here; one of a baseline would have nothing to be compared with. */
static void add_text(Options *o, const char *text) {
  fp8_recipe_config config = config_of(text);
  if (config.preset == FP8_PRESET_NONE) option_bad("--recipe", text, "the baseline cannot be changed");
  if (config.weight_dtype == FP8_DTYPE_F16) option_bad("--recipe", text, "x and dy are BF16 here, w cannot be f16");
  if (o->text_count == MOST_TEXTS) option_bad("--recipe", text, "at most %d texts are taken", MOST_TEXTS);
  snprintf(o->texts[o->text_count++], sizeof o->texts[0], "%s", text);
}

/* Two texts of one recipe would be two runs of the same numbers; NULL = this one is the first. */
static const char *said_before(const Options *o, int text) {
  fp8_recipe_config config = config_of(o->texts[text]);
  for (int i = 0; i < PRESET_COUNT + text; ++i) {
    const char *other = i < PRESET_COUNT ? presets[i].name : o->texts[i - PRESET_COUNT];
    if (i < PRESET_COUNT && !o->chosen[i]) continue;
    fp8_recipe_config c = config_of(other);
    c.preset = config.preset; /* where the fields come from does not matter */
    if (!memcmp(&c, &config, sizeof c)) return other;
  }
  return NULL;
}

/* Names go to presets_parse(), items with a ; are texts. */
static void parse_recipes(Options *o, const char *list) {
  char names[512] = "", item[RECIPE_TEXT];
  o->text_count = 0;
  for (const char *at = list; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
    if (snprintf(item, sizeof item, "%.*s", (int)strcspn(at, ","), at) >= RECIPE_TEXT)
      option_bad("--recipe", at, "a recipe of less than %d bytes is needed", RECIPE_TEXT);
    if (strchr(item, ';'))
      add_text(o, item);
    else if (strlen(names) + strlen(item) + 2 > sizeof names)
      option_bad("--recipe", list, "the list is too long");
    else
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? "," : "", item);
  }
  presets_parse(names, o->chosen);
  for (int i = 0; i < o->text_count; ++i) {
    const char *other = said_before(o, i);
    if (other) option_bad("--recipe", o->texts[i], "this recipe is in the list already, as %s", other);
  }
}

int options_set(Options *o, const char *name, const char *value) {
  if (option_is("--device", name, value)) {
    if (!place_parse(value, &o->place)) option_bad(name, value, "cpu, cuda or cuda:N is needed");
    if (!place_built(&o->place))
      option_bad(name, value, "this program was built without CUDA (nvcc 13 and cublasLt.h, then cmake -DFP8_CUDA=ON)");
  } else if (option_is("--recipe", name, value))
    parse_recipes(o, value);
  else if (option_is("--steps", name, value))
    o->steps = option_integer(name, value, 1, 1000000000);
  else if (option_is("--seed", name, value))
    o->seed = (uint64_t)option_integer(name, value, 0, INT64_MAX);
  else if (option_is("--data", name, value))
    o->data = value;
  else if (option_is("--layers", name, value))
    o->shape.layers = option_integer(name, value, 1, 256);
  else if (option_is("--dim", name, value))
    o->shape.dim = option_integer(name, value, 64, 16384);
  else if (option_is("--seq", name, value))
    o->shape.seq = option_integer(name, value, 16, 8192);
  else if (option_is("--batch", name, value))
    o->shape.batch = option_integer(name, value, 1, 65536);
  else if (option_is("--micro", name, value))
    o->micro_batches = option_integer(name, value, 1, 65536);
  else if (option_is("--rate", name, value))
    o->rate = (float)option_real(name, value, 1e-8, 1.0);
  else if (option_is("--threads", name, value))
    o->threads = (int)option_integer(name, value, 1, 4096);
  else if (option_is("--tune", name, value)) {
    o->tune = !strcmp(value, "yes");
    if (!o->tune && strcmp(value, "no")) option_bad(name, value, "yes or no is needed");
  } else if (option_is("--projection", name, value)) {
    o->save_projection = !strcmp(value, "saved");
    if (!o->save_projection && strcmp(value, "passed")) option_bad(name, value, "passed or saved is needed");
  } else
    return 0;
  return 1;
}

/* Those of the comparison, which gpt alone makes. */
static int set_comparison(Options *o, const char *name, const char *value) {
  if (option_is("--minutes", name, value))
    o->minutes = option_real(name, value, 0.05, 1e5);
  else if (option_is("--seeds", name, value))
    o->seeds = (int)option_integer(name, value, 1, 1000);
  else if (option_is("--out", name, value))
    o->out = value;
  else if (option_is("--checkpoint", name, value))
    o->checkpoint = value;
  else if (option_is("--checkpoint-every", name, value))
    o->checkpoint_every = option_integer(name, value, 1, 1000000000);
  else if (option_is("--until", name, value))
    o->until = option_integer(name, value, 1, 1000000000);
  else if (option_is("--only", name, value))
    o->only = value;
  else if (option_is("--fault", name, value))
    parse_faults(o, value);
  else
    return 0;
  return 1;
}

void options_begin(Options *options) {
  Options defaults = {.place = {FP8_BACKEND_CPU, 0},
                      .shape = {.layers = 4, .dim = 256, .seq = 128, .batch = 4},
                      .micro_batches = 2,
                      .minutes = 6.0,
                      .rate = 1e-3f,
                      .seed = 1,
                      .out = "out/gpt"};
  *options = defaults;
  presets_parse("all", options->chosen);
}

void options_end(Options *options) {
  Shape *s = &options->shape;
  if (s->dim % 64) option_bad("--dim", NULL, "a multiple of 64 is needed: heads are 64 wide");
  if (s->seq % 16) option_bad("--seq", NULL, "a multiple of 16 is needed");
  s->heads = s->dim / 64;
}

void options_parse(Options *options, int count, char **arguments) {
  option_program = "gpt";
  options_begin(options);
  for (int i = 1; i < count; i += 2) {
    if (!strcmp(arguments[i], "--help") || !strcmp(arguments[i], "-h")) {
      printf("%s%s", help, options_help);
      exit(0);
    }
    const char *value = arguments[i + 1]; /* NULL after the last one */
    if (!options_set(options, arguments[i], value) && !set_comparison(options, arguments[i], value))
      option_unknown(arguments[i]);
  }
  options_end(options);
  if (options->checkpoint && !options->steps)
    option_bad("--checkpoint", options->checkpoint, "--steps is needed with it");
  if ((options->until || options->only) && !options->checkpoint)
    option_bad(options->only ? "--only" : "--until", options->only, "--checkpoint is needed with it");
  option_folder("--out", options->out);
  if (options->checkpoint) option_folder("--checkpoint", options->checkpoint);
}
