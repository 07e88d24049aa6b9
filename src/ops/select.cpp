// SPDX-License-Identifier: Apache-2.0
#include "ops/select.h"

#include <algorithm>
#include <cstdio>

#include "fp8/recipe.h"
#include "fp8/types.h"

namespace fp8::ops {

namespace {

const char *dtype_text(int32_t dtype) {
  switch (dtype) {
    case FP8_DTYPE_F32:
      return "f32";
    case FP8_DTYPE_F16:
      return "f16";
    case FP8_DTYPE_BF16:
      return "bf16";
    case FP8_DTYPE_E4M3:
      return "e4m3";
    case FP8_DTYPE_E5M2:
      return "e5m2";
    default:
      return "?";
  }
}

const char *scaling_text(int32_t scaling) {
  switch (scaling) {
    case FP8_SCALING_TENSOR:
      return " tensor";
    case FP8_SCALING_ROW:
      return " row";
    case FP8_SCALING_1X128:
      return " 1x128";
    case FP8_SCALING_128X128:
      return " 128x128";
    case FP8_SCALING_1X32:
      return " 1x32";
    case FP8_SCALING_32X32:
      return " 32x32";
    default:
      return "";
  }
}

constexpr uint64_t kWhy = 256;

}  // namespace

std::string gemm_text(const Gemm &g) {
  char text[256];
  std::snprintf(text, sizeof text, "%s%s [%lld, %lld] . %s%s [%lld, %lld]^T -> %s%s", dtype_text(g.a.codes.dtype),
                scaling_text(g.a.scaling), static_cast<long long>(g.a.codes.rows),
                static_cast<long long>(g.a.codes.cols), dtype_text(g.b.codes.dtype), scaling_text(g.b.scaling),
                static_cast<long long>(g.b.codes.rows), static_cast<long long>(g.b.codes.cols), dtype_text(g.d.dtype),
                g.accumulate ? " +=" : "");
  return text;
}

void GemmList::add(const GemmImpl &impl) {
  if (count_ < kMost) entries_[count_++].impl = impl;
}

void GemmList::absent(const char *name, const std::string &why) {
  absent_ += std::string("gemm ") + name + ": absent: " + why + "\n";
}

bool GemmList::accepted(const Entry &e, const Gemm &g, char *why, uint64_t bytes) const {
  why[0] = 0;
  return !e.impl.accepts || e.impl.accepts(e.impl.self, &g, why, bytes) == 0;
}

void GemmList::refused(Entry &e, const Gemm &g, const char *why) {
  e.declined.fetch_add(1, std::memory_order_relaxed);
  if (verbose_on_) verbose_(("gemm " + gemm_text(g) + ": " + e.impl.name + " declined: " + why).c_str());
  std::lock_guard<std::mutex> lock(mutex_);
  e.last.assign(why);
}

uint64_t GemmList::scratch(const Gemm &g) const {
  uint64_t most = 0;
  char why[kWhy];
  for (int i = 0; i < count_; ++i) {
    if (accepted(entries_[i], g, why, sizeof why))
      most = std::max(most, entries_[i].impl.scratch(entries_[i].impl.self, &g));
  }
  return most;
}

int32_t GemmList::prepare(const Gemm &g) {
  char why[kWhy];
  for (int i = 0; i < count_; ++i) {
    const GemmImpl &impl = entries_[i].impl;
    if (!impl.prepare || !accepted(entries_[i], g, why, sizeof why)) continue;
    if (const int32_t status = impl.prepare(impl.self, &g)) return status;
  }
  return FP8_OK;
}

int32_t GemmList::run(const Gemm &g) {
  char why[kWhy];
  for (int i = 0; i < count_; ++i) {
    Entry &e = entries_[i];
    if (!accepted(e, g, why, sizeof why)) {
      refused(e, g, why);
      continue;
    }
    const int32_t status = e.impl.run(e.impl.self, &g, why, sizeof why);
    if (status == kDeclined) {
      refused(e, g, why);
      continue;
    }
    if (status == FP8_OK) {
      e.ran.fetch_add(1, std::memory_order_relaxed);
      if (verbose_on_) verbose_(("gemm " + gemm_text(g) + ": " + e.impl.name).c_str());
    }
    return status;
  }
  return kDeclined;
}

std::string GemmList::explain() const {
  std::string text = absent_;
  std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) {
    const Entry &e = entries_[i];
    const unsigned long long ran = e.ran.load(std::memory_order_relaxed);
    const unsigned long long declined = e.declined.load(std::memory_order_relaxed);
    text += std::string("gemm ") + e.impl.name + ": " + e.impl.about + "; ran " + std::to_string(ran) + ", declined " +
            std::to_string(declined);
    if (declined) text += ", last: " + e.last;
    text += "\n";
  }
  return text;
}

}  // namespace fp8::ops
