// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels that route rows, run by the host emulation, give the CPU backend's bits.
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/launch_param.h"
#include "cuda/launch_param.h"
#include "numerics/scale.h"

// after the standard headers: CMocka wants these
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fp8;
using Bytes = std::vector<uint8_t>;
constexpr int32_t kU8 = 7;  // as FP8_DTYPE_U8

std::mt19937 g_random(11);
int64_t below(int64_t n) { return int64_t(g_random() % uint32_t(n)); }

ops::Matrix rows_of(void *data, int32_t dtype, int64_t rows, int64_t cols, int64_t stride) {
  ops::Matrix m{};
  m.data = data;
  m.dtype = dtype;
  m.lead = 1;
  m.rows = m.lead_shape[0] = rows;
  m.lead_stride[0] = stride;
  m.cols = cols;
  m.col_stride = 1;
  return m;
}

Bytes noise(int64_t bytes) {
  Bytes b(size_t(bytes) + 64);
  for (uint8_t &v : b) v = uint8_t(g_random());
  return b;
}

Bytes floats(int64_t count, int32_t dtype) {
  Bytes b(size_t(count) * 4 + 64);
  for (int64_t i = 0; i < count; ++i) num::store(dtype, b.data(), i, float(below(2001) - 1000) / 64.0f);
  return b;
}

// Both backends write `out`, from the same bytes; CUDA with as many blocks as suit and with two at most, whatever the
// context leaves.
int g_bounded = 0;
template <class Op>
void run_both(const Op &op, Bytes &out, void (*cpu_way)(const Op &, const cpu::Parallel &),
              cudaError_t (*cuda_way)(const Op &, int32_t, cudaStream_t), const char *what) {
  const Bytes before = out;
  cpu_way(op, {nullptr, nullptr});
  const Bytes want = out;
  for (const int32_t most : {0, 2}) {
    std::memcpy(out.data(), before.data(), out.size());
    emulate::machine().most = 0;
    assert_int_equal(cuda_way(op, most, nullptr), cudaSuccess);
    if (most) assert_in_range(emulate::machine().most, 0, most);
    g_bounded += most && emulate::machine().most == unsigned(most);
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] != want[i]) {
        std::printf("%s, blocks %d, differs at byte %zu of %zu: %02x, not %02x\n", what, most, i, out.size(), out[i],
                    want[i]);
        fail();
      }
  }
}

void copies(void **) {
  g_bounded = 0;
  const int64_t widths[] = {0, 1, 5, 16, 33, 64, 200, 512, 700, 5000, 16384, 20000, 40000};
  for (int round = 0; round < 120; ++round) {
    const int32_t dtypes[] = {num::kE4M3, num::kBF16, num::kF32, kU8}, dtype = dtypes[below(4)],
                  kind = int32_t(below(3));
    const int64_t size = dtype == num::kBF16  ? 2
                         : dtype == num::kF32 ? 4
                                              : 1,
                  rows = below(20), from_rows = 1 + below(20), cols = widths[size_t(below(13))],
                  stride = cols + below(2) * 3, scales = kind ? 1 + below(60) : 0;
    const int64_t scale_size = kind == 2 ? 1 : 4, padded = (rows + 3) / 4 * 4;
    Bytes src = noise(from_rows * stride * size), src_scale = noise(from_rows * scales * 4);
    std::vector<int32_t> index;
    for (int64_t i = 0; i < rows; ++i) index.push_back(int32_t(below(from_rows + 1)) - 1);
    const bool identity = below(4) == 0 && rows <= from_rows;
    ops::RouteCopy r{};
    r.index = identity ? nullptr : index.data();
    r.dtype = num::kE4M3;
    r.rule = kind == 2 ? num::kRuleE8m0 : num::kRuleFp32;
    r.amax_floor = below(2) ? 0.0f : 1e-3f;
    const int64_t at = (rows * stride * size + below(2) * 3 + 15) / 16 * 16;
    Bytes out = noise(at + padded * scales * 4);
    r.src.codes = rows_of(src.data(), dtype, from_rows, cols, stride);
    r.dst.codes = rows_of(out.data() + below(2) * 16, dtype, rows, cols, stride);
    if (kind) {
      r.src.scale.data = src_scale.data();
      r.src.scale.dtype = r.dst.scale.dtype = kind == 2 ? kU8 : int32_t{num::kF32};
      r.src.scale.rows = from_rows;
      r.dst.scale.rows = rows;
      r.src.scale.cols = r.dst.scale.cols = scales;
      r.src.scale.row_stride = scales;
      r.src.scale.col_stride = 1;
      r.dst.scale.row_stride = below(2) ? 1 : scales;
      r.dst.scale.col_stride = r.dst.scale.row_stride == 1 && scales > 1 ? padded : 1;
      out.resize(size_t(at + 32 + padded * scales * scale_size + 64));
      r.dst.codes.data = out.data();
      r.dst.scale.data = out.data() + at + 32;
    } else if (rows % 3 == 0 && rows) {  // lines of three parts
      r.dst.codes.lead = 2;
      r.dst.codes.lead_shape[0] = 3;
      r.dst.codes.lead_shape[1] = rows / 3;
      r.dst.codes.lead_stride[0] = stride;
      r.dst.codes.lead_stride[1] = 3 * stride;
    }
    run_both(r, out, cpu::route_copy, cuda::launch_route_copy, "copied rows");
  }
  assert_in_range(g_bounded, 20, 120);
}

void combines(void **) {
  g_bounded = 0;
  for (int round = 0; round < 30; ++round) {
    const int32_t in = below(2) ? num::kBF16 : int32_t{num::kF32}, to = below(2) ? num::kBF16 : int32_t{num::kF32};
    const int64_t tokens = below(9), cols = 1 + below(300), rows = 1 + below(30), k = 1 + below(5);
    Bytes src = floats(rows * cols, in), weights = floats(tokens * k, num::kF32), out = noise(tokens * cols * 4);
    std::vector<int32_t> index;
    for (int64_t i = 0; i < tokens * k; ++i) index.push_back(int32_t(below(rows + 1)) - 1);
    ops::RouteCombine r{};
    r.index = index.data();
    r.rows = rows_of(src.data(), in, rows, cols, cols);
    r.out = rows_of(out.data(), to, tokens, cols, cols);
    r.k = k;
    if (below(3)) {
      r.weight.data = weights.data();
      r.weight.dtype = num::kF32;
      r.weight.rows = tokens;
      r.weight.cols = r.weight.row_stride = k;
      r.weight.col_stride = 1;
    }
    run_both(r, out, cpu::route_combine, cuda::launch_route_combine, "combined rows");
  }
  assert_in_range(g_bounded, 5, 30);
}

void backwards(void **) {
  g_bounded = 0;
  for (int round = 0; round < 30; ++round) {
    const int32_t dtype = below(2) ? num::kBF16 : int32_t{num::kF32};
    const int64_t packed = 1 + below(9), rows = below(20), cols = 1 + below(600), k = 1 + below(5);
    Bytes tokens = floats(packed * cols, dtype), weights = floats(packed * k, num::kF32),
          expert = floats(rows * cols, dtype), out = noise(rows * cols * 4 + rows * 4);
    std::vector<int32_t> source, slots, place;
    for (int64_t i = 0; i < rows; ++i) {
      source.push_back(int32_t(below(packed + 1)) - 1);
      slots.push_back(1 + int32_t(below((1 << k) - 1)));
      place.push_back(int32_t(rows - 1 - i));
    }
    ops::RouteBackward r{};
    r.source = source.data();
    r.slots = slots.data();
    r.place = place.data();
    r.tokens = rows_of(tokens.data(), dtype, packed, cols, cols);
    r.weight.data = weights.data();
    r.weight.dtype = num::kF32;
    r.weight.rows = packed;
    r.weight.cols = r.weight.row_stride = k;
    r.weight.col_stride = 1;
    r.dst = rows_of(out.data(), dtype, rows, cols, cols);
    if (below(3)) {
      r.expert = rows_of(expert.data(), dtype, rows, cols, cols);
      r.dot = reinterpret_cast<float *>(out.data() + rows * cols * 4);
    }
    run_both(r, out, cpu::route_backward, cuda::launch_route_backward, "gradients of rows");
    Bytes scalars = noise(rows * k * 4);
    std::vector<int32_t> index;
    for (int64_t i = 0; i < rows * k; ++i) index.push_back(int32_t(below(packed * k + 1)) - 1);
    ops::RouteScalar scalar{index.data(), reinterpret_cast<const float *>(weights.data()), r.weight};
    scalar.out.data = scalars.data();
    scalar.out.rows = rows;
    run_both(scalar, scalars, cpu::route_scalar, cuda::launch_route_scalar, "scalars");
  }
  assert_in_range(g_bounded, 10, 60);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(combines), cmocka_unit_test(backwards)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
