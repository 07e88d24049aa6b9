// SPDX-License-Identifier: Apache-2.0
#include "device.cuh"

namespace {
uint64_t scratch_bytes(const Shape *s, int) {  // kernels follow one another on a stream: the largest serves all
  const uint64_t needs[] = {cuda_norm_scratch(shape_rows(s), s->dim), cuda_embed_scratch(s), cuda_attention_scratch(s),
                            cuda_square_scratch()};
  uint64_t most = 0;
  for (const uint64_t bytes : needs) most = bytes > most ? bytes : most;
  return most;
}
}  // namespace

const Kernels kernels_cuda = {
    scratch_bytes,      cuda_embed,     cuda_embed_backward,     cuda_norm,          cuda_norm_backward, cuda_gelu,
    cuda_gelu_backward, cuda_attention, cuda_attention_backward, cuda_cross_entropy, cuda_square_sum,    cuda_adamw,
    cuda_sum_ranks,     cuda_amplify,
};
