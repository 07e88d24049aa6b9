// SPDX-License-Identifier: Apache-2.0
// Maxima of tiles of 4 x 8 elements a thread, packed or not.
#pragma once
#include "tile.cuh"

namespace fp8::cuda {

template <class Tile>
constexpr bool kPacked = sizeof(Tile) == sizeof(PackedTile<4>);

// Each lane of a group of 16 (4) ends with the maximum over the group of one of its four rows: row (cg >> 2) & 3 (cg &
// 3).
template <int kGroup>
__device__ __forceinline__ float scatter_rows(const float (&r)[4], int cg) {
  constexpr int high = kGroup / 2, low = kGroup / 4;
  const bool up = cg & high;
  float a0 = up ? r[2] : r[0], a1 = up ? r[3] : r[1];
  a0 = amax1(a0, shuffle_xor(up ? r[0] : r[2], high));
  a1 = amax1(a1, shuffle_xor(up ? r[1] : r[3], high));
  const bool odd = cg & low;
  float k = amax1(odd ? a1 : a0, shuffle_xor(odd ? a0 : a1, low));
#pragma unroll
  for (int s = low / 2; s; s /= 2) k = amax1(k, shuffle_xor(k, s));
  return k;
}

template <class Tile>
__device__ __forceinline__ void row_maxima(const Tile &x, float (&r)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kPacked<Tile>) {
      uint32_t m = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) m = amax2_bf16(m, x.w[i][k]);
      r[i] = amax1(num::float_of(m << 16), num::float_of(m & 0xffff0000u));
    } else {
      r[i] = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; ++j) r[i] = amax1(r[i], x.at(i, j));
    }
  }
}

// Column maxima of any number of tiles of one thread; put: over the warp's rows, to part[slot][column].
template <class Tile>
struct Columns {
  static constexpr int kWords = kPacked<Tile> ? 4 : 8;  // packed pairs, or F32
  uint32_t c[kWords];

  __device__ __forceinline__ Columns() {
#pragma unroll
    for (int k = 0; k < kWords; ++k) c[k] = 0;
  }
  __device__ __forceinline__ void add(const Tile &x) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        if constexpr (kPacked<Tile>)
          c[k] = amax2_bf16(c[k], x.w[i][k]);
        else
          c[k] = num::bits_of(amax1(num::float_of(c[k]), x.at(i, k)));
      }
  }
  __device__ __forceinline__ float all() const {
    float best = 0.0f;
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      if constexpr (kPacked<Tile>)
        best = amax1(amax1(best, num::float_of(c[k] << 16)), num::float_of(c[k] & 0xffff0000u));
      else
        best = amax1(best, num::float_of(c[k]));
    }
    return best;
  }
  __device__ __forceinline__ void put(float (*part)[kTile], int slot, int lane, int cg) const {
    const bool up = lane & 16;
    uint4 *p = reinterpret_cast<uint4 *>(&part[slot][8 * cg + (up ? 4 : 0)]);
    if constexpr (kPacked<Tile>) {
      const uint32_t a = amax2_bf16(up ? c[2] : c[0], shuffle_xor_bits(up ? c[0] : c[2], 16)),
                     b = amax2_bf16(up ? c[3] : c[1], shuffle_xor_bits(up ? c[1] : c[3], 16));
      *p = make_uint4(a << 16, a & 0xffff0000u, b << 16, b & 0xffff0000u);
    } else {
      uint32_t k[4];
#pragma unroll
      for (int q = 0; q < 4; ++q)
        k[q] = num::bits_of(
            amax1(num::float_of(up ? c[4 + q] : c[q]), num::float_of(shuffle_xor_bits(up ? c[q] : c[4 + q], 16))));
      *p = make_uint4(k[0], k[1], k[2], k[3]);
    }
  }
};

}  // namespace fp8::cuda
