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

/** @defgroup param Primary weights
 *  FP8 weights without a BF16 copy, made from FP32 (or BF16) masters that an optimizer has sharded by flat offsets.
 * What travels between ranks is amaxes and FP8 bytes; scales are recomputed on every rank from the reduced amax. The
 * result equals quantizing the whole master on one rank, bit for bit, at every cut. Why, and what it saves: @ref
 * memory.
 *
 *  Three stateless steps (amax, cast, assemble) serve frameworks with collectives of their own; quantize and gather are
 *  those plus a communicator: one packed all-reduce(max) and one all-gather for the whole list of params. Nothing
 * outside the owned range is written. A rank that owns nothing still joins.
 *
 *  What one call writes (its line says what, and the workspace) may share no element with anything else that it reads
 *  or writes, of the whole list: it is refused, by name, before anything is written. Two sides of a weight may be one
 *  copy: of BF16 as fp8_qtensor_place() lays them, of scales that serve both where col is row with swapped strides.
 *  Slices of a fused weight, by fp8_qtensor_slice(), may be full of several params, unless one scale is of them all:
 *  TENSOR's, and ROW's of a column.
 *  What a call does not use may lie anywhere: a shard in its slot of gathered, for fp8_param_cast().
 *  @{ */

/** A primary weight, sharded by flat offsets: configuration only. */
typedef struct fp8_param fp8_param;

/** How a param is made. */
typedef struct fp8_param_config {
  size_t struct_size; /**< set by FP8_INIT */
  int64_t rows;       /**< out features */
  int64_t cols;       /**< in features */
  const int64_t
      *cuts;     /**< host, copied: world + 1 ascending offsets into the flattened matrix; empty shards are fine */
  int32_t world; /**< ranks */
  int32_t rank;  /**< this one; -1: stateless steps only, see fp8_param_args.rank */
  const fp8_recipe *recipe; /**< a reference is kept */
} fp8_param_config;

/** Makes a param. [shared]
 *  @param context a reference is kept
 *  @param config the configuration
 *  @param[out] param to be destroyed by fp8_param_destroy()
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_UNSUPPORTED */
FP8_API fp8_status fp8_param_create(const fp8_context *context, const fp8_param_config *config, fp8_param **param);

/** Drops the caller's reference; never waits. [shared]
 *  @param param NULL is ignored */
FP8_API void fp8_param_destroy(fp8_param *param);

/** Sizes of a list of params; equal on every rank. The bytes of shard and gathered are opaque. A report: a caller with
 * a shorter struct gets what fits. */
typedef struct fp8_param_layout {
  size_t struct_size;  /**< set by FP8_INIT */
  int64_t amax_count;  /**< elements of amax: max-reduce them over the ranks as they are */
  int32_t amax_dtype;  /**< F32; U8 (E8M0 codes: the max of codes is the code of the max) for MX and MX_W2D; 0 = nothing
                            to reduce (NONE) */
  int32_t world;       /**< ranks */
  uint64_t amax_bytes; /**< bytes of amax */
  uint64_t row_bytes;  /**< of a shard, its row part: the same on all ranks, padded to the largest */
  uint64_t col_bytes;  /**< of a shard, its column part, after the row part; 0 where the column side is a transpose (all
                            but ROW and MX) */
  uint64_t gathered_bytes;  /**< world slots, in rank order, of what travels for `sides`: the row part for ROW (and for
                               any  sides where col_bytes is 0), the column part for COL, the whole shard for BOTH */
  uint64_t workspace_bytes; /**< enough for each of the five calls */
} fp8_param_layout;

/** Arguments of the five calls: each reads or writes what its line names. All params of a list have one context and one
 *  recipe. */
typedef struct fp8_param_args {
  size_t struct_size;               /**< set by FP8_INIT */
  const fp8_param *const *params;   /**< host array of `count` */
  const fp8_tensor *const *masters; /**< host array of `count`: this rank's elements, 1-D, F32 or BF16; shape 0 where it
                                       owns none */
  fp8_qtensor *const *full;   /**< host array of `count`, described (recipe, role weight) and placed, at least the sides
                                   asked for; NONE: with FP8_SIDE_COPY */
  const fp8_buffer *amax;     /**< amax_bytes; keep it until the step's last gather or assemble */
  const fp8_buffer *shard;    /**< row_bytes + col_bytes; keep it likewise */
  const fp8_buffer *gathered; /**< gathered_bytes, for fp8_param_assemble() */
  const fp8_buffer *workspace; /**< workspace_bytes; NULL = from the context's allocator, counted */
  const fp8_tensor *rank; /**< amax and cast, params created with rank -1: I32[1] in device memory, for SPMD programs
                               whose rank is data; masters then have the largest shard's size */
  int32_t count;          /**< params in the list */
  uint32_t sides; /**< bits of enum fp8_side, for every call (0 is refused): what is wanted of the weights. Of ROW
                       and MX, whose sides are quantized apart, amax, cast and quantize serve these sides only
                       and leave the other's part of amax and shard without meaning */
} fp8_param_args;

/** Sizes for a list of params. [pure]
 *  @param params host array of `count`
 *  @param count params in the list
 *  @param sides bits of enum fp8_side: what gathered will hold
 *  @param[out] layout started with FP8_INIT
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_param_sizes(const fp8_param *const *params, int32_t count, uint32_t sides,
                                   fp8_param_layout *layout);

/** Checks once, at setup, that recipes, shapes, cuts and order agree on all ranks. [serial] [waits]
 *  @param c the context
 *  @param comm the communicator
 *  @param params host array of `count`
 *  @param count params in the list
 *  @return FP8_OK; FP8_ERR_COMM naming who differs, and the first param that does with both values */
FP8_API fp8_status fp8_param_check(const fp8_context *c, fp8_comm *comm, const fp8_param *const *params, int32_t count);

/** masters to amax, this rank's part (0 where it owns no element of a block): now max-reduce it. [shared] [stream]
 *  @param c the context
 *  @param args reads masters and sides, writes amax
 *  @param stream the stream
 *  @return FP8_OK, FP8_ERR_ARGUMENT, FP8_ERR_UNSUPPORTED or FP8_ERR_NO_ALLOC */
FP8_API fp8_status fp8_param_amax(const fp8_context *c, const fp8_param_args *args, fp8_stream stream);

/** masters and reduced amax to shard, the codes of the owned elements: now gather it. [shared] [stream]
 *  @param c the context
 *  @param args reads masters, amax and sides, writes shard
 *  @param stream the stream
 *  @return as fp8_param_amax() */
FP8_API fp8_status fp8_param_cast(const fp8_context *c, const fp8_param_args *args, fp8_stream stream);

/** gathered and amax to the sides of full. With gathered NULL: the column side from full's own row side (not ROW, MX).
 *  [shared] [stream]
 *  @param c the context
 *  @param args reads gathered, amax and sides, writes full
 *  @param stream the stream
 *  @return as fp8_param_amax() */
FP8_API fp8_status fp8_param_assemble(const fp8_context *c, const fp8_param_args *args, fp8_stream stream);

/** masters to amax and shard: one packed all-reduce(max), then the cast of the owned bytes. [serial] [stream]
 *  @param c the context
 *  @param comm the communicator
 *  @param args reads masters and sides, writes amax and shard
 *  @param stream the stream
 *  @return as fp8_param_amax(), or FP8_ERR_COMM */
FP8_API fp8_status fp8_param_quantize(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args,
                                      fp8_stream stream);

/** shard and amax to the sides of full: one all-gather, owned bytes only. [serial] [stream]
 *  @param c the context
 *  @param comm the communicator
 *  @param args reads shard, amax and sides, writes full
 *  @param stream the stream
 *  @return as fp8_param_amax(), or FP8_ERR_COMM */
FP8_API fp8_status fp8_param_gather(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args,
                                    fp8_stream stream);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
