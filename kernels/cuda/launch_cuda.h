// SPDX-License-Identifier: Apache-2.0
// The kernels as the backend sees them: POD in, a stream, the runtime's error out. Nothing here allocates or waits.
// `most`: blocks of a grid at most, each on a multiprocessor of its own at worst; 0 = as many as suit.
#pragma once
#include "ops/gemm.h"
#include "ops/move.h"
#include "ops/quantize.h"
#include "swizzle.h"

#ifndef FP8_CUDA_EMULATE
#include <cuda_runtime_api.h>
#else
#include "cuda_emulate.h"
#endif

namespace fp8::cuda {

// Loads every kernel's code on the current device, so that the first launch may be inside a capture.
cudaError_t load_quantize();
cudaError_t load_move();
cudaError_t load_gemm_support();
cudaError_t load_gemm_small();

// Scratch of one quantize call; offsets from an address aligned to 256 bytes.
struct QuantizeLayout {
  int64_t partials = -1;                 // F32[parts]: TENSOR amax, one a block
  int64_t row_amax = -1, col_amax = -1;  // F32[row_parts][rows], F32[col_parts][cols]: ROW kinds
  bool split = false;                    // else one part each, zeroed first
  int64_t row_parts = 1, col_parts = 1;  // of this max_sms; the bytes are enough for any
  int64_t dbias = -1;                    // F32[chunks of 128 rows, cols]
  int64_t bytes = 0;
  int32_t parts = 0;
};
QuantizeLayout quantize_layout(const ops::Quantize &q, int32_t sms);  // pure

cudaError_t launch_quantize(const ops::Quantize &q, int32_t sms, cudaStream_t stream, int32_t *launches);
cudaError_t launch_dequantize(const ops::Dequantize &q, int32_t most, cudaStream_t stream);
int64_t measure_bytes(int64_t rows, int64_t cols);  // pure
cudaError_t launch_measure(const ops::Measure &m, void *workspace, int32_t most, cudaStream_t stream);
cudaError_t launch_transpose(const ops::Transpose &t, int32_t most, cudaStream_t stream);
cudaError_t launch_cast(const ops::Cast &c, int32_t most, cudaStream_t stream);

// Around a product. A strided matrix to dst [dst_rows, ld] of dst_dtype, zero outside; the same dtype is copied bit for
// bit.
cudaError_t launch_pack(const ops::Matrix &src, void *dst, int32_t dst_dtype, int64_t dst_rows, int64_t ld,
                        int32_t most, cudaStream_t stream);
// A scale to dst[r * row_stride + c * col_stride] (one stride is 1); the `size` elements of dst that hold none are
// zero.
cudaError_t launch_repack(const ops::Scale &src, void *dst, int64_t row_stride, int64_t col_stride, int64_t size,
                          int32_t most, cudaStream_t stream);
// FP8 with 1x32 or 32x32 E8M0 scales to BF16 [rows, ld], zero beyond k; both operands in one kernel. Elements that BF16
// holds only as a subnormal or not at all are written as zero; outside[i] is 1 where block i of the kernel has any,
// else 0.
struct Widened {
  const ops::Side *side;
  void *dst;         // 16 bytes aligned
  int64_t rows, ld;  // the side's rows; a multiple of 16
};
int64_t widen_flags(int64_t rows, int64_t ld);  // pure: blocks of one operand
// outside: widen_flags() of both operands, 16 bytes aligned
cudaError_t launch_widen(const Widened &a, const Widened &b, uint8_t *outside, int32_t most, cudaStream_t stream);
// Adds to d the products that launch_widen left out; leaves at once where all flags are 0.
cudaError_t launch_outside(const ops::Side &a, const ops::Side &b, const ops::Matrix &d, const uint8_t *outside,
                           int64_t flags, int32_t blocks, cudaStream_t stream);
// d (+)= a . b^T + bias of MX sides, rounded once, without any of the above; for small products: K below 2^31
cudaError_t launch_small(const ops::Gemm &g, int32_t most, cudaStream_t stream);
// d (+)= y + bias, rounded once; y F32 [m, ld], NULL = zero
cudaError_t launch_finish(const ops::Gemm &g, const float *y, int64_t ld, int32_t most, cudaStream_t stream);
// Scales as E8M0 of 1x32 blocks in 128x4 tiles (swizzle.h): of E8M0 kinds, or of F32 power-of-two 1x128 and 128x128
// ones.
cudaError_t launch_swizzle(const ops::Side &side, void *dst, int32_t most, cudaStream_t stream);
// Finite pseudo-random elements of F32, BF16, F16, E4M3 or E5M2, for timing.
cudaError_t launch_noise(void *dst, int64_t count, int32_t dtype, int32_t most, cudaStream_t stream);

}  // namespace fp8::cuda
