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

/** @defgroup status Status
 *  Every call that can fail returns an @ref fp8_status and leaves the reason in the calling thread's last error. A call
 *  that fails has written nothing to its outputs.
 *  @{ */

/** One of enum fp8_status_code. */
typedef int32_t fp8_status;

/** What a call came to. Values are never reused; an unknown one from a newer library is an error. */
enum fp8_status_code {
  FP8_OK = 0,           /**< done, or enqueued on the stream */
  FP8_ERR_ARGUMENT = 1, /**< an argument breaks a rule: the message names function, tensor, dimension, value and rule */
  FP8_ERR_UNSUPPORTED = 2, /**< legal, but not offered here; the message says why */
  FP8_ERR_NO_MEMORY = 3,   /**< an allocator returned NULL */
  FP8_ERR_NO_ALLOC = 4,    /**< the call would have to allocate, under FP8_CONTEXT_NO_ALLOC */
  FP8_ERR_STATE = 5,       /**< the object is not in a state for this call */
  FP8_ERR_BACKEND = 6,     /**< CUDA, cuBLAS or oneDNN failed: see fp8_error.domain and native_code */
  FP8_ERR_COMM = 7,        /**< a communicator failed, or ranks differ; the message names who */
  FP8_ERR_IO = 8,          /**< a file or module could not be read */
  FP8_ERR_INTERNAL = 9     /**< a fault of libfp8 itself: please report it */
};

/** Whose code fp8_error.native_code is. */
enum fp8_domain {
  FP8_DOMAIN_LIBRARY = 0, /**< libfp8's own; native_code is 0 */
  FP8_DOMAIN_ERRNO = 1,   /**< errno */
  FP8_DOMAIN_CUDA = 2,    /**< cudaError_t */
  FP8_DOMAIN_CUBLAS = 3,  /**< cublasStatus_t */
  FP8_DOMAIN_NCCL = 4,    /**< ncclResult_t */
  FP8_DOMAIN_MPI = 5,     /**< an MPI error code */
  FP8_DOMAIN_ONEDNN = 6   /**< dnnl_status_t */
};

/** The calling thread's last failing call. Texts live until that thread's next failing call. A report: a caller with a
 *  shorter struct gets what fits. */
typedef struct fp8_error {
  size_t struct_size;  /**< set by FP8_INIT */
  int32_t status;      /**< enum fp8_status_code; FP8_OK if no call of this thread has failed */
  int32_t domain;      /**< enum fp8_domain of native_code */
  int64_t native_code; /**< the code of the library below, 0 if none */
  const char
      *message; /**< e.g. "fp8_linear_forward: x.shape[1] is 4100, the linear was created with in_features 4096" */
  const char *origin; /**< the function of this API that failed, "fp8_linear_forward" */
} fp8_error;

/** The name of a status code, "FP8_ERR_ARGUMENT". [pure]
 *  @param status any value
 *  @return a static text, also for unknown codes */
FP8_API const char *fp8_status_name(fp8_status status);

/** Reads the calling thread's last error. [pure]
 *  @param[out] error started with FP8_INIT; nothing is written if it is NULL or its struct_size is 0 */
FP8_API void fp8_last_error(fp8_error *error);

/** The version of the loaded library. [pure]
 *  @return major * 10000 + minor * 100 + patch; the headers' is in version.h */
FP8_API uint32_t fp8_version(void);

/** How the loaded library was built: version, compiler, build type, and which modules it knows. [pure]
 *  @return a static text of one line */
FP8_API const char *fp8_build_info(void);

/** Zeroes a sized struct and sets its struct_size. Every sized struct, in and out, starts with this, mostly through
 *  FP8_INIT. The size is the caller's, so a newer library never writes beyond it; a zero field means its default.
 * [pure]
 *  @param[out] object the struct, whose first field is `size_t struct_size`
 *  @param struct_size its sizeof in the caller's headers */
FP8_API void fp8_struct_init(void *object, size_t struct_size);

/** Starts the sized struct that a pointer names. Does not compile for structs without struct_size (fp8_tensor,
 *  fp8_buffer), which are started by `= {0}`. */
#define FP8_INIT(object) fp8_struct_init((object), sizeof *(object) + 0 * sizeof(object)->struct_size)

/** @} */

#ifdef __cplusplus
}
#endif
#endif
