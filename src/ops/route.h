// SPDX-License-Identifier: Apache-2.0
// Rows on their way between tokens, packed buffers and expert groups, as backends take it.
#pragma once
#include "ops/view.h"

namespace fp8::ops {

// Rows of codes with their scales; a packed row is a codes row followed by its scales, so strides describe either form.
struct RouteEnd {
  Matrix codes;  // any element size; col_stride 1
  Scale scale;   // [rows, n], F32 or E8M0; dtype NONE = no scales
};

struct RouteCopy {       // dst row i = src row index[i]; where index[i] is -1, what quantizing zeros gives
  const int32_t *index;  // device, dst rows; NULL = identity
  RouteEnd src, dst;
  int32_t dtype, rule;  // of codes and scales: the scale of zeros
  float amax_floor;
  int32_t reserved;
};

struct RouteCombine {  // out[t] = sum over j = 0..k-1, in order, of RN32(weight[t,j] * row[index[t,j]]), from +0, each
                       // sum RN32
  const int32_t *index;  // device [tokens, k]; -1 adds nothing
  Matrix rows, out;      // F32, BF16, F16
  Scale weight;          // F32 [tokens, k]; data NULL = ones
  int64_t k;
};

// Row i of dst belongs to packed row source[i] and to the slots set in slots[i], whose weights are added in order (most
// often one): dst = RN32(weight * token), zero where source[i] is -1; dot[place[i]] = sum(token * expert) in
// kRouteLanes lanes, where dot is wanted.
struct RouteBackward {
  const int32_t *source, *slots, *place;  // device [dst.rows]
  Matrix tokens;                          // packed rows
  Scale weight;                           // [packed rows, k]
  Matrix expert;                          // [dst.rows, hidden]; dtype NONE = no dot
  Matrix dst;
  float *dot;
};

struct RouteScalar {  // out[t,j] = values[index[t,j]], 0 where index is -1
  const int32_t *index;
  const float *values;
  Scale out;
};

// The dot's fixed order: lane l sums elements l, l + 256, ... with separately rounded products; then lanes fold in
// halves.
constexpr int64_t kRouteLanes = 256;

}  // namespace fp8::ops
