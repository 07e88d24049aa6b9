// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. A call blocks until its peers have made the same call: they publish their buffers,
// each rank copies what it needs from the others, and nobody leaves before all have copied. A rank that is destroyed,
// or that fp8_comm_wait finds missing after its timeout, aborts the group: everyone blocked in it returns FP8_ERR_COMM.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/comm.h"

namespace fp8 {

namespace {

enum class Op { kNone, kAllGather, kReduceMax, kAllToAll, kVisit };

const char *op_name(Op op) {
  return op == Op::kAllGather   ? "all_gather"
         : op == Op::kVisit     ? "all_gather in place"
         : op == Op::kReduceMax ? "all_reduce_max"
         : op == Op::kAllToAll  ? "all_to_all"
                                : "none";
}

struct Call {  // what a rank has published
  Op op = Op::kNone;
  const char *src = nullptr;
  char *dst = nullptr;
  const int64_t *src_bytes = nullptr, *src_offsets = nullptr, *dst_bytes = nullptr, *dst_offsets = nullptr;
  int64_t count = 0;
  int32_t dtype = 0;
  const void *api = nullptr;  // whose memory it is: the host's, or a device's
  int32_t device = 0;
};

struct Group {
  explicit Group(int32_t size) : calls(size), inside(size, false), here(size, false) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Call> calls;
  std::vector<bool> inside, here;  // in a call; at the barrier
  int32_t arrived = 0, copying = 0;
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> broken{false};
  std::string fault;  // empty: healthy

  int32_t size() const { return static_cast<int32_t>(calls.size()); }
  void abort(const std::string &why) {  // mutex held
    if (fault.empty()) fault = why;
    broken = true;
    changed.notify_all();
  }
  [[noreturn]] void fail_now() { fail(FP8_ERR_COMM, "local communicator: %s", fault.c_str()); }
};

struct Rank {
  std::shared_ptr<Group> group;
  int32_t rank;
  Transport transport, device;  // of the next call, and the last that was a device's; under the group's mutex
};

using Lock = std::unique_lock<std::mutex>;

// What the ranks ask for must fit together; the first misfit found is everyone's fault.
std::string misfit(const Group &g) {
  const Call &first = g.calls[0];
  for (int32_t r = 1; r < g.size(); ++r) {
    const Call &other = g.calls[r];
    if (other.op != first.op)
      return format("rank %d calls %s where rank 0 calls %s", r, op_name(other.op), op_name(first.op));
    if (first.op == Op::kReduceMax && (other.count != first.count || other.dtype != first.dtype))
      return format("all_reduce_max of %lld elements of dtype %d on rank %d, of %lld of dtype %d on rank 0",
                    static_cast<long long>(other.count), other.dtype, r, static_cast<long long>(first.count),
                    first.dtype);
    const bool gathers = first.op == Op::kAllGather || first.op == Op::kVisit;
    for (int32_t q = 0; gathers && q < g.size(); ++q)
      if (other.dst_bytes[q] != first.dst_bytes[q])
        return format("all_gather takes %lld bytes of rank %d on rank %d, %lld on rank 0",
                      static_cast<long long>(other.dst_bytes[q]), q, r, static_cast<long long>(first.dst_bytes[q]));
  }
  for (int32_t r = 0; first.op == Op::kAllToAll && r < g.size(); ++r)
    for (int32_t q = 0; q < g.size(); ++q)
      if (g.calls[r].src_bytes[q] != g.calls[q].dst_bytes[r])
        return format("all_to_all: rank %d sends %lld bytes to rank %d, which takes %lld", r,
                      static_cast<long long>(g.calls[r].src_bytes[q]), q,
                      static_cast<long long>(g.calls[q].dst_bytes[r]));
  return std::string();
}

constexpr int kYields = 64;

// All ranks reach this point, or the group is aborted. `enter`: the calls are complete and get compared.
void barrier(Group &g, Lock &lock, int32_t rank, bool enter) {
  if (!g.fault.empty()) g.fail_now();
  const uint64_t generation = g.generation;
  g.here[rank] = true;
  if (++g.arrived == g.size()) {
    if (enter) {
      const std::string why = misfit(g);
      if (!why.empty()) {
        g.abort(why);
        g.fail_now();
      }
      g.copying = g.size();
    }
    g.arrived = 0;
    std::fill(g.here.begin(), g.here.end(), false);
    ++g.generation;
    g.changed.notify_all();
    return;
  }
  // the last to come is rarely far: waking a sleeper takes longer
  lock.unlock();
  for (int i = 0; i < kYields && g.generation == generation && !g.broken; ++i) std::this_thread::yield();
  lock.lock();
  g.changed.wait(lock, [&] { return g.generation != generation || !g.fault.empty(); });
  if (g.generation == generation) g.fail_now();
}

void move(const Transport &t, void *dst, const void *src, int64_t bytes, fp8_stream stream) {
  if (bytes == 0 || dst == src) return;
  if (t.api) return check(t.api->copy(t.self, dst, src, bytes, stream));
  std::memcpy(dst, src, bytes);
}

void finish(const Transport &t, fp8_stream stream) {
  if (t.api) check(t.api->stream_sync(t.self, stream));
}

// body(transport, calls, meet): meet() waits until all ranks are there, and what they have enqueued so far is done.
template <class Body>
void collective(Rank &self, Call call, fp8_stream stream, Body &&body) {
  Group &g = *self.group;
  Transport transport;
  {
    Lock lock(g.mutex);
    transport = self.transport;
    g.inside[self.rank] = true;
  }
  call.api = transport.api;
  if (transport.api) call.device = transport.context->device;
  struct Leave {  // whatever happens, the rank is outside again and its peers' buffers are no longer read
    Group &g;
    int32_t rank;
    bool copying = false;
    ~Leave() {
      Lock lock(g.mutex);
      if (copying) --g.copying;
      // peers may still read this rank's buffers: they are the caller's again only when nobody copies
      g.changed.notify_all();
      if (entered) g.changed.wait(lock, [&] { return g.copying == 0; });
      g.inside[rank] = false;
      g.here[rank] = false;
      g.changed.notify_all();
    }
    bool entered = false;
  } leave{g, self.rank};
  finish(transport, stream);  // what the peers are about to read is there
  {
    Lock lock(g.mutex);
    g.calls[self.rank] = call;
    barrier(g, lock, self.rank, true);
    leave.copying = leave.entered = true;
  }
  try {
    body(transport, g.calls, [&] {
      finish(transport, stream);
      Lock lock(g.mutex);
      barrier(g, lock, self.rank, false);
    });
    finish(transport, stream);
  } catch (const std::exception &e) {
    Lock lock(g.mutex);
    g.abort(format("rank %d failed to copy: %s", self.rank, e.what()));
    throw;
  }
  Lock lock(g.mutex);
  --g.copying;
  leave.copying = false;
  g.changed.notify_all();
  barrier(g, lock, self.rank, false);
}

template <class Body>
fp8_status translated(Body &&body) noexcept {
  try {
    body();
    return FP8_OK;
  } catch (const Error &e) {
    return set_error(e.status, e.domain, e.native_code, e.what());
  } catch (const std::exception &e) {
    return set_error(FP8_ERR_NO_MEMORY, FP8_DOMAIN_LIBRARY, 0, e.what());
  }
}

fp8_status local_all_gather(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                            fp8_stream stream) {
  Rank &self = *static_cast<Rank *>(user);
  Call call;
  call.op = Op::kAllGather;
  call.src = static_cast<const char *>(src);
  call.dst = static_cast<char *>(dst);
  call.dst_bytes = bytes;
  call.dst_offsets = offsets;
  return translated([&] {
    collective(self, call, stream, [&](const Transport &t, const std::vector<Call> &calls, auto &&) {
      const int32_t n = static_cast<int32_t>(calls.size());
      for (int32_t i = 0; i < n; ++i) {  // from the next rank on, so that not all read the same one
        const int32_t r = (self.rank + i) % n;
        move(t, call.dst + offsets[r], calls[r].src, bytes[r], stream);
      }
    });
  });
}

// Ranks whose memory is one device's, or the host's, read each other's parts where they lie.
fp8_status local_visit(void *user, const void *src, const int64_t *bytes, fp8_stream stream,
                       void (*read)(void *, const void *const *), void *arg, bool *seen) {
  Rank &self = *static_cast<Rank *>(user);
  Call call;
  call.op = Op::kVisit;
  call.src = static_cast<const char *>(src);
  call.dst_bytes = bytes;
  return translated([&] {
    collective(self, call, stream, [&](const Transport &, const std::vector<Call> &calls, auto &&) {
      std::vector<const void *> sources;
      for (const Call &other : calls) {
        if (other.api != calls[0].api || other.device != calls[0].device) return;
        sources.push_back(other.src);
      }
      read(arg, sources.data());
      *seen = true;
    });
  });
}

template <class T>
void max_of(T *dst, const std::vector<const void *> &sources, int64_t n) {
  for (const void *source : sources) {
    const T *from = static_cast<const T *>(source);
    if (from == dst) continue;
    for (int64_t i = 0; i < n; ++i) dst[i] = from[i] > dst[i] ? from[i] : dst[i];
  }
}

// Each rank reduces its own segment in place, then fetches the others' segments: nobody reads what another writes.
fp8_status local_all_reduce_max(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream stream) {
  Rank &self = *static_cast<Rank *>(user);
  Call call;
  call.op = Op::kReduceMax;
  call.dst = static_cast<char *>(inout);
  call.count = count;
  call.dtype = dtype;
  return translated([&] {
    if (dtype != FP8_DTYPE_F32 && dtype != FP8_DTYPE_U8)
      fail(FP8_ERR_UNSUPPORTED, "all_reduce_max of dtype %d: F32 or U8", dtype);
    const int64_t n = self.group->size(), element = dtype == FP8_DTYPE_F32 ? 4 : 1;
    const auto begin = [&](int64_t r) { return count / n * r + std::min(r, count % n); };
    collective(self, call, stream, [&](const Transport &t, const std::vector<Call> &calls, auto &&meet) {
      const int64_t at = begin(self.rank), size = begin(self.rank + 1) - at;
      std::vector<const void *> sources;
      for (const Call &other : calls) sources.push_back(other.dst + at * element);
      char *own = call.dst + at * element;
      if (size && t.api) {
        if (!t.api->reduce_max) fail(FP8_ERR_UNSUPPORTED, "the backend %s has no reduce_max", t.api->name);
        ops::ReduceMax reduce{own, sources.data(), static_cast<int32_t>(n), dtype, size};
        check(t.api->reduce_max(t.self, &reduce, stream));
      } else if (dtype == FP8_DTYPE_F32) {
        max_of(reinterpret_cast<float *>(own), sources, size);
      } else {
        max_of(reinterpret_cast<uint8_t *>(own), sources, size);
      }
      meet();
      for (int64_t r = 0; r < n; ++r) {
        const int64_t from = begin(r) * element, bytes = begin(r + 1) * element - from;
        if (r != self.rank) move(t, call.dst + from, calls[r].dst + from, bytes, stream);
      }
    });
  });
}

fp8_status local_all_to_all(void *user, const void *src, const int64_t *src_bytes, const int64_t *src_offsets,
                            void *dst, const int64_t *dst_bytes, const int64_t *dst_offsets, fp8_stream stream) {
  Rank &self = *static_cast<Rank *>(user);
  Call call;
  call.op = Op::kAllToAll;
  call.src = static_cast<const char *>(src);
  call.dst = static_cast<char *>(dst);
  call.src_bytes = src_bytes;
  call.src_offsets = src_offsets;
  call.dst_bytes = dst_bytes;
  call.dst_offsets = dst_offsets;
  return translated([&] {
    collective(self, call, stream, [&](const Transport &t, const std::vector<Call> &calls, auto &&) {
      const int32_t n = static_cast<int32_t>(calls.size());
      for (int32_t i = 0; i < n; ++i) {
        const int32_t r = (self.rank + i) % n;
        move(t, call.dst + dst_offsets[r], calls[r].src + calls[r].src_offsets[self.rank], dst_bytes[r], stream);
      }
    });
  });
}

fp8_status local_status(void *user) {
  Rank &self = *static_cast<Rank *>(user);
  return translated([&] {
    Lock lock(self.group->mutex);
    if (!self.group->fault.empty()) self.group->fail_now();
  });
}

constexpr int64_t kEndless = int64_t{1} << 40;  // ms, 34 years: more nanoseconds from now may not fit a clock

// For a watching thread too: until this rank is in no call, or the timeout has passed and the group is aborted.
fp8_status local_wait(void *user, fp8_stream stream, int64_t timeout_ms) {
  Rank &self = *static_cast<Rank *>(user);
  return translated([&] {
    Group &g = *self.group;
    Transport transport;
    {
      Lock lock(g.mutex);
      const auto done = [&] { return !g.inside[self.rank] || !g.fault.empty(); };
      if (timeout_ms < 0 || timeout_ms > kEndless) {
        g.changed.wait(lock, done);
      } else if (!g.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), done)) {
        std::string missing;
        int32_t count = 0;
        for (int32_t r = 0; r < g.size(); ++r)
          if (!g.here[r]) missing += format("%s%d", count++ ? ", " : "", r);
        g.abort(format("after %lld ms in %s, missing rank%s %s", static_cast<long long>(timeout_ms),
                       op_name(g.calls[self.rank].op), count == 1 ? "" : "s", missing.c_str()));
      }
      if (!g.fault.empty()) g.fail_now();
      transport = self.device;
    }
    finish(transport, stream);
  });
}

void local_bind(void *user, const Transport &transport) {
  Rank &self = *static_cast<Rank *>(user);
  Lock lock(self.group->mutex);
  self.transport = transport;
  if (transport.api) self.device = transport;
}

void local_release(void *user) {
  std::unique_ptr<Rank> self(static_cast<Rank *>(user));
  Group &g = *self->group;
  Lock lock(g.mutex);
  g.abort(format("rank %d has left", self->rank));
  lock.unlock();
}

}  // namespace

void create_local(int32_t size, fp8_comm **comms) {
  if (size < 1) fail(FP8_ERR_ARGUMENT, "size is %d, it must be at least 1", size);
  auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<fp8_comm>> made;
  CommExtra extra{};
  extra.bind = local_bind;
  extra.wait = local_wait;
  extra.visit = local_visit;
  extra.sets_detail = true;
  for (int32_t r = 0; r < size; ++r) {
    auto rank = std::make_unique<Rank>(Rank{group, r, Transport{}, Transport{}});
    fp8_comm_ops ops{};
    ops.struct_size = sizeof ops;
    ops.user = rank.get();
    ops.rank = r;
    ops.size = size;
    ops.caps = FP8_COMM_HOST | FP8_COMM_DEVICE;
    ops.all_gather = local_all_gather;
    ops.all_reduce_max = local_all_reduce_max;
    ops.all_to_all = local_all_to_all;
    ops.status = local_status;
    ops.release = local_release;
    made.emplace_back(create_comm(ops, extra));
    rank.release();
  }
  for (int32_t r = 0; r < size; ++r) comms[r] = made[r].release();
}

}  // namespace fp8
