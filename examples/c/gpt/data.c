/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "../common/random.h"

static void append(Text *text, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail("cannot read %s: %s", path, strerror(errno));
  size_t capacity = 1 << 16, got;
  do {
    text->bytes = realloc(text->bytes, (size_t)text->size + capacity);
    REQUIRE(text->bytes, "out of memory reading %s", path);
    got = fread(text->bytes + text->size, 1, capacity, file);
    text->size += (int64_t)got;
  } while (got == capacity);
  if (ferror(file)) fail("cannot read %s: %s", path, strerror(errno));
  fclose(file);
}

/* Debian keeps the manual under /usr/share/perl/<version>/pod; glob sorts, so the text is the same everywhere. */
static void append_manual(Text *text) {
  glob_t versions, files;
  memset(&files, 0, sizeof files);
  if (glob("/usr/share/perl/*/pod", 0, NULL, &versions) == 0) {
    char pattern[512]; /* the first version that is there; other names of it are links */
    snprintf(pattern, sizeof pattern, "%s/*.pod", versions.gl_pathv[0]);
    globfree(&versions);
    if (glob(pattern, 0, NULL, &files) == 0) {
      for (size_t i = 0; i < files.gl_pathc; ++i) append(text, files.gl_pathv[i]);
      snprintf(text->source, sizeof text->source, "%s, %zu files", pattern, files.gl_pathc);
      globfree(&files);
    }
  }
  if (text->size < 4 << 20)
    fail("the Perl manual is not installed: apt-get install perl-doc, or name any text with --data FILE");
}

void text_load(Text *text, const char *path, int64_t seq) {
  memset(text, 0, sizeof *text);
  if (path) {
    append(text, path);
    snprintf(text->source, sizeof text->source, "%s", path);
  } else {
    append_manual(text);
  }
  uint64_t sum = 0xcbf29ce484222325u;
  for (int64_t i = 0; i < text->size; ++i) sum = (sum ^ text->bytes[i]) * 0x100000001b3u;
  text->sum = (int64_t)(sum >> 1);
  text->train = text->size - text->size / 20;
  if (text->size - text->train <= seq)
    fail("%s has %lld bytes: the held-out last twentieth must be longer than one sequence of %lld", text->source,
         (long long)text->size, (long long)seq);
}

static void window(const Text *text, const Shape *s, int64_t row, int64_t start, uint8_t *tokens, uint8_t *targets) {
  memcpy(tokens + row * s->seq, text->bytes + start, (size_t)s->seq);
  memcpy(targets + row * s->seq, text->bytes + start + 1, (size_t)s->seq);
}

void text_batch(const Text *text, const Shape *s, uint64_t seed, int64_t index, uint8_t *tokens, uint8_t *targets) {
  uint64_t places = (uint64_t)(text->train - s->seq);
  for (int64_t row = 0; row < s->batch; ++row) {
    uint64_t bits = random_bits(seed ^ 0xbadc0ffeu, (uint64_t)(index * s->batch + row));
    window(text, s, row, (int64_t)(bits % places), tokens, targets);
  }
}

void text_held_out(const Text *text, const Shape *s, int64_t index, int64_t count, uint8_t *tokens, uint8_t *targets) {
  int64_t places = text->size - text->train - s->seq;
  for (int64_t row = 0; row < s->batch; ++row)
    window(text, s, row, text->train + places * (index * s->batch + row) / (count * s->batch), tokens, targets);
}

void text_free(Text *text) { free(text->bytes); }
