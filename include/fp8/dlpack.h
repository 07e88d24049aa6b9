/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Tensors from and to DLPack 1.x, without including its header. */
#ifndef FP8_DLPACK_H
#define FP8_DLPACK_H
#include "types.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup dlpack DLPack
 *  Views of other libraries' arrays. `dl_tensor` is a DLTensor * of DLPack's frozen layout (data, device, ndim, dtype,
 *  shape, strides, byte_offset); its constants are known here, its header is not needed.
 *  @{ */

/** A view of a DLTensor; NULL strides mean compact. [pure]
 *  @param dl_tensor a DLTensor *; must outlive nothing but the call, its memory the view
 *  @param dtype 0 = the DLTensor's; else its bytes are viewed as this dtype of equal size
 *  @param[out] tensor the view
 *  @param[out] device_type DLPack's device type; may be NULL
 *  @param[out] device_id DLPack's device index; may be NULL
 *  @return FP8_OK; FP8_ERR_ARGUMENT; FP8_ERR_UNSUPPORTED for more than 4 dimensions, lanes, or a dtype unknown here */
FP8_API fp8_status fp8_tensor_from_dlpack(const void *dl_tensor, int32_t dtype, fp8_tensor *tensor,
                                          int32_t *device_type, int32_t *device_id);

/** Fills a caller's DLTensor from a view. [pure]
 *  @param tensor the view
 *  @param device_type DLPack's device type (1 = CPU, 2 = CUDA)
 *  @param device_id DLPack's device index
 *  @param[in,out] dl_tensor a DLTensor * whose shape and strides point to arrays of at least 4 int64
 *  @return FP8_OK or FP8_ERR_ARGUMENT */
FP8_API fp8_status fp8_tensor_to_dlpack(const fp8_tensor *tensor, int32_t device_type, int32_t device_id,
                                        void *dl_tensor);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
