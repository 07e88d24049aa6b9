// SPDX-License-Identifier: Apache-2.0
// Operands for GEMM tests, with decoding and quantization of their own: nothing here comes from the kernels tested.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8/recipe.h"
#include "fp8/types.h"
#include "ops/gemm.h"

namespace gemm_test {

using fp8::ops::Gemm;
using fp8::ops::Matrix;
using fp8::ops::Scale;
using fp8::ops::Side;

inline double compute_value(int32_t dtype, uint8_t code) {
  const int m = dtype == FP8_DTYPE_E4M3 ? 3 : 2, bias = dtype == FP8_DTYPE_E4M3 ? 7 : 15;
  const int mag = code & 0x7f, e = mag >> m, f = mag & ((1 << m) - 1);
  double v = e ? std::ldexp(1.0 + std::ldexp(f, -m), e - bias) : std::ldexp(f, 1 - bias - m);
  if (dtype == FP8_DTYPE_E4M3 && mag == 0x7f) v = NAN;
  if (dtype == FP8_DTYPE_E5M2 && mag >= 0x7c) v = f ? NAN : INFINITY;
  return code & 0x80 ? -v : v;
}

inline double value_of(int32_t dtype, uint8_t code) {
  static const std::vector<double> table = [] {
    std::vector<double> t;
    for (int32_t d : {FP8_DTYPE_E4M3, FP8_DTYPE_E5M2})
      for (int c = 0; c < 256; ++c) t.push_back(compute_value(d, static_cast<uint8_t>(c)));
    return t;
  }();
  return table[(dtype == FP8_DTYPE_E4M3 ? 0 : 256) + code];
}

// Nearest finite code, ties to the even code, by search.
inline uint8_t nearest_code(int32_t dtype, float x) {
  const int last = dtype == FP8_DTYPE_E4M3 ? 0x7e : 0x7b;
  const double a = std::fabs(x);
  int low = 0, high = last;
  while (low < high) {
    const int mid = (low + high + 1) / 2;
    if (value_of(dtype, mid) <= a)
      low = mid;
    else
      high = mid - 1;
  }
  if (low < last) {
    const double down = a - value_of(dtype, low), up = value_of(dtype, low + 1) - a;
    if (up < down || (up == down && (low & 1))) ++low;
  }
  return static_cast<uint8_t>(low | (std::signbit(x) ? 0x80 : 0));
}

inline Matrix matrix(void *data, int32_t dtype, int64_t rows, int64_t cols, int64_t stride, int64_t col_stride = 1) {
  Matrix m{};
  m.data = data;
  m.dtype = dtype;
  m.lead = 1;
  m.rows = rows;
  m.cols = cols;
  m.lead_shape[0] = rows;
  m.lead_stride[0] = stride;
  m.col_stride = col_stride;
  return m;
}

struct Operand {
  int32_t dtype = 0, scaling = 0;
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> codes;  // [rows, cols]
  std::vector<float> scales;   // [srows, scols], also for E8M0
  std::vector<uint8_t> e8m0;
  int64_t srows = 1, scols = 1;

  void shape(int32_t dt, int32_t kind, int64_t r, int64_t c) {
    dtype = dt, scaling = kind, rows = r, cols = c;
    const int64_t tr = fp8::ops::tile_rows(kind), tc = fp8::ops::tile_cols(kind);
    srows = tr ? (r + tr - 1) / tr : 1;
    scols = tc ? (c + tc - 1) / tc : 1;
    codes.assign(r * c, 0);
    scales.assign(srows * scols, 1.0f);
    e8m0.assign(srows * scols, 127);
  }
  bool mx() const { return scaling == FP8_SCALING_1X32 || scaling == FP8_SCALING_32X32; }
  float scale(int64_t r, int64_t c) const {
    const int64_t tr = fp8::ops::tile_rows(scaling), tc = fp8::ops::tile_cols(scaling);
    return scales[(tr ? r / tr : 0) * scols + (tc ? c / tc : 0)];
  }
  double value(int64_t r, int64_t c) const { return value_of(dtype, codes[r * cols + c]); }
  double dequantized(int64_t r, int64_t c) const {
    return static_cast<float>(static_cast<float>(value(r, c)) * scale(r, c));
  }
  void set_e8m0(int64_t at, int code) {
    e8m0[at] = static_cast<uint8_t>(code);
    scales[at] = static_cast<float>(std::ldexp(1.0, code - 127));
  }
  Side side() {
    Side s{};
    s.scaling = scaling;
    s.codes = matrix(codes.data(), dtype, rows, cols, cols);
    s.scale = {mx() ? static_cast<void *>(e8m0.data()) : scales.data(),
               mx() ? FP8_DTYPE_E8M0 : FP8_DTYPE_F32,
               0,
               srows,
               scols,
               scols,
               1};
    return s;
  }
  // S0..S5 of x[rows, cols] = given(r, c)
  template <class Given>
  void quantize(bool pow2, Given &&given) {
    const float fmax = dtype == FP8_DTYPE_E4M3 ? 448.0f : 57344.0f;
    const int64_t tr = fp8::ops::tile_rows(scaling), tc = fp8::ops::tile_cols(scaling);
    std::vector<float> amax(scales.size(), 0.0f), m(scales.size(), 1.0f);
    const auto tile = [&](int64_t r, int64_t c) { return (tr ? r / tr : 0) * scols + (tc ? c / tc : 0); };
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) amax[tile(r, c)] = std::fmax(amax[tile(r, c)], std::fabs(given(r, c)));
    for (size_t t = 0; t < amax.size(); ++t) {
      if (mx()) {  // smallest code whose scale holds amax
        int code = 0;
        while (code < 254 && amax[t] > fmax * std::ldexp(1.0, code - 127)) ++code;
        set_e8m0(t, code);
        m[t] = static_cast<float>(std::ldexp(1.0, 127 - code));
        continue;
      }
      if (amax[t] == 0) continue;
      m[t] = fmax / amax[t];
      if (pow2) m[t] = static_cast<float>(std::exp2(std::floor(std::log2(static_cast<double>(m[t])))));
      scales[t] = 1.0f / m[t];
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) codes[r * cols + c] = nearest_code(dtype, given(r, c) * m[tile(r, c)]);
  }
};

// The data of an .npy file, version 1, C order.
template <class T>
std::vector<T> read_npy(const std::string &path) {
  std::FILE *f = std::fopen(path.c_str(), "rb");
  if (!f) throw std::runtime_error("cannot open " + path);
  unsigned char head[10];
  if (std::fread(head, 1, 10, f) != 10) throw std::runtime_error("short " + path);
  std::fseek(f, 0, SEEK_END);
  const long start = 10 + head[8] + 256 * head[9], bytes = std::ftell(f) - start;
  std::vector<T> data(bytes / sizeof(T));
  std::fseek(f, start, SEEK_SET);
  const bool whole = std::fread(data.data(), sizeof(T), data.size(), f) == data.size();
  std::fclose(f);
  if (!whole) throw std::runtime_error("short " + path);
  return data;
}

}  // namespace gemm_test
