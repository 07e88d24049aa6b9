// SPDX-License-Identifier: Apache-2.0
// A product of one shape as one-thread oneDNN matmuls over parts of the result, and a bounded cache of such plans. The
// parts run on the library's own threads: oneDNN's OpenMP team would ignore the context's count, outlive the call
// spinning, and wait long on a busy machine.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/onednn/dnnl_api.h"
#include "cpu/launch_gemm.h"
#include "ops/gemm.h"

namespace fp8::onednn {

enum class Finish : int32_t { kNone = 0, kTensor = 1, kRow = 2 };  // scales that wait for the sum

// Everything a plan depends on; no pointer, no data.
struct Key {
  int64_t m, n, k;
  int64_t a_row, a_k, b_row, b_k;  // strides of operands that oneDNN reads as they are; 0 = decoded
  int64_t d_row;                   // 0 = the result needs a last step of ours
  int32_t a_turned, b_turned;      // decoded as it lies: the contraction is the outer dimension
  int32_t half;                    // operands in BF16, else FP32
  int32_t d_dtype, bias_dtype;     // bias 0 = none
  int32_t accumulate, threads;
  Finish finish;
  bool operator<(const Key &o) const;
};

struct Operand {  // of a plan: read as it is, or decoded into the workspace
  bool decoded, turned;
  cpu::DecodeTo to;  // data NULL
  uint64_t bytes;
};

struct Piece {  // one oneDNN matmul, for some rows (or columns) of the result
  Piece() = default;
  ~Piece();
  Piece(const Piece &) = delete;
  Piece &operator=(const Piece &) = delete;
  dnnl_primitive_desc_t pd = nullptr;
  dnnl_primitive_t primitive = nullptr;
  Desc scale_row, scale_col, bias;
};

struct Grid {  // the result cut into parts, one a thread where it is large enough
  int64_t row_step, col_step, rows, cols;
};

struct Plan {
  std::string why;  // not empty: oneDNN has no such product
  std::string impl;
  Operand a{}, b{};
  bool direct = false;    // oneDNN writes d itself, scales, bias and sum included; else FP32 sums for finish_part
  int binary_scales = 0;  // post-ops that multiply: 0, 1 (tensor) or 2 (row, column)
  bool binary_bias = false;
  Grid grid{};
  Piece pieces[2][2];  // of inner parts and of those at the end of the rows, of the columns, where the cut is uneven
  uint64_t sums_bytes = 0, scales_bytes = 0, scratchpad_bytes = 0;  // scratchpad: of a part
  const Piece &piece(int64_t row, int64_t col) const { return pieces[row == grid.rows - 1][col == grid.cols - 1]; }
  int64_t parts() const { return grid.rows * grid.cols; }
  uint64_t workspace() const;
};

constexpr uint64_t kAlign = 64;
inline uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Plans by key; at most kMost, the oldest goes first. Safe from many threads.
class Plans {
 public:
  explicit Plans(dnnl_engine_t engine) : engine_(engine) {}
  std::shared_ptr<const Plan> get(const Key &key);

 private:
  static constexpr size_t kMost = 512;
  std::shared_ptr<const Plan> make(const Key &key) const;
  bool make_pieces(const Key &key, bool packed, Plan *plan) const;
  bool make_piece(const Key &key, int64_t m, int64_t n, bool packed, DescView weights, const Plan &plan,
                  Piece *piece) const;
  dnnl_engine_t engine_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;
  std::deque<Key> order_;
};

// For its scope, oneDNN on the calling thread stays on it. (OpenMP builds of oneDNN: this is a setting of each thread.)
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread &) = delete;
  OneThread &operator=(const OneThread &) = delete;

 private:
  int before_ = 0;
};

}  // namespace fp8::onednn
