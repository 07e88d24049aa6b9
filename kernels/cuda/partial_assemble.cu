// SPDX-License-Identifier: Apache-2.0
// From gathered slots to the sides of whole weights, for a whole list in one launch. Units of an item: flat runs of the
// row side, 128 x 128 tiles of the column side, scales of either.
#include "device/param.cuh"

namespace fp8::cuda {
namespace {

using namespace num;

constexpr int kThreads = 256;
constexpr int64_t kScales = 2048;  // elements of a unit of scales

// ---------------------------------------------------------------- kernels

struct Args {
  ops::ParamList p;
  const DeviceItem *items;
  const ops::ParamPiece *pieces;
};

struct Counts {
  int64_t runs, flips, row_scales, col_scales;
};

__host__ __device__ inline int64_t padded(const ops::ParamSide &s) { return s.padded_rows * s.padded_cols; }

__host__ __device__ inline Counts counts_of(const ops::ParamList &p, const ops::ParamItem &m) {
  const bool plain = plain_copy(p.scaling), row = p.sides & 1, col = p.sides & 2;
  Counts n;
  n.runs = (row || plain) && p.gathered ? units(m.rows * m.cols, kFlat) : 0;
  n.flips = col && !plain ? units(m.rows, kSquare) * units(m.cols, kSquare) : 0;
  n.row_scales = row && !plain && p.gathered ? units(padded(m.row), kScales) : 0;
  n.col_scales = col && !plain ? units(padded(m.col), kScales) : 0;
  return n;
}

// The rank that owns flat element `at` of the item.
__device__ __forceinline__ int owner_of(const ops::ParamPiece *pieces, int world, int64_t at) {
  int low = 0, high = world - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (at < pieces[middle].begin + pieces[middle].count)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

__device__ __forceinline__ const uint8_t *source_of(const ops::ParamList &p, const ops::ParamPiece &own, int rank,
                                                    bool col_part) {
  return static_cast<const uint8_t *>(p.gathered) + rank * p.slot_bytes +
         (col_part ? p.col_part + own.col_at : p.row_part + own.row_at);
}

// n bytes by the block; 16 at a time where both ends lie alike.
__device__ __forceinline__ void copy_bytes(uint8_t *dst, const uint8_t *src, int64_t n) {
  if ((reinterpret_cast<uintptr_t>(dst) - reinterpret_cast<uintptr_t>(src)) % 16 == 0) {
    const int64_t head = min(n, int64_t((16 - reinterpret_cast<uintptr_t>(dst) % 16) % 16));
    for (int64_t i = threadIdx.x; i < head; i += kThreads) dst[i] = src[i];
    dst += head, src += head, n -= head;
    const int64_t vectors = n / 16;
    const uint4 *in = reinterpret_cast<const uint4 *>(src);
    uint4 *out = reinterpret_cast<uint4 *>(dst);
    int64_t i = threadIdx.x;
    for (; i + 3 * kThreads < vectors; i += 4 * kThreads) {  // four loads under way before the first store
      uint4 v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = __ldcs(in + i + k * kThreads);
#pragma unroll
      for (int k = 0; k < 4; ++k) out[i + k * kThreads] = v[k];
    }
    for (; i < vectors; i += kThreads) out[i] = __ldcs(in + i);
    for (int64_t i = vectors * 16 + threadIdx.x; i < n; i += kThreads) dst[i] = src[i];
    return;
  }
  for (int64_t i = threadIdx.x; i < n; i += kThreads) dst[i] = src[i];
}

__device__ void put_run(uint8_t *codes, int64_t row_stride, int64_t col_stride, int64_t cols, int size,
                        const uint8_t *from, int64_t flat, int64_t n) {
  if (col_stride == 1 && row_stride == cols) return copy_bytes(codes + flat * size, from, n * size);
  for (int64_t i = threadIdx.x; i < n * size; i += kThreads) {
    const int64_t at = flat + i / size;
    codes[(at / cols * row_stride + at % cols * col_stride) * size + i % size] = from[i];
  }
}

__device__ void run_unit(const ops::ParamList &p, const ops::ParamItem &m, const ops::ParamPiece *pieces,
                         int64_t index) {
  const bool plain = plain_copy(p.scaling), row = p.sides & 1, col = p.sides & 2;
  const int size = plain ? 2 : 1;
  int64_t begin = index * kFlat;
  const int64_t end = min(begin + kFlat, m.rows * m.cols);
  for (int r = owner_of(pieces, p.world, begin); begin < end; ++r) {
    const ops::ParamPiece own = pieces[r];
    if (own.count == 0) continue;
    const int64_t n = min(end, own.begin + own.count) - begin;
    const uint8_t *from = source_of(p, own, r, false) + (begin - own.begin) * size;
    if (row)
      put_run(static_cast<uint8_t *>(m.row.codes), m.row.row_stride, m.row.col_stride, m.cols, size, from, begin, n);
    if (plain && col && !(row && m.col.codes == m.row.codes))
      put_run(static_cast<uint8_t *>(m.col.codes), m.col.col_stride, m.col.row_stride, m.cols, size, from, begin, n);
    begin += n;
  }
}

// One row of a tile into words of shared memory, by a warp: `n` bytes from flat element `at`.
__device__ __forceinline__ void load_line(const ops::ParamList &p, const ops::ParamItem &m,
                                          const ops::ParamPiece *pieces, int64_t row, int64_t col, int n, uint8_t *line,
                                          int lane) {
  if (!p.gathered) {
    const uint8_t *src = static_cast<const uint8_t *>(m.row.codes) + row * m.row.row_stride + col * m.row.col_stride;
    if (n == kSquare && m.row.col_stride == 1 && reinterpret_cast<uintptr_t>(src) % 4 == 0) {
      reinterpret_cast<uint32_t *>(line)[lane] = reinterpret_cast<const uint32_t *>(src)[lane];
    } else {
      for (int c = lane; c < n; c += 32) line[c] = src[c * m.row.col_stride];
    }
    return;
  }
  const bool col_part = !ops::shares_scale(p.scaling);
  int64_t at = row * m.cols + col;
  const int64_t end = at + n;
  for (int r = owner_of(pieces, p.world, at); at < end; ++r) {
    const ops::ParamPiece own = pieces[r];
    if (own.count == 0) continue;
    const int part = int(min(end, own.begin + own.count) - at), first = n - int(end - at);
    const uint8_t *src = source_of(p, own, r, col_part) + (at - own.begin);
    if (part == kSquare && reinterpret_cast<uintptr_t>(src) % 4 == 0) {
      reinterpret_cast<uint32_t *>(line)[lane] = __ldcs(reinterpret_cast<const uint32_t *>(src) + lane);
    } else {
      for (int c = lane; c < part; c += 32) line[first + c] = src[c];
    }
    at += part;
  }
}

__device__ void flip_unit(const ops::ParamList &p, const ops::ParamItem &m, const ops::ParamPiece *pieces,
                          int64_t index, uint32_t (*words)[kSquare / 4 + 1]) {
  const int64_t across = units(m.cols, kSquare), row0 = index / across * kSquare, col0 = index % across * kSquare;
  const int rows = int(min(int64_t{kSquare}, m.rows - row0)), cols = int(min(int64_t{kSquare}, m.cols - col0));
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll 4
  for (int r = warp; r < rows; r += kThreads / 32)
    load_line(p, m, pieces, row0 + r, col0, cols, reinterpret_cast<uint8_t *>(words[r]), lane);
  __syncthreads();
  // A lane transposes 4 x 4 bytes: rows 4k.., word w. Eight lanes of one w write 32 bytes of a column.
  uint8_t *dst = static_cast<uint8_t *>(m.col.codes) + col0 * m.col.row_stride + row0 * m.col.col_stride;
  const bool whole = rows == kSquare && m.col.col_stride == 1 && m.col.row_stride % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(dst) % 4 == 0;
  for (int step = warp; step < 32; step += kThreads / 32) {
    const int k = (step & 3) * 8 + (lane >> 2), w = (step >> 2) * 4 + (lane & 3);
    if (4 * k >= rows || 4 * w >= cols) continue;
    const uint32_t a = words[4 * k][w], b = words[4 * k + 1][w], c = words[4 * k + 2][w], d = words[4 * k + 3][w];
    const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
    const uint32_t ab2 = __byte_perm(a, b, 0x7362), cd2 = __byte_perm(c, d, 0x7362);
    const uint32_t out[4] = {__byte_perm(ab, cd, 0x5410), __byte_perm(ab, cd, 0x7632), __byte_perm(ab2, cd2, 0x5410),
                             __byte_perm(ab2, cd2, 0x7632)};
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

__device__ void scale_unit(const ops::ParamList &p, const ops::ParamItem &m, bool is_col, int64_t index) {
  const ops::ParamSide &side = is_col ? m.col : m.row;
  const bool swapped = is_col && ops::shares_scale(p.scaling), rows_inner = side.scale_row_stride == 1;
  const int64_t first = is_col ? m.amax_col : m.amax_row, end = min(padded(side), (index + 1) * kScales);
  for (int64_t n = index * kScales + threadIdx.x; n < end; n += kThreads) {
    const int64_t i = rows_inner ? n % side.padded_rows : n / side.padded_cols,
                  j = rows_inner ? n / side.padded_rows : n % side.padded_cols;
    const int64_t at = i * side.scale_row_stride + j * side.scale_col_stride;
    const bool inside = i < side.scale_rows && j < side.scale_cols;
    const int64_t tile = first + (swapped ? j * side.scale_rows + i : i * side.scale_cols + j);
    const int64_t in_row = j * m.row.scale_row_stride + i * m.row.scale_col_stride;
    if (p.amax_dtype == kF32) {
      float s = 0;
      if (inside)
        s = p.gathered ? scale_of(p.dtype, p.rule, static_cast<const float *>(p.amax)[tile], p.amax_floor).inverse
                       : static_cast<const float *>(m.row.scale)[in_row];
      static_cast<float *>(side.scale)[at] = s;
    } else {
      uint8_t s = 0;
      if (inside)
        s = p.gathered ? static_cast<const uint8_t *>(p.amax)[tile] : static_cast<const uint8_t *>(m.row.scale)[in_row];
      static_cast<uint8_t *>(side.scale)[at] = s;
    }
  }
}

__global__ void __launch_bounds__(kThreads) assemble_units(const __grid_constant__ Args a) {
  __shared__ uint32_t words[kSquare][kSquare / 4 + 1];
  const int i = find_item(a.items, a.p.count, blockIdx.x);
  const ops::ParamItem &m = a.items[i].item;
  const ops::ParamPiece *pieces = a.pieces + int64_t{i} * a.p.world;
  const Counts n = counts_of(a.p, m);
  int64_t u = blockIdx.x - a.items[i].first;
  if (u < n.runs) return run_unit(a.p, m, pieces, u);
  u -= n.runs;
  if (u < n.flips) return flip_unit(a.p, m, pieces, u, words);
  u -= n.flips;
  if (u < n.row_scales) return scale_unit(a.p, m, false, u);
  scale_unit(a.p, m, true, u - n.row_scales);
}

}  // namespace

// ---------------------------------------------------------------- launchers

cudaError_t launch_param_assemble(const ops::ParamList &p, cudaStream_t stream, int32_t *launches) {
  std::vector<DeviceItem> items;
  int64_t grid = 0;
  for (int32_t i = 0; i < p.count; ++i) {
    items.push_back({grid, p.items[i]});
    const Counts n = counts_of(p, p.items[i]);
    grid += n.runs + n.flips + n.row_scales + n.col_scales;
  }
  if (grid == 0) return cudaSuccess;
  const cudaError_t e = upload(items, p, p.gathered != nullptr, stream, launches);
  if (e != cudaSuccess) return e;
  assemble_units<<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(Args{p, device_items(p), device_pieces(p)});
  ++*launches;
  return cudaGetLastError();
}

cudaError_t load_partial_assemble() { return load_code(&assemble_units, &upload_chunk); }

}  // namespace fp8::cuda
