// SPDX-License-Identifier: Apache-2.0
// From strided views to tiles and back.
#pragma once
#include <algorithm>

#include "cpu/launch_cpu.h"
#include "cpu/tile.h"

namespace fp8::cpu {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline char *element(const ops::Matrix &m, int64_t row, int64_t col) {
  return static_cast<char *>(m.data) + (ops::row_offset(m, row) + col * m.col_stride) * num::element_size(m.dtype);
}
inline int64_t scale_index(const ops::Scale &s, int64_t i, int64_t j) { return i * s.row_stride + j * s.col_stride; }

// A matrix whose rows lie in one stride with unit inner stride needs no copy.
inline bool is_plain(const ops::Matrix &m) { return m.lead <= 1 && (m.col_stride == 1 || m.cols <= 1); }
inline int64_t row_bytes(const ops::Matrix &m) { return m.lead_stride[0] * num::element_size(m.dtype); }

// Copies a part to or from a compact buffer of the matrix's own dtype, `stride` elements a row.
void gather(const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, void *out, int64_t stride);
void scatter(const ops::Matrix &m, int64_t row, int64_t col, int64_t rows, int64_t cols, const void *in,
             int64_t stride);

// x' of a quantized side as F32, in x's orientation; scratch holds kTileElements bytes.
void decode_part(const TileOps &ops, const ops::Side &side, bool is_col, int64_t row, int64_t col, int64_t rows,
                 int64_t cols, int32_t dtype, void *out, int64_t stride_bytes, uint8_t *scratch);

void streams_done();  // what this thread has stored past the caches is visible to all

// Calls body(begin, end) for parts of [0, n); small work stays on the calling thread.
template <class Body>
void for_ranges(const Parallel &parallel, int64_t n, int64_t work, Body &&body) {
  auto run = [](void *arg, int64_t begin, int64_t end) {
    (*static_cast<std::remove_reference_t<Body> *>(arg))(begin, end);
    streams_done();
  };
  if (!parallel.run || n <= 1 || work < (int64_t{1} << 15)) {
    run(&body, 0, n);
  } else {
    parallel.run(parallel.owner, n, run, &body);
  }
}
template <class Body>
void for_each(const Parallel &parallel, int64_t n, int64_t work, Body &&body) {
  for_ranges(parallel, n, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace fp8::cpu
