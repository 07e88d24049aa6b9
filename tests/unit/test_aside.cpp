// SPDX-License-Identifier: Apache-2.0
// Work beside the caller: awaited when it ends in time, left alone when it does not.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "comm/aside.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int failed = 0;
void check(bool good, const char *what) {
  if (good) return;
  std::printf("failed: %s\n", what);
  ++failed;
}

struct Shared {
  std::atomic<bool> go{false}, done{false};
};

}  // namespace

int main() {
  const auto quick = std::make_shared<Shared>(), stuck = std::make_shared<Shared>();
  const auto self = std::this_thread::get_id();
  check(fp8::aside(
            [quick, self] {
              std::this_thread::sleep_for(milliseconds(50));
              quick->done = std::this_thread::get_id() != self;
            },
            milliseconds(10000)),
        "work that ends is awaited");
  check(quick->done, "it was done, on another thread");

  const auto begin = Clock::now();
  check(!fp8::aside(
            [stuck] {
              while (!stuck->go) std::this_thread::sleep_for(milliseconds(1));
              stuck->done = true;
            },
            milliseconds(100)),
        "work that waits is left alone");
  check(Clock::now() - begin >= milliseconds(100) && Clock::now() - begin < milliseconds(5000), "at the limit");
  check(!stuck->done, "it still waits");
  stuck->go = true;
  for (int i = 0; i < 5000 && !stuck->done; ++i) std::this_thread::sleep_for(milliseconds(1));
  check(stuck->done, "it goes on alone");
  std::printf("%s\n", failed ? "FAILED" : "ok");
  return failed != 0;
}
