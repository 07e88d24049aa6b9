// SPDX-License-Identifier: Apache-2.0
// One quantize call: an amax pass where a scale reaches beyond a tile (TENSOR, ROW), then one pass over tiles that
// reads x once and writes both sides, scales, counts and column sums.
#pragma once
#include <atomic>

#include "cpu/access.h"
#include "cpu/feed.h"

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

// Scratch of one thread, on the stack: 400 KB.
constexpr int64_t kLines = kWideElements / 32 + kTile;  // scales of a tile, at most
struct Lines {
  alignas(64) float amax[kLines];
  alignas(64) float m[kLines];
};
struct TileScratch {
  alignas(64) char x[2][kWideElements * 2];  // a tile and the next; or one of F32
  alignas(64) uint8_t codes[kWideElements];
  alignas(64) uint8_t slice[kTileElements];  // a few rows or columns on their way out
  Lines row, col;
};
static_assert(kWideElements * 2 >= kTileElements * 4, "x holds a tile of F32");

// How a matrix is cut into tiles.
struct Grid {
  int64_t rows, cols, bands, strips;
  Grid(int64_t rows, int64_t cols, int64_t of_rows, int64_t of_cols)
      : rows(rows), cols(cols), bands(ceil_div(of_rows, rows)), strips(ceil_div(of_cols, cols)) {}
  int64_t parts() const { return bands * strips; }
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
  // A side's multipliers for one tile: `run` columns share a row's (by_row), or rows a column's.
  struct Cast {
    const SideRun *side;
    bool by_row;
    int64_t run;
    const float *m;
    Range range;
  };
  SideRun side(const ops::QuantizeSide &s, bool is_col) const;
  bool wants_amax_pass(const SideRun &side) const;
  Grid grid(int64_t rows, int64_t elements) const { return Grid(rows, elements / rows, rows_, cols_); }
  void carve();
  void aim(const Grid &grid, int64_t index, Feed &feed, char *x) const;  // does nothing where tiles aren't fed
  Part part(const Grid &grid, int64_t index, Feed *feed, char *x) const;
  void amax_part(const Part &p, TileScratch &scratch) const;
  void raise(const SideRun &side, const Part &p, const float *amax) const;
  void finish_table(const SideRun &side, const Parallel &parallel) const;
  void cast_part(const Part &p, Feed &feed, TileScratch &scratch) const;
  void put(const ops::Matrix &out, int64_t row, int64_t col, int64_t rows, int64_t cols, const uint8_t *codes,
           int64_t stride) const;
  // of the tile's amaxes, which are made first unless `amaxes`: then `finite` says what of their elements
  Cast multipliers(const SideRun &side, const Part &p, bool amaxes, bool finite, Feed &feed, Lines &lines) const;
  void finish_squares(const SideRun &side, const Part &p, int64_t segs, Lines &lines) const;
  void cast(const Cast &cast, const Part &p, int64_t row, int64_t rows, Feed &feed, uint8_t *codes) const;
  void count(const Cast &cast, const Part &p) const;
  void put_columns(const Part &p, int64_t begin, int64_t end, TileScratch &scratch) const;
  void finish_lines(const SideRun &side, int64_t i, int64_t j, int64_t lines, int64_t n, const float *amax,
                    float *m) const;
  Range range(const SideRun &side, bool finite) const;
  float finish(const SideRun &side, int64_t i, int64_t j,
               float amax) const;  // tile (i, j) of x: amax out, scale out -> m
  void add_stats(const SideRun &side, const uint64_t *stats) const;
  void column_sums(const Parallel &parallel) const;

  const ops::Quantize &q_;
  const TileOps &ops_;
  int64_t rows_, cols_;
  int64_t elements_;  // of a tile, at most
  SideRun row_, col_;
  bool mirror_;  // the column side is the exact transpose of the row side
  bool square_;
  bool feeds_;                              // tiles of x are copied to where the next comes in meanwhile
  int phases_;                              // walks of a tile
  bool stream_;                             // the outputs are larger than caches
  mutable std::atomic<bool> finite_{true};  // as far as the amax pass saw
  uint64_t bytes_;
  float *dbias_;  // [bands of kDbiasChunk][cols]
};

void zero_padding(const ops::Scale &s);
void requantize_exact(const ops::Quantize &q, const Parallel &parallel);

}  // namespace fp8::cpu
