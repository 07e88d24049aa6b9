// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

namespace bench {

Options parse(int argc, char **argv, const char *what) {
  Options o;
  for (int i = 0; i < argc; ++i) o.command += std::string(i ? " " : "") + argv[i];
  o.command = o.command.substr(o.command.find_last_of('/', o.command.find(' ')) + 1);
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] {
      if (i + 1 < argc) return std::string(argv[++i]);
      std::fprintf(stderr, "%s needs a value\n", a.c_str());
      std::exit(2);
    };
    if (a == "--threads")
      o.threads = std::atoi(value().c_str());
    else if (a == "--repeats")
      o.repeats = std::max(1, std::atoi(value().c_str()));
    else if (a == "--bytes")
      o.bytes = std::strtoull(value().c_str(), nullptr, 10);
    else if (a == "--only")
      o.only = value();
    else if (a == "--smoke")
      o.smoke = true;
    else {
      std::printf(
          "%s\n  --threads N   worker threads (0 = all)\n  --repeats N   pairs of runs (15)\n  --bytes N     size of a "
          "tensor (1073741824)\n  --only TEXT   rows whose name holds TEXT\n  --smoke       tiny sizes, to see that it "
          "runs\n",
          what);
      std::exit(a == "--help" ? 0 : 2);
    }
  }
  if (o.threads <= 0) o.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (o.smoke) o.repeats = 2, o.bytes = 1 << 16;
  return o;
}

bool wanted(const Options &o, const std::string &row) {
  return o.only.empty() || row.find(o.only) != std::string::npos;
}

void check(fp8_status status, const char *what) {
  if (status == FP8_OK) return;
  fp8_error error;
  FP8_INIT(&error);
  fp8_last_error(&error);
  std::fprintf(stderr, "%s: %s: %s\n", what, fp8_status_name(status), error.message ? error.message : "");
  std::exit(1);
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, flags;
  std::string model = "unknown CPU";
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) == 0) model = line.substr(line.find(':') + 2);
    if (line.rfind("flags", 0) == 0) {
      flags = line + " ";
      break;
    }
  }
  for (const char *f : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(std::string(" ") + f + " ") != std::string::npos) model += std::string(", ") + f;
  }
  return model;
}

void print_environment(const Options &o, const std::string &peer) {
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  std::printf("CPU: %s, %d threads\n\nlibfp8: %s\n\npeer: %s\n\ncommand: `%s` (%s, median of %d pairs)\n\n",
              cpu_model().c_str(), o.threads, fp8_build_info(), peer.c_str(), o.command.c_str(), date, o.repeats);
}

namespace {
double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  const double at = q * (v.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const double part = at - low;
  return low + 1 < v.size() ? v[low] * (1 - part) + v[low + 1] * part : v[low];
}
// The pause lets the other side's threads fall asleep: an OpenMP team spins for some milliseconds after its work.
double timed(const std::function<void()> &f) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const double start = seconds();
  f();
  return seconds() - start;
}
}  // namespace

Result compare(int repeats, const std::function<void()> &ours, const std::function<void()> &peer) {
  ours();
  peer();
  std::vector<double> a, b, ratio;
  for (int i = 0; i < repeats; ++i) {  // the order changes, so that neither always follows the other
    double x, y;
    if (i % 2) {
      y = timed(peer);
      x = timed(ours);
    } else {
      x = timed(ours);
      y = timed(peer);
    }
    a.push_back(x), b.push_back(y), ratio.push_back(y / x);
  }
  return {quantile(a, 0.5), quantile(b, 0.5), quantile(ratio, 0.5), quantile(ratio, 0.25), quantile(ratio, 0.75)};
}

namespace {
struct Crew {
  std::mutex mutex;
  std::condition_variable start, done;
  const std::function<void(int)> *body = nullptr;
  uint64_t round = 0;
  int left = 0, size = 0;
  void grow(int threads) {
    for (; size < threads - 1; ++size) std::thread(&Crew::work, this, size + 1, round).detach();
  }
  void work(int part, uint64_t seen) {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      start.wait(lock, [&] { return round != seen; });
      seen = round;
      const std::function<void(int)> *todo = body;
      lock.unlock();
      (*todo)(part);
      lock.lock();
      if (--left == 0) done.notify_one();
    }
  }
};
}  // namespace

void on_threads(int threads, const std::function<void(int)> &body) {
  static Crew *crew = new Crew;
  if (threads <= 1) return body(0);
  const std::function<void(int)> guarded = [&](int part) {
    if (part < threads) body(part);
  };
  {
    std::lock_guard<std::mutex> lock(crew->mutex);
    crew->grow(threads);
    crew->body = &guarded;
    crew->left = crew->size;
    ++crew->round;
  }
  crew->start.notify_all();
  body(0);
  std::unique_lock<std::mutex> lock(crew->mutex);
  crew->done.wait(lock, [&] { return crew->left == 0; });
}

Memory::Memory(uint64_t bytes) {
  const uint64_t size = (std::max<uint64_t>(bytes, 1) + 4095) / 4096 * 4096;
  buffer_ = {std::aligned_alloc(4096, size), bytes};
  if (!buffer_.data) {
    std::fprintf(stderr, "no memory for %llu bytes\n", static_cast<unsigned long long>(bytes));
    std::exit(1);
  }
  std::memset(buffer_.data, 1, size);
}

Memory::~Memory() { std::free(buffer_.data); }

fp8_context *make_context(const Options &o, uint32_t flags) {
  fp8_context_config config;
  FP8_INIT(&config);
  config.backend = FP8_BACKEND_CPU;
  config.threads = o.threads;
  config.flags = flags;
  fp8_context *context = nullptr;
  check(fp8_context_create(&config, &context), "context");
  return context;
}

fp8_tensor tensor(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  fp8_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.ndim = 2;
  t.shape[0] = rows;
  t.shape[1] = cols;
  check(fp8_tensor_compact(&t), "tensor");
  return t;
}

void fill_bf16(void *data, int64_t count, float scale, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  uint16_t *x = static_cast<uint16_t *>(data);
  const int64_t period = std::min<int64_t>(count, 1000003);  // prime: rows differ
  for (int64_t i = 0; i < period; ++i) {
    const float f = normal(rng);
    uint32_t u;
    std::memcpy(&u, &f, 4);
    x[i] = static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  for (int64_t i = period; i < count; i += period) std::memcpy(x + i, x, 2 * std::min(period, count - i));
}

const std::vector<RecipeCase> kRecipes = {
    {"TENSOR", FP8_PRESET_TENSOR, 0}, {"ROW", FP8_PRESET_ROW, 0},
    {"BLOCK", FP8_PRESET_BLOCK, 0},   {"BLOCK, FP32 scales", FP8_PRESET_BLOCK, FP8_SCALE_FP32},
    {"MX", FP8_PRESET_MX, 0},         {"MX_W2D", FP8_PRESET_MX_W2D, 0}};

fp8_recipe *make_recipe(const RecipeCase &c) {
  fp8_recipe_config config;
  FP8_INIT(&config);
  check(fp8_recipe_config_preset(c.preset, &config), c.name);
  if (c.scale_rule) config.scale_rule = c.scale_rule;
  fp8_recipe *recipe = nullptr;
  check(fp8_recipe_create(&config, &recipe), c.name);
  return recipe;
}

Quantized::Quantized(const fp8_context *c, const fp8_recipe *r, int32_t role, int64_t rows, int64_t cols,
                     uint32_t sides) {
  FP8_INIT(&q);
  check(fp8_recipe_describe(r, c, role, rows, cols, sides, &q), "describe");
  uint64_t bytes = 0;
  check(fp8_qtensor_bytes(&q, sides & FP8_SIDE_BOTH, &bytes), "bytes");
  memory = new Memory(bytes);
  check(fp8_qtensor_place(&q, sides & FP8_SIDE_BOTH, memory->buffer()), "place");
}

uint64_t quantize_workspace(const fp8_context *c, const fp8_recipe *r, int32_t role, const fp8_tensor &x,
                            fp8_qtensor &q) {
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.q = &q;
  args.role = role;
  uint64_t bytes = 0;
  check(fp8_quantize_workspace(c, r, &args, &bytes), "quantize_workspace");
  return bytes;
}

void quantize(const fp8_context *c, const fp8_recipe *r, int32_t role, const fp8_tensor &x, fp8_qtensor &q,
              const fp8_buffer *workspace) {
  fp8_quantize_args args;
  FP8_INIT(&args);
  args.x = &x;
  args.q = &q;
  args.role = role;
  args.workspace = workspace;
  check(fp8_quantize(c, r, &args, nullptr), "quantize");
}

}  // namespace bench
