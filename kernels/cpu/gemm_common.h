// SPDX-License-Identifier: Apache-2.0
// What the CPU GEMMs share and no SIMD target changes: tiles of the output, scales, the last step.
#pragma once
#include <atomic>
#include <cstdint>

#include "cpu/launch_gemm.h"
#include "fp8/recipe.h"
#include "fp8/types.h"
#include "ops/gemm.h"

namespace fp8::cpu {

inline bool unquantized(const ops::Side &s) {
  return s.scaling == FP8_SCALING_UNQUANTIZED || s.scaling == FP8_SCALING_COPY;
}

// One scale for the whole contraction: it is applied to the finished sum.
inline bool scaled_at_end(const ops::Side &s) { return ops::tile_cols(s.scaling) == 0; }

// Extent along k of one exact partial sum.
inline int64_t k_block(const ops::Gemm &g) {
  return ops::tile_cols(g.a.scaling) == 32 || ops::tile_cols(g.b.scaling) == 32 ? 32 : 128;
}

// out[i] = scale of row + i for the block of k0; 1 for an unquantized side.
void load_scales(const ops::Side &s, int64_t row, int64_t n, int64_t k0, float *out);

// Last step for d[i, j0 .. j0 + n): bias, accumulate, cast (RNE). y is changed. NaN becomes the positive quiet one.
void store_row(const ops::Gemm &g, int64_t i, int64_t j0, int64_t n, float *y);

// The output cut into tiles, taken one after another by `parts` workers; worker p owns scratch slot p.
struct Tiles {
  int64_t mc, nc, rows, cols;  // extent of a tile; tiles down and across
  int64_t parts;
};

constexpr uint64_t kScratchAlign = 64;
inline uint64_t aligned_bytes(uint64_t bytes) { return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign; }

// Tiles of at most mc x nc, smaller while there are fewer than two a thread.
Tiles plan_tiles(int64_t m, int64_t n, int64_t mc, int64_t nc, int32_t threads);

using TileFn = void (*)(const ops::Gemm &g, int64_t i0, int64_t mc, int64_t j0, int64_t nc, void *scratch);
void run_tiles(const ops::Gemm &g, const Tiles &tiles, const GemmPool &pool, TileFn tile, void *scratch,
               uint64_t slot_bytes);

}  // namespace fp8::cpu
