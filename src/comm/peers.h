// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs of one host that reach each other's memory over NVLink: windows, made with the communicator, through
// which all-gathers go in one kernel of our own.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/launch_exchange.h"

namespace fp8::nccl {

class Peers {
 public:
  // Equal parts of host memory from every rank to every rank; not FP8_OK: failed.
  using Share = std::function<int32_t(const void *own, void *all, int64_t bytes)>;

  // On the current device, by every rank. NULL, the same on all of them: some rank does not reach some other, and
  // *refusal is what this one knows of it.
  static int32_t open(int rank, int size, int device, const Share &share, std::unique_ptr<Peers> *peers,
                      std::string *refusal);
  ~Peers();  // kernels in flight give up
  Peers(const Peers &) = delete;
  Peers &operator=(const Peers &) = delete;

  // One rank's bytes, on every rank in the same order: launched by flush(), on its stream.
  void add(int source, const void *src, void *dst, int64_t bytes, int64_t line, int64_t stride, int64_t offset);
  bool any() const { return !moves_.empty(); }
  cudaError_t flush(cudaStream_t stream);
  void forget() { moves_.clear(); }
  // Kernels in flight give up, and those to come do nothing. After a fault peers may still come and write: the window
  // stays, to the end of the process.
  void stop(bool fault);

 private:
  struct Window;
  struct Card;
  Peers() = default;
  const char *make(int device, Card *own);  // NULL, or why not; as reach()
  const char *reach(int device, int peer, const Card &card, bool same_process);
  static void drop(Window *window, int users);
  bool idle();

  cuda::PeerExchange exchange_{};
  Window *held_[cuda::kPeers] = {};  // this rank's, and those of ranks of the same process
  bool mapped_[cuda::kPeers] = {};   // those of other processes
  std::vector<cuda::PeerMove> moves_;
  cudaStream_t control_ = nullptr;
  cudaEvent_t done_ = nullptr;
  bool used_ = false, stopped_ = false, fault_ = false;
};

}  // namespace fp8::nccl
