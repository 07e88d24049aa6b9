// SPDX-License-Identifier: Apache-2.0
// The all-gather over mapped windows. A block serves one peer: half of its warps push chunks of this rank's into the
// peer's window, the others take the peer's out of this rank's, each warp on its own, so that many chunks are under way
// at once. Counts that only grow say how many of a channel's chunks have arrived and how many slots are free again, so
// that calls need no reset between them.
#include "device/peer_api.cuh"
#include "launch_exchange.h"

namespace fp8::cuda {
namespace {

// ---------------------------------------------------------------- kernels

constexpr int kLanes = kPeerLanes, kWarps = 2 * kPeerPairs;
constexpr int kFly = 8;  // loads of a lane's under way at once

// Where `of` stands among the peers of `at`.
__device__ __forceinline__ int seat(int of, int at) { return of - (of > at); }

// By one lane: until the count is there; false where the communicator has been given up.
__device__ __forceinline__ bool wait_for(const PeerCount &count, unsigned long long want, unsigned long long &seen,
                                         const PeerCount &stopped) {
  for (int i = 1; seen < want; ++i) {
    seen = load_acquire(&count.value);
    if (i % 64 == 0 && load_acquire(&stopped.value)) return false;
  }
  return true;
}

// From byte `from` of the line at dst on; lines lie `stride` apart.
struct Place {
  uint8_t *dst;
  int64_t stride, line, from;
};

__device__ __forceinline__ Place place_of(const PeerMove &m, int64_t at) {
  const int64_t line = at < m.line ? 0 : at / m.line;
  return {m.dst + line * m.stride, m.stride, m.line, at - line * m.line};
}

// n bytes, a multiple of T's, by the warp.
template <class T>
__device__ __forceinline__ void copy_lines(const Place &p, const uint8_t *src, int n, int lane) {
  constexpr int kStep = kLanes * int(sizeof(T)), kSome = kFly / 2;
  int i = lane * int(sizeof(T));
  const int64_t lines = kStep / p.line, rest = kStep - lines * p.line;
  int64_t at = p.from + i, l = at < p.line ? 0 : at / p.line;
  at -= l * p.line;
  uint8_t *out = p.dst + l * p.stride;
#pragma unroll 1
  for (; i < n; i += kSome * kStep) {
    T v[kSome];
#pragma unroll
    for (int k = 0; k < kSome; ++k)
      if (i + k * kStep < n) v[k] = load_fresh(reinterpret_cast<const T *>(src + i + k * kStep));
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      if (i + k * kStep < n) *reinterpret_cast<T *>(out + at) = v[k];
      at += rest;
      out += lines * p.stride;
      if (at >= p.line) at -= p.line, out += p.stride;
    }
  }
}

// Those of a lane's units of T that lie `step` apart, `some` of them at a time.
template <class T, int some, bool whole>
__device__ __forceinline__ void copy_batch(uint8_t *dst, const uint8_t *src, int left) {
  constexpr int kStep = kLanes * int(sizeof(T));
  T v[some];
#pragma unroll
  for (int k = 0; k < some; ++k)
    if (whole || k * kStep < left) v[k] = load_fresh(reinterpret_cast<const T *>(src + k * kStep));
#pragma unroll
  for (int k = 0; k < some; ++k)
    if (whole || k * kStep < left) *reinterpret_cast<T *>(dst + k * kStep) = v[k];
}

template <class T>
__device__ __forceinline__ void copy_run(uint8_t *dst, const uint8_t *src, int n, int lane) {
  constexpr int kStep = kLanes * int(sizeof(T)), kSome = 4;
  int i = lane * int(sizeof(T));
#pragma unroll 1
  for (; i + (kFly - 1) * kStep < n; i += kFly * kStep) copy_batch<T, kFly, true>(dst + i, src + i, 0);
#pragma unroll 1
  for (; i < n; i += kSome * kStep) copy_batch<T, kSome, false>(dst + i, src + i, n - i);
}

// In vectors where both lie alike.
__device__ __forceinline__ void copy(const Place &p, const uint8_t *src, int n, int lane) {
  const uintptr_t to = reinterpret_cast<uintptr_t>(p.dst), in = reinterpret_cast<uintptr_t>(src);
  if (p.from + n > p.line) {
    if ((to | in | uint64_t(p.stride | p.line)) % 16 == 0)
      copy_lines<uint4>(p, src, n, lane);  // whole lines end a move
    else
      copy_lines<uint8_t>(p, src, n, lane);
    return;
  }
  uint8_t *dst = p.dst + p.from;
  if ((to + p.from - in) % 16) return copy_run<uint8_t>(dst, src, n, lane);
  int head = int((16 - in % 16) % 16);
  head = head < n ? head : n;
  const int body = (n - head) / 16 * 16;
  copy_run<uint4>(dst + head, src + head, body, lane);
  for (int i = lane; i < n - body; i += kLanes) {
    const int k = i < head ? i : i + body;
    dst[k] = load_fresh(src + k);
  }
}

// Blocks of one number on two ranks serve each other, so that any rank may run any number of its blocks at a time, in
// order, and all still get on. The block whose peer is its own rank puts its own part into place.
__global__ void __launch_bounds__(kLanes *kWarps) exchange_chunks(const __grid_constant__ PeerExchange e) {
  const int lane = int(threadIdx.x) % kLanes, warp = int(threadIdx.x) / kLanes, pair = warp / 2;
  const int way = int(blockIdx.x) % e.size, block = int(blockIdx.x) / e.size;
  const int peer = (way + e.size - e.rank) % e.size;
  const bool alone = peer == e.rank, sends = !alone && warp % 2 == 0, takes = !alone && !sends;
  PeerWindow &own = *e.windows[e.rank], &theirs = *e.windows[peer];
  const int channels = e.blocks * kPeerPairs, channel = block * kPeerPairs + pair;
  const int here = alone ? 0 : seat(peer, e.rank) * channels + channel;
  const int there = alone ? 0 : seat(e.rank, peer) * channels + channel;
  const PeerCount &sign = sends ? own.taken[here] : own.filled[here];
  PeerCount &signal = sends ? theirs.filled[there] : theirs.taken[there];
  uint8_t *slots = reinterpret_cast<uint8_t *>(sends ? &theirs + 1 : &own + 1) +
                   int64_t{sends ? there : here} * e.depth * peer_slot(e.chunk);
  if (!first_lane(lane == 0 && !load_acquire(&own.stopped.value))) return;
  // What this rank sent in former calls has been taken; what it has taken, more may have followed.
  unsigned long long count = alone ? 0 : sends ? load_acquire(&sign.value) : own.received[here].value, seen = 0;
  const unsigned long long depth = static_cast<unsigned>(e.depth), begin = count;
  int64_t chunk = (alone ? warp : pair) * e.used + block;
  for (int i = 0; i < e.count; ++i) {
    const PeerMove &m = e.moves[i];
    if (m.source != (takes ? peer : e.rank)) continue;
    for (; chunk < m.first + m.chunks; chunk += (alone ? kWarps : kPeerPairs) * e.used) {
      const int64_t at = (chunk - m.first) * e.chunk;
      const int n = int(m.bytes - at < e.chunk ? m.bytes - at : e.chunk);
      if (alone && m.src == m.dst) continue;
      const unsigned long long want = takes ? count + 1 : count < depth ? 0 : count - depth + 1;
      if (!alone && !first_lane(lane == 0 && wait_for(sign, want, seen, own.stopped))) return;
      uint8_t *slot = slots + int64_t(count & (depth - 1)) * peer_slot(e.chunk) + m.shift;
      copy(sends ? Place{slot, 0, n, 0} : place_of(m, at), takes ? slot : m.src + at, n, lane);
      if (alone) continue;
      meet_warp();
      ++count;
      if (lane == 0) store_release(&signal.value, count);
    }
  }
  // A rank that has returned owes nothing and is owed nothing: its window may go.
  if (lane || count == begin) return;
  if (sends)
    wait_for(sign, count, seen, own.stopped);
  else
    own.received[here].value = count;
}

}  // namespace

// ---------------------------------------------------------------- launchers

void shape_exchange(PeerExchange &e) {
  e.blocks = kPeerBlocks / (e.size <= 2 ? 2 : e.size <= 4 ? 4 : kPeers);
  e.chunk = kPeerChunk;
  e.depth = kPeerDepth;
}

bool plan_exchange(PeerExchange &e) {
  int64_t chunks[kPeers] = {}, most = 0;
  for (int32_t i = 0; i < e.count; ++i) {
    PeerMove &m = e.moves[i];
    m.first = chunks[m.source];
    m.chunks = (m.bytes + e.chunk - 1) / e.chunk;
    chunks[m.source] += m.chunks;
    most = chunks[m.source] > most ? chunks[m.source] : most;
  }
  e.used = most < e.blocks ? int32_t(most) : e.blocks;
  return most > 0;
}

cudaError_t launch_exchange(const PeerExchange &e, cudaStream_t stream) {
  return launch(exchange_chunks, unsigned(e.used * e.size), kLanes * kWarps, stream, false, e);
}

cudaError_t load_exchange() { return load_code(&exchange_chunks); }

}  // namespace fp8::cuda
