/* SPDX-License-Identifier: Apache-2.0 */
/* Fashion-MNIST: 60000 + 10000 pictures of 28 x 28 in ten classes, in idx files compressed with gzip. */
#ifndef MLP_IMAGES_H
#define MLP_IMAGES_H
#include <stdint.h>

#include "../common/tensor.h"

enum { PIXELS = 28 * 28 };

typedef struct Images {
  int64_t count;
  bf16 *pixels; /* [count, PIXELS], zero mean, unit variance */
  uint8_t *labels;
} Images;

void images_load(Images *images, const char *folder, const char *part /* "train" or "t10k" */);
void images_free(Images *images);
#endif
