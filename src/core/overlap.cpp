// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.h"

namespace fp8 {

void Footprints::add(const fp8_tensor *t, const char *owner, const char *part, bool out) {
  const uint64_t bytes = t && t->data ? tensor_span(*t) : 0;
  if (!bytes) return;
  for (int i = 0; i < count_; ++i) {
    const Item &other = items_[i];
    if (!(out || other.out) || !overlap(*t, bytes, other.t, other.bytes)) continue;
    const Item mine{*t, owner, part, out, bytes};
    const Item &writer = out ? mine : other, &reader = out ? other : mine;
    fail(FP8_ERR_ARGUMENT, "%s%s%s shares memory with %s%s%s, an output must not overlap another tensor of the call",
         writer.owner, *writer.part ? "." : "", writer.part, reader.owner, *reader.part ? "." : "", reader.part);
  }
  if (count_ == kMax) fail(FP8_ERR_INTERNAL, "more than %d tensors in one call", kMax);
  items_[count_++] = {*t, owner, part, out, bytes};
}

void Footprints::add_side(const fp8_qtensor &q, int32_t side, const char *owner, bool out) {
  const bool row = side == FP8_SIDE_ROW;
  add(&side_codes(q, side), owner, row ? "row" : "col", out);
  if (is_quantized(side_kind(q, side))) add(&side_scale(q, side), owner, row ? "row_scale" : "col_scale", out);
}

void Footprints::workspace(const fp8_buffer *buffer) {
  if (!buffer || !buffer->data || buffer->bytes == 0) return;
  fp8_tensor bytes{};
  bytes.data = buffer->data;
  bytes.dtype = FP8_DTYPE_U8;
  bytes.ndim = 1;
  bytes.shape[0] = static_cast<int64_t>(buffer->bytes > INT64_MAX ? INT64_MAX : buffer->bytes);
  bytes.stride[0] = 1;
  add(&bytes, "workspace", "", true);
}

}  // namespace fp8
