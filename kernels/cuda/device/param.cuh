// SPDX-License-Identifier: Apache-2.0
// A list's descriptors on the device. They travel as kernel arguments, so that a launch can be captured and nothing on
// the host has to outlive it.
#pragma once
#include <algorithm>
#include <vector>

#include "cuda/launch_param.h"
#include "cuda_api.cuh"

namespace fp8::cuda {

constexpr int kSquare = 128;                 // rows and columns of a unit
constexpr int64_t kFlat = int64_t{1} << 16;  // elements of a flat unit

struct DeviceItem {
  int64_t first;  // of its units in the grid
  ops::ParamItem item;
};

__host__ __device__ inline int64_t units(int64_t n, int64_t size) { return (n + size - 1) / size; }
__host__ __device__ inline bool plain_copy(int32_t scaling) { return scaling == 1 || scaling == 8; }

constexpr int kChunkBytes = 32000;  // below the 32764 bytes of a kernel's arguments
struct Chunk {
  uint4 data[kChunkBytes / 16];
};

static __global__ void upload_chunk(const __grid_constant__ Chunk chunk, uint4 *dst, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) dst[i] = chunk.data[i];
}

// Items, then pieces, 16-byte aligned.
inline int64_t items_bytes(const ops::ParamList &p) { return units(int64_t{p.count} * sizeof(DeviceItem), 16) * 16; }
inline int64_t pieces_bytes(const ops::ParamList &p) { return int64_t{p.count} * p.world * sizeof(ops::ParamPiece); }

inline cudaError_t upload(const std::vector<DeviceItem> &items, const ops::ParamList &p, bool pieces,
                          cudaStream_t stream, int32_t *launches) {
  std::vector<char> host(items_bytes(p) + (pieces ? pieces_bytes(p) : 0));
  std::memcpy(host.data(), items.data(), items.size() * sizeof(DeviceItem));
  if (pieces) std::memcpy(host.data() + items_bytes(p), p.pieces, pieces_bytes(p));
  Chunk chunk;
  for (size_t at = 0; at < host.size(); at += kChunkBytes) {
    const size_t n = std::min<size_t>(kChunkBytes, host.size() - at);
    std::memcpy(&chunk, host.data() + at, n);
    upload_chunk<<<1, 512, 0, stream>>>(chunk, reinterpret_cast<uint4 *>(static_cast<char *>(p.workspace) + at),
                                        int((n + 15) / 16));
    ++*launches;
    const cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

inline const DeviceItem *device_items(const ops::ParamList &p) { return static_cast<const DeviceItem *>(p.workspace); }
inline const ops::ParamPiece *device_pieces(const ops::ParamList &p) {
  return reinterpret_cast<const ops::ParamPiece *>(static_cast<const char *>(p.workspace) + items_bytes(p));
}

// The item that owns a unit of the grid.
__device__ __forceinline__ int find_item(const DeviceItem *items, int count, int64_t unit) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (items[middle].first <= unit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace fp8::cuda
