// SPDX-License-Identifier: Apache-2.0
// An all-gather between GPUs of one host whose memory maps into each other: every rank pushes chunks into a window of
// each peer's, which moves them to their places.
#pragma once
#include <cstdint>

#ifndef FP8_CUDA_EMULATE
#include <cuda_runtime_api.h>
#else
#include "cuda_emulate.h"
#endif

namespace fp8::cuda {

constexpr int kPeers = 8;
constexpr int kPeerPairs = 8;    // of warps in a block: one sends, one receives
constexpr int kPeerMoves = 120;  // of one launch: its argument stays below 8 KB
// Between two H200, 32 MB a way take 1.2 times what bare stores take with 64 blocks a peer, 1.5 with 32. Chunks twice
// as large would make it 1.1 for twice the window; more than two slots a channel gain nothing.
constexpr int kPeerBlocks = 128;  // for all peers, and the rank itself
constexpr int kPeerChunk = 8192, kPeerDepth = 2;
constexpr int kPeerCounts = (kPeers - 1) * (kPeerBlocks / kPeers) * kPeerPairs;  // most of a rank's channels

struct PeerCount {
  unsigned long long value, pad[3];
};

// One rank's, in its device memory, zero at first; slots follow: [peer][channel][depth], without the rank itself. A
// channel is a pair of warps; counts are [peer][channel].
struct PeerWindow {
  PeerCount filled[kPeerCounts];    // chunks that have arrived; the peer counts them up
  PeerCount taken[kPeerCounts];     // chunks of this rank's that the peer has taken; it counts them up
  PeerCount received[kPeerCounts];  // this rank's own, from call to call
  PeerCount stopped;                // not 0: kernels give up
};

// The bytes of one rank: src, where it is this one's, to lines of `line` bytes, `stride` apart, from dst on.
struct PeerMove {
  const uint8_t *src;
  uint8_t *dst;
  int64_t bytes, line, stride;
  int64_t first, chunks;  // among its source's in this launch
  int32_t source, shift;  // its first byte's place modulo 16, the same on every rank
};

struct PeerExchange {
  PeerWindow *windows[kPeers];  // by rank
  int32_t rank, size;
  int32_t blocks;        // most that serve one peer
  int32_t chunk, depth;  // bytes, a multiple of 16; slots of a channel, a power of two
  int32_t used, count;   // blocks of this launch; moves
  int32_t reserved;
  PeerMove moves[kPeerMoves];  // alike on every rank but for pointers; each source's in order
};

constexpr int64_t peer_slot(int32_t chunk) { return int64_t{chunk} + 128; }  // begins where the chunk does modulo 16

constexpr int64_t peer_window_bytes(const PeerExchange &e) {
  return int64_t{sizeof(PeerWindow)} + int64_t{e.size - 1} * e.blocks * kPeerPairs * e.depth * peer_slot(e.chunk);
}

// Fills blocks, chunk and depth for its size.
void shape_exchange(PeerExchange &e);
// Fills first, chunks and used; false where the launch would have nothing to do.
bool plan_exchange(PeerExchange &e);
// Every rank launches the same exchanges in the same order; done once all its parts are here and gone.
cudaError_t launch_exchange(const PeerExchange &e, cudaStream_t stream);
cudaError_t load_exchange();

}  // namespace fp8::cuda
