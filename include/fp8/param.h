/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  FP8 primary weights under ZeRO-1. */
#ifndef FP8_PARAM_H
#define FP8_PARAM_H
#include "comm.h"
#include "recipe.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_param fp8_param;     /* an FP8 primary weight, sharded by flat offsets: configuration only */
typedef struct fp8_param_config {
  size_t struct_size;
  int64_t rows, cols;
  const int64_t *cuts;              /* copied: world + 1 ascending offsets into the flattened matrix; empty shards are fine */
  int32_t world, rank;              /* rank -1: stateless steps only, see fp8_param_args.rank */
  const fp8_recipe *recipe;
} fp8_param_config;
FP8_API fp8_status fp8_param_create(const fp8_context *context, const fp8_param_config *config, fp8_param **param);
FP8_API void fp8_param_destroy(fp8_param *param);
typedef struct fp8_param_layout {       /* of a list of params; equal on every rank; bytes of shard and gathered are opaque */
  size_t struct_size;
  int64_t amax_count;                   /* elements of amax: max-reduce them over the ranks as they are */
  int32_t amax_dtype;                   /* F32; U8 (E8M0 codes) for MX and MX_W2D; 0 = nothing to reduce (NONE) */
  int32_t world;
  uint64_t amax_bytes;
  uint64_t row_bytes, col_bytes;        /* shard = row part, then col part: the same on all ranks, padded to the largest. col 0 where the column side is a transpose (all but ROW and MX) */
  uint64_t gathered_bytes;              /* world slots, in rank order, of what travels for `sides`: the row part for ROW (and for any sides where col_bytes is 0), the col part for COL, the whole shard for BOTH */
  uint64_t workspace_bytes;             /* enough for each of the five calls */
} fp8_param_layout;
typedef struct fp8_param_args {         /* every call reads or writes what its line names; all params of a list have one context and one recipe */
  size_t struct_size;
  const fp8_param *const *params;
  const fp8_tensor *const *masters;     /* this rank's elements, 1-D, F32 or BF16; shape 0 where it owns none */
  fp8_qtensor *const *full;             /* described (recipe, role weight) and placed, at least the sides asked for; NONE: with FP8_SIDE_COPY */
  const fp8_buffer *amax, *shard;       /* keep both until the step's last gather or assemble */
  const fp8_buffer *gathered, *workspace;
  const fp8_tensor *rank;               /* amax and cast, params created with rank -1: I32[1] in device memory, for SPMD programs whose rank is data (JAX shard_map); masters then have the largest shard's size */
  int32_t count;
  uint32_t sides;
} fp8_param_args;
FP8_API fp8_status fp8_param_sizes(const fp8_param *const *params, int32_t count, uint32_t sides, fp8_param_layout *layout);                /* [pure] */
FP8_API fp8_status fp8_param_check(const fp8_context *c, fp8_comm *comm, const fp8_param *const *params, int32_t count);                    /* [waits] once, at setup: recipes, shapes, cuts and order agree on all ranks, else ERR_COMM naming who differs */
/* three stateless steps, for frameworks with collectives of their own (lax.pmax, lax.all_gather) */
FP8_API fp8_status fp8_param_amax(const fp8_context *c, const fp8_param_args *args, fp8_stream stream);      /* masters -> amax, this rank's part: now max-reduce it */
FP8_API fp8_status fp8_param_cast(const fp8_context *c, const fp8_param_args *args, fp8_stream stream);      /* masters, amax -> shard: now gather it */
FP8_API fp8_status fp8_param_assemble(const fp8_context *c, const fp8_param_args *args, fp8_stream stream);  /* gathered, amax -> sides of full; gathered NULL: col from full's own row side (not ROW, MX) */
/* the same with a communicator: one packed all_reduce(max), the cast of the owned bytes, one all_gather */
FP8_API fp8_status fp8_param_quantize(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args, fp8_stream stream);  /* masters -> amax, shard */
FP8_API fp8_status fp8_param_gather(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args, fp8_stream stream);    /* shard, amax -> sides of full */

#ifdef __cplusplus
}
#endif
#endif
