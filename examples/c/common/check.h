/* SPDX-License-Identifier: Apache-2.0 */
/* How every example treats errors: say what failed, in the library's own words, and stop. */
#ifndef EXAMPLE_CHECK_H
#define EXAMPLE_CHECK_H
#include <fp8/fp8.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Wraps a libfp8 call. The library names the tensor, the dimension and the rule in its detail text. */
#define CHECK(call) check_status((call), #call, __FILE__, __LINE__)

/* Wraps a condition that the example itself relies on. */
#define REQUIRE(condition, ...)                                                \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s is false: ", __FILE__, __LINE__, #condition); \
      fail(__VA_ARGS__);                                                       \
    }                                                                          \
  } while (0)

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
static inline void
fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static inline void check_status(fp8_status status, const char *call, const char *file, int line) {
  if (status == FP8_OK) return;
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  fprintf(stderr, "%s:%d: %s\n", file, line, call);
  fail("  %s: %s", fp8_status_name(status), error.message ? error.message : "(no detail)");
}
#endif
