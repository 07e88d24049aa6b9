// SPDX-License-Identifier: Apache-2.0
// A communicator: the caller's callbacks, or a built-in one that adds what the public callbacks cannot say.
#pragma once
#include <functional>
#include <string>

#include "core/context.h"
#include "core/error.h"
#include "core/handle.h"
#include "fp8/comm.h"

namespace fp8 {

// Where the buffers of the next calls live: the library's own memory when api is NULL.
struct Transport {
  const ops::BackendApi *api = nullptr;
  void *self = nullptr;
  Ref<const fp8_context> context;  // keeps the two above
};

// Of built-in communicators. Every entry may be NULL; failing entries have set the thread's detail.
struct CommExtra {
  void (*bind)(void *user, const Transport &transport);  // before a collective, on the calling thread
  fp8_status (*wait)(void *user, fp8_stream stream, int64_t timeout_ms);
  fp8_status (*gather_host)(void *user, const void *src, void *dst, int64_t bytes);  // equal parts, host memory [waits]
  // An all-gather without a move: read(arg, every rank's src) enqueues what reads them, and their owners may not write
  // them before that is done. *seen = false, with nothing read: some rank's memory is out of some other's reach.
  fp8_status (*visit)(void *user, const void *src, const int64_t *bytes, fp8_stream stream,
                      void (*read)(void *arg, const void *const *sources), void *arg, bool *seen);
  fp8_status (*gather_lines)(void *user, const void *src, void *dst, int64_t lines, int64_t line, int64_t stride,
                             int64_t step, fp8_stream stream);  // as ops/comm.h has it
  bool sets_detail;
};

}  // namespace fp8

struct fp8_comm : fp8::Counted {
  ~fp8_comm();
  fp8_comm_ops ops{};
  fp8::CommExtra extra{};
};

namespace fp8 {

fp8_comm *create_comm(const fp8_comm_ops &ops, const CommExtra &extra = CommExtra{});
void create_local(int32_t size, fp8_comm **comms);
void nccl_id(uint8_t *id);
fp8_comm *create_nccl(void *comm);
fp8_comm *create_nccl_rank(const fp8_context &c, const uint8_t *id, int32_t rank, int32_t size);

// Collectives on the memory of c's device, staged through the host where the communicator cannot reach it. One rank
// needs no communicator at all: the callbacks are not called. bytes and offsets: host arrays of `size`.
void gather_bytes(const fp8_context &c, fp8_comm &comm, const void *src, void *dst, const int64_t *bytes,
                  const int64_t *offsets, fp8_stream stream);
// Equal parts whose lines go to places `stride` apart, rank r's from dst + r * step on: without a move after it.
bool gathers_lines(const fp8_context &c, const fp8_comm &comm);
void gather_lines(const fp8_context &c, fp8_comm &comm, const void *src, void *dst, int64_t lines, int64_t line,
                  int64_t stride, int64_t step, fp8_stream stream);
// Hands every rank's part to `read` where it lies; false, with nothing done, where the communicator cannot.
bool visit_parts(const fp8_context &c, fp8_comm &comm, const void *src, const int64_t *bytes, fp8_stream stream,
                 const std::function<void(const void *const *)> &read);
void reduce_max(const fp8_context &c, fp8_comm &comm, void *inout, int64_t count, int32_t dtype, fp8_stream stream);
void all_to_all(const fp8_context &c, fp8_comm &comm, const void *src, const int64_t *src_bytes,
                const int64_t *src_offsets, void *dst, const int64_t *dst_bytes, const int64_t *dst_offsets,
                fp8_stream stream);
// Host memory in, host memory out [waits]; c may be NULL where the communicator has FP8_COMM_HOST or gathers itself.
void gather_host(const fp8_context *c, fp8_comm &comm, const void *src, void *dst, int64_t bytes, fp8_stream stream);
void exchange_host(const fp8_context &c, fp8_comm &comm, const void *src, const int64_t *src_bytes,
                   const int64_t *src_offsets, void *dst, const int64_t *dst_bytes, const int64_t *dst_offsets,
                   fp8_stream stream);

class CommGroup {  // group_begin and group_end around several collectives, where the communicator has them
 public:
  explicit CommGroup(fp8_comm &comm);
  void end();
  ~CommGroup();  // ends it on the way of an exception
  CommGroup(const CommGroup &) = delete;
  CommGroup &operator=(const CommGroup &) = delete;

 private:
  fp8_comm &comm_;
  bool open_ = false;
};

void comm_status(const fp8_comm &comm);
void comm_wait(fp8_comm &comm, fp8_stream stream, int64_t timeout_ms);
// All ranks hold the same `count` bytes, else ERR_COMM naming who differs, and how where `differ` can read them.
using Differ = std::function<std::string(const std::string &theirs, const std::string &first)>;
void comm_check(const fp8_context *c, fp8_comm &comm, const char *what, const void *bytes, uint64_t count,
                const Differ &differ = nullptr);

}  // namespace fp8
