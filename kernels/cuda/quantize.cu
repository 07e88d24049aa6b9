// SPDX-License-Identifier: Apache-2.0
// Which kernels one quantize call needs. No kernels here.
#include <algorithm>

#include "device/quantize_tile.cuh"
#include "launch_cuda.h"
#include "quantize_amax.h"

namespace fp8::cuda {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
bool aligned(const void *p, uintptr_t n) { return reinterpret_cast<uintptr_t>(p) % n == 0; }
bool quantized(const ops::QuantizeSide &s) { return s.side.scaling >= num::kTensor && s.side.scaling <= num::k32x32; }

struct Shape {
  int64_t rows, cols;
};
Shape shape_of(const ops::Quantize &q) {
  if (!q.source.scaling) return {q.x.rows, q.x.cols};
  return q.source_is_col ? Shape{q.source.codes.cols, q.source.codes.rows}
                         : Shape{q.source.codes.rows, q.source.codes.cols};
}

Source source_of(const ops::Quantize &q) {
  Source s{};
  if (q.source.scaling) {
    s.x = q.source.codes;
    s.scale = q.source.scale;
    s.tile_rows = static_cast<int32_t>(num::scale_tile_rows(q.source.scaling));
    s.tile_cols = static_cast<int32_t>(num::scale_tile_cols(q.source.scaling));
    s.transposed = q.source_is_col;
    return s;
  }
  s.x = q.x;
  s.round_bf16 = q.round_bf16 && q.x.dtype == num::kF32;
  const int64_t size = num::element_size(q.x.dtype);
  s.vector = q.x.col_stride == 1 && aligned(q.x.data, 16);
  for (int i = 0; i < std::max(q.x.lead, 1); ++i) s.vector = s.vector && q.x.lead_stride[i] * size % 16 == 0;
  return s;
}

int kind_of(const ops::Quantize &q) {
  return quantized(q.row) ? q.row.side.scaling : quantized(q.col) ? q.col.side.scaling : 0;
}

bool rows_fit(const ops::Quantize &q, const Source &s, const Shape &n) {  // quantize_rows
  const ops::Matrix &codes = q.row.side.codes;
  return kind_of(q) == num::kRow && !quantized(q.col) && !q.row.amax_given && !q.amax_only && !q.row.stats.data &&
         !q.dbias.data && q.x.dtype == num::kBF16 && s.vector && q.x.lead <= 1 && n.cols % 8 == 0 && n.cols <= 16384 &&
         n.cols > 0 && codes.lead <= 1 && codes.col_stride == 1 && codes.lead_stride[0] % 8 == 0 &&
         aligned(codes.data, 8) && n.rows < (int64_t{1} << 31);
}

// quantize_lines: row blocks alone, lean input
bool lines_fit(const ops::Quantize &q, const TileArgs &a) {
  const int kind = kind_of(q);
  return (kind == num::k1x128 || kind == num::k1x32) && !quantized(q.col) && !q.row.amax_given && !q.amax_only &&
         !q.row.stats.data && !q.dbias.data && a.row_vector && a.cols % 8 == 0 &&
         ceil_div(a.rows, 8) * ceil_div(a.cols, 512) < (int64_t{1} << 31);
}

// Blocks of a grid, 0 = as many as suit: of more, each could take a multiprocessor of its own.
int32_t most_blocks(const ops::Quantize &q, int32_t sms) { return q.max_sms > 0 && q.max_sms < sms ? q.max_sms : 0; }

int64_t amax_blocks(int64_t tiles, int32_t sms, int32_t most) {
  return std::max<int64_t>(1, std::min<int64_t>(2 * tiles, most ? most : int64_t{sms} * kAmaxBlocks));
}

}  // namespace

QuantizeLayout quantize_layout(const ops::Quantize &q, int32_t sms) {
  QuantizeLayout l;
  const Shape n = shape_of(q);
  auto take = [&](int64_t bytes) {
    const int64_t at = l.bytes;
    l.bytes += round_up(bytes, 256);
    return at;
  };
  const int kind = kind_of(q);
  const int64_t tiles = ceil_div(n.rows, kTile) * ceil_div(n.cols, kTile);
  if (kind == num::kTensor) {
    l.parts = static_cast<int32_t>(amax_blocks(tiles, sms, most_blocks(q, sms)));
    l.partials = take(4 * amax_blocks(tiles, sms, 0));  // enough for any max_sms
  }
  if (kind == num::kRow) {  // adjacent: zeroed at once
    const AmaxUnits most = amax_units(n.rows, n.cols, amax_blocks(tiles, sms, 0)),
                    now = amax_units(n.rows, n.cols, amax_blocks(tiles, sms, most_blocks(q, sms)));
    l.split = !q.amax_only && n.rows && n.cols && tiles <= kSplitTiles && most.bands <= kSplitParts &&
              most.strips <= kSplitParts;
    if (l.split) l.row_parts = now.bands, l.col_parts = now.strips;
    const int64_t rows = std::max<int64_t>(n.rows, 1), cols = std::max<int64_t>(n.cols, 1);
    const bool has_row = quantized(q.row), has_col = quantized(q.col);
    if (has_row) l.row_amax = 0;
    if (has_col) l.col_amax = has_row ? round_up(4 * rows * (l.split ? most.bands : 1), 256) : 0;
    // more rows never need fewer bytes: what any split call of so many rows takes, split or not
    const int64_t in_rows = std::min(rows * most.bands, kSplitTiles * kTile),
                  in_cols = std::min(cols * ceil_div(rows, kAmaxThreads / 4), 2 * kSplitTiles * kTile);
    take((has_row ? round_up(4 * std::max(rows, in_rows), 256) : 0) + (has_col ? 4 * std::max(cols, in_cols) : 0));
  }
  if (q.dbias.data || q.dbias.size) l.dbias = take(4 * ceil_div(n.rows, kTile) * n.cols);
  return l;
}

cudaError_t launch_quantize(const ops::Quantize &q, int32_t sms, cudaStream_t stream, int32_t *launches) {
  const Shape n = shape_of(q);
  const int kind = kind_of(q);
  *launches = 0;
  if (!kind && !q.dbias.data) return cudaSuccess;
  // from codes with one scale for both sides the other side is an exact transpose, not a quantization
  if (q.source.scaling && num::symmetric(q.source.scaling)) return cudaErrorInvalidValue;
  const QuantizeLayout l = quantize_layout(q, sms);
  char *workspace =
      reinterpret_cast<char *>(round_up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(q.workspace)), 256));
  const bool has_row = quantized(q.row), has_col = quantized(q.col);
  const ops::QuantizeSide &first = has_row ? q.row : q.col;

  TileArgs a{};
  a.source = source_of(q);
  if (has_row) a.row = q.row;
  if (has_col) a.col = q.col;
  a.rows = n.rows, a.cols = n.cols;
  a.dtype = first.side.codes.dtype, a.rule = first.side.rule;
  a.floor = q.amax_floor;
  a.amax_only = q.amax_only;
  a.most = most_blocks(q, sms);
  const ops::Matrix &rc = q.row.side.codes, &cc = q.col.side.codes;
  a.row_vector = has_row && rc.col_stride == 1 && aligned(rc.data, 8);
  for (int i = 0; i < std::max(rc.lead, 1); ++i) a.row_vector = a.row_vector && rc.lead_stride[i] % 8 == 0;
  a.col_vector = has_col && cc.col_stride == 1 && aligned(cc.data, 16);
  for (int i = 0; i < std::max(cc.lead, 1); ++i) a.col_vector = a.col_vector && cc.lead_stride[i] % 16 == 0;
  const bool stats = (has_row && q.row.stats.data) || (has_col && q.col.stats.data);
  const bool lean_input =
      a.source.vector && q.x.dtype == num::kBF16 && q.x.lead <= 1 && n.cols % 8 == 0 && !q.source.scaling;
  const int64_t tiles_r = std::max<int64_t>(1, ceil_div(n.rows, kTile));
  a.tiles_c = std::max<int64_t>(1, ceil_div(n.cols, kTile));
  const int64_t tiles = tiles_r * a.tiles_c;
  // the general kernel alone takes several tiles a block
  const bool whole = !a.most || tiles <= a.most;
  const bool lean = whole && lean_input && (!has_row || (rc.lead <= 1 && a.row_vector)) &&
                    (!has_col || (cc.lead <= 1 && a.col_vector));
  if (tiles >= int64_t{1} << 31) return cudaErrorInvalidValue;
  unsigned grid = static_cast<unsigned>(tiles);
  if (q.dbias.data && !q.amax_only) a.dbias = reinterpret_cast<float *>(workspace + l.dbias);
  cudaError_t e = cudaSuccess;
  auto ran = [&](cudaError_t code, int32_t count = 1) {
    *launches += count;
    return (e = code) == cudaSuccess;
  };

  const bool given = (has_row && q.row.amax_given) || (has_col && q.col.amax_given);
  const bool one = lean && !stats && !given && !q.amax_only && n.rows && n.cols && !q.row.side.scale.padded &&
                   !q.col.side.scale.padded;
  const bool small = one && small_fits(tiles_r, a.tiles_c, kind == num::kRow, has_row, has_col);
  const auto launch_tiles = stats ? &launch_lean_stats : &launch_lean_tiles;

  switch (kind) {
    case 0:  // column sums alone
      if (n.rows && n.cols && !ran(launch_sums(a, lean_input, grid, stream))) return e;
      break;
    case num::kTensor: {
      if (small) {
        if (!ran(launch_small_tiles(a, false, stream))) return e;
        break;
      }
      a.any_given = given;
      a.parts = 1;
      if (a.any_given) {
        a.tensor_amax = static_cast<const float *>(has_row && q.row.amax_given ? q.row.amax.data : q.col.amax.data);
        if (q.amax_only) return cudaSuccess;
      } else {
        AmaxArgs m{a.source, n.rows, n.cols, reinterpret_cast<float *>(workspace + l.partials), nullptr, nullptr, 0,
                   0,        0,      0};
        if (!ran(launch_amax(m, lean_input, l.parts, stream))) return e;
        a.tensor_amax = m.partials;
        a.parts = l.parts;
        a.reversed = 1;  // what the first pass read last is still in the cache
        a.chained = 1;
      }
      if (q.amax_only) grid = 1;
      if (!ran(lean && !q.amax_only && n.rows && n.cols ? launch_tiles(a, kind, grid, stream)
                                                        : tiles_known(a, grid, stream)))
        return e;
      break;
    }
    case num::kRow: {
      if ((!a.most || n.rows <= a.most) && rows_fit(q, a.source, n)) {
        if (n.rows && !ran(launch_rows(a, stream))) return e;
        break;
      }
      if (small) {
        if (!ran(launch_small_tiles(a, true, stream))) return e;
        break;
      }
      const bool row_own = has_row && !q.row.amax_given, col_own = has_col && !q.col.amax_given;
      float *own_row = row_own ? reinterpret_cast<float *>(workspace + l.row_amax) : nullptr,
            *own_col = col_own ? reinterpret_cast<float *>(workspace + l.col_amax) : nullptr;
      if (row_own || col_own) {
        const int64_t begin = row_own ? l.row_amax : l.col_amax;
        const int64_t end = col_own ? l.col_amax + 4 * n.cols : l.row_amax + 4 * n.rows;
        if (!l.split && end > begin && !ran(launch_zero(workspace + begin, end - begin, a.most, stream))) return e;
        AmaxArgs m{a.source, n.rows, n.cols, nullptr, own_row, own_col, 0, 0, l.split, !l.split};
        a.chained = n.rows && n.cols;
        if (a.chained &&
            !ran(launch_amax(m, lean_input, static_cast<int32_t>(amax_blocks(tiles, sms, a.most)), stream)))
          return e;
        a.row_amax = m.row_amax, a.row_amax_stride = 1, a.row_parts = static_cast<int32_t>(l.row_parts);
        a.col_amax = m.col_amax, a.col_amax_stride = 1, a.col_parts = static_cast<int32_t>(l.col_parts);
      }
      if (q.amax_only) {
        if (row_own && !ran(launch_copy_amax(a, a.row_amax, q.row.amax, n.rows, stream))) return e;
        if (col_own && !ran(launch_copy_amax(a, a.col_amax, q.col.amax, n.cols, stream))) return e;
        return e;
      }
      if (has_row && !row_own)
        a.row_amax = static_cast<const float *>(q.row.amax.data), a.row_amax_stride = q.row.amax.row_stride,
        a.row_parts = 1;
      if (has_col && !col_own)
        a.col_amax = static_cast<const float *>(q.col.amax.data), a.col_amax_stride = q.col.amax.row_stride,
        a.col_parts = 1;
      a.reversed = 1;
      if (!ran(lean ? launch_tiles(a, kind, grid, stream) : tiles_known(a, grid, stream))) return e;
      break;
    }
    default: {
      if (!n.rows || !n.cols) break;
      if (lean && !a.most && lines_fit(q, a)) {
        if (!ran(launch_lines(a, kind == num::k1x32, stream))) return e;
        break;
      }
      a.any_given = given;
      if (lean && !a.any_given && !q.amax_only && (kind < num::k1x32 || first.side.scale.dtype == num::kE8M0)) {
        if (!ran(launch_tiles(a, kind, grid, stream))) return e;
        break;
      }
      switch (kind) {
        case num::k1x128:
          e = tiles_block128(a, grid, stream);
          break;
        case num::k128x128:
          e = tiles_square128(a, grid, stream);
          break;
        case num::k1x32:
          e = tiles_block32(a, grid, stream);
          break;
        default:
          e = tiles_square32(a, grid, stream);
      }
      if (!ran(e)) return e;
    }
  }
  if (q.dbias.data && !q.amax_only)
    ran(launch_finish_dbias(a, ceil_div(n.rows, kTile), q.dbias, q.dbias_accumulate, stream));
  return e;
}

cudaError_t load_quantize() {
  cudaError_t e = load_known();
  for (cudaError_t (*loads)() : {load_block128, load_square128, load_block32, load_square32, load_lines,
                                 load_lean_tiles, load_small_tiles, load_lean_stats})
    if (!e) e = loads();
  return e;
}

}  // namespace fp8::cuda
