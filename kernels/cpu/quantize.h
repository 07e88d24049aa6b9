// SPDX-License-Identifier: Apache-2.0
// One quantize call: an amax pass where a scale reaches beyond a tile (TENSOR, ROW), then one pass over tiles that
// reads x once and writes both sides, scales, counts and column sums.
#pragma once
#include <atomic>

#include "cpu/access.h"

namespace fp8::cpu {

struct SideRun {
  const ops::QuantizeSide *s;
  bool on, is_col;
  int32_t dtype, rule, scaling;
  bool given;       // amax comes from the caller
  bool global;      // TENSOR, ROW: one table for the whole call
  int64_t entries;  // of the table
  float *table;     // amax, then multipliers
  // in x's orientation, 0 = whole
  int64_t tile_rows() const { return is_col ? num::scale_tile_cols(scaling) : num::scale_tile_rows(scaling); }
  int64_t tile_cols() const { return is_col ? num::scale_tile_rows(scaling) : num::scale_tile_cols(scaling); }
  bool along_rows() const { return !is_col || num::symmetric(scaling); }  // multipliers are looked up by row
};

// Scratch of one tile, on the stack.
struct TileScratch {
  alignas(64) char x[kTileElements * 4];
  alignas(64) uint8_t codes[kTileElements];
  alignas(64) uint8_t other[kTileElements];
  alignas(64) float amax[kTileElements / 32 + kTile];
  alignas(64) float m[kTileElements / 32 + kTile];
};

class QuantizeRun {
 public:
  explicit QuantizeRun(const ops::Quantize &q);
  uint64_t workspace() const { return bytes_ ? bytes_ + 64 : 0; }
  void run(const Parallel &parallel);

 private:
  struct Part {
    int64_t row, col;
    Tile x;
  };
  SideRun side(const ops::QuantizeSide &s, bool is_col) const;
  bool wants_amax_pass(const SideRun &side) const;
  void carve();
  int64_t parts() const { return bands_ * strips_; }
  Part part(int64_t index, int reads, TileScratch &scratch) const;  // reads: of x, that follow
  void amax_part(const Part &p, TileScratch &scratch) const;
  void amax_side(const SideRun &side, const Part &p, TileScratch &scratch) const;
  void finish_table(const SideRun &side, const Parallel &parallel) const;
  void cast_part(const Part &p, TileScratch &scratch) const;
  void put(const ops::Matrix &out, int64_t row, int64_t col, int64_t rows, int64_t cols, const uint8_t *codes) const;
  void cast_side(const SideRun &side, const Part &p, TileScratch &scratch) const;
  // *finite: every element that the amaxes were taken from is
  const float *row_multipliers(const SideRun &side, const Part &p, int64_t *seg, bool *finite,
                               TileScratch &scratch) const;
  const float *col_multipliers(const SideRun &side, const Part &p, int64_t *group, bool *finite,
                               TileScratch &scratch) const;
  void finish_lines(const SideRun &side, int64_t i, int64_t j, int64_t lines, int64_t n, const float *amax,
                    float *m) const;
  Range range(const SideRun &side, bool finite) const;
  float finish(const SideRun &side, int64_t i, int64_t j,
               float amax) const;  // tile (i, j) of x: amax out, scale out -> m
  void add_stats(const SideRun &side, const uint64_t *stats) const;
  void column_sums(const Parallel &parallel) const;

  const ops::Quantize &q_;
  const TileOps &ops_;
  int64_t rows_, cols_, tile_rows_, tile_cols_, bands_, strips_;
  SideRun row_, col_;
  bool mirror_;  // the column side is the exact transpose of the row side
  bool square_;
  bool stream_;                             // the outputs are larger than caches
  mutable std::atomic<bool> finite_{true};  // as far as the amax pass saw
  uint64_t bytes_;
  float *dbias_;  // [bands][cols]
};

void zero_padding(const ops::Scale &s);
void requantize_exact(const ops::Quantize &q, const Parallel &parallel);

}  // namespace fp8::cpu
