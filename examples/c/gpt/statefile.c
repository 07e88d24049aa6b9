/* SPDX-License-Identifier: Apache-2.0 */
#include "statefile.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/check.h"

enum { MOST_FIELDS = 32 };

static const int64_t magic = 0x3454504b43545047; /* "GPTCKPT4": a file of the other byte order is not taken */
static const uint64_t empty_sum = 0xcbf29ce484222325u;

static uint64_t add_to_sum(uint64_t sum, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i += 4) {
    uint32_t word;
    memcpy(&word, at + i, sizeof word);
    sum = (sum ^ word) * 0x100000001b3u;
  }
  return sum;
}

void state_begin(StateWriter *w, const char *path, const Field *fields, int count, int64_t kill_at) {
  StateWriter none = {.sum = empty_sum, .kill_at = kill_at};
  *w = none;
  if (strlen(path) >= sizeof w->path) fail("%s: the path is too long", path);
  snprintf(w->path, sizeof w->path, "%s", path);
  snprintf(w->temporary, sizeof w->temporary, "%s.tmp", w->path);
  w->file = fopen(w->temporary, "wb");
  if (!w->file) fail("cannot write %s: %s", w->temporary, strerror(errno));
  state_put(w, &magic, sizeof magic);
  for (int i = 0; i < count; ++i) state_put(w, &fields[i].value, sizeof fields[i].value);
}

void state_put(StateWriter *w, const void *data, size_t bytes) {
  size_t part = bytes;
  if (w->kill_at >= 0 && w->written + (int64_t)bytes > w->kill_at) part = (size_t)(w->kill_at - w->written);
  if (fwrite(data, 1, part, w->file) != part) fail("cannot write %s: %s", w->temporary, strerror(errno));
  w->written += (int64_t)part;
  if (part < bytes) {
    fflush(w->file);
    raise(SIGKILL);
  }
  w->sum = add_to_sum(w->sum, data, bytes);
}

void state_end(StateWriter *w) {
  if (fwrite(&w->sum, sizeof w->sum, 1, w->file) != 1 || fflush(w->file) || fsync(fileno(w->file)) || fclose(w->file))
    fail("cannot write %s: %s", w->temporary, strerror(errno));
  if (w->kill_at >= w->written) raise(SIGKILL); /* everything is written, and nothing renamed */
  if (rename(w->temporary, w->path)) fail("cannot rename %s to %s: %s", w->temporary, w->path, strerror(errno));
  char copy[sizeof w->path];
  memcpy(copy, w->path, sizeof copy);
  int folder = open(dirname(copy), O_RDONLY); /* the new name too must survive */
  if (folder < 0 || fsync(folder)) fail("cannot flush the folder of %s: %s", w->path, strerror(errno));
  close(folder);
}

void state_get(FILE *file, void *data, size_t bytes) {
  if (fread(data, 1, bytes, file) != bytes) fail("a checkpoint cannot be read: %s", strerror(errno));
}

FILE *state_open(const char *path, const Field *fields, int count, int64_t body, int64_t *last) {
  int64_t found[1 + MOST_FIELDS], left = body;
  size_t head = (1 + (size_t)count) * sizeof found[0];
  uint64_t sum, expected;
  FILE *file = fopen(path, "rb");
  if (!file) fail("cannot read %s: %s", path, strerror(errno));
  REQUIRE(count <= MOST_FIELDS, "%d fields", count);
  if (fread(found, head, 1, file) != 1) fail("%s is no checkpoint: it is too short", path);
  if (found[0] != magic) fail("%s is no checkpoint of this program", path);
  for (int i = 0; i < count - 1; ++i)
    if (found[1 + i] != fields[i].value)
      fail("%s was written by another run: %s is %lld there, %lld here", path, fields[i].name, (long long)found[1 + i],
           (long long)fields[i].value);
  sum = add_to_sum(empty_sum, found, head);
  static char buffer[1 << 16];
  for (size_t n; left; left -= (int64_t)n) {
    n = (size_t)(left < (int64_t)sizeof buffer ? left : (int64_t)sizeof buffer);
    if (fread(buffer, 1, n, file) != n) fail("%s is cut: up to %lld bytes are missing", path, (long long)left);
    sum = add_to_sum(sum, buffer, n);
  }
  if (fread(&expected, sizeof expected, 1, file) != 1 || sum != expected)
    fail("%s is damaged: its checksum does not match", path);
  if (fseek(file, (long)head, SEEK_SET)) fail("cannot read %s: %s", path, strerror(errno));
  *last = found[count];
  return file;
}

int state_lock(StateLock *lock, const char *path) {
  static int told;
  struct stat locked, named;
  if (strlen(path) >= sizeof lock->path) fail("%s: the path is too long", path);
  snprintf(lock->path, sizeof lock->path, "%s", path);
  for (;;) {
    lock->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock->file < 0) fail("cannot write %s: %s", path, strerror(errno));
    int held = flock(lock->file, LOCK_EX | LOCK_NB);
    if (held && (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP)) { /* as some file systems of clusters */
      if (!told++)
        fprintf(stderr, "%s cannot be locked (%s): nothing keeps another process from writing the same\n", path,
                strerror(errno));
      held = 0;
    }
    if (held && errno != EWOULDBLOCK) fail("cannot lock %s: %s", path, strerror(errno));
    if (fstat(lock->file, &locked)) {
      if (errno != ESTALE) fail("cannot read %s: %s", path, strerror(errno));
      memset(&locked, 0, sizeof locked); /* removed on another machine */
    }
    if (!held && !stat(path, &named) && named.st_dev == locked.st_dev && named.st_ino == locked.st_ino) return 1;
    close(lock->file);
    if (held) return 0;
  } /* else who had it before has removed it since it was opened */
}

void state_unlock(StateLock *lock) {
  unlink(lock->path); /* still locked: nobody else can have taken this one */
  close(lock->file);
}
