/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's kernels, gathered from the files of this folder into the table in table.cu. Sums are split by position alone
 * and added in a fixed order, without atomics: a run repeats bit for bit. */
#ifndef GPT_KERNELS_CUDA_H
#define GPT_KERNELS_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "../kernels.h"

void cuda_embed(const Device *d, const Shape *s, const uint8_t *tokens, const float *bytes, const float *positions,
                float *residual);
void cuda_embed_backward(const Device *d, const Shape *s, const uint8_t *tokens, const float *dresidual, float *dbytes,
                         float *dpositions);
void cuda_norm(const Device *d, int64_t rows, int64_t dim, const NormArgs *args);
void cuda_norm_backward(const Device *d, int64_t rows, int64_t dim, const NormBackwardArgs *args);
void cuda_gelu(const Device *d, int64_t count, const bf16 *in, bf16 *out);
void cuda_gelu_backward(const Device *d, int64_t count, const bf16 *in, const bf16 *dout, bf16 *din);
void cuda_attention(const Device *d, const Shape *s, const bf16 *qkv, bf16 *out, float *logsum);
void cuda_attention_backward(const Device *d, const Shape *s, const bf16 *qkv, const bf16 *out, const float *logsum,
                             const bf16 *dout, bf16 *dqkv);
void cuda_cross_entropy(const Device *d, int64_t rows, const bf16 *logits, const uint8_t *targets, float scale,
                        float *losses, bf16 *dlogits);
void cuda_square_sum(const Device *d, int64_t count, const float *values, double *sum);
void cuda_adamw(const Device *d, const AdamArgs *args);
void cuda_sum_ranks(const Device *d, int64_t count, int ranks, int rank, const float *parts, int64_t stride,
                    float *own);
void cuda_amplify(const Device *d, int64_t rows, int64_t dim, float factor, bf16 *values);

/* What each of them puts into Device.scratch. */
uint64_t cuda_norm_scratch(int64_t rows, int64_t dim);
uint64_t cuda_embed_scratch(const Shape *s);
uint64_t cuda_attention_scratch(const Shape *s);
uint64_t cuda_square_scratch(void);
#ifdef __cplusplus
}
#endif
#endif
