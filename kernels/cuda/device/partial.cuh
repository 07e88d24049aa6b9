// SPDX-License-Identifier: Apache-2.0
// What partial amax and partial cast share. A block takes a 128 x 128 tile of a weight, a warp 32 of its rows. Where
// the rank owns the whole tile a lane takes four neighbouring columns, else every 32nd: then a 1 x 32 block is one
// register across the warp, and any cut reads in whole sectors.
#pragma once
#include "param.cuh"

namespace fp8::cuda {
namespace {

using namespace num;

struct Unit {
  MasterItem m;
  ops::ParamPiece own;
  int64_t row0, col0;
  int rank;
  bool any;
};

__device__ __forceinline__ Unit find_unit(const Args &a, unsigned unit) {
  const int i = find_item<MasterItem>(a, unit);
  Unit u;
  u.m = item_at<MasterItem>(a, i);
  u.rank = a.p.rank >= 0 ? a.p.rank : *a.p.rank_data;
  u.own = piece_at<ops::ParamPiece>(a, i, u.rank);
  const int64_t across = units(u.m.cols, kSquare), index = unit - u.m.first;
  u.any = u.own.count > 0;
  u.row0 = u.col0 = 0;
  if (!u.any) return u;
  u.row0 = (u.own.begin / u.m.cols / kSquare + index / across) * kSquare;
  u.col0 = index % across * kSquare;
  u.any = u.row0 < u.m.rows && u.row0 * u.m.cols < u.own.begin + u.own.count;
  return u;
}

__device__ __forceinline__ int64_t amax_of_cols(const Unit &u, int64_t row_tiles) {
  return u.m.amax + u.m.rows * row_tiles;
}

// Offsets into the owned elements of this lane's four columns in `row`; -1 where another rank, or nobody, owns them.
struct Line {
  int64_t at[4];
};
__device__ __forceinline__ Line line_of(const Unit &u, int64_t row, int lane) {
  Line l;
  const int64_t start = row * u.m.cols - u.own.begin;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t col = u.col0 + lane + 32 * i, at = start + col;
    l.at[i] = row < u.m.rows && col < u.m.cols && at >= 0 && at < u.own.count ? at : -1;
  }
  return l;
}

template <class T>
__device__ __forceinline__ float value_at(const void *master, int64_t at) {
  if (at < 0) return 0.0f;
  if constexpr (sizeof(T) == 4)
    return load_streaming(static_cast<const float *>(master) + at);
  else
    return decode_bf16(load_streaming(static_cast<const unsigned short *>(master) + at));
}

__device__ __forceinline__ uint32_t magnitude(float x) {
  const uint32_t a = bits_of(x) & kF32Abs;
  return a <= kF32Inf ? a : 0;
}

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// A tile that this rank owns whole, in rows that start at a multiple of four elements: a lane takes four neighbours.
template <class T>
__device__ __forceinline__ bool is_whole(const Unit &u) {
  const int64_t first = u.row0 * u.m.cols + u.col0 - u.own.begin;
  return u.row0 + kSquare <= u.m.rows && u.col0 + kSquare <= u.m.cols && first >= 0 &&
         first + (kSquare - 1) * u.m.cols + kSquare <= u.own.count && u.m.cols % 4 == 0 &&
         (u.own.begin + first) % 4 == 0 && first % 4 == 0 &&
         reinterpret_cast<uintptr_t>(u.m.master) % (4 * sizeof(T)) == 0;
}

template <class T>
__device__ __forceinline__ void load_four(const void *master, int64_t at, float (&x)[4]) {
  if constexpr (sizeof(T) == 4) {
    const float4 v = load_streaming(reinterpret_cast<const float4 *>(static_cast<const float *>(master) + at));
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  } else {
    const uint2 v = load_streaming(reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(master) + at));
    x[0] = float_of(v.x << 16), x[1] = float_of(v.x & 0xffff0000u);
    x[2] = float_of(v.y << 16), x[3] = float_of(v.y & 0xffff0000u);
  }
}

// Where a lane's column i lies in the tile, either way of reading.
__device__ __forceinline__ int column_of(bool whole, int lane, int i) { return whole ? 4 * lane + i : lane + 32 * i; }

// To BF16 and back. Any NaN stays one, which is all that a cast looks at.
__device__ __forceinline__ void round_four(float (&x)[4]) {
  const uint32_t low = pack2_bf16(x[0], x[1]), high = pack2_bf16(x[2], x[3]);
  x[0] = float_of(low << 16), x[1] = float_of(low & 0xffff0000u);
  x[2] = float_of(high << 16), x[3] = float_of(high & 0xffff0000u);
}

// Units of an item for one rank, or for whichever rank it turns out to be.
int64_t units_of(const ops::ParamList &p, int32_t i) {
  const ops::ParamItem &m = p.items[i];
  int64_t most = 0;
  for (int32_t r = 0; r < p.world; ++r) {
    if (p.rank >= 0 && r != p.rank) continue;
    const ops::ParamPiece &own = p.pieces[int64_t{i} * p.world + r];
    if (own.count == 0) continue;
    const int64_t n = plain_copy(p.scaling)
                          ? units(own.count, kFlat)
                          : ((own.begin + own.count - 1) / m.cols / kSquare - own.begin / m.cols / kSquare + 1) *
                                units(m.cols, kSquare);
    most = std::max(most, n);
  }
  return most;
}

// launch_one(args, dtype) for each master dtype (a list has one, most often). A known rank's pieces go up as a
// world of one; the bases are the ranks' shifts of the row part.
template <class Launch>
cudaError_t over_masters(const ops::ParamList &p, cudaStream_t stream, int32_t *launches, Launch &&launch_one) {
  ops::ParamList list = p;
  const int32_t first = p.rank >= 0 ? p.rank : 0, world = p.rank >= 0 ? 1 : p.world;
  if (p.rank >= 0) list.rank = 0;
  const std::vector<int64_t> shifts(p.row_shift + first, p.row_shift + first + world);
  for (const int32_t dtype : {int32_t{kF32}, int32_t{kBF16}}) {
    const cudaError_t e = each_table<MasterItem, ops::ParamPiece>(
        list, world, shifts, [&](int32_t i) { return p.items[i].master_dtype == dtype ? units_of(p, i) : 0; },
        [&](int32_t i, int64_t at) {
          const ops::ParamItem &m = p.items[i];
          return MasterItem{at, m.rows, m.cols, m.master, m.amax};
        },
        [&](int32_t i, std::vector<ops::ParamPiece> &out) {
          const ops::ParamPiece *pieces = p.pieces + int64_t{i} * p.world + first;
          out.insert(out.end(), pieces, pieces + world);
        },
        stream, launches, [&](const Args &args) { return launch_one(args, dtype); });
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace fp8::cuda
