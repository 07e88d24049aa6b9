// SPDX-License-Identifier: Apache-2.0
// What one call reads and writes: an output may share no element with anything else of the call.
#pragma once
#include <string>
#include <vector>

#include "core/tensor.h"

namespace fp8 {

class Footprints {
 public:
  // owner.part names the tensor in the error; part may be empty. NULL and empty tensors have no footprint.
  void in(const fp8_tensor *t, const char *owner, const char *part = "") { add(t, owner, part, false); }
  void out(const fp8_tensor *t, const char *owner, const char *part = "") { add(t, owner, part, true); }
  void side_in(const fp8_qtensor &q, int32_t side, const char *owner) { add_side(q, side, owner, false); }
  void side_out(const fp8_qtensor &q, int32_t side, const char *owner) { add_side(q, side, owner, true); }
  void workspace(const fp8_buffer *buffer);

 private:
  struct Item {
    Stripes bytes;
    const char *owner, *part;
    bool out;
  };
  void add(const fp8_tensor *t, const char *owner, const char *part, bool out);
  void add_side(const fp8_qtensor &q, int32_t side, const char *owner, bool out);
  static constexpr int kMax = 24;
  Item items_[kMax];
  int count_ = 0;
};

// The same of lists of any length: everything is added, then one sweep over the sorted spans. Views are compared only
// where their spans cross.
class ListFootprints {
 public:
  void reserve(size_t count) { items_.reserve(count); }
  // owner[index].part names it; index -1: owner alone
  void add(const fp8_tensor &t, bool out, const char *owner, int32_t index = -1, const char *part = "");
  void add(const void *data, uint64_t bytes, bool out, const char *owner);
  void check() const;

 private:
  struct Item {
    Stripes bytes;
    const char *owner, *part;
    int32_t index;
    bool out;
    std::string name() const;
  };
  std::vector<Item> items_;
};

}  // namespace fp8
