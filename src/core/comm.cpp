// SPDX-License-Identifier: Apache-2.0
#include "core/comm.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"

fp8_comm::~fp8_comm() {
  if (ops.release) ops.release(ops.user);
}

namespace fp8 {

namespace {

void check_call(const fp8_comm &comm, fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  if (comm.extra.sets_detail) check(status);
  fail(status, "the communicator's %s returned %d on rank %d of %d", what, status, comm.ops.rank, comm.ops.size);
}

bool on_host(const fp8_context &c) { return c.backend == FP8_BACKEND_CPU; }

// True when the callbacks take the context's memory as it is.
bool reaches(const fp8_context &c, const fp8_comm &comm) {
  return (comm.ops.caps & (on_host(c) ? FP8_COMM_HOST : FP8_COMM_DEVICE)) != 0;
}

void sync(const fp8_context &c, fp8_stream stream) { check(c.api->stream_sync(c.self, stream)); }

// Before a callback: what it takes as it is, is there. Local ranks are told whose memory it is, and wait themselves.
void bind(const fp8_context *c, fp8_comm &comm, fp8_stream stream) {
  const bool device = c && !on_host(*c);
  if (!comm.extra.bind) {
    if (device && reaches(*c, comm) && !(comm.ops.caps & FP8_COMM_STREAM_ORDERED)) sync(*c, stream);
    return;
  }
  Transport transport;
  if (device) transport = Transport{c->api, c->self, Ref<const fp8_context>::share(c)};
  comm.extra.bind(comm.ops.user, transport);
}

void need_reach(const fp8_context &c, const fp8_comm &comm) {
  if (reaches(c, comm)) return;
  if (on_host(c) || !(comm.ops.caps & FP8_COMM_HOST))
    fail(FP8_ERR_UNSUPPORTED, "comm: its caps 0x%x lack %s, where the context's buffers live", comm.ops.caps,
         on_host(c) ? "FP8_COMM_HOST" : "FP8_COMM_DEVICE and FP8_COMM_HOST");
}

int64_t sum(const int64_t *values, int32_t n) {
  int64_t total = 0;
  for (int32_t i = 0; i < n; ++i) total += values[i];
  return total;
}

int64_t extent(const int64_t *bytes, const int64_t *offsets, int32_t n) {
  int64_t end = 0;
  for (int32_t i = 0; i < n; ++i)
    if (bytes[i] && offsets[i] + bytes[i] > end) end = offsets[i] + bytes[i];
  return end;
}

// Host memory for device buffers that the communicator cannot reach; freed with the scope.
class HostStage {
 public:
  HostStage(const fp8_context &c, uint64_t bytes, fp8_stream stream) : c_(c), bytes_(bytes), stream_(stream) {
    if (bytes && (c.flags & FP8_CONTEXT_NO_ALLOC))
      fail(FP8_ERR_NO_ALLOC,
           "comm: a host communicator stages %llu bytes of device memory, which FP8_CONTEXT_NO_ALLOC forbids",
           static_cast<unsigned long long>(bytes));
    if (bytes) data_ = static_cast<char *>(allocate(c, bytes, FP8_SPACE_HOST, stream));
  }
  ~HostStage() {
    if (data_) deallocate(c_, data_, bytes_, FP8_SPACE_HOST, stream_);
  }
  HostStage(const HostStage &) = delete;
  HostStage &operator=(const HostStage &) = delete;
  char *data() const { return data_; }

 private:
  const fp8_context &c_;
  char *data_ = nullptr;
  uint64_t bytes_;
  fp8_stream stream_;
};

void copy(const fp8_context &c, void *dst, const void *src, int64_t bytes, fp8_stream stream) {
  if (bytes && dst != src) check(c.api->copy(c.self, dst, src, bytes, stream));
}

void call_gather(fp8_comm &comm, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                 fp8_stream s) {
  check_call(comm, comm.ops.all_gather(comm.ops.user, src, dst, bytes, offsets, s), "all_gather");
}

void call_exchange(fp8_comm &comm, const void *src, const int64_t *src_bytes, const int64_t *src_offsets, void *dst,
                   const int64_t *dst_bytes, const int64_t *dst_offsets, fp8_stream s) {
  if (!comm.ops.all_to_all) fail(FP8_ERR_UNSUPPORTED, "comm: it has no all_to_all, which dispatch needs");
  check_call(comm, comm.ops.all_to_all(comm.ops.user, src, src_bytes, src_offsets, dst, dst_bytes, dst_offsets, s),
             "all_to_all");
}

}  // namespace

fp8_comm *create_comm(const fp8_comm_ops &ops, const CommExtra &extra) {
  if (ops.size < 1) fail(FP8_ERR_ARGUMENT, "ops.size is %d, it must be at least 1", ops.size);
  if (ops.rank < 0 || ops.rank >= ops.size)
    fail(FP8_ERR_ARGUMENT, "ops.rank is %d, it must be in [0, %d)", ops.rank, ops.size);
  if (!ops.all_gather) fail(FP8_ERR_ARGUMENT, "ops.all_gather is NULL");
  if (!ops.all_reduce_max) fail(FP8_ERR_ARGUMENT, "ops.all_reduce_max is NULL");
  if (!(ops.caps & (FP8_COMM_HOST | FP8_COMM_DEVICE)))
    fail(FP8_ERR_ARGUMENT, "ops.caps is 0x%x, it must hold FP8_COMM_HOST or FP8_COMM_DEVICE", ops.caps);
  constexpr uint32_t known = FP8_COMM_HOST | FP8_COMM_DEVICE | FP8_COMM_CAPTURABLE | FP8_COMM_STREAM_ORDERED;
  if (ops.caps & ~known)
    fail(FP8_ERR_UNSUPPORTED, "ops.caps is 0x%x, of which 0x%x is unknown", ops.caps, ops.caps & ~known);
  if (ops.reserved) fail(FP8_ERR_ARGUMENT, "ops.reserved is %u, it must be 0", ops.reserved);
  if (!ops.group_begin != !ops.group_end) fail(FP8_ERR_ARGUMENT, "ops.group_begin and ops.group_end come together");
  auto comm = std::make_unique<fp8_comm>();
  comm->ops = ops;
  comm->extra = extra;
  return comm.release();
}

void gather_bytes(const fp8_context &c, fp8_comm &comm, const void *src, void *dst, const int64_t *bytes,
                  const int64_t *offsets, fp8_stream stream) {
  const int32_t rank = comm.ops.rank, size = comm.ops.size;
  char *out = static_cast<char *>(dst);
  if (size == 1) return copy(c, out + offsets[0], src, bytes[0], stream);
  need_reach(c, comm);
  count(c, ops::Counters::kBytesCommunicated, sum(bytes, size) - bytes[rank]);
  bind(&c, comm, stream);
  if (reaches(c, comm)) return call_gather(comm, src, dst, bytes, offsets, stream);
  HostStage stage(c, extent(bytes, offsets, size), stream);
  copy(c, stage.data() + offsets[rank], src, bytes[rank], stream);
  sync(c, stream);
  call_gather(comm, stage.data() + offsets[rank], stage.data(), bytes, offsets, nullptr);
  for (int32_t r = 0; r < size; ++r) copy(c, out + offsets[r], stage.data() + offsets[r], bytes[r], stream);
  sync(c, stream);
}

bool gathers_lines(const fp8_context &c, const fp8_comm &comm) {
  return comm.extra.gather_lines && comm.ops.size > 1 && reaches(c, comm);
}

void gather_lines(const fp8_context &c, fp8_comm &comm, const void *src, void *dst, int64_t lines, int64_t line,
                  int64_t stride, int64_t step, fp8_stream stream) {
  count(c, ops::Counters::kBytesCommunicated, lines * line * (comm.ops.size - 1));
  bind(&c, comm, stream);
  check_call(comm, comm.extra.gather_lines(comm.ops.user, src, dst, lines, line, stride, step, stream), "all_gather");
}

bool visit_parts(const fp8_context &c, fp8_comm &comm, const void *src, const int64_t *bytes, fp8_stream stream,
                 const std::function<void(const void *const *)> &read) {
  if (!comm.extra.visit || !reaches(c, comm)) return false;
  bind(&c, comm, stream);
  using Read = std::function<void(const void *const *)>;
  const auto call = [](void *arg, const void *const *sources) { (*static_cast<const Read *>(arg))(sources); };
  bool seen = false;
  check_call(comm,
             comm.extra.visit(comm.ops.user, src, bytes, stream, call,
                              const_cast<void *>(static_cast<const void *>(&read)), &seen),
             "all_gather");
  if (seen) count(c, ops::Counters::kBytesCommunicated, sum(bytes, comm.ops.size) - bytes[comm.ops.rank]);
  return seen;
}

void reduce_max(const fp8_context &c, fp8_comm &comm, void *inout, int64_t n, int32_t dtype, fp8_stream stream) {
  if (comm.ops.size == 1 || n == 0) return;
  need_reach(c, comm);
  const int64_t bytes = n * dtype_size(dtype);
  count(c, ops::Counters::kBytesCommunicated, bytes);
  bind(&c, comm, stream);
  const auto call = [&](void *data, fp8_stream s) {
    check_call(comm, comm.ops.all_reduce_max(comm.ops.user, data, n, dtype, s), "all_reduce_max");
  };
  if (reaches(c, comm)) return call(inout, stream);
  HostStage stage(c, bytes, stream);
  copy(c, stage.data(), inout, bytes, stream);
  sync(c, stream);
  call(stage.data(), nullptr);
  copy(c, inout, stage.data(), bytes, stream);
  sync(c, stream);
}

void all_to_all(const fp8_context &c, fp8_comm &comm, const void *src, const int64_t *src_bytes,
                const int64_t *src_offsets, void *dst, const int64_t *dst_bytes, const int64_t *dst_offsets,
                fp8_stream stream) {
  const int32_t rank = comm.ops.rank, size = comm.ops.size;
  char *out = static_cast<char *>(dst);
  const char *in = static_cast<const char *>(src);
  if (size == 1) return copy(c, out + dst_offsets[0], in + src_offsets[0], src_bytes[0], stream);
  need_reach(c, comm);
  count(c, ops::Counters::kBytesCommunicated, sum(dst_bytes, size) - dst_bytes[rank]);
  bind(&c, comm, stream);
  if (reaches(c, comm)) return call_exchange(comm, src, src_bytes, src_offsets, dst, dst_bytes, dst_offsets, stream);
  HostStage from(c, extent(src_bytes, src_offsets, size), stream), to(c, extent(dst_bytes, dst_offsets, size), stream);
  for (int32_t r = 0; r < size; ++r) copy(c, from.data() + src_offsets[r], in + src_offsets[r], src_bytes[r], stream);
  sync(c, stream);
  call_exchange(comm, from.data(), src_bytes, src_offsets, to.data(), dst_bytes, dst_offsets, nullptr);
  for (int32_t r = 0; r < size; ++r) copy(c, out + dst_offsets[r], to.data() + dst_offsets[r], dst_bytes[r], stream);
  sync(c, stream);
}

void gather_host(const fp8_context *c, fp8_comm &comm, const void *src, void *dst, int64_t bytes, fp8_stream stream) {
  const int32_t size = comm.ops.size;
  if (size == 1) {
    if (bytes) std::memcpy(dst, src, bytes);
    return;
  }
  if (comm.extra.gather_host)
    return check_call(comm, comm.extra.gather_host(comm.ops.user, src, dst, bytes), "all_gather");
  std::vector<int64_t> sizes(size, bytes), offsets(size);
  for (int32_t r = 0; r < size; ++r) offsets[r] = r * bytes;
  if (comm.ops.caps & FP8_COMM_HOST) {
    bind(nullptr, comm, nullptr);
    return call_gather(comm, src, dst, sizes.data(), offsets.data(), nullptr);
  }
  if (!c || on_host(*c)) fail(FP8_ERR_UNSUPPORTED, "comm: its caps 0x%x lack FP8_COMM_HOST", comm.ops.caps);
  void *staged = allocate(*c, bytes * (size + 1), FP8_SPACE_DEVICE, stream);
  std::unique_ptr<void, std::function<void(void *)>> hold(
      staged, [&](void *p) { deallocate(*c, p, bytes * (size + 1), FP8_SPACE_DEVICE, stream); });
  char *own = static_cast<char *>(staged) + bytes * size;
  copy(*c, own, src, bytes, stream);
  bind(c, comm, stream);
  call_gather(comm, own, staged, sizes.data(), offsets.data(), stream);
  copy(*c, dst, staged, bytes * size, stream);
  sync(*c, stream);
}

void exchange_host(const fp8_context &c, fp8_comm &comm, const void *src, const int64_t *src_bytes,
                   const int64_t *src_offsets, void *dst, const int64_t *dst_bytes, const int64_t *dst_offsets,
                   fp8_stream stream) {
  const int32_t size = comm.ops.size;
  if (size == 1) {
    if (src_bytes[0])
      std::memcpy(static_cast<char *>(dst) + dst_offsets[0], static_cast<const char *>(src) + src_offsets[0],
                  src_bytes[0]);
    return;
  }
  if (comm.ops.caps & FP8_COMM_HOST) {
    bind(nullptr, comm, nullptr);
    return call_exchange(comm, src, src_bytes, src_offsets, dst, dst_bytes, dst_offsets, nullptr);
  }
  if (on_host(c)) fail(FP8_ERR_UNSUPPORTED, "comm: its caps 0x%x lack FP8_COMM_HOST", comm.ops.caps);
  const int64_t out = extent(src_bytes, src_offsets, size), in = extent(dst_bytes, dst_offsets, size);
  const uint64_t total = round_up(out, 256) + in + 1;
  void *staged = allocate(c, total, FP8_SPACE_DEVICE, stream);
  std::unique_ptr<void, std::function<void(void *)>> hold(
      staged, [&](void *p) { deallocate(c, p, total, FP8_SPACE_DEVICE, stream); });
  char *to = static_cast<char *>(staged) + round_up(out, 256);
  copy(c, staged, src, out, stream);
  bind(&c, comm, stream);
  call_exchange(comm, staged, src_bytes, src_offsets, to, dst_bytes, dst_offsets, stream);
  copy(c, dst, to, in, stream);
  sync(c, stream);
}

CommGroup::CommGroup(fp8_comm &comm) : comm_(comm) {
  if (comm.ops.size == 1 || !comm.ops.group_begin) return;
  check_call(comm, comm.ops.group_begin(comm.ops.user), "group_begin");
  open_ = true;
}

void CommGroup::end() {
  if (!open_) return;
  open_ = false;
  check_call(comm_, comm_.ops.group_end(comm_.ops.user), "group_end");
}

CommGroup::~CommGroup() {
  if (open_) comm_.ops.group_end(comm_.ops.user);
}

void comm_status(const fp8_comm &comm) {
  if (comm.ops.status) check_call(comm, comm.ops.status(comm.ops.user), "status");
}

void comm_wait(fp8_comm &comm, fp8_stream stream, int64_t timeout_ms) {
  if (comm.extra.wait) return check_call(comm, comm.extra.wait(comm.ops.user, stream, timeout_ms), "wait");
  if (stream && (comm.ops.caps & FP8_COMM_DEVICE))
    fail(FP8_ERR_UNSUPPORTED,
         "comm: callbacks of the caller cannot wait for a stream: synchronize it, then fp8_comm_status");
  comm_status(comm);
}

void comm_check(const fp8_context *c, fp8_comm &comm, const char *what, const void *bytes, uint64_t n,
                const Differ &differ) {
  const int32_t size = comm.ops.size, rank = comm.ops.rank;
  std::vector<uint64_t> counts(size);
  gather_host(c, comm, &n, counts.data(), sizeof n, nullptr);
  const uint64_t largest = *std::max_element(counts.begin(), counts.end());
  std::vector<char> own(largest, 0), all(largest * size);
  if (n) std::memcpy(own.data(), bytes, n);
  if (largest) gather_host(c, comm, own.data(), all.data(), largest, nullptr);
  // Every rank compares with rank 0, so that all of them report the same ranks.
  const std::string first(all.data(), counts[0]);
  std::string who;
  for (int32_t r = 1; r < size; ++r) {
    const std::string theirs(all.data() + r * largest, counts[r]);
    if (theirs == first) continue;
    size_t at = 0;
    while (at < theirs.size() && at < first.size() && theirs[at] == first[at]) ++at;
    const std::string how = differ ? differ(theirs, first)
                                   : format("%zu bytes, different from byte %zu on, of which rank 0 has %zu",
                                            theirs.size(), at, first.size());
    who += format("%s rank %d (%s)", who.empty() ? "" : ",", r, how.c_str());
  }
  if (!who.empty())
    fail(FP8_ERR_COMM, "%s: not rank 0's on%s; this is rank %d of %d", what ? what : "bytes", who.c_str(), rank, size);
}

}  // namespace fp8
