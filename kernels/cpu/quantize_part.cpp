// SPDX-License-Identifier: Apache-2.0
// What a quantize call does with one tile.
#include <algorithm>

#include "cpu/quantize.h"

namespace fp8::cpu {
namespace {

// Magnitudes compare as unsigned integers; the order of arrival does not matter.
void atomic_max(float *cell, float value) {
  typedef uint32_t __attribute__((may_alias)) Bits;
  Bits *p = reinterpret_cast<Bits *>(cell);
  const uint32_t v = num::bits_of(value);
  uint32_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v > old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

float largest(const float *a, int64_t n) { return n ? *std::max_element(a, a + n) : 0.0f; }

}  // namespace

void QuantizeRun::raise(const SideRun &s, const Part &p, const float *amax) const {
  if (s.scaling == num::kTensor) return atomic_max(s.table, largest(amax, p.x.rows));
  const int64_t n = s.is_col ? p.x.cols : p.x.rows;
  float *table = s.table + (s.is_col ? p.col : p.row);
  for (int64_t i = 0; i < n; ++i) atomic_max(table + i, amax[i]);
}

void QuantizeRun::amax_part(const Part &p, TileScratch &scratch) const {
  const bool row = wants_amax_pass(row_), col = !mirror_ && wants_amax_pass(col_);
  const int64_t rows = p.x.rows, cols = p.x.cols;
  Feed none;
  bool finite = true;
  if (row && !row_.global) multipliers(row_, p, false, true, none, scratch.row);
  if (col && !col_.global) multipliers(col_, p, false, true, none, scratch.col);
  if (row && col && row_.global && col_.global && !col_.along_rows()) {
    finite = ops_.amax_both(p.x, cols, rows, scratch.row.amax, scratch.col.amax);
    raise(row_, p, scratch.row.amax);
    raise(col_, p, scratch.col.amax);
  } else {
    if (row && row_.global) {
      finite = ops_.amax_rows(p.x, cols, scratch.row.amax);
      raise(row_, p, scratch.row.amax);
    }
    if (col && col_.global) {
      finite &=
          col_.along_rows() ? ops_.amax_rows(p.x, cols, scratch.col.amax) : ops_.amax_cols(p.x, rows, scratch.col.amax);
      raise(col_, p, scratch.col.amax);
    }
  }
  if (!finite) finite_.store(false, std::memory_order_relaxed);
}

// A scale made from the amax of finite elements never lets one overflow, but for the floor rule's.
Range QuantizeRun::range(const SideRun &s, bool finite) const {
  const bool given = s.given || (mirror_ && col_.given);
  return finite && !given && s.rule != num::kRuleE8m0Floor ? Range::kTame : Range::kSaturate;
}

QuantizeRun::Cast QuantizeRun::multipliers(const SideRun &s, const Part &p, bool amaxes, bool finite, Feed &feed,
                                           Lines &lines) const {
  const int64_t rows = p.x.rows, cols = p.x.cols;
  Cast c{&s, s.along_rows(), 0, lines.m, Range::kSaturate};
  if (s.global) {
    finite = finite_.load(std::memory_order_relaxed);
    c.run = c.by_row ? cols : rows;
    if (s.scaling == num::kRow) {
      c.m = s.table + (c.by_row ? p.row : p.col);
    } else {
      std::fill(lines.m, lines.m + rows, s.table[0]);
    }
  } else {
    c.run = c.by_row ? s.tile_cols() : s.tile_rows();
    if (!amaxes) {
      Tile x = p.x;
      feed.attach(x);
      finite = c.by_row ? ops_.amax_rows(x, c.run, lines.amax) : ops_.amax_cols(x, c.run, lines.amax);
    }
    const int64_t segs = ceil_div(cols, c.run);
    if (!c.by_row) {
      finish_lines(s, p.row / c.run, p.col, ceil_div(rows, c.run), cols, lines.amax, lines.m);
    } else if (s.tile_rows() == 1) {
      finish_lines(s, p.row, p.col / c.run, rows, segs, lines.amax, lines.m);
    } else {
      finish_squares(s, p, segs, lines);
    }
  }
  c.range = range(s, finite);
  return c;
}

void QuantizeRun::finish_squares(const SideRun &s, const Part &p, int64_t segs, Lines &lines) const {
  const int64_t height = s.tile_rows(), first = p.col / s.tile_cols();
  for (int64_t r0 = 0; r0 < p.x.rows; r0 += height) {
    const int64_t end = std::min(p.x.rows, r0 + height);
    for (int64_t k = 0; k < segs; ++k) {
      float amax = lines.amax[r0 * segs + k];
      for (int64_t r = r0 + 1; r < end; ++r) amax = std::max(amax, lines.amax[r * segs + k]);
      const float m = finish(s, (p.row + r0) / height, first + k, amax);
      for (int64_t r = r0; r < end; ++r) lines.m[r * segs + k] = m;
    }
  }
}

// Tiles (i .. i + lines, j .. j + n) of x. The usual case without the questions that `finish` asks of each.
void QuantizeRun::finish_lines(const SideRun &s, int64_t i, int64_t j, int64_t lines, int64_t n, const float *amax,
                               float *m) const {
  const ops::Scale &v = s.s->side.scale;
  if (s.given || mirror_ || s.s->amax.data || q_.amax_only || !v.data) {
    for (int64_t l = 0; l < lines; ++l)
      for (int64_t k = 0; k < n; ++k) m[l * n + k] = finish(s, i + l, j + k, amax[l * n + k]);
    return;
  }
  const int64_t first = s.is_col ? scale_index(v, j, i) : scale_index(v, i, j);
  const int64_t line = s.is_col ? v.col_stride : v.row_stride, step = s.is_col ? v.row_stride : v.col_stride;
  auto put = [&](auto *out, const auto *from) {  // the output's neighbours one after the other
    if (step == 1) {
      for (int64_t l = 0; l < lines; ++l) std::copy(from + l * n, from + l * n + n, out + l * line);
    } else {
      for (int64_t k = 0; k < n; ++k)
        for (int64_t l = 0; l < lines; ++l) out[k * step + l * line] = from[l * n + k];
    }
  };
  if (v.dtype == num::kF32) {
    float inverse[kLines];
    ops_.scales(s.dtype, s.rule, q_.amax_floor, amax, lines * n, m, inverse, nullptr);
    put(static_cast<float *>(v.data) + first, inverse);
  } else {
    uint8_t codes[kLines];
    ops_.scales(s.dtype, s.rule, q_.amax_floor, amax, lines * n, m, nullptr, codes);
    put(static_cast<uint8_t *>(v.data) + first, codes);
  }
}

void QuantizeRun::add_stats(const SideRun &s, const uint64_t *stats) const {
  const ops::Vector &v = s.s->stats;
  if (!v.data) return;
  for (int i = 0; i <= num::kSaturated; ++i)
    __atomic_fetch_add(static_cast<uint64_t *>(v.data) + i * v.stride, stats[i], __ATOMIC_RELAXED);
}

void QuantizeRun::put(const ops::Matrix &out, int64_t row, int64_t col, int64_t rows, int64_t cols,
                      const uint8_t *codes, int64_t stride) const {
  if (is_plain(out)) {
    ops_.copy_out(codes, stride, rows, cols, element(out, row, col), row_bytes(out), stream_);
  } else {
    scatter(out, row, col, rows, cols, codes, stride);
  }
}

// Rows [row, row + rows) of the tile; for a column side they start a group or lie in one.
void QuantizeRun::cast(const Cast &c, const Part &p, int64_t row, int64_t rows, Feed &feed, uint8_t *codes) const {
  const int64_t cols = p.x.cols;
  Tile x{static_cast<const char *>(p.x.data) + row * p.x.stride, p.x.dtype, p.x.stride, rows, cols};
  feed.attach(x);
  if (c.by_row) {
    ops_.cast_rows(x, c.side->dtype, c.range, c.run, c.m + row * ceil_div(cols, c.run), codes, cols);
  } else {
    ops_.cast_cols(x, c.side->dtype, c.range, c.run, c.m + row / c.run * cols, codes, cols);
  }
}

void QuantizeRun::count(const Cast &c, const Part &p) const {
  if (!c.side->s->stats.data && !(mirror_ && col_.s->stats.data)) return;
  uint64_t stats[num::kStats] = {};
  (c.by_row ? ops_.count_rows : ops_.count_cols)(p.x, c.side->dtype, c.run, c.m, stats);
  add_stats(*c.side, stats);
  if (mirror_) add_stats(col_, stats);
}

// Columns [begin, end) of the tile's codes.
void QuantizeRun::put_columns(const Part &p, int64_t begin, int64_t end, TileScratch &scratch) const {
  constexpr int64_t kStep = kTileElements / kTile;
  const int64_t rows = p.x.rows, cols = p.x.cols;
  for (int64_t c = begin; c < end; c += kStep) {
    const int64_t n = std::min(kStep, end - c);
    ops_.transpose(scratch.codes + c, cols, rows, n, scratch.slice, rows);
    put(col_.s->side.codes, p.col + c, p.row, n, rows, scratch.slice, rows);
  }
}

// Codes go out a few rows or columns at a time: what is stored past the caches drains while the next are made.
void QuantizeRun::cast_part(const Part &p, Feed &feed, TileScratch &scratch) const {
  const int64_t rows = p.x.rows, cols = p.x.cols;
  const bool apart = col_.on && !mirror_;
  bool amaxes = false, finite = true;
  if (row_.on && !row_.global) feed.next_phase();
  if (row_.on && apart && !row_.global && !col_.global && row_.tile_rows() == 1 && !col_.along_rows()) {
    Tile x = p.x;
    feed.attach(x);
    finite = ops_.amax_both(x, row_.tile_cols(), col_.tile_rows(), scratch.row.amax, scratch.col.amax);
    amaxes = true;
  }
  if (apart) {
    const Cast c = multipliers(col_, p, amaxes, finite, feed, scratch.col);
    count(c, p);
    feed.next_phase();
    for (int64_t r = 0; r < rows; r += 32)
      cast(c, p, r, std::min<int64_t>(32, rows - r), feed, scratch.codes + r * cols);
  }
  int64_t columns = 0;  // that are out
  if (row_.on) {
    const Cast c = multipliers(row_, p, amaxes, finite, feed, scratch.row);
    count(c, p);
    feed.next_phase();
    for (int64_t r = 0; r < rows; r += 8) {
      const int64_t n = std::min<int64_t>(8, rows - r);
      uint8_t *codes = mirror_ ? scratch.codes + r * cols : scratch.slice;
      cast(c, p, r, n, feed, codes);
      put(row_.s->side.codes, p.row + r, p.col, n, cols, codes, cols);
      if (apart) {
        const int64_t until = (r + n) * cols / rows / 16 * 16;
        put_columns(p, columns, until, scratch);
        columns = until;
      }
    }
  }
  if (col_.on) put_columns(p, columns, cols, scratch);
  if (dbias_) {
    float *sums = dbias_ + p.row / num::kDbiasChunk * cols_ + p.col;
    std::fill(sums, sums + cols, 0.0f);
    ops_.add_cols(p.x, sums);
  }
}

// Bytes as they are, NaN codes too.
static void copy_codes(const ops::Matrix &src, const ops::Matrix &dst, const Parallel &parallel) {
  const int64_t strips = ceil_div(src.cols, kTileElements);
  for_each(parallel, src.rows * strips, src.rows * src.cols, [&](int64_t i) {
    uint8_t line[kTileElements];
    const int64_t row = i / strips, col = i % strips * kTileElements, n = std::min(kTileElements, src.cols - col);
    gather(src, row, col, 1, n, line, n);
    scatter(dst, row, col, 1, n, line, n);
  });
}

// TENSOR and 2D kinds: the other side is the same codes and scales, transposed.
void requantize_exact(const ops::Quantize &q, const Parallel &parallel) {
  for (const bool is_col : {false, true}) {
    const ops::Side &to = is_col ? q.col.side : q.row.side, &from = q.source;
    if (to.scaling == 0) continue;
    const bool flip = is_col != (q.source_is_col != 0);
    if (flip) {
      transpose(ops::Transpose{from.codes, to.codes}, parallel);
    } else {
      copy_codes(from.codes, to.codes, parallel);
    }
    const int64_t size = to.scale.dtype == num::kF32 ? 4 : 1;
    for (int64_t i = 0; i < to.scale.rows; ++i)
      for (int64_t j = 0; j < to.scale.cols; ++j) {
        const char *src = static_cast<const char *>(from.scale.data) +
                          (flip ? scale_index(from.scale, j, i) : scale_index(from.scale, i, j)) * size;
        std::copy(src, src + size, static_cast<char *>(to.scale.data) + scale_index(to.scale, i, j) * size);
      }
    zero_padding(to.scale);
  }
}

}  // namespace fp8::cpu
