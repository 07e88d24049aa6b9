// SPDX-License-Identifier: Apache-2.0
// The MPI module. It uses the public API alone, so that libfp8.so knows nothing of any MPI. Counts above MPI's int are
// moved in chunks.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "fp8_mpi/fp8_mpi.h"

namespace {

constexpr int64_t kChunk = int64_t{1} << 30;
constexpr int kTag = 1;

struct State {
  MPI_Comm comm;
  int rank, size;
  bool device;  // memory that only MPI may touch
};

fp8_status answer(int code, const char *what) {
  if (code == MPI_SUCCESS) return FP8_OK;
  const char *verbose = std::getenv("FP8_VERBOSE");
  if (verbose && *verbose && *verbose != '0') {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::fprintf(stderr, "libfp8_mpi: %s: %.*s\n", what, length, text);
  }
  return FP8_ERR_COMM;
}

// One pair of messages of any size; both ends cut them alike.
void post(State &s, const char *src, int64_t src_bytes, int to, char *dst, int64_t dst_bytes, int from,
          std::vector<MPI_Request> &requests, int *code) {
  const auto start = [&](auto &&call) {
    if (*code != MPI_SUCCESS) return;
    requests.emplace_back();
    *code = call(&requests.back());
    if (*code != MPI_SUCCESS) requests.pop_back();
  };
  for (int64_t at = 0; at < dst_bytes; at += kChunk)
    start([&](MPI_Request *r) {
      return MPI_Irecv(dst + at, static_cast<int>(std::min(kChunk, dst_bytes - at)), MPI_BYTE, from, kTag, s.comm, r);
    });
  for (int64_t at = 0; at < src_bytes; at += kChunk)
    start([&](MPI_Request *r) {
      return MPI_Isend(src + at, static_cast<int>(std::min(kChunk, src_bytes - at)), MPI_BYTE, to, kTag, s.comm, r);
    });
}

int finish(std::vector<MPI_Request> &requests, int code) {
  const int waited = MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  requests.clear();
  return code != MPI_SUCCESS ? code : waited;
}

// A rank's own part.
int keep(State &s, void *dst, const void *src, int64_t bytes) {
  if (!s.device) {
    if (bytes && dst != src) std::memcpy(dst, src, bytes);
    return MPI_SUCCESS;
  }
  int code = MPI_SUCCESS;
  for (int64_t at = 0; at < bytes && dst != src && code == MPI_SUCCESS; at += kChunk) {
    const int n = static_cast<int>(std::min(kChunk, bytes - at));
    code = MPI_Sendrecv(static_cast<const char *>(src) + at, n, MPI_BYTE, s.rank, kTag, static_cast<char *>(dst) + at,
                        n, MPI_BYTE, s.rank, kTag, s.comm, MPI_STATUS_IGNORE);
  }
  return code;
}

// Everything fits MPI's ints.
bool narrow(const int64_t *bytes, const int64_t *offsets, int size, std::vector<int> &counts, std::vector<int> &at) {
  counts.resize(size);
  at.resize(size);
  for (int r = 0; r < size; ++r) {
    if (bytes[r] > INT_MAX || offsets[r] > INT_MAX - bytes[r]) return false;
    counts[r] = static_cast<int>(bytes[r]);
    at[r] = static_cast<int>(offsets[r]);
  }
  return true;
}

fp8_status all_gather(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                      fp8_stream) {
  State &s = *static_cast<State *>(user);
  char *out = static_cast<char *>(dst);
  try {
    std::vector<int> counts, at;
    if (narrow(bytes, offsets, s.size, counts, at)) {
      const bool in_place = src == out + offsets[s.rank];
      return answer(MPI_Allgatherv(in_place ? MPI_IN_PLACE : src, in_place ? 0 : counts[s.rank], MPI_BYTE, dst,
                                   counts.data(), at.data(), MPI_BYTE, s.comm),
                    "MPI_Allgatherv");
    }
    // a ring: each step hands on the part that came last
    const int kept = keep(s, out + offsets[s.rank], src, bytes[s.rank]);
    if (kept != MPI_SUCCESS) return answer(kept, "all_gather's own part");
    std::vector<MPI_Request> requests;
    const int next = (s.rank + 1) % s.size, previous = (s.rank + s.size - 1) % s.size;
    for (int step = 0; step + 1 < s.size; ++step) {
      const int give = (s.rank + s.size - step) % s.size, take = (previous + s.size - step) % s.size;
      int code = MPI_SUCCESS;
      post(s, out + offsets[give], bytes[give], next, out + offsets[take], bytes[take], previous, requests, &code);
      code = finish(requests, code);
      if (code != MPI_SUCCESS) return answer(code, "all_gather's ring");
    }
    return FP8_OK;
  } catch (const std::bad_alloc &) {
    return FP8_ERR_NO_MEMORY;
  }
}

fp8_status all_reduce_max(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream) {
  State &s = *static_cast<State *>(user);
  if (dtype != FP8_DTYPE_F32 && dtype != FP8_DTYPE_U8) return FP8_ERR_UNSUPPORTED;
  const int64_t element = dtype == FP8_DTYPE_F32 ? 4 : 1;
  for (int64_t at = 0; at < count; at += kChunk) {
    const int code = MPI_Allreduce(MPI_IN_PLACE, static_cast<char *>(inout) + at * element,
                                   static_cast<int>(std::min(kChunk, count - at)),
                                   dtype == FP8_DTYPE_F32 ? MPI_FLOAT : MPI_UINT8_T, MPI_MAX, s.comm);
    if (code != MPI_SUCCESS) return answer(code, "MPI_Allreduce");
  }
  return FP8_OK;
}

fp8_status all_to_all(void *user, const void *src, const int64_t *src_bytes, const int64_t *src_offsets, void *dst,
                      const int64_t *dst_bytes, const int64_t *dst_offsets, fp8_stream) {
  State &s = *static_cast<State *>(user);
  try {
    // Ranks may differ in what fits an int, so the way is chosen without looking: pairwise messages always fit.
    std::vector<MPI_Request> requests;
    int code = MPI_SUCCESS;
    for (int step = 1; step < s.size; ++step) {
      const int to = (s.rank + step) % s.size, from = (s.rank + s.size - step) % s.size;
      post(s, static_cast<const char *>(src) + src_offsets[to], src_bytes[to], to,
           static_cast<char *>(dst) + dst_offsets[from], dst_bytes[from], from, requests, &code);
    }
    const int sent = finish(requests, code);
    if (sent != MPI_SUCCESS) return answer(sent, "all_to_all");
    return answer(keep(s, static_cast<char *>(dst) + dst_offsets[s.rank],
                       static_cast<const char *>(src) + src_offsets[s.rank], src_bytes[s.rank]),
                  "all_to_all's own part");
  } catch (const std::bad_alloc &) {
    return FP8_ERR_NO_MEMORY;
  }
}

void release(void *user) {
  State *s = static_cast<State *>(user);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&s->comm);
  delete s;
}

}  // namespace

fp8_status fp8_comm_create_mpi(int32_t fortran_comm, uint32_t flags, fp8_comm **comm) {
  if (!comm) return FP8_ERR_ARGUMENT;
  *comm = nullptr;
  if (flags & ~uint32_t{FP8_MPI_CUDA_AWARE}) return FP8_ERR_ARGUMENT;
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) return FP8_ERR_STATE;
  const MPI_Comm given = MPI_Comm_f2c(fortran_comm);
  if (given == MPI_COMM_NULL) return FP8_ERR_ARGUMENT;
  State *s = new (std::nothrow) State{MPI_COMM_NULL, 0, 0, (flags & FP8_MPI_CUDA_AWARE) != 0};
  if (!s) return FP8_ERR_NO_MEMORY;
  int code = MPI_Comm_dup(given, &s->comm);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(s->comm, &s->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(s->comm, &s->size);
  if (code != MPI_SUCCESS) {
    delete s;
    return answer(code, "MPI_Comm_dup");
  }
  fp8_comm_ops ops;
  FP8_INIT(&ops);
  ops.user = s;
  ops.rank = s->rank;
  ops.size = s->size;
  ops.caps = FP8_COMM_HOST;
  if (flags & FP8_MPI_CUDA_AWARE) ops.caps |= FP8_COMM_DEVICE;
  ops.all_gather = all_gather;
  ops.all_reduce_max = all_reduce_max;
  ops.all_to_all = all_to_all;
  ops.release = release;
  const fp8_status status = fp8_comm_create(&ops, comm);
  if (status != FP8_OK) release(s);
  return status;
}
