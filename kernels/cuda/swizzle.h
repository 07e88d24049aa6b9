// SPDX-License-Identifier: Apache-2.0
// Where Blackwell's tensor cores look for E8M0 scales of 1x32 blocks: tiles of 128 rows x 4 blocks, 512 bytes each,
// tiles of a band of rows one after another along the contraction.
#pragma once
#include "numerics/codec.h"

namespace fp8::cuda {

FP8_HD int64_t swizzle_offset(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4, r = row % 128;
  return tile * 512 + r % 32 * 16 + r / 32 * 4 + block % 4;
}
FP8_HD int64_t swizzle_bytes(int64_t rows, int64_t blocks) { return (rows + 127) / 128 * ((blocks + 3) / 4) * 512; }

// Blocks of the kernel that widens MX codes, for one operand: 8 rows x 1024 columns each.
inline int64_t widen_flags(int64_t rows, int64_t ld) { return (rows + 7) / 8 * ((ld + 1023) / 1024); }

// A power of two as F32 -> its E8M0 code: BLOCK scales serve MX hardware when each is repeated for four 1x32 blocks.
FP8_HD uint8_t e8m0_of_pow2(float scale) { return uint8_t(num::bits_of(scale) >> 23); }

}  // namespace fp8::cuda
