/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Dtypes, roles, sides, tensors and quantized tensors. */
#ifndef FP8_TYPES_H
#define FP8_TYPES_H
#include "status.h"
#ifdef __cplusplus
extern "C" {
#endif

enum fp8_dtype {
  FP8_DTYPE_NONE = 0, FP8_DTYPE_F32 = 1, FP8_DTYPE_F16 = 2, FP8_DTYPE_BF16 = 3, FP8_DTYPE_E4M3 = 4, FP8_DTYPE_E5M2 = 5,
  FP8_DTYPE_E8M0 = 6, FP8_DTYPE_U8 = 7, FP8_DTYPE_I32 = 8, FP8_DTYPE_I64 = 9, FP8_DTYPE_U64 = 10, FP8_DTYPE_F64 = 11
};
enum fp8_role { FP8_ROLE_ACTIVATION = 1, FP8_ROLE_WEIGHT = 2, FP8_ROLE_GRADIENT = 3 };
/* which GEMM reads a side: activation row FPROP, col WGRAD; weight row FPROP, col DGRAD; gradient row DGRAD, col WGRAD */
enum fp8_side { FP8_SIDE_ROW = 1, FP8_SIDE_COL = 2, FP8_SIDE_BOTH = 3, FP8_SIDE_COPY = 4 /* with describe: unquantized sides get memory of their own */ };
enum fp8_scaling { FP8_SCALING_UNQUANTIZED = 1, FP8_SCALING_TENSOR = 2, FP8_SCALING_ROW = 3, FP8_SCALING_1X128 = 4, FP8_SCALING_128X128 = 5, FP8_SCALING_1X32 = 6, FP8_SCALING_32X32 = 7, FP8_SCALING_COPY = 8 /* unquantized, memory of its own */ };
typedef void *fp8_stream;           /* cudaStream_t of the context's device, NULL = its default stream; NULL on the CPU, where calls are done when they return */
typedef struct fp8_buffer { void *data; uint64_t bytes; } fp8_buffer;
typedef struct fp8_tensor {         /* a view; strides in elements, always explicit; a zero stride with extent > 1 is refused by name */
  void *data;
  int32_t dtype, ndim;              /* leading dimensions are flattened to rows where a matrix is meant; ndim 0 = one element */
  int64_t shape[4], stride[4];
} fp8_tensor;
/* A quantized matrix of `rows` x `cols`. A side is one copy, scaled along the axis that it will be contracted over:
 * row: codes [rows, cols], contracted over cols.  col: codes stored [cols, rows], contracted over rows.
 * Scales are logical matrices with explicit strides: describe() gives the strides that every GEMM reads as they are;
 * other strides are accepted and repacked in the workspace; U8 is taken as E8M0. Padding elements are always zero.
 * An unquantized side (BF16, F16) is a view of the source, set by fp8_quantize, and costs no bytes: col is row with swapped
 * strides, and the source must outlive it. A COPY side has memory of its own (one for both if placed together) for a source that is FP32,
 * arrives by a collective, or dies early. A call reads only the side that it needs: the other may be absent or dangling. */
typedef struct fp8_qtensor {
  size_t struct_size;
  int64_t rows, cols;
  int32_t row_kind, col_kind;       /* enum fp8_scaling of each side; 0 = side absent */
  fp8_tensor row, row_scale, col, col_scale;
} fp8_qtensor;
FP8_API fp8_status fp8_tensor_compact(fp8_tensor *t);                                           /* [pure] fills strides, row-major */
FP8_API fp8_status fp8_qtensor_bytes(const fp8_qtensor *q, uint32_t sides, uint64_t *bytes);    /* [pure] */
FP8_API fp8_status fp8_qtensor_place(fp8_qtensor *q, uint32_t sides, const fp8_buffer *memory); /* [pure] lays the parts of these sides into memory (16-byte aligned), each at a multiple of 256 bytes: row and col may die apart */
FP8_API fp8_status fp8_qtensor_slice(const fp8_qtensor *q, int64_t first, int64_t rows, fp8_qtensor *slice); /* [pure] a view of these rows, both sides; first at a tile's start where tiles run along rows */

#ifdef __cplusplus
}
#endif
#endif
