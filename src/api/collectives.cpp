// SPDX-License-Identifier: Apache-2.0
#include "fp8/collectives.h"

#include "api/guard.h"
#include "core/collectives.h"

using namespace fp8;

fp8_status fp8_all_reduce_max(const fp8_context *c, fp8_comm *comm, fp8_tensor *inout, fp8_stream stream) {
  return guard("fp8_all_reduce_max", [&] {
    need(c, "c");
    need(comm, "comm");
    need(inout, "inout");
    all_reduce_max(*c, *comm, *inout, stream);
  });
}

fp8_status fp8_all_gather_workspace(const fp8_context *c, const fp8_comm *comm, const fp8_qtensor *part, uint32_t side,
                                    const fp8_qtensor *full, uint64_t *bytes) {
  return guard("fp8_all_gather_workspace", [&] {
    need(c, "c");
    need(comm, "comm");
    need(part, "part");
    need(full, "full");
    need(bytes, "bytes");
    *bytes = all_gather_workspace(*c, *comm, read_sized(part, "part"), side, read_sized(full, "full"));
  });
}

fp8_status fp8_all_gather(const fp8_context *c, fp8_comm *comm, const fp8_qtensor *part, uint32_t side,
                          fp8_qtensor *full, const fp8_buffer *workspace, fp8_stream stream) {
  return guard("fp8_all_gather", [&] {
    need(c, "c");
    need(comm, "comm");
    need(part, "part");
    need(full, "full");
    all_gather(*c, *comm, read_sized(part, "part"), side, read_sized(full, "full"), workspace, stream);
  });
}
