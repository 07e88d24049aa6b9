// SPDX-License-Identifier: Apache-2.0
// Quantize and dequantize: the bytes that a recipe must move over the time, against copies of as many bytes.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "harness.h"

using namespace bench;

namespace {

// memcpy of the C library: for such sizes it stores past the caches. copy_cached: plain stores, which first read the
// line.
void copy_past(char *to, const char *from, uint64_t bytes) { std::memcpy(to, from, bytes); }
void copy_cached(char *to, const char *from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 4096) std::memcpy(to + i, from + i, std::min<uint64_t>(4096, bytes - i));
}

struct Copy {
  Memory from, to;
  int threads;
  void (*copy)(char *, const char *, uint64_t);
  Copy(uint64_t bytes, int threads, void (*copy)(char *, const char *, uint64_t))
      : from(bytes), to(bytes), threads(threads), copy(copy) {}
  void operator()() const {
    on_threads(threads, [&](int part) {
      const uint64_t size = from.buffer()->bytes, step = (size / threads + 4095) / 4096 * 4096;
      const uint64_t begin = std::min(size, step * part), end = std::min(size, begin + step);
      copy(static_cast<char *>(to.data()) + begin, static_cast<const char *>(from.data()) + begin, end - begin);
    });
  }
  double moved() const { return 2.0 * static_cast<double>(from.buffer()->bytes); }
};

struct Task {
  std::string name;
  double bytes, elements;
};

void row(const Task &t, const Options &o, const std::function<void()> &ours, const Copy &past, const Copy &cached) {
  const Result a = compare(o.repeats, ours, [&] { past(); });
  const Result b = compare(o.repeats, ours, [&] { cached(); });
  const double scale_a = t.bytes / past.moved(), scale_b = t.bytes / cached.moved();
  std::printf("| %s | %.2f | %.1f | %.1f | %.1f | **%.2f** (%.2f-%.2f) | %.2f |\n", t.name.c_str(),
              t.elements / a.ours * 1e-9, t.bytes / a.ours * 1e-9, past.moved() / a.peer * 1e-9,
              cached.moved() / b.peer * 1e-9, a.ratio * scale_a, a.low * scale_a, a.high * scale_a, b.ratio * scale_b);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char **argv) {
  const Options o = parse(argc, argv, "Quantizers against copies.");
  const int64_t cols = o.smoke ? 256 : 8192, rows = static_cast<int64_t>(o.bytes / 2) / cols;
  const double n = static_cast<double>(rows * cols);
  print_environment(
      o, "memcpy of the C library (past the caches) and memcpy by pages (cached stores), bytes read and written");
  std::printf(
      "x: BF16 [%lld, %lld], %.2f GiB. Bytes that must be moved: x once (twice where a scale needs all of it first), "
      "codes and scales once.\n\n",
      static_cast<long long>(rows), static_cast<long long>(cols), n * 2 / (1 << 30));
  std::printf(
      "| operation | Gelem/s | GB/s | copy past caches GB/s | copy cached GB/s | ratio (quartiles) | ratio to cached "
      "|\n|---|---|---|---|---|---|---|\n");
  Memory x_memory(rows * cols * 2), y_memory(rows * cols * 2);
  fill_bf16(x_memory.data(), rows * cols, 1.0f, 1);
  const fp8_tensor x = tensor(x_memory.data(), FP8_DTYPE_BF16, rows, cols);
  fp8_tensor y = tensor(y_memory.data(), FP8_DTYPE_BF16, rows, cols);
  const auto measure = [&](const Options &options, const char *suffix) {
    const Copy past(rows * cols * 2, options.threads, copy_past), cached(rows * cols * 2, options.threads, copy_cached);
    fp8_context *context = make_context(options);
    for (const RecipeCase &c : kRecipes) {
      if (options.threads != o.threads && c.preset != FP8_PRESET_TENSOR) continue;
      fp8_recipe *recipe = make_recipe(c);
      const int32_t role = FP8_ROLE_ACTIVATION;
      for (const uint32_t sides : {uint32_t{FP8_SIDE_ROW}, uint32_t{FP8_SIDE_BOTH}}) {
        const bool both = sides == FP8_SIDE_BOTH;
        const std::string name = std::string(c.name) + (both ? ", both sides" : ", row side") + suffix;
        Quantized q(context, recipe, role, rows, cols, sides);
        const Memory workspace(quantize_workspace(context, recipe, role, x, q.q));
        const auto ours = [&] { quantize(context, recipe, role, x, q.q, workspace.buffer()); };
        ours();
        uint64_t q_bytes = 0;
        check(fp8_qtensor_bytes(&q.q, sides, &q_bytes), "bytes");
        // all of x is read first for one scale, and for the column scales of ROW
        const bool twice = c.preset == FP8_PRESET_TENSOR || (c.preset == FP8_PRESET_ROW && both);
        const double bytes = n * 2 * (twice ? 2 : 1) + static_cast<double>(q_bytes);
        if (wanted(o, "quantize " + name)) row({"quantize " + name, bytes, n}, options, ours, past, cached);
        if (!both && wanted(o, "dequantize " + name)) {
          const auto back = [&] { check(fp8_dequantize(context, &q.q, FP8_SIDE_ROW, &y, nullptr), "dequantize"); };
          row({"dequantize " + name, static_cast<double>(q_bytes) + n * 2, n}, options, back, past, cached);
        }
      }
      fp8_recipe_destroy(recipe);
    }
    fp8_context_destroy(context);
  };
  measure(o, "");
  if (o.threads > 1) {
    Options one = o;
    one.threads = 1;
    measure(one, ", 1 thread");
  }
  return 0;
}
