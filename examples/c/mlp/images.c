/* SPDX-License-Identifier: Apache-2.0 */
#include "images.h"

#include <zlib.h>

/* An idx file: a big-endian magic number whose last byte is the number of dimensions, the dimensions, the bytes. */
static uint8_t *read_idx(const char *path, int dimensions, int64_t item_bytes, int64_t *count) {
  uint8_t head[16];
  gzFile file = gzopen(path, "rb");
  if (!file) fail("cannot read %s: apt-get install dataset-fashion-mnist, or name its folder with --data", path);
  int head_bytes = 4 + 4 * dimensions;
  if (gzread(file, head, (unsigned)head_bytes) != head_bytes || head[2] != 8 || head[3] != dimensions)
    fail("%s is not an idx file of bytes in %d dimensions", path, dimensions);
  *count = (int64_t)head[4] << 24 | head[5] << 16 | head[6] << 8 | head[7];
  int64_t bytes = *count * item_bytes;
  uint8_t *data = malloc((size_t)bytes + 1);
  REQUIRE(data, "out of memory");
  if (gzread(file, data, (unsigned)bytes) != bytes) fail("%s is too short for its %lld items", path, (long long)*count);
  gzclose(file);
  return data;
}

void images_load(Images *images, const char *folder, const char *part) {
  char path[512];
  int64_t labels;
  snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte.gz", folder, part);
  uint8_t *bytes = read_idx(path, 3, PIXELS, &images->count);
  snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte.gz", folder, part);
  images->labels = read_idx(path, 1, 1, &labels);
  REQUIRE(labels == images->count, "%s: %lld labels for %lld pictures", path, (long long)labels,
          (long long)images->count);
  images->pixels = malloc((size_t)(images->count * PIXELS) * sizeof(bf16));
  REQUIRE(images->pixels, "out of memory");
  for (int64_t i = 0; i < images->count * PIXELS; ++i) /* mean and deviation of the training pictures */
    images->pixels[i] = bf16_from_float(((float)bytes[i] / 255.0f - 0.2860f) / 0.3530f);
  free(bytes);
}

void images_free(Images *images) {
  free(images->pixels);
  free(images->labels);
}
