/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that depend on (seed, index) alone: every run of a comparison sees the same weights and batches. */
#ifndef EXAMPLE_RANDOM_H
#define EXAMPLE_RANDOM_H
#include <math.h>
#include <stdint.h>

static inline uint64_t random_bits(uint64_t seed, uint64_t index) { /* splitmix64 of a Weyl sequence */
  uint64_t z = (seed + 1) * 0xd1342543de82ef95u + index * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static inline double random_uniform(uint64_t seed, uint64_t index) { /* in (0, 1) */
  return ((double)(random_bits(seed, index) >> 11) + 0.5) * 0x1p-53;
}

static inline float random_normal(uint64_t seed, uint64_t index) { /* Box-Muller, one of the pair */
  double radius = sqrt(-2.0 * log(random_uniform(seed, 2 * index)));
  return (float)(radius * cos(6.283185307179586 * random_uniform(seed, 2 * index + 1)));
}
#endif
