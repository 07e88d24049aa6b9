// SPDX-License-Identifier: Apache-2.0
// What tests of single kernels take as operands; after CMocka's header.
#pragma once
#include <cstdlib>

#include "ops/view.h"

namespace fp8 {

inline void *aligned(size_t bytes) {
  void *p = nullptr;
  assert_int_equal(posix_memalign(&p, 4096, bytes ? bytes : 1), 0);
  return p;
}

inline ops::Matrix matrix(void *data, int32_t dtype, int64_t rows, int64_t cols, int64_t ld) {
  ops::Matrix m{};
  m.data = data, m.dtype = dtype, m.lead = 1, m.rows = rows, m.cols = cols;
  m.lead_shape[0] = rows, m.lead_stride[0] = ld, m.col_stride = 1;
  return m;
}

}  // namespace fp8
