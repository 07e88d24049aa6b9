// SPDX-License-Identifier: Apache-2.0
// Plain views that core hands to backends and backends to kernels. Already checked: no null, no negative size.
#pragma once
#include <cstdint>

namespace fp8::ops {

// A matrix whose rows may come from up to three leading dimensions. lead == 1 when they flatten to one stride.
// Strides in elements. Codes are matrices with dtype E4M3 or E5M2.
struct Matrix {
  void *data;
  int32_t dtype;  // enum fp8_dtype; FP8_DTYPE_NONE = absent
  int32_t lead;
  int64_t rows, cols;
  int64_t lead_shape[3], lead_stride[3];  // outermost first; product of shape[0..lead) == rows
  int64_t col_stride;
};

// A logical matrix of scales (F32 or E8M0) with explicit strides in elements.
struct Scale {
  void *data;
  int32_t dtype;
  int32_t padded;  // strides are native and rounded up: what lies between the lines belongs to nobody and becomes zero
  int64_t rows, cols;
  int64_t row_stride, col_stride;
};

// A strided vector.
struct Vector {
  void *data;
  int32_t dtype;
  int32_t reserved;
  int64_t size, stride;
};

// One side of a quantized matrix, seen with the contraction axis as columns: for the col side of a rows x cols
// matrix, codes is [cols, rows]. scaling 0 = absent; FP8_SCALING_UNQUANTIZED/COPY: codes is a 16-bit (or F32) matrix,
// no scale.
struct Side {
  int32_t scaling;  // enum fp8_scaling
  int32_t rule;     // enum fp8_scale_rule; read by quantize only
  Matrix codes;
  Scale scale;
};

// Tile of one scale, in the side's own orientation (contraction along columns); 0 = the whole extent.
constexpr int64_t tile_rows(int32_t scaling) { return scaling == 5 ? 128 : scaling == 7 ? 32 : scaling == 2 ? 0 : 1; }
constexpr int64_t tile_cols(int32_t scaling) {
  return scaling == 4 || scaling == 5 ? 128 : scaling == 6 || scaling == 7 ? 32 : 0;
}

inline int64_t row_offset(const Matrix &m, int64_t row) {
  if (m.lead <= 1) return row * m.lead_stride[0];
  int64_t offset = 0;
  for (int i = m.lead - 1; i >= 0; --i) {
    offset += (row % m.lead_shape[i]) * m.lead_stride[i];
    row /= m.lead_shape[i];
  }
  return offset;
}

}  // namespace fp8::ops
