// SPDX-License-Identifier: Apache-2.0
// A list's descriptors. They travel as kernel arguments: a launch can be captured, nothing on the host has to outlive
// it, and 500 small weights take one or a few launches a step. Only where one weight alone has more (over some thousand
// ranks) do they lie in the workspace.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda/launch_param.h"
#include "warp_api.cuh"

namespace fp8::cuda {

constexpr int kSquare = 128;                 // rows and columns of a unit
constexpr int64_t kFlat = int64_t{1} << 16;  // elements of a flat unit
constexpr int kTableBytes = 32256;           // of the 32764 bytes that a kernel's arguments may have

__host__ __device__ inline int64_t units(int64_t n, int64_t size) { return (n + size - 1) / size; }
__host__ __device__ inline bool plain_copy(int32_t scaling) { return scaling == 1 || scaling == 8; }
__host__ __device__ inline int64_t align16(int64_t n) { return (n + 15) / 16 * 16; }

// Bases, one or more of each rank; then items; then each item's pieces, one of each rank.
struct Args {
  ops::ParamList p;             // its pointers to host memory are not for kernels
  int32_t count, world;         // in this table
  int32_t items_at, pieces_at;  // bytes into it
  uint32_t units;               // of all its items, a block each
  const uint8_t *far;           // where the table lies if it isn't `near`
  uint4 near[kTableBytes / 16];
};
static_assert(sizeof(Args) <= 32764, "a kernel's arguments");

struct MasterItem {
  int64_t first;  // of its units among all
  int64_t rows, cols;
  const void *master;
  int64_t amax;
};

struct SideItem {
  uint8_t *codes;
  int64_t row_stride, col_stride;
  void *scale;
  int64_t scale_row_stride, scale_col_stride, padded_rows, padded_cols;
};
struct WholeItem {
  int64_t first, rows, cols, amax;
  SideItem row, col;
};
struct Start {  // of a rank's elements; they end where the next rank's start
  int64_t begin, at;
};

template <class T>
__device__ __forceinline__ const T &table_at(const Args &a, int64_t at) {
  return *reinterpret_cast<const T *>((a.far ? a.far : reinterpret_cast<const uint8_t *>(a.near)) + at);
}
template <class Item>
__device__ __forceinline__ const Item &item_at(const Args &a, int i) {
  return table_at<Item>(a, a.items_at + int64_t{i} * int64_t{sizeof(Item)});
}
template <class Piece>
__device__ __forceinline__ const Piece &piece_at(const Args &a, int i, int rank) {
  return table_at<Piece>(a, a.pieces_at + (int64_t{i} * a.world + rank) * int64_t{sizeof(Piece)});
}

// The item that owns a unit: `first` leads every item.
template <class Item>
__device__ __forceinline__ int find_item(const Args &a, int64_t unit) {
  int low = 0, high = a.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table_at<int64_t>(a, a.items_at + int64_t{middle} * int64_t{sizeof(Item)}) <= unit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

struct Chunk {
  uint4 data[kTableBytes / 16];
};
static __global__ void upload_chunk(const __grid_constant__ Chunk chunk, uint4 *dst, int count) {
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) dst[i] = chunk.data[i];
}

template <class Item, class Piece>
int64_t table_bytes(int64_t bases, int64_t world, int64_t count) {
  return align16(bases * 8) + align16(count * int64_t{sizeof(Item)}) + align16(count * world * int64_t{sizeof(Piece)});
}

// launch(args) for as many items at a time as a table holds; items without units are left out. count_of(i) counts
// an item's units, item_of(i, first) and pieces_of(i, out) describe it.
template <class Item, class Piece, class CountOf, class ItemOf, class PiecesOf, class Launch>
cudaError_t each_table(const ops::ParamList &p, int32_t world, const std::vector<int64_t> &bases, CountOf &&count_of,
                       ItemOf &&item_of, PiecesOf &&pieces_of, cudaStream_t stream, int32_t *launches,
                       Launch &&launch_table) {
  Args args{};
  std::vector<Item> items;
  std::vector<Piece> pieces;
  int64_t total = 0;
  const auto flush = [&]() -> cudaError_t {
    if (items.empty()) return cudaSuccess;
    args.p = p;
    args.count = int32_t(items.size());
    args.world = world;
    args.items_at = int32_t(align16(int64_t(bases.size()) * 8));
    args.pieces_at = int32_t(args.items_at + align16(int64_t(items.size() * sizeof(Item))));
    const int64_t bytes = table_bytes<Item, Piece>(int64_t(bases.size()), world, args.count);
    std::vector<uint8_t> host(size_t(bytes), 0);
    if (!bases.empty()) std::memcpy(host.data(), bases.data(), bases.size() * 8);
    std::memcpy(host.data() + args.items_at, items.data(), items.size() * sizeof(Item));
    if (!pieces.empty()) std::memcpy(host.data() + args.pieces_at, pieces.data(), pieces.size() * sizeof(Piece));
    args.far = nullptr;
    if (bytes <= kTableBytes) {
      std::memcpy(args.near, host.data(), host.size());
    } else {
      args.far = static_cast<const uint8_t *>(p.workspace);
      Chunk chunk;
      for (size_t at = 0; at < host.size(); at += sizeof chunk) {
        const size_t n = std::min(sizeof chunk, host.size() - at);
        std::memcpy(&chunk, host.data() + at, n);
        ++*launches;
        const cudaError_t e = launch(upload_chunk, 1, 512, stream, false, chunk,
                                     reinterpret_cast<uint4 *>(static_cast<uint8_t *>(p.workspace) + at), int(n / 16));
        if (e != cudaSuccess) return e;
      }
    }
    ++*launches;
    args.units = uint32_t(total);
    const cudaError_t e = launch_table(args);
    items.clear();
    pieces.clear();
    total = 0;
    return e;
  };
  for (int32_t i = 0; i < p.count; ++i) {
    const int64_t n = count_of(i);
    if (n == 0) continue;
    if (total + n > INT32_MAX ||
        table_bytes<Item, Piece>(int64_t(bases.size()), world, int64_t(items.size()) + 1) > kTableBytes) {
      const cudaError_t e = flush();
      if (e != cudaSuccess) return e;
    }
    items.push_back(item_of(i, total));
    pieces_of(i, pieces);
    total += n;
  }
  return flush();
}

}  // namespace fp8::cuda
