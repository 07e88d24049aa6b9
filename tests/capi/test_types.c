/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and quantized tensors: compact strides, bytes, placement, slices, DLPack. */
#include <string.h>

#include "support.h"

static void compact(void **state) {
  (void)state;
  fp8_tensor t;
  memset(&t, 0, sizeof t);
  t.ndim = 3;
  t.shape[0] = 2, t.shape[1] = 3, t.shape[2] = 5;
  assert_int_equal(fp8_tensor_compact(&t), FP8_OK);
  assert_int_equal(t.stride[0], 15);
  assert_int_equal(t.stride[1], 5);
  assert_int_equal(t.stride[2], 1);
  t.ndim = 0;
  assert_int_equal(fp8_tensor_compact(&t), FP8_OK);
  t.ndim = 5;
  assert_int_equal(fp8_tensor_compact(&t), FP8_ERR_ARGUMENT);
  t.ndim = 2, t.shape[1] = -1;
  assert_int_equal(fp8_tensor_compact(&t), FP8_ERR_ARGUMENT);
  t.ndim = 3, t.shape[0] = t.shape[1] = t.shape[2] = INT64_MAX / 2;
  assert_int_equal(fp8_tensor_compact(&t), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_tensor_compact(NULL), FP8_ERR_ARGUMENT);
}

static void bytes_and_place(void **state) {
  (void)state;
  fp8_qtensor q = described("block", FP8_ROLE_ACTIVATION, 130, 200, FP8_SIDE_BOTH);
  uint64_t row = 0, col = 0, both = 0;
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_ROW, &row), FP8_OK);
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_COL, &col), FP8_OK);
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_BOTH, &both), FP8_OK);
  assert_int_equal(row, (130 * 200 + 255) / 256 * 256 + (2 * 132 * 4 + 255) / 256 * 256);
  assert_int_equal(col, (130 * 200 + 255) / 256 * 256 + (2 * 200 * 4 + 255) / 256 * 256);
  assert_int_equal(both, row + col);
  static char raw[1 << 17];
  char *memory = raw + (16 - (uintptr_t)raw % 16);
  fp8_buffer b = {memory, row};
  assert_int_equal(fp8_qtensor_place(&q, FP8_SIDE_ROW, &b), FP8_OK);
  assert_ptr_equal(q.row.data, memory);
  assert_ptr_equal(q.row_scale.data, memory + (130 * 200 + 255) / 256 * 256);
  assert_null(q.col.data);
  b.bytes = col - 1;
  assert_int_equal(fp8_qtensor_place(&q, FP8_SIDE_COL, &b), FP8_ERR_ARGUMENT);
  b.bytes = sizeof raw - 16, b.data = memory + 1;
  assert_int_equal(fp8_qtensor_place(&q, FP8_SIDE_COL, &b), FP8_ERR_ARGUMENT);
  b.data = NULL;
  assert_int_equal(fp8_qtensor_place(&q, FP8_SIDE_COL, &b), FP8_ERR_ARGUMENT);
  assert_null(q.col.data);
  /* an unquantized side costs nothing; a copy is one matrix for both sides placed together */
  q = described("none", FP8_ROLE_WEIGHT, 6, 8, FP8_SIDE_BOTH);
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_BOTH, &both), FP8_OK);
  assert_int_equal(both, 0);
  q = described("none", FP8_ROLE_WEIGHT, 6, 80, FP8_SIDE_BOTH | FP8_SIDE_COPY);
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_BOTH, &both), FP8_OK);
  assert_int_equal(both, (6 * 80 * 2 + 255) / 256 * 256);
  b.data = memory, b.bytes = both;
  assert_int_equal(fp8_qtensor_place(&q, FP8_SIDE_BOTH, &b), FP8_OK);
  assert_ptr_equal(q.row.data, memory);
  assert_ptr_equal(q.col.data, memory);
  /* empty and absent sides */
  q = described("mx", FP8_ROLE_WEIGHT, 0, 8, FP8_SIDE_ROW);
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_ROW, &row), FP8_OK);
  assert_int_equal(row, 0);
  assert_int_equal(fp8_qtensor_bytes(&q, FP8_SIDE_COL, &col), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_qtensor_bytes(&q, 0, &col), FP8_ERR_ARGUMENT);
}

static void slices(void **state) {
  (void)state;
  static char raw[1 << 18];
  fp8_buffer b = {raw + (16 - (uintptr_t)raw % 16), sizeof raw - 16};
  fp8_qtensor q = described("block", FP8_ROLE_ACTIVATION, 300, 200, FP8_SIDE_BOTH), s;
  assert_int_equal(fp8_qtensor_place(&q, FP8_SIDE_BOTH, &b), FP8_OK);
  FP8_INIT(&s);
  assert_int_equal(fp8_qtensor_slice(&q, 128, 150, &s), FP8_OK);
  assert_int_equal(s.rows, 150);
  assert_ptr_equal(s.row.data, (char *)q.row.data + 128 * 200);
  assert_ptr_equal(s.row_scale.data, (char *)q.row_scale.data + 128 * 4);
  assert_ptr_equal(s.col.data, (char *)q.col.data + 128);
  assert_ptr_equal(s.col_scale.data, (char *)q.col_scale.data + 200 * 4);
  assert_int_equal(s.col.shape[1], 150);
  assert_int_equal(s.col_scale.shape[1], 2);
  assert_int_equal(fp8_qtensor_slice(&q, 100, 10, &s), FP8_ERR_ARGUMENT); /* inside a column tile */
  assert_int_equal(fp8_qtensor_slice(&q, 0, 301, &s), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_qtensor_slice(&q, -1, 1, &s), FP8_ERR_ARGUMENT);
  assert_int_equal(fp8_qtensor_slice(&q, 301, 0, &s), FP8_ERR_ARGUMENT);
  assert_int_equal(s.rows, 150);
  assert_int_equal(fp8_qtensor_slice(&q, 300, 0, &s), FP8_OK); /* an empty one starts anywhere */
  q.col_kind = 0;
  assert_int_equal(fp8_qtensor_slice(&q, 100, 10, &s), FP8_OK); /* no column side: any row starts a tile */
  assert_ptr_equal(s.row.data, (char *)q.row.data + 100 * 200);
  assert_int_equal(s.rows, 10);
}

typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

static void dlpack(void **state) {
  (void)state;
  char memory[64];
  int64_t shape[2] = {3, 5}, stride[2] = {8, 1};
  dl_tensor d = {memory, 1, 0, 2, 4, 16, 1, shape, NULL, 4};
  fp8_tensor t;
  int32_t kind = -1, id = -1;
  assert_int_equal(fp8_tensor_from_dlpack(&d, 0, &t, &kind, &id), FP8_OK);
  assert_int_equal(t.dtype, FP8_DTYPE_BF16);
  assert_ptr_equal(t.data, memory + 4);
  assert_int_equal(t.stride[0], 5);
  assert_int_equal(kind, 1);
  assert_int_equal(id, 0);
  d.strides = stride;
  d.code = 1; /* uint16: a view must be named */
  assert_int_equal(fp8_tensor_from_dlpack(&d, 0, &t, NULL, NULL), FP8_ERR_UNSUPPORTED);
  assert_int_equal(fp8_tensor_from_dlpack(&d, FP8_DTYPE_BF16, &t, NULL, NULL), FP8_OK);
  assert_int_equal(t.stride[0], 8);
  assert_int_equal(fp8_tensor_from_dlpack(&d, FP8_DTYPE_E4M3, &t, NULL, NULL), FP8_ERR_ARGUMENT);
  d.ndim = 5;
  assert_int_equal(fp8_tensor_from_dlpack(&d, FP8_DTYPE_BF16, &t, NULL, NULL), FP8_ERR_UNSUPPORTED);
  const int32_t dtypes[] = {FP8_DTYPE_F32,  FP8_DTYPE_F16,  FP8_DTYPE_BF16, FP8_DTYPE_E4M3,
                            FP8_DTYPE_E5M2, FP8_DTYPE_E8M0, FP8_DTYPE_U8,   FP8_DTYPE_I32,
                            FP8_DTYPE_I64,  FP8_DTYPE_U64,  FP8_DTYPE_F64};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i) {
    int64_t out_shape[4], out_stride[4];
    dl_tensor out = {NULL, 0, 0, 0, 0, 0, 0, out_shape, out_stride, 9};
    fp8_tensor from = t, back;
    from.dtype = dtypes[i];
    assert_int_equal(fp8_tensor_to_dlpack(&from, 2, 3, &out), FP8_OK);
    assert_int_equal(fp8_tensor_from_dlpack(&out, 0, &back, &kind, &id), FP8_OK);
    assert_memory_equal(&back.shape, &from.shape, 2 * sizeof(int64_t));
    assert_memory_equal(&back.stride, &from.stride, 2 * sizeof(int64_t));
    assert_int_equal(back.dtype, dtypes[i]);
    assert_int_equal(kind, 2);
    assert_int_equal(id, 3);
  }
  assert_int_equal(fp8_tensor_from_dlpack(NULL, 0, &t, NULL, NULL), FP8_ERR_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(compact), cmocka_unit_test(bytes_and_place),
                                     cmocka_unit_test(slices), cmocka_unit_test(dlpack)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
