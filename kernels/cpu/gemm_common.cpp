// SPDX-License-Identifier: Apache-2.0
#include "cpu/gemm_common.h"

#include <algorithm>
#include <cstring>

namespace fp8::cpu {

namespace {

float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

uint32_t to_bits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

float decode_e8m0(uint8_t code) {
  return from_bits(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

float decode_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  const float f = magnitude >= 0x400u ? from_bits((magnitude << 13) + (112u << 23)) : magnitude * 0x1p-24f;
  return from_bits(sign | to_bits(f));
}

uint16_t encode_bf16(float f) {
  const uint32_t bits = to_bits(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t encode_f16(float f) {
  const uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7e00;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more, ties away to Inf
  if (magnitude < 0x38800000u) {                                               // subnormal: count units of 2^-24
    const uint32_t sum = to_bits(from_bits(magnitude) + 0x1p-1f);
    return static_cast<uint16_t>(sign | (sum - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

float load(const void *data, int32_t dtype, int64_t index) {
  switch (dtype) {
    case FP8_DTYPE_F32:
      return static_cast<const float *>(data)[index];
    case FP8_DTYPE_BF16:
      return from_bits(static_cast<uint32_t>(static_cast<const uint16_t *>(data)[index]) << 16);
    default:
      return decode_f16(static_cast<const uint16_t *>(data)[index]);
  }
}

}  // namespace

void load_scales(const ops::Side &s, int64_t row, int64_t n, int64_t k0, float *out) {
  if (unquantized(s)) {
    std::fill_n(out, n, 1.0f);
    return;
  }
  const int64_t tr = ops::tile_rows(s.scaling), tc = ops::tile_cols(s.scaling);
  const int64_t column = (tc ? k0 / tc : 0) * s.scale.col_stride;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = (tr ? (row + i) / tr : 0) * s.scale.row_stride + column;
    out[i] = s.scale.dtype == FP8_DTYPE_F32 ? static_cast<const float *>(s.scale.data)[at]
                                            : decode_e8m0(static_cast<const uint8_t *>(s.scale.data)[at]);
  }
}

void store_row(const ops::Gemm &g, int64_t i, int64_t j0, int64_t n, float *y) {
  if (g.bias.data) {
    for (int64_t j = 0; j < n; ++j) y[j] += load(g.bias.data, g.bias.dtype, (j0 + j) * g.bias.stride);
  }
  const int64_t stride = g.d.col_stride;
  const int64_t start = ops::row_offset(g.d, i) + j0 * stride;
  if (g.d.dtype == FP8_DTYPE_F32) {
    float *d = static_cast<float *>(g.d.data) + start;
    for (int64_t j = 0; j < n; ++j) {
      const float v = g.accumulate ? d[j * stride] + y[j] : y[j];
      d[j * stride] = v == v ? v : from_bits(0x7fc00000u);
    }
    return;
  }
  uint16_t *d = static_cast<uint16_t *>(g.d.data) + start;
  if (g.accumulate) {
    for (int64_t j = 0; j < n; ++j) y[j] += load(d, g.d.dtype, j * stride);
  }
  if (g.d.dtype == FP8_DTYPE_BF16) {
    for (int64_t j = 0; j < n; ++j) d[j * stride] = encode_bf16(y[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) d[j * stride] = encode_f16(y[j]);
  }
}

Tiles plan_tiles(int64_t m, int64_t n, int64_t mc, int64_t nc, int32_t threads) {
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto shrink = [&](int64_t extent, int64_t most, int64_t step) {
    return std::min(most, std::max<int64_t>(step, up(extent, step) * step));
  };
  Tiles t{shrink(m, mc, 24), shrink(n, nc, 32), 0, 0, 0};
  while (up(m, t.mc) * up(n, t.nc) < 2 * static_cast<int64_t>(threads) && (t.mc > 24 || t.nc > 64)) {
    if (t.mc >= t.nc && t.mc > 24) {
      t.mc = up(t.mc / 2, 24) * 24;
    } else if (t.nc > 64) {
      t.nc = up(t.nc / 2, 32) * 32;
    } else {
      t.mc = up(t.mc / 2, 24) * 24;
    }
  }
  t.rows = up(m, t.mc);
  t.cols = up(n, t.nc);
  t.parts = std::min<int64_t>(std::max(threads, 1), t.rows * t.cols);
  return t;
}

namespace {

struct Job {
  const ops::Gemm *g;
  const Tiles *tiles;
  TileFn tile;
  char *scratch;
  uint64_t slot_bytes;
  std::atomic<int64_t> next{0};
};

void work(void *arg, int64_t begin, int64_t end) {
  Job &job = *static_cast<Job *>(arg);
  const Tiles &t = *job.tiles;
  for (int64_t part = begin; part < end; ++part) {
    for (int64_t at = job.next.fetch_add(1); at < t.rows * t.cols; at = job.next.fetch_add(1)) {
      const int64_t i0 = at / t.cols * t.mc, j0 = at % t.cols * t.nc;
      job.tile(*job.g, i0, std::min(t.mc, job.g->d.rows - i0), j0, std::min(t.nc, job.g->d.cols - j0),
               job.scratch + part * job.slot_bytes);
    }
  }
}

}  // namespace

void run_tiles(const ops::Gemm &g, const Tiles &tiles, const GemmPool &pool, TileFn tile, void *scratch,
               uint64_t slot_bytes) {
  if (tiles.parts == 0) return;
  const uint64_t base = reinterpret_cast<uintptr_t>(scratch);
  Job job{&g, &tiles, tile, reinterpret_cast<char *>(aligned_bytes(base)), slot_bytes};
  if (tiles.parts == 1) {
    work(&job, 0, 1);
  } else {
    pool.run(pool.owner, tiles.parts, work, &job);
  }
}

}  // namespace fp8::cpu
