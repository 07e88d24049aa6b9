// SPDX-License-Identifier: Apache-2.0
// How one product becomes a cuBLASLt call: layouts, copies, padding, scratch. Host arithmetic only, tested without a
// GPU. Ours: d[m,n] = A[m,k] . B[n,k]^T, row-major. cuBLASLt's, column-major: D^T[n,m] = op(B) . op(A), so its A is our
// B.
#pragma once
#include <cstdint>
#include <cstring>

#include "ops/gemm.h"

namespace fp8::cuda {

enum class Way : int32_t {
  kRefused,   // plan.refusal
  kEmpty,     // k = 0: bias, or nothing, or zero
  kPlain,     // 16-bit or F32 operands
  kScaled,    // FP8 with scales the tensor cores take
  kWidened,   // MX decoded to BF16
  kSmall,     // MX in one kernel of ours
  kSwizzled,  // MX on Blackwell, or BLOCK of powers of two through it
};

// Values of cublasLtMatmulMatrixScale_t.
enum ScaleMode : int32_t {
  kScalar32F = 0,
  kVec32UE8M0 = 2,
  kOuterVec32F = 3,
  kVec128 = 4,
  kBlk128x128 = 5,
  kNoScale = -1
};

struct OperandPlan {
  int32_t dtype = 0;    // as multiplied
  int32_t copied = 0;   // packed or widened into the workspace
  int32_t k_major = 1;  // contraction contiguous
  int32_t mode = kNoScale;
  int32_t repacked = 0;  // scale moved to native strides (or swizzled) in the workspace
  int32_t reserved = 0;
  int64_t rows = 0, ld = 0;                                            // rows as multiplied
  int64_t at = 0, scale_at = 0;                                        // byte offsets in the workspace
  int64_t scale_row_stride = 0, scale_col_stride = 0, scale_size = 0;  // of the repacked scale, elements
};

struct GemmPlan {
  Way way = Way::kRefused;
  const char *refusal = "";
  OperandPlan a, b;
  int64_t m = 0, n = 0, k = 0;  // as multiplied
  int32_t d_dtype = 0;          // as written by cuBLASLt
  int32_t direct = 0;           // d itself is written; else F32 scratch y, then one finishing kernel
  int32_t fused_bias = 0;
  int32_t bias_copied = 0;  // strided or not at 16 bytes: copied to bias_at first
  int32_t padded = 0;       // cuBLASLt refuses these extents or strides as they are
  int64_t ldd = 0;
  int64_t flags = 0;  // bytes at flag_at: what launch_widen left out
  int64_t y_at = 0, flag_at = 0, bias_at = 0, lt_at = 0, lt_bytes = 0;
  int64_t bytes = 0;
};

constexpr int64_t kLtWorkspace = int64_t{32} << 20;
// Emulated MX products up to both take one kernel instead of three launches.
constexpr int64_t kSmallK = 512, kSmallProduct = int64_t{1} << 24;

// strict: m too is rounded up to 16, odd strides of unquantized operands are packed and the bias of an FP8 product is
// the last kernel's, for what cuBLASLt refuses otherwise.
GemmPlan plan_gemm(const ops::Gemm &g, int32_t capability, bool strict);
// A strict plan could differ: worth a second try, and counted in the workspace.
bool has_strict(const ops::Gemm &g, const GemmPlan &loose);
// Enough for either plan, whatever the alignment of scales and bias.
uint64_t gemm_bytes(const ops::Gemm &g, int32_t capability);

// What a cuBLASLt plan depends on, compared byte by byte.
struct PlanKey {
  int64_t m, n, k, lda, ldb, ldd;
  int32_t a_dtype, b_dtype, d_dtype, bias_dtype;  // bias 0 = none fused
  int32_t a_k_major, b_k_major, a_mode, b_mode;
  int32_t accumulate, fast, sms, a_align;
  int32_t b_align, d_align, strict, reserved;
  bool operator==(const PlanKey &o) const { return std::memcmp(this, &o, sizeof *this) == 0; }
};
static_assert(sizeof(PlanKey) == 6 * 8 + 16 * 4, "no padding: compared as bytes");

struct PlanKeyHash {
  size_t operator()(const PlanKey &k) const;
};

// a, b, d: addresses as multiplied. sms: 0 = all.
PlanKey plan_key(const ops::Gemm &g, const GemmPlan &p, const void *a, const void *b, const void *d);
int32_t alignment_class(const void *p, int64_t ld_bytes);  // largest power of two up to 256 that divides both

// One of the heuristic's answers, as far as the choice without timing looks at it.
struct Candidate {
  int32_t tile, split;
  float waves;
};
constexpr int32_t kTile176x128 = 201;  // of cublasLtMatmulTile_t
constexpr int kConsidered = 8;
// On Hopper, for 16-bit operands and FP8 with fast accumulation, cuBLASLt's 176x128 tile where it is among its first
// answers and the product has at least two waves of them: measured 0.89 of the fastest at least, where the first
// answer may be 0.75 (docs/cuda.md). Else the first.
int32_t untuned_choice(const PlanKey &k, int32_t capability, const Candidate *candidates, int32_t count);

}  // namespace fp8::cuda
