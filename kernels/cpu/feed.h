// SPDX-License-Identifier: Apache-2.0
// The next tile of x comes in while this one is worked on: prefetched piece by piece from inside the loops of the tile
// functions, then copied to a compact buffer, since rows far apart fall into a few sets of the caches and would not
// stay there.
#pragma once
#include <algorithm>
#include <cstring>

#include "cpu/tile.h"

namespace fp8::cpu {

class Feed {
 public:
  // `phases`: how often the rows will be walked until the tile is needed; each walk brings in a strip of columns.
  void aim(const Tile &from, char *to, int64_t row_bytes, int phases) {
    from_ = from;
    to_ = to;
    bytes_ = row_bytes;
    strip_ = (row_bytes + phases * 64 - 1) / (phases * 64) * 64;  // whole lines, so that no walk is left over
    low_ = high_ = 0;
    rows_ = from.rows;
  }
  bool aimed() const { return to_ != nullptr; }

  void next_phase() {
    copy(rows_);
    low_ = high_;
    high_ = std::min(bytes_, low_ + strip_);
    copied_ = asked_ = 0;
  }
  // Rows [row, row + x.rows) are about to be walked: asks for as many, and copies those asked for before.
  void attach(Tile &x) {
    if (low_ >= high_) return;
    copy(asked_);
    const int64_t end = std::min(rows_, asked_ + x.rows);
    x.ahead = static_cast<const char *>(from_.data) + asked_ * from_.stride + low_;
    x.ahead_stride = from_.stride;
    x.ahead_bytes = high_ - low_;
    x.ahead_rows = end - asked_;
    asked_ = end;
  }
  // All of it is here.
  void finish() {
    while (high_ < bytes_) next_phase();
    copy(rows_);
    low_ = high_;
  }
  Tile take() {
    finish();
    const Tile x{to_, from_.dtype, bytes_, from_.rows, from_.cols};
    to_ = nullptr;
    return x;
  }

 private:
  void copy(int64_t until) {
    for (; copied_ < until && low_ < high_; ++copied_)
      std::memcpy(to_ + copied_ * bytes_ + low_, static_cast<const char *>(from_.data) + copied_ * from_.stride + low_,
                  size_t(high_ - low_));
  }
  Tile from_{};
  char *to_ = nullptr;
  int64_t bytes_ = 0, strip_ = 0, rows_ = 0;
  int64_t low_ = 0, high_ = 0;      // the strip in hand
  int64_t copied_ = 0, asked_ = 0;  // of its rows
};

}  // namespace fp8::cpu
