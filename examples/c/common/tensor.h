/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_tensor is a plain view, so an example needs only two constructors; and BF16 is half of a float. */
#ifndef EXAMPLE_TENSOR_H
#define EXAMPLE_TENSOR_H
#include <string.h>

#include "check.h"

static inline fp8_tensor matrix(const void *data, int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t = {(void *)data, dtype, 2, {rows, cols, 0, 0}, {cols, 1, 0, 0}};
  return t;
}

static inline fp8_tensor vector(const void *data, int32_t dtype, int64_t count) {
  fp8_tensor t = {(void *)data, dtype, 1, {count, 0, 0, 0}, {1, 0, 0, 0}};
  return t;
}

typedef uint16_t bf16;

static inline float bf16_to_float(bf16 value) {
  uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/* Round to nearest even; NaN stays NaN, so that a diverged run shows. */
static inline bf16 bf16_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  uint32_t quiet = bits >> 16 | 0x40u;
  return (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
#endif
