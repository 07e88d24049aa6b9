// SPDX-License-Identifier: Apache-2.0
#include "fp8/comm.h"

#include "api/guard.h"
#include "core/comm.h"

using namespace fp8;

fp8_status fp8_comm_create(const fp8_comm_ops *ops, fp8_comm **comm) {
  return guard("fp8_comm_create", [&] {
    need(comm, "comm");
    *comm = nullptr;
    need(ops, "ops");
    *comm = create_comm(read_sized(ops, "ops"));
  });
}

fp8_status fp8_comm_create_local(int32_t size, fp8_comm **comms) {
  return guard("fp8_comm_create_local", [&] {
    need(comms, "comms");
    for (int32_t r = 0; r < size; ++r) comms[r] = nullptr;
    create_local(size, comms);
  });
}

fp8_status fp8_comm_create_nccl(void *nccl_comm, fp8_comm **comm) {
  return guard("fp8_comm_create_nccl", [&] {
    need(comm, "comm");
    *comm = nullptr;
    need(nccl_comm, "nccl_comm");
    *comm = create_nccl(nccl_comm);
  });
}

fp8_status fp8_comm_nccl_id(uint8_t *id) {
  return guard("fp8_comm_nccl_id", [&] {
    need(id, "id");
    nccl_id(id);
  });
}

fp8_status fp8_comm_create_nccl_rank(const fp8_context *context, const uint8_t *id, int32_t rank, int32_t size,
                                     fp8_comm **comm) {
  return guard("fp8_comm_create_nccl_rank", [&] {
    need(comm, "comm");
    *comm = nullptr;
    need(context, "context");
    need(id, "id");
    *comm = create_nccl_rank(*context, id, rank, size);
  });
}

fp8_status fp8_comm_query(const fp8_comm *comm, int32_t *rank, int32_t *size, uint32_t *caps) {
  return guard("fp8_comm_query", [&] {
    need(comm, "comm");
    if (rank) *rank = comm->ops.rank;
    if (size) *size = comm->ops.size;
    if (caps) *caps = comm->ops.caps;
  });
}

fp8_status fp8_comm_status(const fp8_comm *comm) {
  return guard("fp8_comm_status", [&] {
    need(comm, "comm");
    comm_status(*comm);
  });
}

fp8_status fp8_comm_wait(fp8_comm *comm, fp8_stream stream, int64_t timeout_ms) {
  return guard("fp8_comm_wait", [&] {
    need(comm, "comm");
    comm_wait(*comm, stream, timeout_ms);
  });
}

fp8_status fp8_comm_check(fp8_comm *comm, const char *what, const void *bytes, uint64_t count) {
  return guard("fp8_comm_check", [&] {
    need(comm, "comm");
    if (count) need(bytes, "bytes");
    comm_check(nullptr, *comm, what, bytes, count);
  });
}

void fp8_comm_destroy(fp8_comm *comm) { Ref<fp8_comm>::adopt(comm); }
