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
  tile_rows_ = square_ ? kTile : 8;
  tile_cols_ = kTileElements / tile_rows_;
  bands_ = ceil_div(rows_, tile_rows_);
  strips_ = ceil_div(cols_, tile_cols_);
  bytes_ = 0;
  if (row_.on && row_.global) bytes_ += piece(row_.entries);
  if (col_.on && col_.global && !mirror_) bytes_ += piece(col_.entries);
  if (q.dbias.data && !q.amax_only) bytes_ += piece(bands_ * cols_);
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
  if (q_.dbias.data && !q_.amax_only) dbias_ = take(bands_ * cols_);
}

bool QuantizeRun::wants_amax_pass(const SideRun &s) const {
  const bool given = s.given || (mirror_ && col_.given);
  return s.on && !given && (s.global || q_.amax_only);
}

void QuantizeRun::run(const Parallel &parallel) {
  carve();
  const int64_t work = rows_ * cols_;
  if (wants_amax_pass(row_) || (!mirror_ && wants_amax_pass(col_))) {
    if (row_.on && row_.global) std::fill(row_.table, row_.table + row_.entries, 0.0f);
    if (col_.on && col_.global && !mirror_) std::fill(col_.table, col_.table + col_.entries, 0.0f);
    for_each(parallel, parts(), work, [&](int64_t i) {
      TileScratch scratch;
      amax_part(part(i, 1, scratch), scratch);
    });
  }
  if (row_.on && row_.global) finish_table(row_, parallel);
  if (col_.on && col_.global && !mirror_) finish_table(col_, parallel);
  if (q_.amax_only) return;
  if (row_.on) zero_padding(row_.s->side.scale);
  if (col_.on) zero_padding(col_.s->side.scale);
  auto reads_of = [](const SideRun &s) { return s.on ? s.global ? 1 : 2 : 0; };
  const int reads = reads_of(row_) + (mirror_ ? 0 : reads_of(col_));
  for_each(parallel, parts(), work, [&](int64_t i) {
    TileScratch scratch;
    cast_part(part(i, reads, scratch), scratch);
  });
  if (q_.dbias.data) column_sums(parallel);
}

QuantizeRun::Part QuantizeRun::part(int64_t index, int reads, TileScratch &scratch) const {
  // strips innermost: neighbours read neighbouring memory
  Part p{index / strips_ * tile_rows_, index % strips_ * tile_cols_, {}};
  const int64_t rows = std::min(tile_rows_, rows_ - p.row), cols = std::min(tile_cols_, cols_ - p.col);
  if (q_.source.scaling) {
    decode_part(ops_, q_.source, q_.source_is_col, p.row, p.col, rows, cols, num::kF32, scratch.x, cols * 4,
                scratch.codes);
    p.x = Tile{scratch.x, num::kF32, cols * 4, rows, cols};
    return p;
  }
  const ops::Matrix &x = q_.x;
  if (is_plain(x)) {
    p.x = Tile{element(x, p.row, p.col), x.dtype, row_bytes(x), rows, cols};
    const int64_t bytes = cols * num::element_size(x.dtype);
    if (reads > 2) {  // rows far apart fall into a few sets of the caches, and would not stay there
      ops_.copy_out(p.x.data, p.x.stride, rows, bytes, scratch.x, bytes, false);
      p.x = Tile{scratch.x, x.dtype, bytes, rows, cols};
    } else if (square_) {
      p.x.ahead = bytes;
    }
  } else {
    gather(x, p.row, p.col, rows, cols, scratch.x, cols);
    p.x = Tile{scratch.x, x.dtype, cols * num::element_size(x.dtype), rows, cols};
  }
  if (q_.round_bf16 && x.dtype == num::kF32) {  // in place is safe: writes trail reads
    ops_.convert(p.x, 1.0f, num::kBF16, scratch.x, cols * 2);
    p.x = Tile{scratch.x, num::kBF16, cols * 2, rows, cols};
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
  for_each(parallel, ceil_div(cols_, kChunk), bands_ * cols_, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(cols_, begin + kChunk);
    double sums[kChunk] = {};
    for (int64_t b = 0; b < bands_; ++b)
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
