// SPDX-License-Identifier: Apache-2.0
#include "cpu/gemm_common.h"

#include <algorithm>

#include "numerics/codec.h"

namespace fp8::cpu {

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
                                            : num::decode_e8m0(static_cast<const uint8_t *>(s.scale.data)[at]);
  }
}

void store_row(const ops::Gemm &g, int64_t i, int64_t j0, int64_t n, float *y) {
  if (g.bias.data) {
    for (int64_t j = 0; j < n; ++j) y[j] += num::load(g.bias.dtype, g.bias.data, (j0 + j) * g.bias.stride);
  }
  const int64_t stride = g.d.col_stride;
  const int64_t start = ops::row_offset(g.d, i) + j0 * stride;
  if (g.d.dtype == FP8_DTYPE_F32) {
    float *d = static_cast<float *>(g.d.data) + start;
    for (int64_t j = 0; j < n; ++j) {
      d[j * stride] = num::canonical(g.accumulate ? d[j * stride] + y[j] : y[j]);
    }
    return;
  }
  uint16_t *d = static_cast<uint16_t *>(g.d.data) + start;
  if (g.accumulate) {
    for (int64_t j = 0; j < n; ++j) y[j] += num::load(g.d.dtype, d, j * stride);
  }
  if (g.d.dtype == FP8_DTYPE_BF16) {
    for (int64_t j = 0; j < n; ++j) d[j * stride] = num::encode_bf16(y[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) d[j * stride] = num::encode_f16(y[j]);
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
