// SPDX-License-Identifier: Apache-2.0
// One ordered list of ways to multiply, the first willing one runs. Who declined and why is kept for explain and
// printed under FP8_VERBOSE=1. Plain functions, so that an implementation can live in a module.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "ops/gemm.h"

namespace fp8::ops {

constexpr int32_t kDeclined = -1;  // beside fp8_status: nothing was written, the next one is asked

struct GemmImpl {
  const char *name;
  const char *about;  // what it does with FP8 operands, for explain
  void *self;
  // FP8_OK, or kDeclined with the reason; reads no data. NULL: takes everything.
  int32_t (*accepts)(void *self, const Gemm *g, char *why, uint64_t bytes);
  uint64_t (*scratch)(void *self, const Gemm *g);
  int32_t (*prepare)(void *self, const Gemm *g);  // may block; NULL: nothing to prepare
  // FP8_OK, kDeclined with the reason (a matter of data), or an error whose detail is set
  int32_t (*run)(void *self, const Gemm *g, char *why, uint64_t bytes);
};

class GemmList {
 public:
  GemmList(void (*verbose)(const char *line), bool verbose_on) : verbose_(verbose), verbose_on_(verbose_on) {}
  void add(const GemmImpl &impl);                         // after those already there
  void absent(const char *name, const std::string &why);  // for explain
  uint64_t scratch(const Gemm &g) const;                  // of the worst choice that data can make
  int32_t prepare(const Gemm &g);
  int32_t run(const Gemm &g);
  std::string explain() const;

 private:
  static constexpr int kMost = 4;
  struct Entry {
    GemmImpl impl{};
    std::atomic<uint64_t> ran{0}, declined{0};
    std::string last;  // reason of the last refusal
  };
  bool accepted(const Entry &e, const Gemm &g, char *why, uint64_t bytes) const;
  void refused(Entry &e, const Gemm &g, const char *why);
  Entry entries_[kMost];
  int count_ = 0;
  std::string absent_;
  mutable std::mutex mutex_;
  void (*verbose_)(const char *line);
  bool verbose_on_;
};

// "e4m3 1x128 [512, 4096] . e4m3 128x128 [1024, 4096]^T -> bf16 +="
std::string gemm_text(const Gemm &g);

}  // namespace fp8::ops
