/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's kernels, gathered from the files of this folder into the table in table.c. */
#ifndef GPT_KERNELS_CPU_H
#define GPT_KERNELS_CPU_H
#include "../../common/simd.h"
#include "../kernels.h"

uint64_t cpu_scratch_bytes(const Shape *s, int threads);
void cpu_embed(const Device *d, const Shape *s, const uint8_t *tokens, const float *bytes, const float *positions,
               float *residual);
void cpu_embed_backward(const Device *d, const Shape *s, const uint8_t *tokens, const float *dresidual, float *dbytes,
                        float *dpositions);
void cpu_norm(const Device *d, int64_t rows, int64_t dim, const NormArgs *args);
void cpu_norm_backward(const Device *d, int64_t rows, int64_t dim, const NormBackwardArgs *args);
void cpu_gelu(const Device *d, int64_t count, const bf16 *in, bf16 *out);
void cpu_gelu_backward(const Device *d, int64_t count, const bf16 *in, const bf16 *dout, bf16 *din);
void cpu_attention(const Device *d, const Shape *s, const bf16 *qkv, bf16 *out, float *logsum);
void cpu_attention_backward(const Device *d, const Shape *s, const bf16 *qkv, const bf16 *out, const float *logsum,
                            const bf16 *dout, bf16 *dqkv);
void cpu_cross_entropy(const Device *d, int64_t rows, const bf16 *logits, const uint8_t *targets, float scale,
                       float *losses, bf16 *dlogits);
void cpu_square_sum(const Device *d, int64_t count, const float *values, double *sum);
void cpu_adamw(const Device *d, const AdamArgs *args);
void cpu_sum_ranks(const Device *d, int64_t count, int ranks, int rank, const float *parts, int64_t stride, float *own);
void cpu_amplify(const Device *d, int64_t rows, int64_t dim, float factor, bf16 *values);
#endif
