/* SPDX-License-Identifier: Apache-2.0 */
/* Classifies Fashion-MNIST in BF16 and with FP8 recipes, and compares test accuracies, paired by seed. */
#include <math.h>

#include "../common/clock.h"
#include "../common/option.h"
#include "../common/place.h"
#include "../common/progress.h"
#include "../common/random.h"
#include "../common/recipes.h"
#include "../common/table.h"
#include "network.h"

static const char help[] =
    "mlp: trains a Fashion-MNIST classifier with FP8 linears through libfp8 and compares recipes with BF16\n"
    "\n"
    "  --recipe LIST   all (default), or some of tensor,row,block,mx,mx_w2d (any case, or names such as\n"
    "                  mxfp8, blockwise); none = the baseline alone\n"
    "  --steps N       optimizer steps a run, of 256 pictures (default 468: two passes over the pictures)\n"
    "  --seeds N       runs of each recipe, each paired with BF16 of the same seed (default 3)\n"
    "  --seed S        the first of them (default 1)\n"
    "  --fault NAME    also train one recipe with a planted fault: wgrad-axis or dy-e4m3-tensor\n"
    "  --device D      cpu (default), cuda or cuda:N\n"
    "  --threads N     of the CPU (default: all)\n"
    "  --data DIR      default: /usr/share/datasets/fashion-mnist (Debian package dataset-fashion-mnist)\n"
    "  --help          this text\n";

enum { ROWS = 256 };

typedef struct Options {
  Place place;
  int chosen[PRESET_COUNT], threads, seeds;
  int64_t steps;
  uint64_t seed;
  enum Fault fault;
  const char *data;
} Options;

static void parse(Options *o, int count, char **arguments) {
  Options defaults = {
      .seeds = 3, .steps = 468, .seed = 1, .data = "/usr/share/datasets/fashion-mnist", .place = {FP8_BACKEND_CPU, 0}};
  *o = defaults;
  option_program = "mlp";
  presets_parse("all", o->chosen);
  for (int i = 1; i < count; i += 2) {
    const char *name = arguments[i], *value = arguments[i + 1]; /* NULL after the last one */
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
      fputs(help, stdout);
      exit(0);
    }
    if (option_is("--device", name, value)) {
      if (!place_parse(value, &o->place)) option_bad(name, value, "cpu, cuda or cuda:N is needed");
      if (!place_built(&o->place))
        option_bad(name, value,
                   "this program was built without CUDA (nvcc 13 and cublasLt.h, then cmake -DFP8_CUDA=ON)");
    } else if (option_is("--recipe", name, value))
      presets_parse(value, o->chosen);
    else if (option_is("--steps", name, value))
      o->steps = option_integer(name, value, 1, 1000000000);
    else if (option_is("--seeds", name, value))
      o->seeds = (int)option_integer(name, value, 1, 100);
    else if (option_is("--seed", name, value))
      o->seed = (uint64_t)option_integer(name, value, 0, INT64_MAX);
    else if (option_is("--threads", name, value))
      o->threads = (int)option_integer(name, value, 1, 4096);
    else if (option_is("--data", name, value))
      o->data = value;
    else if (option_is("--fault", name, value)) {
      o->fault = fault_parse(value);
      if (o->fault != FAULT_WGRAD_AXIS && o->fault != FAULT_DY_E4M3_TENSOR)
        option_bad(name, value, "wgrad-axis or dy-e4m3-tensor is needed");
    } else {
      option_unknown(name);
    }
  }
}

/* Each pass over the pictures in another order; the order depends on the seed alone, so all recipes see the same. */
static void shuffle(int64_t *order, int64_t count, uint64_t seed, int64_t pass) {
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  for (int64_t i = count - 1; i > 0; --i) {
    int64_t j = (int64_t)(random_bits(seed ^ 0x5eed0000u, (uint64_t)(pass * count + i)) % (uint64_t)(i + 1)),
            t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
}

static double run(const fp8_context *context, fp8_stream stream, const Options *o, int32_t preset, enum Fault fault,
                  uint64_t seed, const char *title, const Images *train, const Images *test, Progress *progress,
                  double *rate) {
  Network net;
  char label[96], detail[64];
  int64_t per_pass = train->count / ROWS, *order = malloc((size_t)train->count * sizeof *order);
  REQUIRE(order, "out of memory");
  const Kernels *kernels = PLACE_KERNELS(&o->place, &kernels_cpu, &kernels_cuda);
  network_create(&net, context, stream, kernels, preset, fault, ROWS, seed);
  snprintf(label, sizeof label, "%-22s seed %llu", title, (unsigned long long)seed);
  progress_begin(progress, label, o->steps, 1.0);
  double start = seconds_now(), smooth = 0.0;
  for (int64_t step = 0; step < o->steps; ++step) {
    if (step % per_pass == 0) shuffle(order, train->count, seed, step / per_pass);
    float learning = (float)(1e-3 * (0.525 + 0.475 * cos(3.14159265 * (double)step / (double)o->steps)));
    double loss = network_train(&net, train, order + step % per_pass * ROWS, learning);
    smooth = step ? 0.95 * smooth + 0.05 * loss : loss;
    *rate = ROWS * (double)(step + 1) / (seconds_now() - start);
    snprintf(detail, sizeof detail, "loss %.3f  %.0f pictures/s", smooth, *rate);
    progress_show(progress, step + 1, detail);
  }
  double accuracy = network_accuracy(&net, test);
  snprintf(detail, sizeof detail, "test accuracy %.2f %%  %.0f pictures/s", 100.0 * accuracy, *rate);
  progress_end(progress, detail);
  network_destroy(&net);
  free(order);
  return accuracy;
}

static void mean_and_deviation(const double *values, int n, double *mean, double *deviation) {
  double squares = 0.0;
  *mean = 0.0;
  for (int i = 0; i < n; ++i) *mean += values[i] / n;
  for (int i = 0; i < n; ++i) squares += (values[i] - *mean) * (values[i] - *mean);
  *deviation = n > 1 ? sqrt(squares / (n - 1)) : NAN;
}

int main(int count, char **arguments) {
  Options o;
  Images train, test;
  fp8_context_config config;
  fp8_context *context;
  parse(&o, count, arguments);
  images_load(&train, o.data, "train");
  images_load(&test, o.data, "t10k");
  FP8_INIT(&config);
  config.backend = o.place.backend;
  config.device = o.place.device;
  config.threads = o.threads;
  CHECK(fp8_context_create(&config, &context));
  fp8_stream stream = place_open(&o.place);

  static Table table;
  const char *head[] = {"run", "test accuracy", "gap to BF16", "verdict", "pictures/s"};
  table_begin(&table, 5);
  for (int c = 0; c < 5; ++c) table_cell(&table, "%s", head[c]);
  double *values = calloc(3 * (size_t)o.seeds, sizeof *values), *baseline = values + o.seeds,
         *gaps = baseline + o.seeds;
  REQUIRE(values, "out of memory");
  double spread = NAN, rate = 0.0;
  Progress progress = {.total_seconds = o.seeds * (1.0 + (o.fault != FAULT_NONE))};
  for (int i = 1; i < PRESET_COUNT; ++i) progress.total_seconds += o.seeds * o.chosen[i];

  for (int i = 0; i <= PRESET_COUNT; ++i) { /* the baseline, the recipes, the fault */
    enum Fault fault = i == PRESET_COUNT ? o.fault : FAULT_NONE;
    if (i == PRESET_COUNT ? fault == FAULT_NONE : i > 0 && !o.chosen[i]) continue;
    const Preset *preset = i == PRESET_COUNT ? preset_find(fault_preset(fault)) : &presets[i];
    char title[64];
    snprintf(title, sizeof title, "%s%s%s", preset->title, fault ? " " : "", fault_name(fault));
    for (int s = 0; s < o.seeds; ++s) {
      values[s] =
          run(context, stream, &o, preset->preset, fault, o.seed + (uint64_t)s, title, &train, &test, &progress, &rate);
      if (i == 0) baseline[s] = values[s];
      gaps[s] = values[s] - baseline[s];
    }
    double mean, deviation, gap, error;
    mean_and_deviation(values, o.seeds, &mean, &deviation);
    mean_and_deviation(gaps, o.seeds, &gap, &error);
    error /= sqrt(o.seeds);
    if (i == 0) spread = deviation;
    table_cell(&table, "%s", title);
    table_cell(&table, "%.2f %%", 100.0 * mean);
    if (i == 0)
      table_cell(&table, o.seeds > 1 ? "seeds: sd %.2f" : "-", 100.0 * spread);
    else
      table_cell(&table, o.seeds > 1 ? "%+.2f ± %.2f" : "%+.2f", 100.0 * gap, 100.0 * error);
    int noise = fabs(gap) <= fmax(2.0 * error, spread);
    table_cell(&table, "%s",
               i == 0         ? "baseline"
               : o.seeds == 1 ? "-"
               : noise        ? "within noise"
               : gap < 0      ? "WORSE"
                              : "better");
    table_cell(&table, "%.0f", rate);
  }
  printf("\nFashion-MNIST, %d pictures a step, %lld steps, %d seeds; gaps in percentage points, paired by seed.\n\n",
         ROWS, (long long)o.steps, o.seeds);
  table_print(&table, stdout);
  free(values);
  place_close(&o.place, stream);
  fp8_context_destroy(context);
  images_free(&train);
  images_free(&test);
  return 0;
}
