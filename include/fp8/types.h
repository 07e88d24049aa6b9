/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Dtypes, roles, sides, tensors and quantized tensors. */
#ifndef FP8_TYPES_H
#define FP8_TYPES_H
#include "status.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup types Tensors
 *  Plain views: nothing here owns memory. Data lies in the memory of the context's device. Matrices and codes are
 *  aligned to 16 bytes; scales, vectors, amaxes, statistics and masters to their element; workspaces may start
 * anywhere.
 *  @{ */

/** Element types. Conversions between them are laid down in @ref numerics. */
enum fp8_dtype {
  FP8_DTYPE_NONE = 0, /**< absent; where a default exists, the default */
  FP8_DTYPE_F32 = 1,  /**< IEEE binary32 */
  FP8_DTYPE_F16 = 2,  /**< IEEE binary16 */
  FP8_DTYPE_BF16 = 3, /**< the upper half of a binary32 */
  FP8_DTYPE_E4M3 = 4, /**< FP8, 4 exponent and 3 mantissa bits, bias 7, no infinities, largest 448 */
  FP8_DTYPE_E5M2 = 5, /**< FP8, 5 exponent and 2 mantissa bits, bias 15, largest 57344 */
  FP8_DTYPE_E8M0 = 6, /**< a power of two, 2^(code - 127); 255 is NaN. Scales only */
  FP8_DTYPE_U8 = 7,   /**< bytes; as a scale it is taken as E8M0 */
  FP8_DTYPE_I32 = 8,  /**< 32-bit integer, signed */
  FP8_DTYPE_I64 = 9,  /**< 64-bit integer, signed */
  FP8_DTYPE_U64 = 10, /**< 64-bit integer, unsigned: counters */
  FP8_DTYPE_F64 = 11  /**< IEEE binary64: sums of fp8_measure */
};

/** What a matrix is in its layer. The role chooses dtype and scaling in a recipe, and with the side the GEMM that reads
 * it: activation row fprop, column wgrad; weight row fprop, column dgrad; gradient row dgrad, column wgrad. */
enum fp8_role {
  FP8_ROLE_ACTIVATION = 1, /**< x, [tokens, in] */
  FP8_ROLE_WEIGHT = 2,     /**< w, [out, in] */
  FP8_ROLE_GRADIENT = 3    /**< dy, [tokens, out] */
};

/** A side is one copy of a matrix, scaled along the axis that it will be contracted over. Bits may be joined. */
enum fp8_side {
  FP8_SIDE_ROW = 1,  /**< codes [rows, cols], contracted over cols */
  FP8_SIDE_COL = 2,  /**< codes stored [cols, rows], contracted over rows */
  FP8_SIDE_BOTH = 3, /**< row and column */
  FP8_SIDE_COPY = 4  /**< with describe: unquantized sides get memory of their own */
};

/** How one side of a matrix is scaled. The block runs along the contraction. */
enum fp8_scaling {
  FP8_SCALING_UNQUANTIZED = 1, /**< a 16-bit view of the source */
  FP8_SCALING_TENSOR = 2,      /**< one scale */
  FP8_SCALING_ROW = 3,         /**< one scale a row (of the side as stored) */
  FP8_SCALING_1X128 = 4,       /**< one scale for 128 elements along the contraction */
  FP8_SCALING_128X128 = 5,     /**< one scale a 128 x 128 tile; the column side is the exact transpose */
  FP8_SCALING_1X32 = 6,        /**< one E8M0 scale for 32 elements along the contraction */
  FP8_SCALING_32X32 = 7,       /**< one E8M0 scale a 32 x 32 tile; the column side is the exact transpose */
  FP8_SCALING_COPY = 8         /**< unquantized, memory of its own */
};

/** A cudaStream_t of the context's device; NULL is its default stream. On the CPU always NULL: a call is done when it
 *  returns. */
typedef void *fp8_stream;

/** A range of the caller's memory. Frozen: it never grows. */
typedef struct fp8_buffer {
  void *data;     /**< its start */
  uint64_t bytes; /**< its length */
} fp8_buffer;

/** A view of an array. Frozen: it never grows. Strides are in elements and always explicit (fp8_tensor_compact() fills
 *  them); a zero stride over an extent above 1 is refused by name. */
typedef struct fp8_tensor {
  void *data;    /**< the first element; NULL where only the shape is asked for */
  int32_t dtype; /**< enum fp8_dtype */
  int32_t ndim;  /**< 0 to 4; where a matrix is meant, the leading dimensions are flattened to rows. 0 = one element */
  int64_t shape[4];  /**< extents; 0 makes an empty tensor, which every call accepts */
  int64_t stride[4]; /**< distance between neighbours along each dimension, in elements */
} fp8_tensor;

/** A quantized matrix of `rows` x `cols`: up to two sides, each with its codes and its scales.
 *
 *  Scales are logical matrices with explicit strides. fp8_recipe_describe() gives the native strides, which every GEMM
 *  reads as they are; any other strides are accepted and repacked in the workspace; U8 is taken as E8M0. Padding
 * elements are zero once the whole is quantized; a slice writes its own scales only. Shapes, dtypes and native strides
 * per scaling: @ref recipes.
 *
 *  An unquantized side (BF16, F16) is a view of the source, set by fp8_quantize(), and costs no bytes: col is row with
 *  swapped strides, and the source must outlive it. A COPY side has memory of its own (one for both sides if they are
 *  placed together), for a source that is FP32, arrives by a collective, or dies early.
 *
 *  A call reads only the side that it needs: the other may be absent or dangling. */
typedef struct fp8_qtensor {
  size_t struct_size;   /**< set by FP8_INIT */
  int64_t rows;         /**< rows of the matrix: tokens, or out features of a weight */
  int64_t cols;         /**< columns of the matrix */
  int32_t row_kind;     /**< enum fp8_scaling of the row side; 0 = absent */
  int32_t col_kind;     /**< enum fp8_scaling of the column side; 0 = absent */
  fp8_tensor row;       /**< codes (or 16-bit values) [rows, cols] */
  fp8_tensor row_scale; /**< dequantization scales of row: value = code * scale */
  fp8_tensor col;       /**< codes (or 16-bit values) [cols, rows] */
  fp8_tensor col_scale; /**< dequantization scales of col */
} fp8_qtensor;

/** Fills the strides of a row-major array without gaps, from ndim and shape. [pure]
 *  @param[in,out] t ndim 0 to 4, shape not negative
 *  @return FP8_OK, or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_tensor_compact(fp8_tensor *t);

/** Bytes that these sides need in fp8_qtensor_place(). [pure]
 *  @param q described; pointers are not read
 *  @param sides bits of enum fp8_side
 *  @param[out] bytes 0 for sides that are absent or are views
 *  @return FP8_OK, or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_qtensor_bytes(const fp8_qtensor *q, uint32_t sides, uint64_t *bytes);

/** Lays the parts of these sides into memory, each at a multiple of 256 bytes from its start. Place row and column
 * apart so that one may be freed before the other. [pure]
 *  @param[in,out] q described; its data pointers are set
 *  @param sides bits of enum fp8_side
 *  @param memory at least fp8_qtensor_bytes() long, aligned to 16 bytes, of the context's device
 *  @return FP8_OK, or FP8_ERR_ARGUMENT: too short, misaligned, a side that is absent */
FP8_API fp8_status fp8_qtensor_place(fp8_qtensor *q, uint32_t sides, const fp8_buffer *memory);

/** A view of a range of rows, both sides. [pure]
 *  @param q described and placed
 *  @param first the first row: at a tile's start where tiles run along rows
 *  @param rows how many; 0 is an empty slice anywhere. Slices may be filled in any order: padding beside a slice's
 *  scales is left as it is
 *  @param[out] slice started with FP8_INIT; points into q's memory
 *  @return FP8_OK, or FP8_ERR_ARGUMENT: outside q, or first is inside a tile */
FP8_API fp8_status fp8_qtensor_slice(const fp8_qtensor *q, int64_t first, int64_t rows, fp8_qtensor *slice);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
