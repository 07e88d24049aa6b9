// SPDX-License-Identifier: Apache-2.0
#include "comm/peers.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <thread>

namespace fp8::nccl {
namespace {

uint64_t process_mark() {  // another one in every process
  static const uint64_t mark = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return mark;
}

uint64_t host_mark() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return std::hash<std::string>()(text + name);
}

// NVLink, which alone has atomics between devices; PCIe is left to NCCL.
const char *unlinked(int device, const char *bus) {
  int peer = -1, atomics = 0, access = 0;
  if (cudaDeviceGetByPCIBusId(&peer, bus) != cudaSuccess) return "its GPU is not visible here";
  if (peer == device) return "it has the same GPU";
  if (cudaDeviceCanAccessPeer(&access, device, peer) != cudaSuccess || !access) return "its GPU cannot be reached";
  if (cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer) != cudaSuccess || !atomics)
    return "its GPU is not joined by NVLink";
  return nullptr;
}

bool reach_in_process(const char *bus) {
  int peer = -1;
  if (cudaDeviceGetByPCIBusId(&peer, bus) != cudaSuccess) return false;
  const cudaError_t e = cudaDeviceEnablePeerAccess(peer, 0);
  return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
}

}  // namespace

struct Peers::Window {
  void *memory;
  std::atomic<int> users;  // ranks of this process; others map the memory by its handle
};

struct Peers::Card {  // what a rank says of itself
  uint64_t process, host;
  char bus[32];
  Window *window;
  void *memory;
  cudaIpcMemHandle_t handle;
  int32_t good;
};

void Peers::drop(Window *w, int users) {
  if (!w || w->users.fetch_sub(users, std::memory_order_acq_rel) != users) return;
  cudaFree(w->memory);
  delete w;
}

const char *Peers::make(int device, Card *own) {
  const char *wanted = std::getenv("FP8_PEER_WINDOWS");
  if (wanted && !std::strcmp(wanted, "0")) return "FP8_PEER_WINDOWS is 0";
  cuda::shape_exchange(exchange_);
  const size_t bytes = static_cast<size_t>(cuda::peer_window_bytes(exchange_));
  void *memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) return "no memory for a window";
  Window *w = new (std::nothrow) Window{memory, {exchange_.size}};
  if (!w) {
    cudaFree(memory);
    return "the host is out of memory";
  }
  held_[exchange_.rank] = own->window = w;
  own->memory = memory;
  exchange_.windows[exchange_.rank] = static_cast<cuda::PeerWindow *>(memory);
  if (cudaDeviceGetPCIBusId(own->bus, sizeof own->bus, device) != cudaSuccess) return "its GPU has no address";
  if (cudaIpcGetMemHandle(&own->handle, memory) != cudaSuccess) return "its memory has no IPC handle";
  if (cudaMemset(memory, 0, bytes) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess ||
      cudaStreamCreateWithFlags(&control_, cudaStreamNonBlocking) != cudaSuccess ||
      cudaEventCreateWithFlags(&done_, cudaEventDisableTiming) != cudaSuccess || cuda::load_exchange() != cudaSuccess)
    return "a CUDA call failed";
  own->good = 1;
  return nullptr;
}

const char *Peers::reach(int device, int peer, const Card &card, bool same_process) {
  if (const char *why = unlinked(device, card.bus)) return why;
  void *at = card.memory;
  if (same_process) {
    if (!reach_in_process(card.bus)) return "access to its GPU was refused";
  } else {
    if (cudaIpcOpenMemHandle(&at, card.handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
      return "its window does not map";
    mapped_[peer] = true;
  }
  exchange_.windows[peer] = static_cast<cuda::PeerWindow *>(at);
  return nullptr;
}

int32_t Peers::open(int rank, int size, int device, const Share &share, std::unique_ptr<Peers> *out,
                    std::string *refusal) {
  *refusal = "";
  if (size < 2) return 0;
  if (size > cuda::kPeers) {
    *refusal = "more than " + std::to_string(cuda::kPeers) + " ranks";
    return 0;
  }
  std::unique_ptr<Peers> p(new (std::nothrow) Peers);
  std::vector<Card> cards(static_cast<size_t>(size));
  Card own{};
  own.process = process_mark();
  own.host = host_mark();
  const char *why = "the host is out of memory";
  if (p) {
    p->exchange_.rank = rank;
    p->exchange_.size = size;
    why = p->make(device, &own);
  }
  if (why) *refusal = why;
  if (const int32_t failed = share(&own, cards.data(), sizeof own)) {
    if (p) p->fault_ = true;  // who holds its window is not known
    return failed;
  }
  if (p)
    for (int r = 0; r < size; ++r) {
      const bool here = cards[static_cast<size_t>(r)].process == own.process;
      if (here)
        p->held_[r] = cards[static_cast<size_t>(r)].window;
      else
        drop(own.window, 1);
    }
  for (int r = 0; r < size && refusal->empty(); ++r) {
    const Card &c = cards[static_cast<size_t>(r)];
    const std::string name = "rank " + std::to_string(r) + ": ";
    if (!c.good)
      *refusal = name + "it has no window";
    else if (c.host != own.host)
      *refusal = name + "it is on another host";
    else if (r != rank)
      if (const char *because = p->reach(device, r, c, c.process == own.process)) *refusal = name + because;
  }
  cudaGetLastError();  // what was refused is no later call's error
  const int32_t good = refusal->empty();
  std::vector<int32_t> all(static_cast<size_t>(size));
  if (const int32_t failed = share(&good, all.data(), sizeof good)) return failed;
  for (int r = 0; r < size && refusal->empty(); ++r)
    if (!all[static_cast<size_t>(r)]) *refusal = "rank " + std::to_string(r) + " refuses";
  if (refusal->empty()) *out = std::move(p);
  return 0;
}

Peers::~Peers() {
  stop(false);
  if (!fault_ && idle()) {
    for (int r = 0; r < exchange_.size; ++r)
      if (mapped_[r]) cudaIpcCloseMemHandle(exchange_.windows[r]);
    for (int r = 0; r < exchange_.size; ++r) drop(held_[r], 1);
  }
  if (control_) cudaStreamDestroy(control_);
  if (done_) cudaEventDestroy(done_);
  cudaGetLastError();
}

// Kernels that have been stopped end at once, unless they stand behind others that do not.
bool Peers::idle() {
  for (int i = 0; used_ && cudaEventQuery(done_) == cudaErrorNotReady; ++i) {
    if (i == 500) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void Peers::stop(bool fault) {
  fault_ = fault_ || fault;
  if (stopped_ || !done_) return;
  stopped_ = true;
  static const unsigned long long one = 1;
  cudaMemcpyAsync(&exchange_.windows[exchange_.rank]->stopped, &one, sizeof one, cudaMemcpyHostToDevice, control_);
}

void Peers::add(int source, const void *src, void *dst, int64_t bytes, int64_t line, int64_t stride, int64_t offset) {
  if (bytes == 0) return;
  cuda::PeerMove m{};
  m.src = static_cast<const uint8_t *>(src);
  m.dst = static_cast<uint8_t *>(dst);
  m.bytes = bytes;
  m.line = line;
  m.stride = stride;
  m.source = source;
  m.shift = static_cast<int32_t>(offset % 16);
  moves_.push_back(m);
}

cudaError_t Peers::flush(cudaStream_t stream) {
  std::vector<cuda::PeerMove> moves;
  moves.swap(moves_);
  if (moves.empty()) return cudaSuccess;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  const bool alone = capture == cudaStreamCaptureStatusNone;  // inside a graph its edges order exchanges
  if (error == cudaSuccess && alone && used_) error = cudaStreamWaitEvent(stream, done_, 0);
  for (size_t at = 0; at < moves.size() && error == cudaSuccess; at += cuda::kPeerMoves) {
    exchange_.count = static_cast<int32_t>(std::min(moves.size() - at, size_t{cuda::kPeerMoves}));
    std::memcpy(exchange_.moves, moves.data() + at, static_cast<size_t>(exchange_.count) * sizeof(cuda::PeerMove));
    if (cuda::plan_exchange(exchange_)) error = cuda::launch_exchange(exchange_, stream);
  }
  if (error == cudaSuccess && alone) {
    error = cudaEventRecord(done_, stream);
    used_ = true;
  }
  return error;
}

}  // namespace fp8::nccl
