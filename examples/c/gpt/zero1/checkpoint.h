/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a run in one file, in flat order: the same bytes for any number of ranks. */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H
#include "sharded.h"

/* kill_at: see statefile.h. All ranks call both. */
void checkpoint_write(Sharded *sharded, const char *path, int64_t steps, int64_t kill_at);
/* Fails, by name, on a file of another model, recipe or schedule, and on one that is cut or changed. Returns the steps
 * taken. */
int64_t checkpoint_read(Sharded *sharded, const char *path, int64_t steps);
#endif
