// SPDX-License-Identifier: Apache-2.0
// What partial amax and partial cast share. A block takes a 128 x 128 tile of a weight, a warp 32 of its rows. Where
// the rank owns the whole tile a lane takes four neighbouring columns, else every 32nd: then a 1 x 32 block is one
// register across the warp, and any cut reads in whole sectors.
#pragma once
#include "param.cuh"

namespace fp8::cuda {
namespace {

using namespace num;

struct Args {
  ops::ParamList p;  // items and pieces are the device's
  const DeviceItem *items;
  const ops::ParamPiece *pieces;
};

struct Unit {
  const ops::ParamItem *item;
  ops::ParamPiece own;
  int64_t row0, col0;
  bool any;
};

__device__ __forceinline__ Unit find_unit(const Args &a) {
  const int i = find_item(a.items, a.p.count, blockIdx.x);
  const int rank = a.p.rank >= 0 ? a.p.rank : *a.p.rank_data;
  Unit u;
  u.item = &a.items[i].item;
  u.own = a.pieces[int64_t{i} * a.p.world + rank];
  const int64_t across = units(u.item->cols, kSquare), index = blockIdx.x - a.items[i].first;
  u.any = u.own.count > 0;
  u.row0 = u.col0 = 0;
  if (!u.any) return u;
  u.row0 = (u.own.begin / u.item->cols / kSquare + index / across) * kSquare;
  u.col0 = index % across * kSquare;
  u.any = u.row0 < u.item->rows && u.row0 * u.item->cols < u.own.begin + u.own.count;
  return u;
}

// Offsets into the owned elements of this lane's four columns in `row`; -1 where another rank, or nobody, owns them.
struct Line {
  int64_t at[4];
};
__device__ __forceinline__ Line line_of(const Unit &u, int64_t row, int lane) {
  Line l;
  const int64_t start = row * u.item->cols - u.own.begin;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t col = u.col0 + lane + 32 * i, at = start + col;
    l.at[i] = row < u.item->rows && col < u.item->cols && at >= 0 && at < u.own.count ? at : -1;
  }
  return l;
}

template <class T>
__device__ __forceinline__ float value_at(const void *master, int64_t at) {
  if (at < 0) return 0.0f;
  if constexpr (sizeof(T) == 4)
    return __ldcs(static_cast<const float *>(master) + at);
  else
    return decode_bf16(__ldcs(static_cast<const unsigned short *>(master) + at));
}

__device__ __forceinline__ uint32_t magnitude(float x) {
  const uint32_t a = bits_of(x) & kF32Abs;
  return a <= kF32Inf ? a : 0;
}

// A tile that this rank owns whole, in rows that start at a multiple of four elements: a lane takes four neighbours.
template <class T>
__device__ __forceinline__ bool is_whole(const Unit &u) {
  const ops::ParamItem &m = *u.item;
  const int64_t first = u.row0 * m.cols + u.col0 - u.own.begin;
  return u.row0 + kSquare <= m.rows && u.col0 + kSquare <= m.cols && first >= 0 &&
         first + (kSquare - 1) * m.cols + kSquare <= u.own.count && m.cols % 4 == 0 && (u.own.begin + first) % 4 == 0 &&
         first % 4 == 0 && reinterpret_cast<uintptr_t>(m.master) % (4 * sizeof(T)) == 0;
}

template <class T>
__device__ __forceinline__ void load_four(const void *master, int64_t at, float (&x)[4]) {
  if constexpr (sizeof(T) == 4) {
    const float4 v = __ldcs(reinterpret_cast<const float4 *>(static_cast<const float *>(master) + at));
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  } else {
    const uint2 v = __ldcs(reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(master) + at));
    x[0] = float_of(v.x << 16), x[1] = float_of(v.x & 0xffff0000u);
    x[2] = float_of(v.y << 16), x[3] = float_of(v.y & 0xffff0000u);
  }
}

// Where a lane's column i lies in the tile, either way of reading.
__device__ __forceinline__ int column_of(bool whole, int lane, int i) { return whole ? 4 * lane + i : lane + 32 * i; }

// To BF16 and back. Any NaN stays one, which is all that a cast looks at.
__device__ __forceinline__ void round_four(float (&x)[4]) {
  uint32_t low, high;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(x[1]), "f"(x[0]));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(x[3]), "f"(x[2]));
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

// One launch a master dtype (a list has one, most often). A known rank's pieces go up as a world of one.
template <class Launch>
cudaError_t over_masters(const ops::ParamList &p, cudaStream_t stream, int32_t *launches, Launch &&launch_one) {
  std::vector<ops::ParamPiece> own;
  ops::ParamList list = p;
  if (p.rank >= 0) {
    for (int32_t i = 0; i < p.count; ++i) own.push_back(p.pieces[int64_t{i} * p.world + p.rank]);
    list.pieces = own.data();
    list.world = 1;
    list.rank = 0;
  }
  for (const int32_t dtype : {int32_t{kF32}, int32_t{kBF16}}) {
    std::vector<DeviceItem> items;
    int64_t grid = 0;
    for (int32_t i = 0; i < p.count; ++i) {
      items.push_back({grid, p.items[i]});
      if (p.items[i].master_dtype == dtype) grid += units_of(list, i);
    }
    if (grid == 0) continue;
    // an item without units shares `first` with the next one, and find_item takes the last of equals
    const cudaError_t e = upload(items, list, true, stream, launches);
    if (e != cudaSuccess) return e;
    const Args args{list, device_items(list), device_pieces(list)};
    launch_one(args, static_cast<unsigned>(grid), dtype);
    ++*launches;
    const cudaError_t f = cudaGetLastError();
    if (f != cudaSuccess) return f;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace fp8::cuda
