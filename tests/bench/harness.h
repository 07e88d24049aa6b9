// SPDX-License-Identifier: Apache-2.0
// Benchmarks: ours and a peer by turns in one process, the median of the ratios, one Markdown table.
#pragma once
#include <fp8/fp8.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

struct Options {
  int threads = 0;  // 0 = all
  int repeats = 15;
  bool smoke = false;           // tiny sizes: does it run?
  uint64_t bytes = 1ull << 30;  // of a tensor
  std::string only;             // rows whose name holds this
  std::string command;
};
Options parse(int argc, char **argv, const char *what);
bool wanted(const Options &o, const std::string &row);

void check(fp8_status status, const char *what);  // ends the program with the library's own words
double seconds();
std::string cpu_model();
void print_environment(const Options &o, const std::string &peer);

// Median seconds of each and median of peer / ours taken in pairs, after one warming run of each.
struct Result {
  double ours, peer, ratio, low, high;  // low, high: quartiles of the ratio
};
Result compare(int repeats, const std::function<void()> &ours, const std::function<void()> &peer);

// body(part) on `threads` threads kept for the process.
void on_threads(int threads, const std::function<void(int part)> &body);

class Memory {  // page-touched, 4 KiB aligned
 public:
  explicit Memory(uint64_t bytes);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  void *data() const { return buffer_.data; }
  const fp8_buffer *buffer() const { return &buffer_; }

 private:
  fp8_buffer buffer_;
};

fp8_context *make_context(const Options &o, uint32_t flags = FP8_CONTEXT_NO_ALLOC);
fp8_tensor tensor(void *data, int32_t dtype, int64_t rows, int64_t cols);
void fill_bf16(void *data, int64_t count, float scale, uint32_t seed);  // normal values

struct RecipeCase {
  const char *name;
  int32_t preset, scale_rule;  // 0 = the preset's
};
extern const std::vector<RecipeCase> kRecipes;
fp8_recipe *make_recipe(const RecipeCase &c);

// A described and placed qtensor with its memory.
struct Quantized {
  fp8_qtensor q;
  Memory *memory;
  Quantized(const fp8_context *c, const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols, uint32_t sides);
  ~Quantized() { delete memory; }
  Quantized(const Quantized &) = delete;
  Quantized &operator=(const Quantized &) = delete;
};
void quantize(const fp8_context *c, const fp8_recipe *r, int32_t role, const fp8_tensor &x, fp8_qtensor &q,
              const fp8_buffer *workspace);
uint64_t quantize_workspace(const fp8_context *c, const fp8_recipe *r, int32_t role, const fp8_tensor &x,
                            fp8_qtensor &q);

}  // namespace bench
