/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Tensors from and to DLPack 1.x, without including its header. */
#ifndef FP8_DLPACK_H
#define FP8_DLPACK_H
#include "types.h"
#ifdef __cplusplus
extern "C" {
#endif

/* dl_tensor: a DLTensor * of DLPack's frozen layout (data, device, ndim, dtype, shape, strides, byte_offset) */
FP8_API fp8_status fp8_tensor_from_dlpack(const void *dl_tensor, int32_t dtype /* 0 = the DLTensor's; else a view of its bytes as this dtype of equal size */, fp8_tensor *tensor, int32_t *device_type, int32_t *device_id); /* [pure] a view; NULL strides mean compact; more than 4 dimensions are refused */
FP8_API fp8_status fp8_tensor_to_dlpack(const fp8_tensor *tensor, int32_t device_type, int32_t device_id, void *dl_tensor); /* [pure] fills a caller's DLTensor whose shape and strides point to arrays of at least 4 int64 */

#ifdef __cplusplus
}
#endif
#endif
