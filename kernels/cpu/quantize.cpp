// SPDX-License-Identifier: Apache-2.0
// The phases of a quantize call and what is global in it: tables of TENSOR and ROW scales, padding, column sums.
#include "cpu/quantize.h"

#include <algorithm>
#include <cstring>

namespace fp8::cpu {

using num::ScaleOf;

namespace {

uint64_t piece(int64_t floats) { return (uint64_t(floats) * 4 + 63) / 64 * 64; }

}  // namespace

// Native strides of F32 scales are rounded up to 4, since readers load whole vectors.
void zero_padding(const ops::Scale &s) {
  if (!s.data || !s.padded) return;
  auto zero = [&](int64_t lines, int64_t line, int64_t stride) {
    for (int64_t i = 0; i < lines; ++i)
      std::memset(static_cast<float *>(s.data) + i * stride + line, 0, size_t(stride - line) * 4);
  };
  if (s.row_stride == 1 && s.col_stride > s.rows) {
    zero(s.cols, s.rows, s.col_stride);
  } else if (s.col_stride == 1 && s.row_stride > s.cols) {
    zero(s.rows, s.cols, s.row_stride);
  }
}

SideRun QuantizeRun::side(const ops::QuantizeSide &s, bool is_col) const {
  SideRun r{};
  r.s = &s;
  r.is_col = is_col;
  r.scaling = s.side.scaling;
  r.on = r.scaling >= num::kTensor && r.scaling <= num::k32x32;
  if (!r.on) return r;
  r.dtype = s.side.codes.dtype;
  r.rule = s.side.rule;
  r.given = s.amax_given && s.amax.data;
  r.global = r.scaling == num::kTensor || r.scaling == num::kRow;
  r.entries = r.scaling == num::kTensor ? 1 : r.scaling == num::kRow ? (is_col ? cols_ : rows_) : 0;
  return r;
}

QuantizeRun::QuantizeRun(const ops::Quantize &q) : q_(q), ops_(tile_ops()), dbias_(nullptr) {
  if (q.source.scaling) {
    rows_ = q.source_is_col ? q.source.codes.cols : q.source.codes.rows;
    cols_ = q.source_is_col ? q.source.codes.rows : q.source.codes.cols;
  } else {
    rows_ = q.x.rows;
    cols_ = q.x.cols;
  }
  row_ = side(q.row, false);
  col_ = side(q.col, true);
  mirror_ = row_.on && col_.on && row_.scaling == col_.scaling && num::symmetric(row_.scaling) &&
            row_.dtype == col_.dtype && row_.rule == col_.rule;
  square_ = col_.on || q.source.scaling || q.dbias.data || (row_.on && row_.tile_rows() > 1);
  stream_ = rows_ * cols_ >= kStreamFrom;
  elements_ = !q.source.scaling && num::element_size(q.x.dtype) == 2 ? kWideElements : kTileElements;
  feeds_ = square_ && !q.source.scaling && is_plain(q.x);
  const bool row_walk = row_.on && !row_.global, both = row_.on && col_.on && !mirror_;
  phases_ = (row_walk ? 1 : 0) + (both ? 2 : 1);
  bytes_ = 0;
  if (row_.on && row_.global) bytes_ += piece(row_.entries);
  if (col_.on && col_.global && !mirror_) bytes_ += piece(col_.entries);
  if (q.dbias.data && !q.amax_only) bytes_ += piece(ceil_div(rows_, num::kDbiasChunk) * cols_);
}

void QuantizeRun::carve() {
  char *at = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(q_.workspace) + 63) / 64 * 64);
  auto take = [&](int64_t floats) {
    char *p = at;
    at += piece(floats);
    return reinterpret_cast<float *>(p);
  };
  if (row_.on && row_.global) row_.table = take(row_.entries);
  if (col_.on && col_.global && !mirror_) col_.table = take(col_.entries);
  if (q_.dbias.data && !q_.amax_only) dbias_ = take(ceil_div(rows_, num::kDbiasChunk) * cols_);
}

bool QuantizeRun::wants_amax_pass(const SideRun &s) const {
  const bool given = s.given || (mirror_ && col_.given);
  return s.on && !given && (s.global || q_.amax_only);
}

void QuantizeRun::run(const Parallel &parallel) {
  carve();
  const int64_t work = rows_ * cols_;
  const Grid tiles = square_ ? grid(kTile, elements_) : grid(8, kTileElements);
  const bool row_pass = wants_amax_pass(row_), col_pass = !mirror_ && wants_amax_pass(col_);
  if (row_pass || col_pass) {
    if (row_.on && row_.global) std::fill(row_.table, row_.table + row_.entries, 0.0f);
    if (col_.on && col_.global && !mirror_) std::fill(col_.table, col_.table + col_.entries, 0.0f);
    // amaxes that reach beyond a tile are taken along what is longest in memory; a source is decoded by square tiles
    const bool lines = !q_.source.scaling && (!row_pass || row_.global) && (!col_pass || col_.global);
    const Grid parts = !lines ? tiles : col_pass ? grid(32, elements_) : grid(8, kTileElements);
    for_ranges(parallel, parts.parts(), work, [&](int64_t begin, int64_t end) {
      TileScratch scratch;
      for (int64_t i = begin; i < end; ++i) amax_part(part(parts, i, nullptr, scratch.x[0]), scratch);
    });
  }
  if (row_.on && row_.global) finish_table(row_, parallel);
  if (col_.on && col_.global && !mirror_) finish_table(col_, parallel);
  if (q_.amax_only) return;
  if (row_.on) zero_padding(row_.s->side.scale);
  if (col_.on) zero_padding(col_.s->side.scale);
  for_ranges(parallel, tiles.parts(), work, [&](int64_t begin, int64_t end) {
    TileScratch scratch;
    Feed feed;
    if (begin < end) aim(tiles, begin, feed, scratch.x[0]);
    for (int64_t i = begin; i < end; ++i) {
      const Part p = part(tiles, i, &feed, scratch.x[(i - begin) % 2]);
      if (i + 1 < end) aim(tiles, i + 1, feed, scratch.x[(i + 1 - begin) % 2]);
      cast_part(p, feed, scratch);
    }
  });
  if (q_.dbias.data) column_sums(parallel);
}

void QuantizeRun::aim(const Grid &grid, int64_t index, Feed &feed, char *x) const {
  if (!feeds_) return;
  const int64_t row = index / grid.strips * grid.rows, col = index % grid.strips * grid.cols;
  const int64_t rows = std::min(grid.rows, rows_ - row), cols = std::min(grid.cols, cols_ - col);
  feed.aim(Tile{element(q_.x, row, col), q_.x.dtype, row_bytes(q_.x), rows, cols}, x,
           cols * num::element_size(q_.x.dtype), phases_);
}

// feed: was aimed at this tile; NULL: read it where it lies, if that can be
QuantizeRun::Part QuantizeRun::part(const Grid &grid, int64_t index, Feed *feed, char *to) const {
  // strips innermost: neighbours read neighbouring memory
  Part p{index / grid.strips * grid.rows, index % grid.strips * grid.cols, {}};
  const int64_t rows = std::min(grid.rows, rows_ - p.row), cols = std::min(grid.cols, cols_ - p.col);
  if (q_.source.scaling) {
    uint8_t codes[kTileElements];
    decode_part(ops_, q_.source, q_.source_is_col, p.row, p.col, rows, cols, num::kF32, to, cols * 4, codes);
    p.x = Tile{to, num::kF32, cols * 4, rows, cols};
    return p;
  }
  const ops::Matrix &x = q_.x;
  if (feed && feeds_) {
    p.x = feed->take();
  } else if (is_plain(x)) {
    p.x = Tile{element(x, p.row, p.col), x.dtype, row_bytes(x), rows, cols};
  } else {
    gather(x, p.row, p.col, rows, cols, to, cols);
    p.x = Tile{to, x.dtype, cols * num::element_size(x.dtype), rows, cols};
  }
  if (q_.round_bf16 && x.dtype == num::kF32) {  // in place is safe: writes trail reads
    ops_.convert(p.x, 1.0f, num::kBF16, to, cols * 2);
    p.x = Tile{to, num::kBF16, cols * 2, rows, cols};
  }
  return p;
}

void QuantizeRun::finish_table(const SideRun &s, const Parallel &parallel) const {
  constexpr int64_t kChunk = 4096;
  for_each(parallel, ceil_div(s.entries, kChunk), s.entries, [&](int64_t chunk) {
    const int64_t end = std::min(s.entries, (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i)
      s.table[i] = s.is_col ? finish(s, 0, i, s.table[i]) : finish(s, i, 0, s.table[i]);
  });
}

float QuantizeRun::finish(const SideRun &s, int64_t i, int64_t j, float amax) const {
  auto index = [&](const SideRun &t, const ops::Scale &m) {
    return t.is_col ? scale_index(m, j, i) : scale_index(m, i, j);
  };
  if (s.given) {
    amax = static_cast<const float *>(s.s->amax.data)[index(s, s.s->amax)];
  } else if (mirror_ && col_.given) {
    amax = static_cast<const float *>(col_.s->amax.data)[index(col_, col_.s->amax)];
  }
  const ScaleOf scale = num::scale_of(s.dtype, s.rule, amax, q_.amax_floor);
  auto write = [&](const SideRun &t) {
    const ops::Scale &a = t.s->amax, &v = t.s->side.scale;
    if (a.data && !t.given) static_cast<float *>(a.data)[index(t, a)] = amax;
    if (q_.amax_only || !v.data) return;
    if (v.dtype == num::kF32) {
      static_cast<float *>(v.data)[index(t, v)] = scale.inverse;
    } else {
      static_cast<uint8_t *>(v.data)[index(t, v)] = scale.code;
    }
  };
  write(s);
  if (mirror_) write(col_);
  return scale.multiplier;
}

void QuantizeRun::column_sums(const Parallel &parallel) const {
  constexpr int64_t kChunk = 1024;
  for_each(parallel, ceil_div(cols_, kChunk), ceil_div(rows_, num::kDbiasChunk) * cols_, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(cols_, begin + kChunk);
    double sums[kChunk] = {};
    for (int64_t b = 0; b < ceil_div(rows_, num::kDbiasChunk); ++b)
      for (int64_t c = begin; c < end; ++c) sums[c - begin] = num::dbias_join(sums[c - begin], dbias_[b * cols_ + c]);
    float *out = static_cast<float *>(q_.dbias.data);
    for (int64_t c = begin; c < end; ++c) {
      float &d = out[c * q_.dbias.stride];
      d = num::dbias_finish(sums[c - begin], q_.dbias_accumulate != 0, d);
    }
  });
}

uint64_t quantize_workspace(const ops::Quantize &q) { return QuantizeRun(q).workspace(); }

void quantize(const ops::Quantize &q, const Parallel &parallel) {
  auto exact = [&](const ops::QuantizeSide &s) {
    return s.side.scaling == 0 || (s.side.scaling == q.source.scaling && s.side.codes.dtype == q.source.codes.dtype);
  };
  if (q.source.scaling && num::symmetric(q.source.scaling) && exact(q.row) && exact(q.col) && !q.amax_only) {
    requantize_exact(q, parallel);
    return;
  }
  QuantizeRun(q).run(parallel);
}

}  // namespace fp8::cpu
