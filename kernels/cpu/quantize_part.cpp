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

void QuantizeRun::amax_part(const Part &p, TileScratch &scratch) const {
  if (wants_amax_pass(row_)) amax_side(row_, p, scratch);
  if (!mirror_ && wants_amax_pass(col_)) amax_side(col_, p, scratch);
}

void QuantizeRun::amax_side(const SideRun &s, const Part &p, TileScratch &scratch) const {
  int64_t unused;
  bool finite;
  if (!s.global) {  // amax only
    if (s.along_rows()) {
      row_multipliers(s, p, &unused, &finite, scratch);
    } else {
      col_multipliers(s, p, &unused, &finite, scratch);
    }
    return;
  }
  if (s.along_rows()) {
    finite = ops_.amax_rows(p.x, p.x.cols, scratch.amax);
    if (s.scaling == num::kTensor) {
      atomic_max(s.table, largest(scratch.amax, p.x.rows));
    } else {
      for (int64_t r = 0; r < p.x.rows; ++r) atomic_max(s.table + p.row + r, scratch.amax[r]);
    }
  } else {
    finite = ops_.amax_cols(p.x, p.x.rows, scratch.amax);
    for (int64_t c = 0; c < p.x.cols; ++c) atomic_max(s.table + p.col + c, scratch.amax[c]);
  }
  if (!finite) finite_.store(false, std::memory_order_relaxed);
}

// A scale made from the amax of finite elements never lets one overflow, but for the floor rule's.
Range QuantizeRun::range(const SideRun &s, bool finite) const {
  const bool given = s.given || (mirror_ && col_.given);
  return finite && !given && s.rule != num::kRuleE8m0Floor ? Range::kTame : Range::kSaturate;
}

const float *QuantizeRun::row_multipliers(const SideRun &s, const Part &p, int64_t *seg, bool *finite,
                                          TileScratch &scratch) const {
  const int64_t rows = p.x.rows, cols = p.x.cols;
  if (s.global) {
    *seg = cols;
    *finite = finite_.load(std::memory_order_relaxed);
    if (s.scaling == num::kRow) return s.table + p.row;
    std::fill(scratch.m, scratch.m + rows, s.table[0]);
    return scratch.m;
  }
  *seg = s.tile_cols();
  const int64_t segs = ceil_div(cols, *seg), height = s.tile_rows();
  *finite = ops_.amax_rows(p.x, *seg, scratch.amax);
  if (height == 1) {
    finish_lines(s, p.row, p.col / *seg, rows, segs, scratch.amax, scratch.m);
    return scratch.m;
  }
  for (int64_t r0 = 0; r0 < rows; r0 += height) {
    const int64_t end = std::min(rows, r0 + height);
    for (int64_t k = 0; k < segs; ++k) {
      float amax = scratch.amax[r0 * segs + k];
      for (int64_t r = r0 + 1; r < end; ++r) amax = std::max(amax, scratch.amax[r * segs + k]);
      const float m = finish(s, (p.row + r0) / height, p.col / *seg + k, amax);
      for (int64_t r = r0; r < end; ++r) scratch.m[r * segs + k] = m;
    }
  }
  return scratch.m;
}

const float *QuantizeRun::col_multipliers(const SideRun &s, const Part &p, int64_t *group, bool *finite,
                                          TileScratch &scratch) const {
  const int64_t rows = p.x.rows, cols = p.x.cols;
  if (s.global) {  // ROW
    *group = rows;
    *finite = finite_.load(std::memory_order_relaxed);
    return s.table + p.col;
  }
  *group = s.tile_rows();
  *finite = ops_.amax_cols(p.x, *group, scratch.amax);
  finish_lines(s, p.row / *group, p.col, ceil_div(rows, *group), cols, scratch.amax, scratch.m);
  return scratch.m;
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
    float inverse[kTileElements / 32 + kTile];
    ops_.scales(s.dtype, s.rule, q_.amax_floor, amax, lines * n, m, inverse, nullptr);
    put(static_cast<float *>(v.data) + first, inverse);
  } else {
    uint8_t codes[kTileElements / 32 + kTile];
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
                      const uint8_t *codes) const {
  if (is_plain(out)) {
    ops_.copy_out(codes, cols, rows, cols, element(out, row, col), row_bytes(out), stream_);
  } else {
    scatter(out, row, col, rows, cols, codes, cols);
  }
}

void QuantizeRun::cast_side(const SideRun &s, const Part &p, TileScratch &scratch) const {
  const int64_t rows = p.x.rows, cols = p.x.cols;
  const bool by_row = s.along_rows();
  int64_t run;
  bool finite;
  const float *m =
      by_row ? row_multipliers(s, p, &run, &finite, scratch) : col_multipliers(s, p, &run, &finite, scratch);
  // codes are made compact: rows of the outputs may all fall into the same few sets of a cache
  if (by_row) {
    ops_.cast_rows(p.x, s.dtype, range(s, finite), run, m, scratch.codes, cols);
  } else {
    ops_.cast_cols(p.x, s.dtype, range(s, finite), run, m, scratch.codes, cols);
  }
  if (s.s->stats.data || (mirror_ && col_.s->stats.data)) {
    uint64_t stats[num::kStats] = {};
    (by_row ? ops_.count_rows : ops_.count_cols)(p.x, s.dtype, run, m, stats);
    add_stats(s, stats);
    if (mirror_) add_stats(col_, stats);
  }
  if (!s.is_col) put(s.s->side.codes, p.row, p.col, rows, cols, scratch.codes);
  if (!s.is_col && !mirror_) return;
  ops_.transpose(scratch.codes, cols, rows, cols, scratch.other, rows);
  put(col_.s->side.codes, p.col, p.row, cols, rows, scratch.other);
}

void QuantizeRun::cast_part(const Part &p, TileScratch &scratch) const {
  if (row_.on) cast_side(row_, p, scratch);
  if (col_.on && !mirror_) cast_side(col_, p, scratch);
  if (dbias_) {
    float *sums = dbias_ + p.row / num::kDbiasChunk * cols_ + p.col;
    std::fill(sums, sums + p.x.cols, 0.0f);
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
