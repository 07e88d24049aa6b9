/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H
#include "../common/faults.h"
#include "../common/place.h"
#include "../common/recipes.h"
#include "kernels.h"

enum { LEAST_STEPS = 10 };                  /* of a run, however short --minutes is */
enum { MOST_TEXTS = 8, RECIPE_TEXT = 192 }; /* each is a part of a file's name, which 255 bytes bound */

typedef struct Options {
  Place place;
  Shape shape;
  int64_t micro_batches; /* per optimizer step: gradients accumulate over them */
  int64_t steps;         /* 0 = as many as fit into `minutes` */
  double minutes;
  float rate;
  uint64_t seed;
  int seeds;                           /* 0 = the demo: two seeds of the baseline, one of each recipe */
  int chosen[PRESET_COUNT];            /* beside the baseline */
  char texts[MOST_TEXTS][RECIPE_TEXT]; /* recipes that are more than a preset, beside it too */
  int text_count;
  int threads;         /* 0 = all */
  int tune;            /* GEMMs are chosen by timing */
  int save_projection; /* the projection keeps an FP8 column side of its own, instead of being passed attention's output
                        */
  int faults[FAULT_COUNT]; /* planted beside the recipes */
  const char *data;        /* NULL = the Perl manual */
  const char *out;
  const char *checkpoint;   /* a folder, or NULL */
  int64_t checkpoint_every; /* steps; 0 = a minute */
  int64_t until;            /* a step at which runs are kept, to go on later; 0 = the end */
  const char *only;         /* runs that this process makes, the others are another's; NULL = all */
} Options;

/* The command line of gpt: exits on --help (0), and on bad values and on folders that cannot be written (2). */
void options_parse(Options *options, int count, char **arguments);

/* The part of it that gpt_zero1 shares: the model, the device, --recipe, --steps, --seed. */
extern const char options_help[]; /* without --recipe and --steps, which mean something else there */
void options_begin(Options *options);
int options_set(Options *options, const char *name, const char *value); /* value may be NULL; 0 = not one of these */
void options_end(Options *options);                                     /* checks what belongs together */
#endif
