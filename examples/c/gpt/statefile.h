/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is there whole or not at all: fields that say what it belongs to, a body, a checksum. */
#ifndef GPT_STATEFILE_H
#define GPT_STATEFILE_H
#include <stdint.h>
#include <stdio.h>

typedef struct Field {
  const char *name;
  int64_t value;
} Field;

typedef struct StateWriter {
  FILE *file;
  char path[512], temporary[520];
  uint64_t sum; /* FNV-1a over 4-byte words */
  int64_t written, kill_at;
} StateWriter;

/* Written beside `path`, flushed, then renamed over it: whoever is killed at any time leaves the old file or the new
 * one. kill_at: a planted fault, the process kills itself when so many bytes are written, at the latest before
 * renaming; -1 = none. */
void state_begin(StateWriter *w, const char *path, const Field *fields, int count, int64_t kill_at);
void state_put(StateWriter *w, const void *data, size_t bytes); /* multiples of 4 bytes */
void state_end(StateWriter *w);

/* Opens a file whose body has so many bytes, at the body. Fails, by name, where a field but the last one has another
 * value, and on a file that is cut or changed. *last: the value of the last field. */
FILE *state_open(const char *path, const Field *fields, int count, int64_t body, int64_t *last);
void state_get(FILE *file, void *data, size_t bytes);

typedef struct StateLock {
  char path[520];
  int file;
} StateLock;

/* A file whose lock says that this process, and no other, writes what it stands for: 0 = another process has it. The
 * system lets it go when the process ends, however it ends; a file that is left behind locks nothing. Where the file
 * system has no locks, that is said and nobody is refused. */
int state_lock(StateLock *lock, const char *path);
void state_unlock(StateLock *lock); /* removes the file too */
#endif
