// SPDX-License-Identifier: Apache-2.0
#include "fp8/types.h"

#include "api/guard.h"
#include "core/tensor.h"

extern "C" {

fp8_status fp8_tensor_compact(fp8_tensor *t) {
  return fp8::guard("fp8_tensor_compact", [&] {
    fp8::need(t, "t");
    if (t->ndim < 0 || t->ndim > 4) fp8::fail(FP8_ERR_ARGUMENT, "t.ndim is %d, must be 0 to 4", t->ndim);
    int64_t stride[4] = {0, 0, 0, 0}, step = 1;
    for (int i = t->ndim - 1; i >= 0; --i) {
      const long long extent = t->shape[i];
      if (extent < 0) fp8::fail(FP8_ERR_ARGUMENT, "t.shape[%d] is %lld, must be >= 0", i, extent);
      stride[i] = step;
      if (__builtin_mul_overflow(step, extent > 0 ? t->shape[i] : 1, &step))
        fp8::fail(FP8_ERR_ARGUMENT, "t.shape[%d] is %lld: the tensor is too large to address", i, extent);
    }
    for (int i = 0; i < 4; ++i) t->stride[i] = stride[i];
  });
}

fp8_status fp8_qtensor_bytes(const fp8_qtensor *q, uint32_t sides, uint64_t *bytes) {
  return fp8::guard("fp8_qtensor_bytes", [&] {
    const fp8_qtensor ours = fp8::read_sized(q, "q");
    fp8::need(bytes, "bytes");
    *bytes = fp8::qtensor_bytes(ours, sides);
  });
}

fp8_status fp8_qtensor_place(fp8_qtensor *q, uint32_t sides, const fp8_buffer *memory) {
  return fp8::guard("fp8_qtensor_place", [&] {
    fp8_qtensor ours = fp8::read_sized(q, "q");
    fp8::need(memory, "memory");
    fp8::place(ours, sides, *memory);
    fp8::write_sized(q, ours, "q");
  });
}

fp8_status fp8_qtensor_slice(const fp8_qtensor *q, int64_t first, int64_t rows, fp8_qtensor *slice) {
  return fp8::guard("fp8_qtensor_slice", [&] {
    const fp8_qtensor ours = fp8::read_sized(q, "q");
    fp8::need(slice, "slice");
    fp8::write_sized(slice, fp8::slice(ours, first, rows), "slice");
  });
}

}  // extern "C"
