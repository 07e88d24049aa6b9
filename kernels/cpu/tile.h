// SPDX-License-Identifier: Apache-2.0
// The inner loops: functions over a cache-resident tile, one table per SIMD target. What calls them is target-free.
#pragma once
#include "cpu/simd.h"
#include "numerics/block.h"

namespace fp8::cpu {

// Rows of unit inner stride. dtype F32, F16, BF16 (values) or E4M3, E5M2 (codes); stride in bytes.
struct Tile {
  const void *data;
  int32_t dtype;
  int64_t stride, rows, cols;
  // to prefetch while row r is walked: a piece of what is needed next
  const char *ahead = nullptr;
  int64_t ahead_stride = 0, ahead_bytes = 0, ahead_rows = 0;
};

// What is known of x * m. kTame: nothing is NaN or Inf, nothing rounds beyond the format's largest value.
enum class Range : int32_t { kSaturate, kOverflow, kTame };

// `seg`: columns that share a row's multiplier: rows' m is [rows][ceil(cols / seg)].
// `group`: rows that share a column's multiplier: columns' m is [ceil(rows / group)][cols].
struct TileOps {
  const char *name;
  // [rows][segs] and [groups][cols], overwritten; true when all elements are finite
  bool (*amax_rows)(const Tile &x, int64_t seg, float *amax);
  bool (*amax_cols)(const Tile &x, int64_t group, float *amax);
  bool (*amax_both)(const Tile &x, int64_t seg, int64_t group, float *rows, float *cols);  // both in one walk
  // amaxes to multipliers and to what is stored (null: not wanted), by a rule of numerics/scale.h
  void (*scales)(int32_t dtype, int32_t rule, float floor, const float *amax, int64_t n, float *m, float *inverse,
                 uint8_t *codes);
  void (*cast_rows)(const Tile &x, int32_t dtype, Range range, int64_t seg, const float *m, uint8_t *q, int64_t stride);
  void (*cast_cols)(const Tile &x, int32_t dtype, Range range, int64_t group, const float *m, uint8_t *q,
                    int64_t stride);
  void (*count_rows)(const Tile &x, int32_t dtype, int64_t seg, const float *m, uint64_t *stats);
  void (*count_cols)(const Tile &x, int32_t dtype, int64_t group, const float *m, uint64_t *stats);
  void (*add_cols)(const Tile &x, float *sums);  // sums[c] += x[0][c], then x[1][c], ...
  void (*transpose)(const uint8_t *src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t *dst,
                    int64_t dst_stride);
  // rows of `bytes`; stream: past the caches, for what is not read again soon; others see it after streams_done()
  void (*copy_out)(const void *src, int64_t src_stride, int64_t rows, int64_t bytes, void *dst, int64_t dst_stride,
                   bool stream);
  // values -> out (F32, F16, BF16): RN32(x * m), then the output's rounding
  void (*convert)(const Tile &x, float m, int32_t dtype, void *out, int64_t stride);
  // codes -> out (F32, F16, BF16): RN32(decode * s), then the output's rounding
  void (*decode_rows)(const Tile &q, int64_t seg, const float *s, int32_t dtype, void *out, int64_t stride);
  void (*decode_cols)(const Tile &q, int64_t group, const float *s, int32_t dtype, void *out, int64_t stride);
};

const TileOps &tile_ops();   // of simd()
const TileOps *plain_ops();  // no SIMD: the definition

constexpr int64_t kStreamFrom = int64_t{1} << 25;  // bytes of a call's outputs beyond which they don't stay in caches
constexpr int64_t kTile = 128;                     // rows and columns of the square tile
constexpr int64_t kTileElements = kTile * kTile;   // of any tile of F32
constexpr int64_t kWideElements = 4 * kTileElements;  // of any tile

}  // namespace fp8::cpu
