// SPDX-License-Identifier: Apache-2.0
// Which SIMD target serves this process.
#include <atomic>
#include <cstring>

#include "cpu/launch_cpu.h"
#include "cpu/tile.h"

namespace fp8::cpu {
namespace {

int available(const TileOps *found[8]) {
  int n = 0;
  found[n++] = plain_ops();
  return n;
}

std::atomic<const TileOps *> chosen{nullptr};

}  // namespace

const TileOps &tile_ops() {
  const TileOps *ops = chosen.load(std::memory_order_acquire);
  if (!ops) {
    const TileOps *found[8];
    available(found);
    ops = found[0];
    chosen.store(ops, std::memory_order_release);
  }
  return *ops;
}

int simd_targets(const char *names[8]) {
  const TileOps *found[8];
  const int n = available(found);
  for (int i = 0; i < n; ++i) names[i] = found[i]->name;
  return n;
}

const char *simd_target() { return tile_ops().name; }

bool set_simd_target(const char *name) {
  const TileOps *found[8];
  const int n = available(found);
  for (int i = 0; i < n; ++i)
    if (!name || !std::strcmp(found[i]->name, name)) {
      chosen.store(found[i], std::memory_order_release);
      return true;
    }
  return false;
}

}  // namespace fp8::cpu
