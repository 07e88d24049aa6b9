/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Status codes and the calling thread's last error. */
#ifndef FP8_STATUS_H
#define FP8_STATUS_H
#include <stddef.h>
#include <stdint.h>
#include "export.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t fp8_status;
enum fp8_status_code {
  FP8_OK = 0, FP8_ERR_ARGUMENT = 1, FP8_ERR_UNSUPPORTED = 2, FP8_ERR_NO_MEMORY = 3, FP8_ERR_NO_ALLOC = 4,
  FP8_ERR_STATE = 5, FP8_ERR_BACKEND = 6, FP8_ERR_COMM = 7, FP8_ERR_IO = 8, FP8_ERR_INTERNAL = 9
};
enum fp8_domain { FP8_DOMAIN_LIBRARY = 0, FP8_DOMAIN_ERRNO = 1, FP8_DOMAIN_CUDA = 2, FP8_DOMAIN_CUBLAS = 3, FP8_DOMAIN_NCCL = 4, FP8_DOMAIN_MPI = 5, FP8_DOMAIN_ONEDNN = 6 };
typedef struct fp8_error {          /* of the calling thread's last failing call; texts live until that thread's next failing call */
  size_t struct_size;
  int32_t status, domain;
  int64_t native_code;
  const char *message;              /* "fp8_linear_forward: x.shape[1] is 4100, the linear was created with in_features 4096" */
  const char *origin;
} fp8_error;
FP8_API const char *fp8_status_name(fp8_status status);                                        /* [pure] */
FP8_API void fp8_last_error(fp8_error *error);                                                 /* [pure] */
FP8_API uint32_t fp8_version(void);                                                            /* [pure] major * 10000 + minor * 100 + patch */
FP8_API const char *fp8_build_info(void);
/* Every sized struct, in and out, starts with this: zeroes and struct_size. The size is the caller's, so a newer library never writes beyond it. */
FP8_API void fp8_struct_init(void *object, size_t struct_size);                                /* [pure] */
#define FP8_INIT(object) fp8_struct_init((object), sizeof *(object) + 0 * sizeof (object)->struct_size) /* does not compile for fp8_tensor, fp8_buffer */

#ifdef __cplusplus
}
#endif
#endif
