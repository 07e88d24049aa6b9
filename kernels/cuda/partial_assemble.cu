// SPDX-License-Identifier: Apache-2.0
// From gathered slots to the sides of whole weights, for a whole list in one launch. Units of an item: flat runs of the
// row side, 128 x 128 tiles of the column side, scales of either.
#include "device/param.cuh"

namespace fp8::cuda {
namespace {

using namespace num;

constexpr int kThreads = 256;
constexpr int64_t kScales = 2048;             // elements of a unit of scales
constexpr int64_t kCodes = int64_t{1} << 14;  // of one whose codes are copied as they are

__device__ __forceinline__ int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// ---------------------------------------------------------------- kernels

struct Counts {
  int64_t runs, flips, row_scales, col_scales;
};

template <class Side>
__host__ __device__ inline int64_t padded(const Side &s) {
  return s.padded_rows * s.padded_cols;
}

// One byte a tile in the order of amax, without padding: the codes of a side are copied as they are.
template <class Item, class Side>
__host__ __device__ inline bool copies_codes(const ops::ParamList &p, const Item &m, const Side &s, bool is_col) {
  if (p.amax_dtype == num::kF32 || !(p.slots || p.row_ready) || (is_col && ops::shares_scale(p.scaling))) return false;
  const int64_t tile_r = ops::tile_rows(p.scaling), tile_c = ops::tile_cols(p.scaling);
  const int64_t down = is_col ? m.cols : m.rows, across = is_col ? m.rows : m.cols;
  const int64_t rows = tile_r ? units(down, tile_r) : 1, cols = tile_c ? units(across, tile_c) : 1;
  return s.scale_col_stride == 1 && s.scale_row_stride == cols && s.padded_cols == cols && s.padded_rows == rows;
}

template <class Item, class Side>
__host__ __device__ inline int64_t scale_unit_of(const ops::ParamList &p, const Item &m, const Side &s, bool is_col) {
  return copies_codes(p, m, s, is_col) ? kCodes : kScales;
}

template <class Item>
__host__ __device__ inline Counts counts_of(const ops::ParamList &p, const Item &m) {
  const bool plain = plain_copy(p.scaling), row = p.sides & 1, col = p.sides & 2;
  Counts n;
  n.runs = (row || plain) && p.slots ? units(m.rows * m.cols, kFlat) : 0;
  n.flips = col && !plain ? units(m.rows, kSquare) * units(m.cols, kSquare) : 0;
  n.row_scales =
      row && !plain && (p.slots || p.row_ready) ? units(padded(m.row), scale_unit_of(p, m, m.row, false)) : 0;
  n.col_scales = col && !plain ? units(padded(m.col), scale_unit_of(p, m, m.col, true)) : 0;
  return n;
}

// Whose element is `at`, where the rank's elements end, and where in its slot this one lies. Two bases of each rank:
// its row part and its column part.
struct Found {
  int rank;
  int64_t end;
  const uint8_t *from;
};
__device__ __forceinline__ int64_t begin_of(const Args &a, int i, int rank) {
  return table_at<int64_t>(a, a.pieces_at + (int64_t{i} * a.world + rank) * int64_t{sizeof(Start)});
}
__device__ __forceinline__ Found find_source(const Args &a, int i, int64_t size, int64_t at, bool col_part, int bytes) {
  int low = 0, high = a.world - 1;
  while (low <
         high) {  // the last rank that starts at or before `at`: those in front of it with the same start are empty
    const int middle = (low + high + 1) / 2;
    if (begin_of(a, i, middle) <= at)
      low = middle;
    else
      high = middle - 1;
  }
  const Start own = piece_at<Start>(a, i, low);
  Found f;
  f.rank = low;
  f.end = low + 1 < a.world ? begin_of(a, i, low + 1) : size;
  f.from = table_at<const uint8_t *>(a, (2 * low + col_part) * 8) + own.at + (at - own.begin) * bytes;
  return f;
}

// n bytes by the block; 16 at a time where both ends lie alike.
__device__ __forceinline__ void copy_bytes(uint8_t *dst, const uint8_t *src, int64_t n) {
  if ((reinterpret_cast<uintptr_t>(dst) - reinterpret_cast<uintptr_t>(src)) % 16 == 0) {
    const int64_t head = least(n, int64_t((16 - reinterpret_cast<uintptr_t>(dst) % 16) % 16));
    for (int64_t i = int(threadIdx.x); i < head; i += kThreads) dst[i] = src[i];
    dst += head, src += head, n -= head;
    const int64_t vectors = n / 16;
    const uint4 *in = reinterpret_cast<const uint4 *>(src);
    uint4 *out = reinterpret_cast<uint4 *>(dst);
    int64_t i = int(threadIdx.x);
    for (; i + 3 * kThreads < vectors; i += 4 * kThreads) {  // four loads under way before the first store
      uint4 v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = load_streaming(in + i + k * kThreads);
#pragma unroll
      for (int k = 0; k < 4; ++k) out[i + k * kThreads] = v[k];
    }
    for (; i < vectors; i += kThreads) out[i] = load_streaming(in + i);
    for (int64_t i = vectors * 16 + int(threadIdx.x); i < n; i += kThreads) dst[i] = src[i];
    return;
  }
  for (int64_t i = int(threadIdx.x); i < n; i += kThreads) dst[i] = src[i];
}

__device__ void put_run(uint8_t *codes, int64_t row_stride, int64_t col_stride, int64_t cols, int size,
                        const uint8_t *from, int64_t flat, int64_t n) {
  if (col_stride == 1 && row_stride == cols) return copy_bytes(codes + flat * size, from, n * size);
  for (int64_t i = int(threadIdx.x); i < n * size; i += kThreads) {
    const int64_t at = flat + i / size;
    codes[(at / cols * row_stride + at % cols * col_stride) * size + i % size] = from[i];
  }
}

__device__ void run_unit(const Args &a, const WholeItem &m, int i, int64_t index) {
  const ops::ParamList &p = a.p;
  const bool plain = plain_copy(p.scaling), row = p.sides & 1, col = p.sides & 2;
  const int bytes = plain ? 2 : 1;
  const int64_t size = m.rows * m.cols;
  int64_t begin = index * kFlat;
  const int64_t end = least(begin + kFlat, size);
  while (begin < end) {
    const Found f = find_source(a, i, size, begin, false, bytes);
    const int64_t n = least(end, f.end) - begin;
    if (row) put_run(m.row.codes, m.row.row_stride, m.row.col_stride, m.cols, bytes, f.from, begin, n);
    if (plain && col && !(row && m.col.codes == m.row.codes))
      put_run(m.col.codes, m.col.col_stride, m.col.row_stride, m.cols, bytes, f.from, begin, n);
    begin += n;
  }
}

// One row of a tile into words of shared memory, by a warp: `n` bytes from flat element `at`.
__device__ __forceinline__ void load_line(const Args &a, const WholeItem &m, int i, int64_t row, int64_t col, int n,
                                          uint8_t *line, int lane) {
  if (!a.p.slots) {
    const uint8_t *src = m.row.codes + row * m.row.row_stride + col * m.row.col_stride;
    if (n == kSquare && m.row.col_stride == 1 && reinterpret_cast<uintptr_t>(src) % 4 == 0) {
      reinterpret_cast<uint32_t *>(line)[lane] = reinterpret_cast<const uint32_t *>(src)[lane];
    } else {
      for (int c = lane; c < n; c += 32) line[c] = src[c * m.row.col_stride];
    }
    return;
  }
  int64_t at = row * m.cols + col;
  const int64_t end = at + n;
  while (at < end) {
    const Found f = find_source(a, i, m.rows * m.cols, at, !ops::shares_scale(a.p.scaling), 1);
    const int part = int(least(end, f.end) - at), first = n - int(end - at);
    if (part == kSquare && reinterpret_cast<uintptr_t>(f.from) % 4 == 0) {
      reinterpret_cast<uint32_t *>(line)[lane] = load_streaming(reinterpret_cast<const uint32_t *>(f.from) + lane);
    } else {
      for (int c = lane; c < part; c += 32) line[first + c] = f.from[c];
    }
    at += part;
  }
}

__device__ void flip_unit(const Args &a, const WholeItem &m, int item, int64_t index,
                          uint32_t (*words)[kSquare / 4 + 1]) {
  const int64_t across = units(m.cols, kSquare), row0 = index / across * kSquare, col0 = index % across * kSquare;
  const int rows = int(least(kSquare, m.rows - row0)), cols = int(least(kSquare, m.cols - col0));
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
#pragma unroll 4
  for (int r = warp; r < rows; r += kThreads / 32)
    load_line(a, m, item, row0 + r, col0, cols, reinterpret_cast<uint8_t *>(words[r]), lane);
  __syncthreads();
  // A lane transposes 4 x 4 bytes: rows 4k.., word w. Eight lanes of one w write 32 bytes of a column.
  uint8_t *dst = m.col.codes + col0 * m.col.row_stride + row0 * m.col.col_stride;
  const bool whole = rows == kSquare && m.col.col_stride == 1 && m.col.row_stride % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(dst) % 4 == 0;
  for (int step = warp; step < 32; step += kThreads / 32) {
    const int k = (step & 3) * 8 + (lane >> 2), w = (step >> 2) * 4 + (lane & 3);
    if (4 * k >= rows || 4 * w >= cols) continue;
    const uint32_t x = words[4 * k][w], y = words[4 * k + 1][w], z = words[4 * k + 2][w], q = words[4 * k + 3][w];
    const uint32_t xy = permute_bytes(x, y, 0x5140), zq = permute_bytes(z, q, 0x5140);
    const uint32_t xy2 = permute_bytes(x, y, 0x7362), zq2 = permute_bytes(z, q, 0x7362);
    const uint32_t out[4] = {permute_bytes(xy, zq, 0x5410), permute_bytes(xy, zq, 0x7632),
                             permute_bytes(xy2, zq2, 0x5410), permute_bytes(xy2, zq2, 0x7632)};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = 4 * w + j;
      if (column >= cols) continue;
      uint8_t *at = dst + column * m.col.row_stride + 4 * k * m.col.col_stride;
      if (whole) {
        *reinterpret_cast<uint32_t *>(at) = out[j];
      } else {
        for (int i = 0; i < 4 && 4 * k + i < rows; ++i) at[i * m.col.col_stride] = uint8_t(out[j] >> 8 * i);
      }
    }
  }
}

__device__ void scale_unit(const ops::ParamList &p, const WholeItem &m, bool is_col, int64_t index) {
  const SideItem &side = is_col ? m.col : m.row;
  const bool shares = ops::shares_scale(p.scaling), swapped = is_col && shares, rows_inner = side.scale_row_stride == 1,
             from_amax = p.slots || p.row_ready;
  const int64_t tile_r = ops::tile_rows(p.scaling), tile_c = ops::tile_cols(p.scaling);
  const int64_t across = is_col ? m.rows : m.cols, down = is_col ? m.cols : m.rows;
  const int64_t scale_rows = tile_r ? units(down, tile_r) : 1, scale_cols = tile_c ? units(across, tile_c) : 1;
  const int64_t first = is_col && !shares ? m.amax + m.rows * (tile_c ? units(m.cols, tile_c) : 1) : m.amax,
                unit = scale_unit_of(p, m, side, is_col), begin = index * unit, end = least(padded(side), begin + unit);
  if (copies_codes(p, m, side, is_col))
    return copy_bytes(static_cast<uint8_t *>(side.scale) + begin, static_cast<const uint8_t *>(p.amax) + first + begin,
                      end - begin);
  const int64_t inner = rows_inner ? side.padded_rows : side.padded_cols;
  const bool narrow = padded(side) < int64_t{1} << 32;  // a division of 64 bits costs more than the rest
  for (int64_t n = begin + int(threadIdx.x); n < end; n += kThreads) {
    const int64_t outer = narrow ? int64_t{uint32_t(n) / uint32_t(inner)} : n / inner, rest = n - outer * inner;
    const int64_t i = rows_inner ? rest : outer, j = rows_inner ? outer : rest;
    const int64_t at = i * side.scale_row_stride + j * side.scale_col_stride;
    const bool inside = i < scale_rows && j < scale_cols;
    const int64_t tile = first + (swapped ? j * scale_rows + i : i * scale_cols + j);
    const int64_t in_row = j * m.row.scale_row_stride + i * m.row.scale_col_stride;
    if (p.amax_dtype == kF32) {
      float s = 0;
      if (inside)
        s = from_amax ? scale_of(p.dtype, p.rule, static_cast<const float *>(p.amax)[tile], p.amax_floor).inverse
                      : static_cast<const float *>(m.row.scale)[in_row];
      static_cast<float *>(side.scale)[at] = s;
    } else {
      uint8_t s = 0;
      if (inside)
        s = from_amax ? static_cast<const uint8_t *>(p.amax)[tile] : static_cast<const uint8_t *>(m.row.scale)[in_row];
      static_cast<uint8_t *>(side.scale)[at] = s;
    }
  }
}

__device__ __forceinline__ void assemble_unit(const Args &a, unsigned unit, uint32_t (*words)[kSquare / 4 + 1]) {
  const int i = find_item<WholeItem>(a, unit);
  const WholeItem &m = item_at<WholeItem>(a, i);
  const Counts n = counts_of(a.p, m);
  int64_t u = unit - m.first;
  if (u < n.runs) return run_unit(a, m, i, u);
  u -= n.runs;
  if (u < n.flips) return flip_unit(a, m, i, u, words);
  u -= n.flips;
  if (u < n.row_scales) return scale_unit(a.p, m, false, u);
  scale_unit(a.p, m, true, u - n.row_scales);
}

template <bool kFew>
__global__ void __launch_bounds__(kThreads) assemble_units(const __grid_constant__ Args a) {
  __shared__ uint32_t words[kSquare][kSquare / 4 + 1];
  each_block<kFew>(a.units, [&](unsigned unit) { assemble_unit(a, unit, words); });
}

SideItem side_item(const ops::ParamSide &s) {
  return {static_cast<uint8_t *>(s.codes),
          s.row_stride,
          s.col_stride,
          s.scale,
          s.scale_row_stride,
          s.scale_col_stride,
          s.padded_rows,
          s.padded_cols};
}

}  // namespace

// ---------------------------------------------------------------- launchers

int64_t param_table_bytes(const ops::ParamList &p) {
  const int64_t master = table_bytes<MasterItem, ops::ParamPiece>(p.world, p.world, 1),
                whole = table_bytes<WholeItem, Start>(2 * int64_t{p.world}, p.world, 1);
  const int64_t most = std::max(p.rank >= 0 ? 0 : master, whole);
  return most > kTableBytes ? most : 0;
}

cudaError_t launch_param_assemble(const ops::ParamList &p, int32_t most, cudaStream_t stream, int32_t *launches) {
  std::vector<int64_t> bases;
  for (int32_t r = 0; p.slots && r < p.world; ++r) {
    const int64_t slot = int64_t(reinterpret_cast<uintptr_t>(p.slots[r]));
    bases.insert(bases.end(), {slot + p.row_part + p.row_shift[r], slot + p.col_part});
  }
  return each_table<WholeItem, Start>(
      p, p.slots ? p.world : 0, bases,
      [&](int32_t i) {
        const Counts n = counts_of(p, p.items[i]);
        return n.runs + n.flips + n.row_scales + n.col_scales;
      },
      [&](int32_t i, int64_t first) {
        const ops::ParamItem &m = p.items[i];
        return WholeItem{first, m.rows, m.cols, m.amax, side_item(m.row), side_item(m.col)};
      },
      [&](int32_t i, std::vector<Start> &out) {
        const ops::ParamPiece *pieces = p.pieces + int64_t{i} * p.world;
        for (int32_t r = 0; p.slots && r < p.world; ++r) out.push_back({pieces[r].begin, pieces[r].at});
      },
      stream, launches,
      [&](const Args &args) {
        return launch_blocks(assemble_units<false>, assemble_units<true>, args.units, most, kThreads, stream, args);
      });
}

cudaError_t load_partial_assemble() { return load_code(&assemble_units<false>, &assemble_units<true>, &upload_chunk); }

}  // namespace fp8::cuda
