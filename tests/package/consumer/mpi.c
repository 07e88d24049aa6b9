/* SPDX-License-Identifier: Apache-2.0 */
/* Links the MPI communicator, whose header needs no MPI's; before MPI_Init it is refused in words. */
#include <fp8_mpi/fp8_mpi.h>
#include <stdio.h>

int main(void) {
  fp8_comm *comm = NULL;
  fp8_error error;
  const fp8_status status = fp8_comm_create_mpi(0, 0, &comm);
  FP8_INIT(&error);
  fp8_last_error(&error);
  printf("MPI: %s, %s\n", fp8_status_name(status), error.message);
  return status == FP8_OK;
}
