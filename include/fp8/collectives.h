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

/** @defgroup collectives Collectives
 *  Tensor parallelism: fp8_amax() (TENSOR; ROW's column side), fp8_all_reduce_max() of it over the group,
 * fp8_quantize() with FP8_AMAX_GIVEN, fp8_all_gather().
 *
 *  Expert parallelism: a plan that waits, since counts are exchanged, and stream calls that don't. A token travels once
 * to each rank that holds any of its experts, codes and scales together. Backward: fp8_combine_backward(), the experts,
 *  fp8_dispatch_backward().
 *  @{ */

/** Maximum over the group, in place. [serial] [stream]
 *  @param c the context
 *  @param comm the communicator
 *  @param[in,out] inout F32 or U8, compact
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED or FP8_ERR_COMM */
FP8_API fp8_status fp8_all_reduce_max(const fp8_context *c, fp8_comm *comm, fp8_tensor *inout, fp8_stream stream);

/** Workspace of fp8_all_gather(). [pure]
 *  @param c the context
 *  @param comm the communicator
 *  @param part as for the call; pointers are not read
 *  @param side as for the call
 *  @param full as for the call; pointers are not read
 *  @param[out] bytes enough for every legal alignment
 *  @return FP8_OK, or what the call would refuse */
FP8_API fp8_status fp8_all_gather_workspace(const fp8_context *c, const fp8_comm *comm, const fp8_qtensor *part,
                                            uint32_t side, const fp8_qtensor *full, uint64_t *bytes);

/** Joins one side of every rank's part along rows, in rank order. The column side needs tiles that end with a rank's
 * rows. [serial] [stream]
 *  @param c the context
 *  @param comm the communicator
 *  @param part this rank's rows
 *  @param side FP8_SIDE_ROW or FP8_SIDE_COL
 *  @param[in,out] full placed; full.rows = size * part.rows, the same on every rank (NONE: a COPY, 2 bytes an element)
 *  @param workspace fp8_all_gather_workspace() bytes; NULL = from the context's allocator, counted
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED, FP8_ERR_NO_ALLOC or FP8_ERR_COMM */
FP8_API fp8_status fp8_all_gather(const fp8_context *c, fp8_comm *comm, const fp8_qtensor *part, uint32_t side,
                                  fp8_qtensor *full, const fp8_buffer *workspace, fp8_stream stream);

/** Where each token goes. Calls on it are [serial] with its communicator's. */
typedef struct fp8_dispatch_plan fp8_dispatch_plan;

/** How a plan is made. */
typedef struct fp8_dispatch_config {
  size_t struct_size;           /**< set by FP8_INIT */
  const fp8_tensor *expert_ids; /**< I32 [tokens, k]; -1 = none; read by create only */
  const fp8_recipe *recipe;     /**< 1D activations, or NONE (BF16) */
  const fp8_buffer *memory; /**< fp8_dispatch_plan_sizes() bytes: the plan's tables, until its last call has run on the
                                 stream */
  int64_t tokens;           /**< of this rank */
  int64_t hidden;           /**< elements of a token */
  int64_t max_tokens;       /**< bound of `tokens` on any rank, equal on all */
  int32_t k;                /**< experts of a token */
  int32_t experts_per_rank; /**< expert e lives on rank e / experts_per_rank */
  int32_t row_alignment;    /**< of each expert's group: 16 ROW, NONE; 32 MX; 128 BLOCK; 0 = by recipe */
  int32_t reserved;         /**< 0 */
} fp8_dispatch_config;

/** Size of a plan's memory and the bound of its rows, before any count is known. [pure]
 *  @param c the context
 *  @param comm the communicator
 *  @param config expert_ids and memory may be NULL
 *  @param[out] bytes of fp8_dispatch_config.memory
 *  @param[out] max_rows the most rows that fp8_dispatch_plan_query() can report
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_UNSUPPORTED */
FP8_API fp8_status fp8_dispatch_plan_sizes(const fp8_context *c, const fp8_comm *comm,
                                           const fp8_dispatch_config *config, uint64_t *bytes, int64_t *max_rows);

/** Makes a plan: counts are exchanged. [serial] [waits]
 *  @param c the context
 *  @param comm the communicator
 *  @param config the configuration
 *  @param stream the stream that wrote expert_ids
 *  @param[out] plan to be destroyed by fp8_dispatch_plan_destroy()
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED or FP8_ERR_COMM */
FP8_API fp8_status fp8_dispatch_plan_create(const fp8_context *c, fp8_comm *comm, const fp8_dispatch_config *config,
                                            fp8_stream stream, fp8_dispatch_plan **plan);

/** What arrives here. Group e is rows [group_ends[e-1] or 0, group_ends[e]) of `grouped`, aligned; its first
 * group_rows[e] hold tokens, the rest is zero. View a group by fp8_qtensor_slice(). Each output may be NULL. [pure]
 *  @param plan the plan
 *  @param[out] rows rows of `grouped`, padding included
 *  @param[out] group_ends host array of experts_per_rank
 *  @param[out] group_rows host array of experts_per_rank
 *  @param[out] workspace_bytes enough for each of the four calls
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_dispatch_plan_query(const fp8_dispatch_plan *plan, int64_t *rows, int64_t *group_ends,
                                           int64_t *group_rows, uint64_t *workspace_bytes);

/** Tokens to the experts' ranks. Equal to quantizing after a BF16 dispatch, since a 1D scale is a function of one
 * token. [serial] [stream]
 *  @param plan the plan
 *  @param tokens row side, [tokens, hidden]
 *  @param[in,out] grouped row side, placed, [rows, hidden]; its column side by fp8_requantize()
 *  @param workspace of fp8_dispatch_plan_query(); NULL = from the context's allocator, counted
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_NO_ALLOC or FP8_ERR_COMM */
FP8_API fp8_status fp8_dispatch(const fp8_dispatch_plan *plan, const fp8_qtensor *tokens, fp8_qtensor *grouped,
                                const fp8_buffer *workspace, fp8_stream stream);

/** Gradients of the experts' rows back to their tokens: combine with weights of one. [serial] [stream]
 *  @param plan the plan
 *  @param dgrouped [rows, hidden]
 *  @param[out] dtokens [tokens, hidden]
 *  @param workspace of fp8_dispatch_plan_query(); NULL = from the context's allocator, counted
 *  @param stream the stream
 *  @return as fp8_dispatch() */
FP8_API fp8_status fp8_dispatch_backward(const fp8_dispatch_plan *plan, const fp8_tensor *dgrouped, fp8_tensor *dtokens,
                                         const fp8_buffer *workspace, fp8_stream stream);

/** Experts' rows back to their tokens: the weighted sum in FP32, in a fixed order (expert slot 0 to k - 1), rounded
 * once. [serial] [stream]
 *  @param plan the plan
 *  @param expert_rows [rows, hidden]
 *  @param weights F32 [tokens, k]
 *  @param[out] tokens [tokens, hidden]
 *  @param workspace of fp8_dispatch_plan_query(); NULL = from the context's allocator, counted
 *  @param stream the stream
 *  @return as fp8_dispatch() */
FP8_API fp8_status fp8_combine(const fp8_dispatch_plan *plan, const fp8_tensor *expert_rows, const fp8_tensor *weights,
                               fp8_tensor *tokens, const fp8_buffer *workspace, fp8_stream stream);

/** Arguments of fp8_combine_backward(). */
typedef struct fp8_combine_backward_args {
  size_t struct_size;            /**< set by FP8_INIT */
  const fp8_tensor *dtokens;     /**< [tokens, hidden] */
  const fp8_tensor *expert_rows; /**< as given to fp8_combine(); only for dweights */
  const fp8_tensor *weights;     /**< as given to fp8_combine() */
  fp8_tensor *dexpert_rows;      /**< out, [rows, hidden]; padding rows become zero */
  fp8_tensor *dweights;          /**< out, F32 [tokens, k]; may be NULL */
  const fp8_buffer *workspace;   /**< of fp8_dispatch_plan_query(); NULL = from the context's allocator, counted */
} fp8_combine_backward_args;

/** Gradients of fp8_combine(). [serial] [stream]
 *  @param plan the plan
 *  @param args the arguments
 *  @param stream the stream
 *  @return as fp8_dispatch() */
FP8_API fp8_status fp8_combine_backward(const fp8_dispatch_plan *plan, const fp8_combine_backward_args *args,
                                        fp8_stream stream);

/** Destroys a plan; its memory is the caller's. Never waits.
 *  @param plan NULL is ignored */
FP8_API void fp8_dispatch_plan_destroy(fp8_dispatch_plan *plan);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
