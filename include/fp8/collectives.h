/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Tensor-parallel and expert-parallel collectives in FP8. */
#ifndef FP8_COLLECTIVES_H
#define FP8_COLLECTIVES_H
#include "comm.h"
#include "recipe.h"
#ifdef __cplusplus
extern "C" {
#endif

/* TP: fp8_amax (TENSOR; ROW's col), fp8_all_reduce_max of it over the group, fp8_quantize with FP8_AMAX_GIVEN, fp8_all_gather */
FP8_API fp8_status fp8_all_reduce_max(const fp8_context *c, fp8_comm *comm, fp8_tensor *inout /* F32 or U8, compact */, fp8_stream stream);
FP8_API fp8_status fp8_all_gather_workspace(const fp8_context *c, const fp8_comm *comm, const fp8_qtensor *part, uint32_t side, const fp8_qtensor *full, uint64_t *bytes); /* [pure] */
/* along rows, in rank order: full.rows = size * part.rows, the same on every rank; full placed (NONE: a COPY, 2 bytes an element) */
FP8_API fp8_status fp8_all_gather(const fp8_context *c, fp8_comm *comm, const fp8_qtensor *part, uint32_t side, fp8_qtensor *full, const fp8_buffer *workspace, fp8_stream stream);
typedef struct fp8_dispatch_plan fp8_dispatch_plan;  /* calls on it are [serial] with its communicator's */
typedef struct fp8_dispatch_config {
  size_t struct_size;
  const fp8_tensor *expert_ids;     /* I32 [tokens, k]; -1 = none; read by create only */
  const fp8_recipe *recipe;         /* 1D activations, or NONE (BF16) */
  const fp8_buffer *memory;         /* of fp8_dispatch_plan_sizes; the plan's tables, until its last call has run on the stream */
  int64_t tokens, hidden;
  int64_t max_tokens;               /* bound of `tokens` on any rank, equal on all */
  int32_t k, experts_per_rank;      /* expert e lives on rank e / experts_per_rank */
  int32_t row_alignment;            /* of each expert's group: 16 ROW, NONE; 32 MX; 128 BLOCK; 0 = by recipe */
  int32_t reserved;
} fp8_dispatch_config;
FP8_API fp8_status fp8_dispatch_plan_sizes(const fp8_context *c, const fp8_comm *comm, const fp8_dispatch_config *config, uint64_t *bytes, int64_t *max_rows);  /* [pure] of `memory`, and the bound of rows; expert_ids and memory may be NULL */
FP8_API fp8_status fp8_dispatch_plan_create(const fp8_context *c, fp8_comm *comm, const fp8_dispatch_config *config, fp8_stream stream, fp8_dispatch_plan **plan); /* [waits]: exchanges counts */
/* rows of `grouped`, padding included. Host arrays of experts_per_rank: group e is rows [group_ends[e-1] or 0, group_ends[e]), aligned;
 * its first group_rows[e] hold tokens, the rest is zero. Each output may be NULL. View a group by fp8_qtensor_slice */
FP8_API fp8_status fp8_dispatch_plan_query(const fp8_dispatch_plan *plan, int64_t *rows, int64_t *group_ends, int64_t *group_rows, uint64_t *workspace_bytes);  /* [pure] workspace for each of the four calls */
FP8_API fp8_status fp8_dispatch(const fp8_dispatch_plan *plan, const fp8_qtensor *tokens /* row side */, fp8_qtensor *grouped /* row side, placed; col by fp8_requantize */, const fp8_buffer *workspace, fp8_stream stream);
FP8_API fp8_status fp8_dispatch_backward(const fp8_dispatch_plan *plan, const fp8_tensor *dgrouped, fp8_tensor *dtokens, const fp8_buffer *workspace, fp8_stream stream);  /* combine with weights of one */
FP8_API fp8_status fp8_combine(const fp8_dispatch_plan *plan, const fp8_tensor *expert_rows /* [rows, hidden] */, const fp8_tensor *weights /* F32 [tokens, k] */, fp8_tensor *tokens, const fp8_buffer *workspace, fp8_stream stream);
typedef struct fp8_combine_backward_args {
  size_t struct_size;
  const fp8_tensor *dtokens, *expert_rows, *weights;  /* expert_rows as given to combine; only for dweights */
  fp8_tensor *dexpert_rows, *dweights;                /* dweights may be NULL; padding rows of dexpert_rows become zero */
  const fp8_buffer *workspace;
} fp8_combine_backward_args;
FP8_API fp8_status fp8_combine_backward(const fp8_dispatch_plan *plan, const fp8_combine_backward_args *args, fp8_stream stream);
FP8_API void fp8_dispatch_plan_destroy(fp8_dispatch_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
