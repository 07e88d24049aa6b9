// SPDX-License-Identifier: Apache-2.0
// On a GPU with 30 GB free, through the C API: matrices of more than 2^31 elements. One is a stack of blocks of 128
// rows, some of them of their own, at the ends and around element 2^30 and 2^31, the rest alike. Quantizing and moving
// it gives each block what the CPU backend gives a small stack of those few.
#include <cmath>
#include <memory>

#include "../../bench/cuda/gpu.h"

namespace {

constexpr int64_t kRows = 128, kCols = 4096, kBlocks = 4128, kAll = kBlocks * kRows;
constexpr int64_t kOwn[] = {0, 2047, 2048, 4095, 4096, 4127};  // and block 1 for the rest
constexpr int kStack = 7;
static_assert(kAll * kCols > int64_t{1} << 31, "");
int64_t block_of(int i) { return i < 6 ? kOwn[i] : 1; }

int g_bad = 0;
void report(const char *what, bool good) {
  std::printf("| %s | %s |\n", what, good ? "same" : "DIFFERS");
  std::fflush(stdout);
  g_bad += !good;
}

struct Cpu {
  fp8_context *c = nullptr;
  Cpu() {
    fp8_context_config config;
    FP8_INIT(&config);
    config.backend = FP8_BACKEND_CPU;
    GPU_CHECK(fp8_context_create(&config, &c));
  }
  ~Cpu() { fp8_context_destroy(c); }
};

struct Host {  // 256-byte aligned
  std::vector<uint8_t> v;
  explicit Host(uint64_t bytes) : v(bytes + 256) {}
  uint8_t *data() { return v.data() + (256 - reinterpret_cast<uintptr_t>(v.data()) % 256) % 256; }
};

// The stack's BF16 values, `cols` wide, on the host and spread over the device.
struct Blocks {
  int64_t cols;
  Host small;
  gpu::Memory large;
  Blocks(int64_t cols, uint64_t seed) : cols(cols), small(kStack * kRows * cols * 2), large(kAll * cols * 2) {
    auto *x = reinterpret_cast<uint16_t *>(small.data());
    for (int64_t i = 0; i < kStack * kRows * cols; ++i) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      // sign, mantissa, and one of eight exponents
      x[i] = static_cast<uint16_t>((seed >> 48 & 0x807f) | (0x3d00 + (seed >> 40 & 7) * 0x80));
    }
    const auto bytes = static_cast<size_t>(kRows * cols * 2);
    char *to = static_cast<char *>(large.data());
    GPU_CHECK(cudaMemcpy(to, small.data() + 6 * bytes, bytes, cudaMemcpyHostToDevice));
    for (int64_t done = 1; done < kBlocks; done *= 2)
      GPU_CHECK(cudaMemcpy(to + static_cast<size_t>(done) * bytes, to,
                           bytes * static_cast<size_t>(std::min(done, kBlocks - done)), cudaMemcpyDeviceToDevice));
    for (int i = 0; i < 6; ++i)
      GPU_CHECK(cudaMemcpy(to + static_cast<size_t>(kOwn[i]) * bytes, small.data() + static_cast<size_t>(i) * bytes,
                           bytes, cudaMemcpyHostToDevice));
  }
};

int64_t size_of(int32_t dtype) {
  return dtype == FP8_DTYPE_F32 ? 4 : dtype == FP8_DTYPE_BF16 || dtype == FP8_DTYPE_F16 ? 2 : 1;
}

// Rows [block, block + 1) * per of a matrix seen row-wise (or, `col`, of its transpose as stored), packed.
std::vector<uint8_t> cut(const fp8_tensor &t, int64_t block, int64_t per, bool col, bool device) {
  const int64_t size = size_of(t.dtype), along = col ? 1 : 0;
  const int64_t lines = t.shape[1 - along], line_stride = t.stride[1 - along], stride = t.stride[along];
  const bool inner = stride == 1;  // `per` neighbours a line
  const auto width = static_cast<size_t>((inner ? per : lines) * size);
  const auto height = static_cast<size_t>(inner ? lines : per),
             pitch = static_cast<size_t>((inner ? line_stride : stride) * size);
  const char *from = static_cast<const char *>(t.data) + block * per * stride * size;
  std::vector<uint8_t> v(width * height);
  if (device)
    GPU_CHECK(cudaMemcpy2D(v.data(), width, from, std::max(pitch, width), width, height, cudaMemcpyDeviceToHost));
  else
    for (size_t r = 0; r < height; ++r) std::memcpy(v.data() + r * width, from + r * pitch, width);
  return v;
}
bool same_blocks(const fp8_tensor &large, const fp8_tensor &small, int64_t per, bool col) {
  bool good = true;
  for (int i = 0; i < kStack; ++i)
    good = good && cut(large, block_of(i), per, col, true) == cut(small, i, per, col, false);
  return good;
}

// Element by element of the scales: strides need not agree.
bool same_scales(const fp8_tensor &large, const fp8_tensor &small, bool col) {
  const int64_t size = size_of(small.dtype);
  uint64_t last = 0;
  for (int d = 0; d < large.ndim; ++d) last += static_cast<uint64_t>((large.shape[d] - 1) * large.stride[d]);
  std::vector<uint8_t> got((last + 1) * static_cast<uint64_t>(size));
  GPU_CHECK(cudaMemcpy(got.data(), large.data, got.size(), cudaMemcpyDeviceToHost));
  const auto extent = [](const fp8_tensor &t, int d) { return d < t.ndim ? t.shape[d] : 1; };
  const auto stride = [](const fp8_tensor &t, int d) { return d < t.ndim ? t.stride[d] : 1; };
  const int along = col ? 1 : 0;
  const bool whole = extent(small, along) == extent(large, along);  // one scale along all rows
  const int64_t per = whole ? extent(small, along) : extent(small, along) / kStack, across = extent(small, 1 - along);
  bool good = true;
  for (int i = 0; i < (whole ? 1 : kStack); ++i)
    for (int64_t p = 0; p < per; ++p)
      for (int64_t q = 0; q < across; ++q) {
        const int64_t a = ((whole ? 0 : block_of(i) * per) + p) * stride(large, along) + q * stride(large, 1 - along);
        const int64_t b = (i * per + p) * stride(small, along) + q * stride(small, 1 - along);
        good = good && !std::memcmp(got.data() + a * size, static_cast<const uint8_t *>(small.data) + b * size,
                                    static_cast<size_t>(size));
      }
  return good;
}

struct Quantized {  // on the host
  fp8_qtensor q;
  std::unique_ptr<Host> memory;
};
Quantized on_cpu(const Cpu &cpu, const fp8_context *cuda, const fp8_recipe *r, int32_t role, Blocks &b,
                 uint32_t sides) {
  Quantized o;
  FP8_INIT(&o.q);
  GPU_CHECK(fp8_recipe_describe(r, cuda, role, kStack * kRows, b.cols, sides, &o.q));
  uint64_t bytes = 0;
  GPU_CHECK(fp8_qtensor_bytes(&o.q, sides, &bytes));
  o.memory = std::make_unique<Host>(bytes);
  const fp8_buffer buffer{o.memory->data(), bytes};
  GPU_CHECK(fp8_qtensor_place(&o.q, sides, &buffer));
  gpu::quantize(cpu.c, r, role, gpu::tensor(b.small.data(), FP8_DTYPE_BF16, kStack * kRows, b.cols), o.q, nullptr,
                nullptr);
  return o;
}

void values(const fp8_context *c, const Cpu &cpu, Blocks &x, gpu::Memory &y, Host &small_y) {
  struct Case {
    const char *name;
    int32_t preset, role;
  };
  for (const Case &k : {Case{"TENSOR", FP8_PRESET_TENSOR, FP8_ROLE_ACTIVATION},
                        {"ROW", FP8_PRESET_ROW, FP8_ROLE_ACTIVATION},
                        {"BLOCK 1x128", FP8_PRESET_BLOCK, FP8_ROLE_ACTIVATION},
                        {"BLOCK 128x128", FP8_PRESET_BLOCK, FP8_ROLE_WEIGHT},
                        {"MX 1x32", FP8_PRESET_MX, FP8_ROLE_ACTIVATION},
                        {"MX_W2D 32x32", FP8_PRESET_MX_W2D, FP8_ROLE_WEIGHT}}) {
    fp8_recipe *r = gpu::recipe(k.preset);
    Quantized want = on_cpu(cpu, c, r, k.role, x, FP8_SIDE_BOTH);
    gpu::Quantized got(c, r, k.role, kAll, kCols, FP8_SIDE_BOTH);
    const fp8_tensor tx = gpu::tensor(x.large.data(), FP8_DTYPE_BF16, kAll, kCols);
    gpu::Memory scratch(gpu::quantize_workspace(c, r, k.role, tx, got.q));
    gpu::quantize(c, r, k.role, tx, got.q, &scratch.b, nullptr);
    GPU_CHECK(cudaDeviceSynchronize());
    report((std::string("quantize ") + k.name + ", row codes").c_str(),
           same_blocks(got.q.row, want.q.row, kRows, false));
    report((std::string("quantize ") + k.name + ", column codes").c_str(),
           same_blocks(got.q.col, want.q.col, kRows, true));
    report((std::string("quantize ") + k.name + ", row scales").c_str(),
           same_scales(got.q.row_scale, want.q.row_scale, false));
    report((std::string("quantize ") + k.name + ", column scales").c_str(),
           same_scales(got.q.col_scale, want.q.col_scale, true));
    for (const uint32_t side : {FP8_SIDE_ROW, FP8_SIDE_COL}) {
      fp8_tensor ty = gpu::tensor(y.data(), FP8_DTYPE_BF16, kAll, kCols),
                 ts = gpu::tensor(small_y.data(), FP8_DTYPE_BF16, kStack * kRows, kCols);
      GPU_CHECK(fp8_dequantize(c, &got.q, side, &ty, nullptr));
      GPU_CHECK(fp8_dequantize(cpu.c, &want.q, side, &ts, nullptr));
      GPU_CHECK(cudaDeviceSynchronize());
      report((std::string("dequantize ") + k.name + (side == FP8_SIDE_ROW ? ", rows" : ", columns")).c_str(),
             same_blocks(ty, ts, kRows, false));
    }
    fp8_recipe_destroy(r);
  }
}

void moves(const fp8_context *c, const Cpu &cpu, Blocks &x, gpu::Memory &y, Host &small_y) {
  const fp8_tensor tx = gpu::tensor(x.large.data(), FP8_DTYPE_BF16, kAll, kCols),
                   sx = gpu::tensor(x.small.data(), FP8_DTYPE_BF16, kStack * kRows, kCols);
  for (const int32_t to : {FP8_DTYPE_F16, FP8_DTYPE_E5M2}) {
    fp8_tensor ty = gpu::tensor(y.data(), to, kAll, kCols), sy = gpu::tensor(small_y.data(), to, kStack * kRows, kCols);
    GPU_CHECK(fp8_cast(c, &tx, nullptr, 1, &ty, nullptr));
    GPU_CHECK(fp8_cast(cpu.c, &sx, nullptr, 1, &sy, nullptr));
    GPU_CHECK(cudaDeviceSynchronize());
    report(to == FP8_DTYPE_F16 ? "cast BF16 to F16" : "cast BF16 to E5M2", same_blocks(ty, sy, kRows, false));
  }
  for (const int32_t dtype : {FP8_DTYPE_BF16, FP8_DTYPE_U8}) {
    fp8_tensor from = tx, small = sx;
    from.dtype = small.dtype = dtype;
    fp8_tensor ty = gpu::tensor(y.data(), dtype, kCols, kAll),
               sy = gpu::tensor(small_y.data(), dtype, kCols, kStack * kRows);
    if (dtype == FP8_DTYPE_U8) {  // the bytes of the first half of each row
      from.stride[0] = small.stride[0] = 2 * kCols;
    }
    GPU_CHECK(fp8_transpose(c, &from, &ty, nullptr));
    GPU_CHECK(fp8_transpose(cpu.c, &small, &sy, nullptr));
    GPU_CHECK(cudaDeviceSynchronize());
    report(dtype == FP8_DTYPE_BF16 ? "transpose of 2 bytes" : "transpose of 1 byte", same_blocks(ty, sy, kRows, true));
  }
}

// Products of the large operand against those of the small stack by the same code: another tile order, so not the same
// bytes, but an element at the wrong place is far off.
struct Product {
  fp8_gemm_args args;
  fp8_tensor d;
  gpu::Memory workspace;
  Product(const fp8_context *c, const fp8_qtensor &a, const fp8_qtensor &b, uint32_t side, const fp8_tensor &to,
          uint32_t flags)
      : d(to) {
    FP8_INIT(&args);
    args.a = &a, args.b = &b, args.a_side = side, args.b_side = side, args.d = &d, args.flags = flags;
    uint64_t bytes = 0;
    GPU_CHECK(fp8_gemm_workspace(c, &args, &bytes));
    workspace = gpu::Memory(bytes);
    args.workspace = &workspace.b;
    GPU_CHECK(fp8_gemm(c, &args, nullptr));
    GPU_CHECK(cudaDeviceSynchronize());
  }
};

double value(int32_t dtype, const uint8_t *p) {
  uint32_t u = 0;
  float f;
  if (dtype == FP8_DTYPE_F32)
    std::memcpy(&u, p, 4);
  else
    std::memcpy(reinterpret_cast<char *>(&u) + 2, p, 2);
  std::memcpy(&f, &u, 4);
  return static_cast<double>(f);
}
double distance(int32_t dtype, const std::vector<uint8_t> &a, const std::vector<uint8_t> &b) {
  double e2 = 0, y2 = 0;
  for (size_t i = 0; i < a.size(); i += static_cast<size_t>(size_of(dtype))) {
    const double x = value(dtype, &a[i]), y = value(dtype, &b[i]);
    e2 += (x - y) * (x - y), y2 += y * y;
  }
  return y2 > 0 ? std::sqrt(e2 / y2) : 1;
}
void report_error(const char *what, double error, double limit) {
  std::printf("| %s | %.1e, limit %.0e%s |\n", what, error, limit, error <= limit ? "" : " DIFFERS");
  std::fflush(stdout);
  g_bad += !(error <= limit);
}

void products(const fp8_context *c, Blocks &x, gpu::Memory &y) {
  struct Case {
    const char *name;
    int32_t preset;
    int64_t n;
    int32_t d;
    uint32_t flags;
  };
  Blocks small_b(kCols, 99);  // its first rows are the other operand
  gpu::Memory stack(kStack * kRows * kCols * 2), small_y(kStack * kRows * kCols * 4);
  GPU_CHECK(cudaMemcpy(stack.data(), x.small.data(), stack.b.bytes, cudaMemcpyHostToDevice));
  for (const Case &k :
       {Case{"BF16", FP8_PRESET_NONE, 256, FP8_DTYPE_BF16, 0},
        {"TENSOR", FP8_PRESET_TENSOR, 256, FP8_DTYPE_F32, 0},
        {"ROW", FP8_PRESET_ROW, 256, FP8_DTYPE_F32, 0},
        {"BLOCK", FP8_PRESET_BLOCK, 256, FP8_DTYPE_F32, 0},
        {"MX", FP8_PRESET_MX, 256, FP8_DTYPE_F32, 0},
        {"TENSOR, a result of 2^31 elements", FP8_PRESET_TENSOR, 4096, FP8_DTYPE_BF16, 0},
        {"TENSOR += into BF16 of 2^31 elements", FP8_PRESET_TENSOR, 4096, FP8_DTYPE_BF16, FP8_GEMM_ACCUMULATE}}) {
    fp8_recipe *r = gpu::recipe(k.preset);
    const auto make = [&](void *data, int64_t rows, int32_t role) {
      auto q = std::make_unique<gpu::Quantized>(c, r, role, rows, kCols, FP8_SIDE_ROW);
      const fp8_tensor t = gpu::tensor(data, FP8_DTYPE_BF16, rows, kCols);
      gpu::Memory scratch(gpu::quantize_workspace(c, r, role, t, q->q));
      gpu::quantize(c, r, role, t, q->q, &scratch.b, nullptr);
      GPU_CHECK(cudaDeviceSynchronize());
      return q;
    };
    const auto a = make(x.large.data(), kAll, FP8_ROLE_ACTIVATION),
               s = make(stack.data(), kStack * kRows, FP8_ROLE_ACTIVATION),
               b = make(small_b.large.data(), k.n, FP8_ROLE_WEIGHT);
    for (gpu::Memory *m : {&y, &small_y}) GPU_CHECK(cudaMemset(m->data(), 0, m->b.bytes));
    const Product large(c, a->q, b->q, FP8_SIDE_ROW, gpu::tensor(y.data(), k.d, kAll, k.n), k.flags),
        small(c, s->q, b->q, FP8_SIDE_ROW, gpu::tensor(small_y.data(), k.d, kStack * kRows, k.n), k.flags);
    double worst = 0;
    for (int i = 0; i < kStack; ++i)
      worst = std::max(
          worst, distance(k.d, cut(large.d, block_of(i), kRows, false, true), cut(small.d, i, kRows, false, true)));
    report_error((std::string("product ") + k.name).c_str(), worst, k.d == FP8_DTYPE_F32 ? 5e-4 : 4e-3);
    fp8_recipe_destroy(r);
  }
}

}  // namespace

int main() {
  gpu::print_environment("Matrices of more than 2^31 elements");
  std::printf(
      "%lld x %lld = 2^31 + %lld elements\n\n| call | blocks of the large matrix against the small one's "
      "|\n|---|---|\n",
      static_cast<long long>(kAll), static_cast<long long>(kCols),
      static_cast<long long>(kAll * kCols - (int64_t{1} << 31)));
  gpu::Context context;
  const Cpu cpu;
  Blocks x(kCols, 1);
  gpu::Memory y(kAll * kCols * 2);
  Host small_y(kStack * kRows * kCols * 4);
  values(context, cpu, x, y, small_y);
  moves(context, cpu, x, y, small_y);
  products(context, x, y);
  std::printf("\n%d failures\n", g_bad);
  return g_bad != 0;
}
