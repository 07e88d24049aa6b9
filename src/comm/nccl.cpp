// SPDX-License-Identifier: Apache-2.0
// Communicators over NCCL, in the CUDA module: borrowed from the caller, or owned and then aborted on a fault. Bytes
// move as bytes; parts of different sizes are broadcasts in one group. All-gathers of an owned communicator whose ranks
// reach each other over NVLink go through windows instead (peers.h).
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "backend/cuda/current.h"
#include "comm/aside.h"
#include "comm/nccl_api.h"
#include "comm/peers.h"
#include "ops/comm.h"

namespace fp8::nccl {
namespace {

struct Place {  // a device
  int number = 0;
  const cuda::Driver *driver = nullptr;
  cuda::Driver::Context context = nullptr;
};

struct State {
  State(const Api *a, const ops::HostApi *h, Comm c, const Place &p, bool own)
      : api(a), host(h), comm(c), place(p), owned(own) {}
  const Api *api;
  const ops::HostApi *host;
  Comm comm;
  Place place;
  bool owned;
  int rank = 0, size = 0;
  std::unique_ptr<Peers> peers;
  std::mutex mutex;               // comm, which wait() gives up while others ask for its status
  int groups = 0;                 // open ones
  cudaStream_t stream = nullptr;  // of what peers have yet to launch
};

int32_t refuse(const ops::HostApi *host, int32_t status, int64_t code, const std::string &text) {
  return host->set_error(status, code ? FP8_DOMAIN_NCCL : FP8_DOMAIN_LIBRARY, code, text.c_str());
}

int32_t answer(const State &s, int result, const char *what) {
  if (result == kSuccess) return FP8_OK;
  const char *detail = s.api->last_error(s.comm);
  return refuse(s.host, FP8_ERR_COMM, result,
                std::string("NCCL: ") + what + ": " + s.api->error_string(result) +
                    (detail && *detail ? std::string(" (") + detail + ")" : ""));
}

int32_t answer_cuda(const State &s, cudaError_t e, const char *what) {
  if (e == cudaSuccess) return FP8_OK;
  return s.host->set_error(FP8_ERR_BACKEND, FP8_DOMAIN_CUDA, e,
                           (std::string(what) + ": " + cudaGetErrorString(e)).c_str());
}

// The communicator's device for the length of a call.
class OnDevice : cuda::Current {
 public:
  explicit OnDevice(const Place &p) : Current(p.driver, p.context) {}
};

// For work that may have a thread of its own: it does not break a capture that another thread has meanwhile begun.
class Beside : OnDevice {
 public:
  explicit Beside(const Place &p) : OnDevice(p) { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Beside() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

State &state(void *user) { return *static_cast<State *>(user); }
cudaStream_t stream_of(fp8_stream s) { return static_cast<cudaStream_t>(s); }

int32_t gone(const State &s) {
  return s.comm ? int32_t{FP8_OK} : refuse(s.host, FP8_ERR_COMM, 0, "NCCL: this communicator was aborted");
}

// Launches what has been added, unless a group is open.
int32_t launch_peers(State &s, cudaStream_t stream) {
  return s.groups ? int32_t{FP8_OK} : answer_cuda(s, s.peers->flush(stream), "an all-gather between GPUs");
}

int32_t on_stream(State &s, cudaStream_t stream) {
  if (s.peers->any() && stream != s.stream)
    if (const int32_t answered = answer_cuda(s, s.peers->flush(s.stream), "an all-gather between GPUs"))
      return answered;
  s.stream = stream;
  return FP8_OK;
}

int32_t gather_parts(State &s, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                     cudaStream_t stream) {
  char *out = static_cast<char *>(dst);
  if (s.peers) {
    if (const int32_t answered = on_stream(s, stream)) return answered;
    for (int r = 0; r < s.size; ++r) s.peers->add(r, src, out + offsets[r], bytes[r], bytes[r], 0, offsets[r]);
    return launch_peers(s, stream);
  }
  bool even = true;
  for (int r = 0; r < s.size; ++r) even = even && bytes[r] == bytes[0] && offsets[r] == offsets[0] + r * bytes[0];
  if (even) return answer(s, s.api->all_gather(src, out + offsets[0], bytes[0], kUint8, s.comm, stream), "all_gather");
  int result = s.api->group_start();
  for (int r = 0; r < s.size && result == kSuccess; ++r)
    if (bytes[r])
      result =
          s.api->broadcast(r == s.rank ? src : out + offsets[r], out + offsets[r], bytes[r], kUint8, r, s.comm, stream);
  const int ended = s.api->group_end();
  return answer(s, result != kSuccess ? result : ended, "all_gather of unequal parts");
}

fp8_status all_gather(void *user, const void *src, void *dst, const int64_t *bytes, const int64_t *offsets,
                      fp8_stream stream) {
  State &s = state(user);
  if (gone(s)) return FP8_ERR_COMM;
  OnDevice device(s.place);
  return gather_parts(s, src, dst, bytes, offsets, stream_of(stream));
}

int32_t gather_lines(void *user, const void *src, void *dst, int64_t lines, int64_t line, int64_t stride, int64_t step,
                     fp8_stream stream) {
  State &s = state(user);
  if (gone(s)) return FP8_ERR_COMM;
  OnDevice device(s.place);
  if (const int32_t answered = on_stream(s, stream_of(stream))) return answered;
  for (int r = 0; r < s.size; ++r)
    s.peers->add(r, src, static_cast<char *>(dst) + r * step, lines * line, line, stride, r * lines * line);
  return launch_peers(s, stream_of(stream));
}

fp8_status all_reduce_max(void *user, void *inout, int64_t count, int32_t dtype, fp8_stream stream) {
  State &s = state(user);
  if (gone(s)) return FP8_ERR_COMM;
  OnDevice device(s.place);
  return answer(s,
                s.api->all_reduce(inout, inout, count, dtype == FP8_DTYPE_F32 ? kFloat32 : kUint8, kMax, s.comm,
                                  stream_of(stream)),
                "all_reduce_max");
}

fp8_status all_to_all(void *user, const void *src, const int64_t *src_bytes, const int64_t *src_offsets, void *dst,
                      const int64_t *dst_bytes, const int64_t *dst_offsets, fp8_stream stream) {
  State &s = state(user);
  if (gone(s)) return FP8_ERR_COMM;
  OnDevice device(s.place);
  int result = s.api->group_start();
  for (int r = 0; r < s.size && result == kSuccess; ++r) {
    if (src_bytes[r])
      result = s.api->send(static_cast<const char *>(src) + src_offsets[r], src_bytes[r], kUint8, r, s.comm,
                           stream_of(stream));
    if (dst_bytes[r] && result == kSuccess)
      result =
          s.api->receive(static_cast<char *>(dst) + dst_offsets[r], dst_bytes[r], kUint8, r, s.comm, stream_of(stream));
  }
  const int ended = s.api->group_end();
  return answer(s, result != kSuccess ? result : ended, "all_to_all");
}

fp8_status group_begin(void *user) {
  State &s = state(user);
  const int32_t answered = answer(s, s.api->group_start(), "group_begin");
  if (answered == FP8_OK) ++s.groups;
  return answered;
}

fp8_status group_end(void *user) {
  State &s = state(user);
  --s.groups;
  OnDevice device(s.place);
  const int32_t ended = answer(s, s.api->group_end(), "group_end");
  if (!s.peers || s.groups) return ended;
  if (ended != FP8_OK || gone(s)) {
    s.peers->forget();
    return ended != FP8_OK ? ended : int32_t{FP8_ERR_COMM};
  }
  return launch_peers(s, s.stream);
}

fp8_status status(void *user) {
  State &s = state(user);
  std::lock_guard<std::mutex> lock(s.mutex);
  if (gone(s)) return FP8_ERR_COMM;
  int fault = kSuccess;
  const int result = s.api->async_error(s.comm, &fault);
  if (result != kSuccess) return answer(s, result, "asking for its state");
  return fault == kInProgress ? FP8_OK : answer(s, fault, "a call that had been enqueued");
}

// NCCL frees memory when it aborts, and so do windows when they go: both wait for all that the device has in flight,
// for kernels of the caller's other communicators too, which may themselves wait for a rank that is gone. So long does
// a caller wait with them; what then is not done goes on without it.
constexpr std::chrono::milliseconds kPatience{1500};

void abort_owned(State &s) {
  if (s.peers) s.peers->stop(true);
  if (!s.comm) return;
  const auto work = [api = s.api, comm = s.comm, place = s.place] {
    Beside there(place);
    api->abort(comm);
  };
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    s.comm = nullptr;
  }
  if (!aside(work, kPatience)) s.host->verbose("nccl: the abort waits for other work on its GPU, and goes on alone");
}

int32_t wait(void *user, fp8_stream stream, int64_t timeout_ms) {
  State &s = state(user);
  if (gone(s)) return FP8_ERR_COMM;
  OnDevice device(s.place);
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t e = cudaStreamQuery(stream_of(stream));
    if (e == cudaSuccess) return status(user);
    if (e != cudaErrorNotReady) return answer_cuda(s, e, "waiting for the stream");
    if (status(user) != FP8_OK) {
      if (s.owned) abort_owned(s);
      return FP8_ERR_COMM;
    }
    const int64_t passed =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
    if (timeout_ms >= 0 && passed >= timeout_ms) {
      if (s.owned) abort_owned(s);
      return refuse(
          s.host, FP8_ERR_COMM, 0,
          "NCCL: the stream is not done after " + std::to_string(timeout_ms) + " ms" + (s.owned ? ": aborted" : ""));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

int32_t gather_host(void *user, const void *src, void *dst, int64_t bytes) {
  State &s = state(user);
  if (gone(s)) return FP8_ERR_COMM;
  if (bytes == 0) return FP8_OK;
  OnDevice device(s.place);
  char *memory = nullptr;
  cudaStream_t stream = nullptr;
  int32_t answered = answer_cuda(s, cudaMalloc(reinterpret_cast<void **>(&memory), bytes * (s.size + 1)),
                                 "memory for a check across ranks");
  if (answered == FP8_OK)
    answered = answer_cuda(s, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  char *own = memory + bytes * s.size;
  if (answered == FP8_OK)
    answered = answer_cuda(s, cudaMemcpyAsync(own, src, bytes, cudaMemcpyDefault, stream), "a copy to the device");
  if (answered == FP8_OK)
    answered = answer(s, s.api->all_gather(own, memory, bytes, kUint8, s.comm, stream), "all_gather");
  if (answered == FP8_OK)
    answered = answer_cuda(s, cudaMemcpyAsync(dst, memory, bytes * s.size, cudaMemcpyDefault, stream),
                           "a copy from the device");
  if (answered == FP8_OK) answered = answer_cuda(s, cudaStreamSynchronize(stream), "waiting for a check across ranks");
  if (stream) cudaStreamDestroy(stream);
  if (memory) cudaFree(memory);
  return answered;
}

void release(void *user) {
  State *s = static_cast<State *>(user);
  const auto work = [s] {
    Beside there(s->place);
    if (s->peers) s->peers->stop(false);
    if (s->owned && s->comm) s->api->abort(s->comm);
    delete s;
  };
  if (s->owned)
    aside(work, kPatience);
  else
    work();
}

// NCCL connects ranks at their first collective and then enables peer access between devices of one process, which
// CUDA refuses inside a stream capture. Here nothing is captured yet: a byte each by ring and, with a sum that small,
// by tree.
int32_t connect(State &s) {
  if (s.size == 1) return FP8_OK;
  OnDevice device(s.place);
  char *memory = nullptr;
  cudaStream_t stream = nullptr;
  int32_t answered =
      answer_cuda(s, cudaMalloc(reinterpret_cast<void **>(&memory), size_t(s.size)), "memory to connect ranks");
  if (answered == FP8_OK)
    answered = answer_cuda(s, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  if (answered == FP8_OK) answered = answer_cuda(s, cudaMemsetAsync(memory, 0, size_t(s.size), stream), "a fill");
  if (answered == FP8_OK)
    answered = answer(s, s.api->all_gather(memory + s.rank, memory, 1, kUint8, s.comm, stream), "connecting ranks");
  if (answered == FP8_OK)
    answered = answer(s, s.api->all_reduce(memory, memory, 1, kUint8, kMax, s.comm, stream), "connecting ranks");
  if (answered == FP8_OK) answered = answer_cuda(s, cudaStreamSynchronize(stream), "connecting ranks");
  if (stream) cudaStreamDestroy(stream);
  if (memory) cudaFree(memory);
  return answered;
}

int32_t fill(const ops::HostApi *host, const Api *api, Comm comm, const Place &place, bool owned,
             ops::CommTable *table) {
  State *s = new (std::nothrow) State(api, host, comm, place, owned);
  if (!s) return refuse(host, FP8_ERR_NO_MEMORY, 0, "the host is out of memory");
  int result = api->rank(comm, &s->rank);
  if (result == kSuccess) result = api->count(comm, &s->size);
  if (result != kSuccess) {
    const int32_t answered = answer(*s, result, "asking for rank and size");
    release(s);
    return answered;
  }
  int32_t answered = owned ? connect(*s) : int32_t{FP8_OK};
  if (answered == FP8_OK && owned) {
    OnDevice device(s->place);
    std::string refusal;
    answered = Peers::open(
        s->rank, s->size, s->place.number,
        [s](const void *own, void *all, int64_t bytes) { return gather_host(s, own, all, bytes); }, &s->peers,
        &refusal);
    if (s->size > 1 && answered == FP8_OK)
      host->verbose(("nccl: rank " + std::to_string(s->rank) + " of " + std::to_string(s->size) +
                     (s->peers ? " gathers through windows" : " leaves all-gathers to NCCL: " + refusal))
                        .c_str());
  }
  if (answered != FP8_OK) {
    release(s);
    return answered;
  }
  *table = ops::CommTable{};
  table->ops.struct_size = sizeof table->ops;
  table->ops.user = s;
  table->ops.rank = s->rank;
  table->ops.size = s->size;
  table->ops.caps = FP8_COMM_DEVICE | FP8_COMM_CAPTURABLE | FP8_COMM_STREAM_ORDERED;
  table->ops.all_gather = all_gather;
  table->ops.all_reduce_max = all_reduce_max;
  table->ops.all_to_all = all_to_all;
  table->ops.group_begin = group_begin;
  table->ops.group_end = group_end;
  table->ops.status = status;
  table->ops.release = release;
  table->wait = wait;
  table->gather_host = gather_host;
  table->gather_lines = s->peers ? gather_lines : nullptr;
  return FP8_OK;
}

const Api *find(const ops::HostApi *host, bool loaded_only) {
  std::string why;
  const Api *found = api(loaded_only, &why);
  if (!found) refuse(host, FP8_ERR_BACKEND, 0, "no NCCL: " + why);
  return found;
}

int32_t find_place(const ops::HostApi *host, int device, Place *place) {
  std::string why;
  bool missing = false;
  place->number = device;
  place->driver = cuda::driver(&why, &missing);
  if (!place->driver) return refuse(host, FP8_ERR_BACKEND, 0, why);
  int ordinal = 0, code = place->driver->init(0);
  if (!code) code = place->driver->device_get(&ordinal, device);
  if (!code) code = place->driver->primary_retain(&place->context, ordinal);  // for good, as contexts of libfp8 do
  if (!code) return FP8_OK;
  return host->set_error(FP8_ERR_BACKEND, FP8_DOMAIN_CUDA, code,
                         ("CUDA device " + std::to_string(device) + " cannot be used").c_str());
}

int32_t make_id(const ops::HostApi *host, uint8_t *id) {
  const Api *found = find(host, false);
  if (!found) return FP8_ERR_BACKEND;
  Id made{};
  const int result = found->unique_id(&made);
  if (result != kSuccess)
    return refuse(host, FP8_ERR_COMM, result, std::string("NCCL: a unique id: ") + found->error_string(result));
  for (size_t i = 0; i < sizeof made.bytes; ++i) id[i] = static_cast<uint8_t>(made.bytes[i]);
  return FP8_OK;
}

int32_t borrow(const ops::HostApi *host, void *comm, ops::CommTable *table) {
  const Api *found = find(host, true);
  if (!found) return FP8_ERR_BACKEND;
  int device = 0;
  const int result = found->device(comm, &device);
  if (result != kSuccess)
    return refuse(host, FP8_ERR_COMM, result,
                  std::string("NCCL: asking for the communicator's device: ") + found->error_string(result));
  Place place;
  const int32_t answered = find_place(host, device, &place);
  return answered == FP8_OK ? fill(host, found, comm, place, false, table) : answered;
}

int32_t create(const ops::HostApi *host, int32_t device, const uint8_t *id, int32_t rank, int32_t size,
               ops::CommTable *table) {
  const Api *found = find(host, false);
  if (!found) return FP8_ERR_BACKEND;
  Place place;
  if (const int32_t answered = find_place(host, device, &place)) return answered;
  OnDevice current(place);
  Id given{};
  for (size_t i = 0; i < sizeof given.bytes; ++i) given.bytes[i] = static_cast<char>(id[i]);
  Comm comm = nullptr;
  const int result = found->init_rank(&comm, size, given, rank);
  if (result != kSuccess)
    return refuse(host, FP8_ERR_COMM, result, std::string("NCCL: joining the group: ") + found->error_string(result));
  return fill(host, found, comm, place, true, table);
}

}  // namespace
}  // namespace fp8::nccl

extern "C" __attribute__((visibility("default"))) const fp8::ops::NcclApi *fp8_nccl_table(void) {
  static const fp8::ops::NcclApi table = {fp8::ops::kBackendAbi, sizeof(fp8::ops::NcclApi), FP8_BUILD_ID,
                                          fp8::nccl::make_id,    fp8::nccl::borrow,         fp8::nccl::create};
  return &table;
}
