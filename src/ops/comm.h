// SPDX-License-Identifier: Apache-2.0
// What the CUDA module hands out beside its backend table: communicators over NCCL.
#pragma once
#include "fp8/comm.h"
#include "ops/backend.h"

namespace fp8::ops {

struct CommTable {  // the public callbacks, and what they cannot say; each call sets the thread's detail when it fails
  fp8_comm_ops ops;
  int32_t (*wait)(void *user, fp8_stream stream, int64_t timeout_ms);
  int32_t (*gather_host)(void *user, const void *src, void *dst, int64_t bytes);  // equal parts, host memory [waits]
  // Equal parts of `lines` lines, each part one run of bytes; to lines `stride` apart, rank r's from dst + r * step on.
  // Where line is the whole part the ranks' dst need not lie alike. May be NULL.
  int32_t (*gather_lines)(void *user, const void *src, void *dst, int64_t lines, int64_t line, int64_t stride,
                          int64_t step, fp8_stream stream);
};

struct NcclApi {
  uint32_t abi;  // kBackendAbi
  uint32_t size;
  const char *build_id;
  int32_t (*unique_id)(const HostApi *host, uint8_t *id);                // 128 bytes
  int32_t (*borrow)(const HostApi *host, void *comm, CommTable *table);  // an ncclComm_t of the copy in this process
  int32_t (*create)(const HostApi *host, int32_t device, const uint8_t *id, int32_t rank, int32_t size,
                    CommTable *table);
};

}  // namespace fp8::ops
