/* SPDX-License-Identifier: Apache-2.0 */
/* A C program outside the tree: checks the version of the library it found against the headers', then makes a CPU
 * context, which loads the modules that lie with the library, and prints what it explains. */
#include <fp8/fp8.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const uint32_t headers = FP8_VERSION_MAJOR * 10000 + FP8_VERSION_MINOR * 100 + FP8_VERSION_PATCH;
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  if (fp8_version() != headers) {
    fprintf(stderr, "headers say %u, the library says %u\n", (unsigned)headers, (unsigned)fp8_version());
    return 1;
  }
  fp8_context_config config;
  fp8_context *context = NULL;
  char text[16384];
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CPU;
  if (fp8_context_create(&config, &context) != FP8_OK ||
      fp8_context_explain(context, text, sizeof text, NULL) != FP8_OK) {
    FP8_INIT(&error);
    fp8_last_error(&error);
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  fp8_context_destroy(context);
  printf("C: libfp8 %u, %s, %u bytes explained\n%s", (unsigned)fp8_version(), fp8_status_name(FP8_OK),
         (unsigned)strlen(text), text);
  return 0;
}
