// SPDX-License-Identifier: Apache-2.0
// NCCL by symbol, 2.20 and later. Its C ABI is small and stable, so building needs no header of it.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace fp8::nccl {

using Comm = void *;
struct Id {
  char bytes[128];
};
enum Type { kUint8 = 1, kFloat32 = 7 };
enum Reduce { kMax = 2 };
enum Result { kSuccess = 0, kInProgress = 7 };

struct Api {
  std::string path;
  int version = 0;  // major * 10000 + minor * 100 + patch
  int (*get_version)(int *) = nullptr;
  int (*unique_id)(Id *) = nullptr;
  int (*init_rank)(Comm *, int size, Id id, int rank) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*async_error)(Comm, int *) = nullptr;
  int (*count)(Comm, int *) = nullptr;
  int (*rank)(Comm, int *) = nullptr;
  int (*device)(Comm, int *) = nullptr;
  const char *(*error_string)(int) = nullptr;
  const char *(*last_error)(Comm) = nullptr;  // what its log would say
  int (*all_reduce)(const void *, void *, size_t, int type, int op, Comm, cudaStream_t) = nullptr;
  int (*all_gather)(const void *, void *, size_t, int type, Comm, cudaStream_t) = nullptr;
  int (*broadcast)(const void *, void *, size_t, int type, int root, Comm, cudaStream_t) = nullptr;
  int (*send)(const void *, size_t, int type, int peer, Comm, cudaStream_t) = nullptr;
  int (*receive)(void *, size_t, int type, int peer, Comm, cudaStream_t) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
};

constexpr int kMinimum = 22000;

// The copy already in the process (a communicator is valid only in the copy that made it); unless `loaded_only`, else
// one beside this module, of pip's nvidia/nccl/lib, or the system's. NULL: *why says what was tried. Found once a
// process.
const Api *api(bool loaded_only, std::string *why);

}  // namespace fp8::nccl
