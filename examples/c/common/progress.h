/* SPDX-License-Identifier: Apache-2.0 */
/* One line on a terminal, rewritten; a line per tenth of a run where standard error is a file. */
#ifndef EXAMPLE_PROGRESS_H
#define EXAMPLE_PROGRESS_H
#include <stdint.h>

typedef struct Progress {
  char label[256];
  int64_t total;
  double total_seconds, seconds; /* expected of everything; expected of what is done before this run */
  double began;                  /* when everything started */
  double run_seconds;            /* expected of this run */
  int tenth, terminal;
} Progress;

void progress_begin(Progress *p, const char *label, int64_t total, double run_seconds);
void progress_show(Progress *p, int64_t done, const char *detail);
void progress_end(Progress *p, const char *detail);
#endif
