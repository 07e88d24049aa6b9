// SPDX-License-Identifier: Apache-2.0
// Statistics of a tile in registers. Where all elements of a thread are finite and none saturates, its counts are those
// of the inputs and of the codes that are not zero, taken two and four at a time.
#pragma once
#include "lean_tile.cuh"

namespace fp8::cuda {

struct CodeCount {
  uint32_t bytes = 0;
  __device__ __forceinline__ void add(uint32_t low, uint32_t high) {  // eight codes
    bytes += ((low & 0x7f7f7f7fu) + 0x7f7f7f7fu) >> 7 & 0x01010101u;
    bytes += ((high & 0x7f7f7f7fu) + 0x7f7f7f7fu) >> 7 & 0x01010101u;
  }
  __device__ __forceinline__ uint32_t nonzero() const { return bytes * 0x01010101u >> 24; }
};

struct InputCount {
  uint32_t nonzero = 0;
  bool nonfinite = false;
  __device__ __forceinline__ void add(const LeanTile &x) {
    uint32_t halves = 0, over = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t a = x.w[i][k] & 0x7fff7fffu;
        halves += (a + 0x7fff7fffu) >> 15 & 0x00010001u;
        over |= a + 0x00800080u;
      }
    nonzero = (halves & 0xffff) + (halves >> 16);
    nonfinite = over & 0x80008000u;
  }
};

// Counts of one side: 16 bits each.
struct SideCount {
  uint32_t nonfinite = 0, nonzero = 0, saturated = 0;  // NaN and Inf; nonzero and underflow; saturated
};

// Byte k: statistic k of eight elements.
template <class F>
__device__ __noinline__ inline uint64_t count_eight(uint4 w, float4 m, float4 n) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
  const float multipliers[8] = {m.x, m.y, m.z, m.w, n.x, n.y, n.z, n.w};
  uint32_t counts[num::kStats] = {};
#pragma unroll
  for (int j = 0; j < 8; ++j)
    num::count_element<F>(j & 1 ? high_float(words[j / 2]) : low_float(words[j / 2]), multipliers[j], counts);
  uint64_t bytes = 0;
#pragma unroll
  for (int k = 0; k < num::kStats; ++k) bytes |= uint64_t(counts[k]) << (8 * k);
  return bytes;
}

// `row_m` and `col_m` of a row and a column give an element's multiplier, the unused one 1.
template <class RowM, class ColM>
__device__ __forceinline__ SideCount count_exactly(const LeanTile &x, int rows, bool e4m3, const RowM &row_m,
                                                   const ColM &col_m, bool by_row) {
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i >= rows) break;
    const uint4 w = make_uint4(x.w[i][0], x.w[i][1], x.w[i][2], x.w[i][3]);
    const float r = row_m(i);
    const float4 m = by_row ? make_float4(r, r, r, r) : make_float4(col_m(0), col_m(1), col_m(2), col_m(3)),
                 n = by_row ? m : make_float4(col_m(4), col_m(5), col_m(6), col_m(7));
    sum += e4m3 ? count_eight<num::E4M3>(w, m, n) : count_eight<num::E5M2>(w, m, n);
  }
  const auto of = [&](int k) { return uint32_t(sum >> (8 * k)) & 0xff; };
  SideCount c;
  c.nonfinite = of(num::kNan) | of(num::kInf) << 16;
  c.nonzero = of(num::kNonzero) | of(num::kUnderflow) << 16;
  c.saturated = of(num::kSaturated);
  return c;
}

__device__ __forceinline__ SideCount count_quickly(const InputCount &x, const CodeCount &codes) {
  SideCount c;
  c.nonzero = x.nonzero | (x.nonzero - codes.nonzero()) << 16;
  return c;
}

// Does any element of lines of maxima m[line / 2] saturate, or is a multiplier NaN?
template <class M>
__device__ __forceinline__ bool saturates(const uint32_t (&m)[4], const M &multiplier, bool e4m3) {
  const float limit = num::float_of(e4m3 ? num::E4M3::saturated_from : num::E5M2::saturated_from);
  bool any = false;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    any = any || !(num::mul_rn(low_float(m[q]), multiplier(2 * q)) < limit);
    any = any || !(num::mul_rn(high_float(m[q]), multiplier(2 * q + 1)) < limit);
  }
  return any;
}

// Adds a warp's counts to the block's, zeroed before.
__device__ __forceinline__ void add_warp(SideCount c, uint32_t *block, int lane) {
#pragma unroll
  for (int s = 16; s; s /= 2) {
    c.nonfinite += shuffle_xor_bits(c.nonfinite, s);
    c.nonzero += shuffle_xor_bits(c.nonzero, s);
    c.saturated += shuffle_xor_bits(c.saturated, s);
  }
  if (lane) return;
  if (c.nonfinite) {
    atomicAdd(block + num::kNan, c.nonfinite & 0xffff);
    atomicAdd(block + num::kInf, c.nonfinite >> 16);
  }
  atomicAdd(block + num::kNonzero, c.nonzero & 0xffff);
  if (c.nonzero >> 16) atomicAdd(block + num::kUnderflow, c.nonzero >> 16);
  if (c.saturated) atomicAdd(block + num::kSaturated, c.saturated);
}
__device__ __forceinline__ void add_block(const ops::Vector &stats, const uint32_t *block, int t, int elements) {
  if (!stats.data || t > num::kSaturated) return;
  const uint32_t n = t == num::kCount ? uint32_t(elements) : block[t];
  if (n) atomic_add(static_cast<uint64_t *>(stats.data) + t * stats.stride, n);
}

}  // namespace fp8::cuda
