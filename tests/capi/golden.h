/* SPDX-License-Identifier: Apache-2.0 */
/* Golden arrays (.npy version 1, little endian, C order) for the C API's tests. */
#ifndef FP8_TESTS_CAPI_GOLDEN_H
#define FP8_TESTS_CAPI_GOLDEN_H
#include "support.h"

typedef struct golden {
  void *data;
  int64_t count, bytes, shape[4];
  int ndim;
} golden;

TEST_UNUSED static golden golden_load(const char *name) {
  golden g;
  char path[1024], header[4096], *shape;
  unsigned char magic[10];
  size_t length;
  FILE *f;
  memset(&g, 0, sizeof g);
  snprintf(path, sizeof path, "%s/%s.npy", FP8_GOLDEN_DIR, name);
  f = fopen(path, "rb");
  if (!f) {
    print_error("cannot open %s\n", path);
    fail();
  }
  assert_int_equal(fread(magic, 1, 10, f), 10);
  assert_memory_equal(magic, "\x93NUMPY\x01", 7);
  length = (size_t)magic[8] | (size_t)magic[9] << 8;
  assert_true(length < sizeof header);
  assert_int_equal(fread(header, 1, length, f), length);
  header[length] = 0;
  shape = strstr(header, "'shape': (");
  assert_non_null(shape);
  shape += 10;
  g.count = 1;
  while (*shape != ')') {
    g.shape[g.ndim] = strtoll(shape, &shape, 10);
    g.count *= g.shape[g.ndim++];
    while (*shape == ',' || *shape == ' ') ++shape;
  }
  g.bytes = g.count * (strchr(strstr(header, "'descr': '") + 10, '\'')[-1] - '0');
  g.data = malloc((size_t)g.bytes + 1);
  assert_int_equal(fread(g.data, 1, (size_t)g.bytes, f), g.bytes);
  fclose(f);
  return g;
}

/* a golden array as a tensor in device memory */
TEST_UNUSED static fp8_tensor golden_tensor(const char *name, int32_t dtype) {
  golden g = golden_load(name);
  fp8_tensor t = view(dtype, g.ndim, g.shape[0], g.shape[1], g.shape[2]);
  t.data = dev_alloc((uint64_t)g.bytes);
  upload(t.data, g.data, (uint64_t)g.bytes);
  free(g.data);
  return t;
}

#endif
