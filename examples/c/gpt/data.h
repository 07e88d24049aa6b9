/* SPDX-License-Identifier: Apache-2.0 */
/* The text: bytes to learn, and a held-out last part. */
#ifndef GPT_DATA_H
#define GPT_DATA_H
#include <stdint.h>

#include "kernels.h"

typedef struct Text {
  uint8_t *bytes;
  int64_t size, train; /* bytes [0, train) are learned, [train, size) are held out */
  int64_t sum;         /* FNV-1a of all: another text has another one */
  char source[600];
} Text;

void text_load(Text *text, const char *path /* NULL = the Perl manual */, int64_t seq);
/* Windows at random places, which depend on (seed, index) alone: every recipe sees the same ones. */
void text_batch(const Text *text, const Shape *s, uint64_t seed, int64_t index, uint8_t *tokens, uint8_t *targets);
/* Windows spread evenly over the held-out part: batch `index` of `count`. */
void text_held_out(const Text *text, const Shape *s, int64_t index, int64_t count, uint8_t *tokens, uint8_t *targets);
void text_free(Text *text);
#endif
