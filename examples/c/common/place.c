/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <string.h>
#ifdef EXAMPLE_CUDA
#include <cuda_runtime_api.h>
#endif

int place_parse(const char *text, Place *place) {
  Place cpu = {FP8_BACKEND_CPU, 0};
  char *end = (char *)text;
  *place = cpu;
  if (!strcmp(text, "cpu")) return 1;
  if (strncmp(text, "cuda", 4)) return 0;
  place->backend = FP8_BACKEND_CUDA;
  if (!text[4]) return 1;
  long n = text[4] == ':' ? strtol(text + 5, &end, 10) : -1;
  place->device = (int32_t)n;
  return n >= 0 && n < 1024 && end > text + 5 && !*end;
}

#ifdef EXAMPLE_CUDA
static void check_cuda(cudaError_t error, const char *what) {
  if (error != cudaSuccess) fail("%s: %s", what, cudaGetErrorString(error));
}

int place_built(const Place *place) { return place != NULL; }

fp8_stream place_open(const Place *place) {
  cudaStream_t stream;
  if (place->backend == FP8_BACKEND_CPU) return NULL;
  check_cuda(cudaSetDevice(place->device), "the CUDA device cannot be used");
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no CUDA stream");
  return stream;
}

void place_wait(fp8_stream stream) {
  if (stream) check_cuda(cudaStreamSynchronize(stream), "work on the CUDA device failed");
}

void place_close(const Place *place, fp8_stream stream) {
  if (place->backend == FP8_BACKEND_CPU) return;
  place_wait(stream);
  check_cuda(cudaStreamDestroy(stream), "the CUDA stream was not closed");
}
#else
int place_built(const Place *place) { return place->backend == FP8_BACKEND_CPU; }
fp8_stream place_open(const Place *place) {
  if (!place_built(place))
    fail("this program was built without CUDA: configure where nvcc 13 and cublasLt.h are, with -DFP8_CUDA=ON");
  return NULL;
}
void place_wait(fp8_stream stream) { (void)stream; }
void place_close(const Place *place, fp8_stream stream) { (void)place, (void)stream; }
#endif
