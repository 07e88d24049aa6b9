/* SPDX-License-Identifier: Apache-2.0 */
/* A C program outside the tree: prints the version of the library it found and checks it against the headers'. */
#include <fp8/fp8.h>
#include <stdio.h>

int main(void) {
  const uint32_t headers = FP8_VERSION_MAJOR * 10000 + FP8_VERSION_MINOR * 100 + FP8_VERSION_PATCH;
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  if (fp8_version() != headers) {
    fprintf(stderr, "headers say %u, the library says %u\n", (unsigned)headers, (unsigned)fp8_version());
    return 1;
  }
  printf("C: libfp8 %u, %s\n", (unsigned)fp8_version(), fp8_status_name(FP8_OK));
  return 0;
}
