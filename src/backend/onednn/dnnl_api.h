// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.x and 3.x behind one face: memory descriptors are structs in one and handles in the other.
#pragma once
#include <oneapi/dnnl/dnnl.h>

#include <cstdint>
#include <utility>

namespace fp8::onednn {

#if DNNL_VERSION_MAJOR >= 3
using DescView = const_dnnl_memory_desc_t;
#else
using DescView = const dnnl_memory_desc_t *;
#endif

class Desc {  // a 2-D memory descriptor
 public:
  Desc() = default;
  Desc(const Desc &) = delete;
  Desc &operator=(const Desc &) = delete;
  // packed: the primitive chooses the layout
  dnnl_status_t init(dnnl_data_type_t type, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                     bool packed = false) {
    const dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
#if DNNL_VERSION_MAJOR >= 3
    reset();
    return packed ? dnnl_memory_desc_create_with_tag(&desc_, 2, dims, type, dnnl_format_tag_any)
                  : dnnl_memory_desc_create_with_strides(&desc_, 2, dims, type, strides);
#else
    return packed ? dnnl_memory_desc_init_by_tag(&desc_, 2, dims, type, dnnl_format_tag_any)
                  : dnnl_memory_desc_init_by_strides(&desc_, 2, dims, type, strides);
#endif
  }
#if DNNL_VERSION_MAJOR >= 3
  ~Desc() { reset(); }
  DescView get() const { return desc_; }

 private:
  void reset() {
    if (desc_) dnnl_memory_desc_destroy(desc_);
    desc_ = nullptr;
  }
  dnnl_memory_desc_t desc_ = nullptr;
#else
  DescView get() const { return &desc_; }

 private:
  dnnl_memory_desc_t desc_{};
#endif
};

struct Blocking {  // of a 2-D descriptor
  int count;       // inner blocks, outermost first
  int64_t blocks[3], index[3], strides[2];
};

inline bool blocking_of(DescView desc, Blocking *b) {
#if DNNL_VERSION_MAJOR >= 3
  dnnl_format_kind_t kind;
  int count = 0;
  const dnnl_dims_t *strides, *blocks, *index;
  if (dnnl_memory_desc_query(desc, dnnl_query_format_kind, &kind) != dnnl_success || kind != dnnl_blocked ||
      dnnl_memory_desc_query(desc, dnnl_query_inner_nblks_s32, &count) != dnnl_success ||
      dnnl_memory_desc_query(desc, dnnl_query_strides, &strides) != dnnl_success ||
      dnnl_memory_desc_query(desc, dnnl_query_inner_blks, &blocks) != dnnl_success ||
      dnnl_memory_desc_query(desc, dnnl_query_inner_idxs, &index) != dnnl_success || count > 3) {
    return false;
  }
#else
  if (desc->format_kind != dnnl_blocked || desc->format_desc.blocking.inner_nblks > 3) return false;
  const int count = desc->format_desc.blocking.inner_nblks;
  const dnnl_dims_t *strides = &desc->format_desc.blocking.strides, *blocks = &desc->format_desc.blocking.inner_blks,
                    *index = &desc->format_desc.blocking.inner_idxs;
#endif
  b->count = count;
  for (int i = 0; i < count; ++i) b->blocks[i] = (*blocks)[i], b->index[i] = (*index)[i];
  b->strides[0] = (*strides)[0], b->strides[1] = (*strides)[1];
  return true;
}

inline dnnl_status_t append_sum(dnnl_post_ops_t ops) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
  return dnnl_post_ops_append_sum(ops, 1.0f);
#endif
}

// bias NULL = none
inline dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, DescView a, DescView b, DescView bias,
                                 DescView d, const_dnnl_primitive_attr_t attr) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, d, attr);
#else
  dnnl_matmul_desc_t desc;
  const dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, bias, d);
  return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, nullptr) : status;
#endif
}

inline DescView desc_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
  return dnnl_primitive_desc_query_md(pd, what, 0);
}

inline uint64_t desc_bytes(DescView desc) { return desc ? dnnl_memory_desc_get_size(desc) : 0; }

}  // namespace fp8::onednn
