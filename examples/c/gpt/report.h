/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, as Markdown (for terminals too) and as CSV; curves as CSV. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H
#include "train.h"

typedef struct Report {
  const Session *session;
  const Result *results;
  int count;
  int64_t steps;
} Report;

void report_write(const Report *report); /* to standard output and into options.out */
#endif
