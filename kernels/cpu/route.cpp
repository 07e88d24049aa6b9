// SPDX-License-Identifier: Apache-2.0
// Rows between tokens, packed buffers and expert groups. Every output element is computed alone, in one fixed order.
#include <cstring>

#include "cpu/access.h"
#include "cpu/launch_param.h"

namespace fp8::cpu {
namespace {

using namespace num;

int64_t code_bytes(int32_t dtype) { return dtype == 7 ? 1 : element_size(dtype); }

template <class Body>
void each_row(const Parallel &parallel, int64_t rows, int64_t row_work, Body &&body) {
  for_each(parallel, rows, rows * row_work, body);
}

uint32_t zero_scale(const ops::RouteCopy &r) {
  if (!r.dst.scale.dtype) return 0;
  const ScaleOf s = scale_of(r.dtype, r.rule, 0.0f, r.amax_floor);
  return r.dst.scale.dtype == kF32 ? bits_of(s.inverse) : s.code;
}

void copy_scales(const ops::RouteCopy &r, int64_t row, int64_t from, const uint32_t &zero) {
  const ops::Scale &d = r.dst.scale, &s = r.src.scale;
  const int64_t size = d.dtype == kF32 ? 4 : 1;
  char *out = static_cast<char *>(d.data) + row * d.row_stride * size;
  const char *in = from < 0 ? nullptr : static_cast<const char *>(s.data) + from * s.row_stride * size;
  if (in && s.col_stride == 1 && d.col_stride == 1) {
    std::memcpy(out, in, d.cols * size);
    return;
  }
  for (int64_t j = 0; j < d.cols; ++j)
    std::memcpy(out + j * d.col_stride * size,
                in ? in + j * s.col_stride * size : reinterpret_cast<const char *>(&zero), size);
}

}  // namespace

void route_copy(const ops::RouteCopy &r, const Parallel &parallel) {
  const int64_t size = code_bytes(r.dst.codes.dtype), bytes = r.dst.codes.cols * size;
  const uint32_t zero = zero_scale(r);
  each_row(parallel, r.dst.codes.rows, bytes, [&](int64_t i) {
    const int64_t from = r.index ? r.index[i] : i;
    char *out = static_cast<char *>(r.dst.codes.data) + ops::row_offset(r.dst.codes, i) * size;
    if (bytes == 0) {
    } else if (from < 0) {
      std::memset(out, 0, bytes);
    } else {
      std::memcpy(out, static_cast<const char *>(r.src.codes.data) + ops::row_offset(r.src.codes, from) * size, bytes);
    }
    if (r.dst.scale.dtype) copy_scales(r, i, from, zero);
  });
}

void route_combine(const ops::RouteCombine &r, const Parallel &parallel) {
  each_row(parallel, r.out.rows, r.out.cols * r.k * 4, [&](int64_t t) {
    constexpr int64_t kPart = 256;
    float sum[kPart];
    const int32_t *index = r.index + t * r.k;
    for (int64_t c0 = 0; c0 < r.out.cols; c0 += kPart) {
      const int64_t n = std::min(kPart, r.out.cols - c0);
      for (int64_t c = 0; c < n; ++c) sum[c] = 0;
      for (int64_t j = 0; j < r.k; ++j) {
        if (index[j] < 0) continue;
        const float w =
            r.weight.data ? static_cast<const float *>(r.weight.data)[t * r.weight.row_stride + j * r.weight.col_stride]
                          : 1.0f;
        const char *x = element(r.rows, index[j], c0);
        for (int64_t c = 0; c < n; ++c)
          sum[c] = add_rn(sum[c], mul_rn(w, load(r.rows.dtype, x, c * r.rows.col_stride)));
      }
      char *out = element(r.out, t, c0);
      for (int64_t c = 0; c < n; ++c) store(r.out.dtype, out, c * r.out.col_stride, sum[c]);
    }
  });
}

void route_backward(const ops::RouteBackward &r, const Parallel &parallel) {
  each_row(parallel, r.dst.rows, r.dst.cols * 8, [&](int64_t i) {
    char *out = element(r.dst, i, 0);
    if (r.source[i] < 0) {
      for (int64_t c = 0; c < r.dst.cols; ++c) store(r.dst.dtype, out, c * r.dst.col_stride, 0.0f);
      return;
    }
    const char *token = element(r.tokens, r.source[i], 0);
    const float *weights = static_cast<const float *>(r.weight.data) + r.source[i] * r.weight.row_stride;
    const uint32_t slots = static_cast<uint32_t>(r.slots[i]);
    float w = 0;
    bool first = true;
    for (int64_t j = 0; j < r.weight.cols; ++j) {
      if (!(slots >> j & 1u)) continue;
      w = first ? weights[j * r.weight.col_stride] : add_rn(w, weights[j * r.weight.col_stride]);
      first = false;
    }
    float lane[ops::kRouteLanes] = {};
    const char *expert = r.expert.dtype ? element(r.expert, i, 0) : nullptr;
    for (int64_t c = 0; c < r.dst.cols; ++c) {
      const float x = load(r.tokens.dtype, token, c * r.tokens.col_stride);
      store(r.dst.dtype, out, c * r.dst.col_stride, mul_rn(w, x));
      if (!expert) continue;
      float &l = lane[c % ops::kRouteLanes];
      l = add_rn(l, mul_rn(x, load(r.expert.dtype, expert, c * r.expert.col_stride)));
    }
    if (!expert) return;
    for (int64_t half = ops::kRouteLanes / 2; half; half /= 2)
      for (int64_t l = 0; l < half; ++l) lane[l] = add_rn(lane[l], lane[l + half]);
    r.dot[r.place[i]] = canonical(lane[0]);
  });
}

void route_scalar(const ops::RouteScalar &r, const Parallel &parallel) {
  each_row(parallel, r.out.rows, r.out.cols, [&](int64_t t) {
    for (int64_t j = 0; j < r.out.cols; ++j) {
      const int32_t at = r.index[t * r.out.cols + j];
      static_cast<float *>(r.out.data)[t * r.out.row_stride + j * r.out.col_stride] = at < 0 ? 0.0f : r.values[at];
    }
  });
}

}  // namespace fp8::cpu
