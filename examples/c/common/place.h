/* SPDX-License-Identifier: Apache-2.0 */
/* Where an example computes: on the CPU, or on a CUDA device where the example's CUDA kernels are built. */
#ifndef EXAMPLE_PLACE_H
#define EXAMPLE_PLACE_H
#include "check.h"

typedef struct Place {
  int32_t backend; /* FP8_BACKEND_CPU or FP8_BACKEND_CUDA */
  int32_t device;
} Place;

/* The place's table of kernels, whose type is the example's own; CUDA's is there where it is built. */
#ifdef EXAMPLE_CUDA
#define PLACE_KERNELS(place, cpu, cuda) ((place)->backend == FP8_BACKEND_CUDA ? (cuda) : (cpu))
#else
#define PLACE_KERNELS(place, cpu, cuda) (cpu) /* place_open() refuses the other */
#endif

int place_parse(const char *text, Place *place); /* cpu, cuda or cuda:N; 0 = none of these */
int place_built(const Place *place);             /* 0 = the program was built without CUDA */
/* Makes the device current and gives a stream of its own; on the CPU NULL. The context comes first: it says why a
 * device is out of reach. */
fp8_stream place_open(const Place *place);
void place_wait(fp8_stream stream); /* until all work on the stream is done */
void place_close(const Place *place, fp8_stream stream);
#endif
