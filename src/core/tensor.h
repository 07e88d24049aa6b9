// SPDX-License-Identifier: Apache-2.0
// From the caller's views to the backends': checks that name tensor, dimension, value and rule, then plain structs.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.h"
#include "fp8/types.h"
#include "ops/view.h"

namespace fp8 {

const char *dtype_name(int32_t dtype);
int64_t dtype_size(int32_t dtype);  // bytes; 0 for an unknown one
const char *scaling_name(int32_t scaling);
bool is_fp8(int32_t dtype);
inline bool is_quantized(int32_t scaling) {  // a scaled kind
  return scaling >= FP8_SCALING_TENSOR && scaling <= FP8_SCALING_32X32;
}
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// A tensor's name in errors, put together only there.
struct Label {
  const char *owner, *part = "", *suffix = "";
  Label(const char *name) : owner(name) {}
  Label(const char *owner, const char *part, const char *suffix) : owner(owner), part(part), suffix(suffix) {}
  std::string text() const { return *part ? std::string(owner) + "." + part + suffix : owner; }
};

// Legal view: known dtype, ndim 0..4, sizes >= 0, no product overflow, no zero stride with extent > 1, no negative
// stride; data non-NULL and aligned (align bytes; 0 = the element) unless `shape_only` or empty.
void check_tensor(const fp8_tensor &t, const Label &label, std::initializer_list<int32_t> dtypes, int64_t align,
                  bool shape_only);

// Leading dimensions become rows; collapses to one stride where possible. ndim 0 and 1 are one row.
ops::Matrix matrix(const fp8_tensor &t);
ops::Vector vector(const fp8_tensor &t);  // ndim 0 or 1, or one row
ops::Scale scale_view(const fp8_tensor &t);
int64_t tensor_rows(const fp8_tensor &t);
int64_t tensor_cols(const fp8_tensor &t);

// Bytes from the first to the last element touched; 0 when empty.
uint64_t tensor_span(const fp8_tensor &t);
// The bytes of a view: rows of `width` bytes, each `step` after the one before. rows 0: only the span is known.
struct Stripes {
  uintptr_t begin, end;  // equal where there are none
  int64_t rows, step, width;
};
Stripes stripes_of(const fp8_tensor &t);
bool meet(const Stripes &a, const Stripes &b);  // true also where only the spans are known and meet
bool overlap(const fp8_tensor &a, const fp8_tensor &b);
void refuse_overlap(const fp8_tensor &out, const char *out_name, const fp8_tensor &in, const char *in_name);

// One side of a qtensor, checked: kinds, dtypes, shapes against rows/cols, strides, alignment.
ops::Side side_view(const fp8_qtensor &q, int32_t side, const char *name, bool shape_only);
int32_t side_kind(const fp8_qtensor &q, int32_t side);
const fp8_tensor &side_codes(const fp8_qtensor &q, int32_t side);
const fp8_tensor &side_scale(const fp8_qtensor &q, int32_t side);

// Logical shape of the scales of a side (in its own orientation) and native strides: design's one table.
void scale_shape(int32_t scaling, int64_t rows, int64_t cols, int64_t shape[2]);
void native_scale_strides(int32_t scaling, int64_t rows, int64_t cols, int64_t stride[2]);

uint64_t qtensor_bytes(const fp8_qtensor &q, uint32_t sides);
void place(fp8_qtensor &q, uint32_t sides, const fp8_buffer &memory);
fp8_qtensor slice(const fp8_qtensor &q, int64_t first, int64_t rows);

}  // namespace fp8
