/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels_cpu.h"

const Kernels kernels_cpu = {
    .scratch_bytes = cpu_scratch_bytes,
    .embed = cpu_embed,
    .embed_backward = cpu_embed_backward,
    .norm = cpu_norm,
    .norm_backward = cpu_norm_backward,
    .gelu = cpu_gelu,
    .gelu_backward = cpu_gelu_backward,
    .attention = cpu_attention,
    .attention_backward = cpu_attention_backward,
    .cross_entropy = cpu_cross_entropy,
    .square_sum = cpu_square_sum,
    .adamw = cpu_adamw,
    .sum_ranks = cpu_sum_ranks,
    .amplify = cpu_amplify,
};
