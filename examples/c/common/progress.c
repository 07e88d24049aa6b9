/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"

void progress_begin(Progress *p, const char *label, int64_t total, double run_seconds) {
  if (p->began == 0.0) p->began = seconds_now();
  snprintf(p->label, sizeof p->label, "%s", label);
  p->total = total;
  p->run_seconds = run_seconds;
  p->tenth = 0;
  p->terminal = isatty(STDERR_FILENO);
}

/* Time left: what was expected of the rest, corrected by how the past compares with what was expected of it. */
static int seconds_left(const Progress *p, int64_t done) {
  double past = p->seconds + p->run_seconds * (double)done / (double)p->total;
  double slower = past > 0.0 ? (seconds_now() - p->began) / past : 1.0;
  double left = (p->total_seconds - past) * slower;
  return left > 0.0 ? (int)(left + 0.5) : 0;
}

void progress_show(Progress *p, int64_t done, const char *detail) {
  int tenth = (int)(10 * done / p->total), left = seconds_left(p, done);
  if (!p->terminal && tenth == p->tenth) return;
  p->tenth = tenth;
  if (!p->terminal) {
    fprintf(stderr, "%s  step %lld/%lld  %s", p->label, (long long)done, (long long)p->total, detail);
    if (p->total_seconds > 0.0) fprintf(stderr, "  %d:%02d left", left / 60, left % 60);
    fputc('\n', stderr);
    return;
  }
  char bar[3 * 24 + 1], *at = bar;
  for (int i = 0; i < 24; ++i) at += sprintf(at, "%s", i < 24 * done / p->total ? "\xe2\x96\x88" : "\xe2\x96\x91");
  fprintf(stderr, "\r\033[K%s %s %3d%%  %s", p->label, bar, (int)(100 * done / p->total), detail);
  if (p->total_seconds > 0.0) fprintf(stderr, "  %d:%02d left", left / 60, left % 60);
}

void progress_end(Progress *p, const char *detail) {
  p->seconds += p->run_seconds;
  fprintf(stderr, "%s%s  done  %s\n", p->terminal ? "\r\033[K" : "", p->label, detail);
}
