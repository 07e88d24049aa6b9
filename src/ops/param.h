// SPDX-License-Identifier: Apache-2.0
// Primary weights cut by flat offsets: partial amax, cast of the owned bytes, assembly of the gathered ones.
// One call serves a whole list: few launches whatever its length. Numbers: kernels/numerics.
#pragma once
#include "ops/view.h"

namespace fp8::ops {

// One rank's elements of one weight. Pieces lie in the slot's part at their flat offset modulo 16 bytes, so that both
// ends of a copy are aligned alike.
struct ParamPiece {
  int64_t begin, count;  // flat, row-major, in elements
  int64_t at;            // its first byte in the column part of this rank's slot; in the row part: + row_shift[rank]
};

// One side of the assembled weight in its own orientation (col: codes [cols, rows]); codes NULL = not wanted.
struct ParamSide {
  void *codes;
  int64_t row_stride, col_stride;  // elements
  void *scale;                     // NULL where unquantized
  int64_t scale_rows, scale_cols, scale_row_stride, scale_col_stride;
  int64_t padded_rows,
      padded_cols;  // with the padding of native strides, which becomes zero; else scale_rows, scale_cols
};

struct ParamItem {
  int64_t rows, cols;
  const void *master;              // amax, cast: the owned elements, contiguous; NULL where there are none
  int32_t master_dtype, reserved;  // F32, BF16
  int64_t amax;  // first element in amax of the row side's tiles [scale rows, scale cols]; the column side's follow,
                 // unless one scale serves both
  ParamSide row, col;  // assemble
};

struct ParamList {
  const ParamItem *items;    // host
  const ParamPiece *pieces;  // host, [count][world]
  const int64_t *row_shift;  // host, [world]
  int32_t count, world;
  int32_t rank;           // -1: rank_data
  int32_t scaling, rule;  // of the row side; FP8_SCALING_UNQUANTIZED: 16-bit copies, no amax
  int32_t dtype;          // of codes
  int32_t round_bf16;
  float amax_floor;
  uint32_t sides;
  int32_t amax_dtype;        // F32, or U8 codes of E8M0
  const int32_t *rank_data;  // device
  void *amax;
  int64_t amax_count;
  void *shard;  // cast
  const void *const
      *slots;  // host, [world]: assemble: what each rank has sent; NULL: codes come from each item's own row side
  int32_t row_ready,
      reserved;  // slots NULL: 0: so do scales, and row is not written; 1: row lacks its scales, all from amax
  int64_t row_part, col_part;  // first byte of each part in a slot (of shard or of slots)
  void *workspace;
  uint64_t workspace_bytes;
};

struct ReduceMax {  // dst[i] = max over sources of sources[s][i]; dst may be one of them
  void *dst;
  const void *const *sources;  // host array of device pointers
  int32_t count, dtype;        // F32 (not negative, no NaN) or U8
  int64_t size;
};

// Kinds whose two sides share one scale: the column side is an exact transpose and never travels.
constexpr bool shares_scale(int32_t scaling) {
  return scaling == 1 || scaling == 2 || scaling == 5 || scaling == 7 || scaling == 8;
}
// First element in amax of the column side's tiles.
constexpr int64_t amax_col(int32_t scaling, const ParamItem &m) {
  if (shares_scale(scaling)) return m.amax;
  const int64_t tile = tile_cols(scaling);
  return m.amax + m.rows * (tile ? (m.cols + tile - 1) / tile : 1);
}

}  // namespace fp8::ops
