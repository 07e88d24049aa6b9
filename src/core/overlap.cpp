// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.h"

#include <algorithm>

namespace fp8 {

namespace {

fp8_tensor bytes_at(const void *data, uint64_t bytes) {
  fp8_tensor t{};
  t.data = const_cast<void *>(data);
  t.dtype = FP8_DTYPE_U8;
  t.ndim = 1;
  t.shape[0] = static_cast<int64_t>(bytes > INT64_MAX ? INT64_MAX : bytes);
  t.stride[0] = 1;
  return t;
}

[[noreturn]] void refuse(const std::string &writer, const std::string &other) {
  fail(FP8_ERR_ARGUMENT, "%s shares memory with %s, an output must not overlap another tensor of the call",
       writer.c_str(), other.c_str());
}

}  // namespace

void Footprints::add(const fp8_tensor *t, const char *owner, const char *part, bool out) {
  if (!t) return;
  const Item mine{stripes_of(*t), owner, part, out};
  if (mine.bytes.begin == mine.bytes.end) return;
  const auto name = [](const Item &i) { return Label(i.owner, i.part, "").text(); };
  for (int i = 0; i < count_; ++i) {
    const Item &other = items_[i];
    if ((out || other.out) && meet(mine.bytes, other.bytes))
      out ? refuse(name(mine), name(other)) : refuse(name(other), name(mine));
  }
  if (count_ == kMax) fail(FP8_ERR_INTERNAL, "more than %d tensors in one call", kMax);
  items_[count_++] = mine;
}

void Footprints::add_side(const fp8_qtensor &q, int32_t side, const char *owner, bool out) {
  const bool row = side == FP8_SIDE_ROW;
  add(&side_codes(q, side), owner, row ? "row" : "col", out);
  if (is_quantized(side_kind(q, side))) add(&side_scale(q, side), owner, row ? "row_scale" : "col_scale", out);
}

void Footprints::workspace(const fp8_buffer *buffer) {
  if (!buffer) return;
  const fp8_tensor bytes = bytes_at(buffer->data, buffer->bytes);
  add(&bytes, "workspace", "", true);
}

std::string ListFootprints::Item::name() const {
  const std::string whole = index < 0 ? owner : format("%s[%d]", owner, index);
  return *part ? whole + "." + part : whole;
}

void ListFootprints::add(const fp8_tensor &t, bool out, const char *owner, int32_t index, const char *part) {
  const Stripes bytes = stripes_of(t);
  if (bytes.begin != bytes.end) items_.push_back({bytes, owner, part, index, out});
}

void ListFootprints::add(const void *data, uint64_t bytes, bool out, const char *owner) {
  add(bytes_at(data, bytes), out, owner);
}

void ListFootprints::check() const {
  std::vector<const Item *> order, inputs, outputs;  // the last two: those whose span has not ended yet
  order.reserve(items_.size());
  for (const Item &i : items_) order.push_back(&i);
  std::sort(order.begin(), order.end(), [](const Item *a, const Item *b) { return a->bytes.begin < b->bytes.begin; });
  for (const Item *mine : order) {
    for (std::vector<const Item *> *open : {&inputs, &outputs})
      open->erase(
          std::remove_if(open->begin(), open->end(), [&](const Item *i) { return i->bytes.end <= mine->bytes.begin; }),
          open->end());
    for (const Item *other : outputs)
      if (meet(mine->bytes, other->bytes)) refuse(other->name(), mine->name());
    for (const Item *other : inputs)
      if (mine->out && meet(mine->bytes, other->bytes)) refuse(mine->name(), other->name());
    (mine->out ? outputs : inputs).push_back(mine);
  }
}

}  // namespace fp8
