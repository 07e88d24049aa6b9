/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Communicators over MPI: libfp8_mpi.so, which links the MPI that it was built with. */
#ifndef FP8_MPI_H
#define FP8_MPI_H
#include "fp8/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup mpi MPI
 *  A communicator over MPI, in a library and a header of its own, since MPI implementations share no ABI.
 *  @{ */

/** Bits of the flags of fp8_comm_create_mpi(). */
enum fp8_mpi_flags {
  FP8_MPI_CUDA_AWARE = 1 /**< this MPI takes device pointers; else device buffers are staged through the host */
};

/** Makes a communicator over a duplicate of the caller's, so that its messages never meet the caller's own. [waits]
 *  MPI is initialized by the caller, and finalized after fp8_comm_destroy(). Calls are made on the calling thread:
 *  MPI_THREAD_FUNNELED on the main thread is enough. Errors of MPI come back as FP8_ERR_COMM where the MPI returns
 *  them; a rank that dies ends the job where the MPI does that (Open MPI 4 does).
 *  @param fortran_comm MPI_Comm_c2f of the communicator: an int in every MPI, whatever its C type is
 *  @param flags bits of enum fp8_mpi_flags
 *  @param[out] comm to be destroyed by fp8_comm_destroy()
 *  @return FP8_OK, FP8_ERR_ARGUMENT or FP8_ERR_COMM */
FP8_API fp8_status fp8_comm_create_mpi(int32_t fortran_comm, uint32_t flags, fp8_comm **comm);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
