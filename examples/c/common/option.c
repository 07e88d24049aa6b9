/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *option_program = "example";

void option_bad(const char *name, const char *value, const char *rule, ...) {
  va_list arguments;
  va_start(arguments, rule);
  fflush(stdout);
  fprintf(stderr, "%s: %s%s%s: ", option_program, name, value ? " " : "", value ? value : "");
  vfprintf(stderr, rule, arguments);
  fputs(" (see --help)\n", stderr);
  va_end(arguments);
  exit(2);
}

void option_unknown(const char *name) {
  option_bad(name, NULL, "there is no such option%s",
             !strncmp(name, "--", 2) && strchr(name, '=') ? "; a value is an argument of its own: --name value" : "");
}

int option_is(const char *option, const char *name, const char *value) {
  if (strcmp(option, name)) return 0;
  if (!value) option_bad(name, NULL, "a value is needed");
  return 1;
}

int64_t option_integer(const char *name, const char *value, int64_t least, int64_t most) {
  char *end;
  errno = 0;
  long long n = strtoll(value, &end, 10);
  if (errno || end == value || *end || n < least || n > most)
    option_bad(name, value, "a whole number from %lld to %lld is needed", (long long)least, (long long)most);
  return n;
}

double option_real(const char *name, const char *value, double least, double most) {
  char *end;
  errno = 0;
  double x = strtod(value, &end);
  if (errno || end == value || *end || !(x >= least && x <= most))
    option_bad(name, value, "a number from %g to %g is needed", least, most);
  return x;
}

void option_none(int count, char **arguments, const char *about) {
  static char name[32];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(about, ":"), about);
  option_program = name;
  if (count < 2) return;
  if (strcmp(arguments[1], "--help") && strcmp(arguments[1], "-h")) option_unknown(arguments[1]);
  printf("%s\n\n  --help   this text; there are no other options\n", about);
  exit(0);
}

static void need_writable(const char *name, const char *path, const char *folder) {
  struct stat status;
  if (stat(folder, &status)) option_bad(name, path, "cannot write there: %s: %s", folder, strerror(errno));
  if (!S_ISDIR(status.st_mode)) option_bad(name, path, "cannot write there: %s is not a folder", folder);
  if (access(folder, W_OK | X_OK)) option_bad(name, path, "cannot write there: %s: %s", folder, strerror(errno));
}

enum { PATH = 512 };

void option_folder(const char *name, const char *given) {
  char path[PATH];
  if (!*given || snprintf(path, sizeof path, "%s", given) >= PATH)
    option_bad(name, given, "a path of 1 to %d bytes is needed", PATH - 1);
  for (char *at = path + 1;; ++at) {
    if (*at != '/' && *at) continue;
    char end = *at;
    *at = 0;
    if (mkdir(path, 0777) && errno != EEXIST) {
      int why = errno;
      struct stat status; /* of a read-only disk, that it exists comes second */
      if (stat(path, &status)) option_bad(name, given, "cannot make %s: %s", path, strerror(why));
    }
    *at = end;
    if (!end) break;
  }
  need_writable(name, given, given);
}

void option_file(const char *name, const char *path) {
  char folder[PATH];
  struct stat status;
  if (!*path || snprintf(folder, sizeof folder, "%s", path) >= PATH)
    option_bad(name, path, "a path of 1 to %d bytes is needed", PATH - 1);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[slash == folder] = 0;
  else
    strcpy(folder, ".");
  need_writable(name, path, folder);
  if (!stat(path, &status) && S_ISDIR(status.st_mode)) option_bad(name, path, "a file is needed, this is a folder");
}
