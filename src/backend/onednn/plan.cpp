// SPDX-License-Identifier: Apache-2.0
#include "backend/onednn/plan.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "fp8/types.h"

namespace fp8::onednn {

namespace {

// The OpenMP run time that libdnnl brought, if it is one; none is loaded for this.
struct OpenMp {
  void (*set)(int) = nullptr;
  int (*get)() = nullptr;
  OpenMp() {
    for (const char *name : {"libgomp.so.1", "libiomp5.so", "libomp.so.5"}) {
      void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
      if (!handle) continue;
      set = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
      get = reinterpret_cast<int (*)()>(dlsym(handle, "omp_get_max_threads"));
      if (set && get) return;
    }
  }
};

dnnl_data_type_t type_of(int32_t dtype) {
  return dtype == FP8_DTYPE_BF16 ? dnnl_bf16 : dtype == FP8_DTYPE_F16 ? dnnl_f16 : dnnl_f32;
}

// A blocked layout of the weights [k, n] that decode_operand writes: [k block, n block] or [k block, n block, pair].
bool usable(const Blocking &b, bool half, cpu::DecodeTo *to) {
  const int64_t words = half ? 2 : 1;
  if (b.count != (half ? 3 : 2) || b.index[0] != 0 || b.index[1] != 1) return false;
  if (half && (b.index[2] != 0 || b.blocks[2] != 2)) return false;
  to->block_k = static_cast<int32_t>(b.blocks[0] * words);
  to->block_rows = static_cast<int32_t>(b.blocks[1]);
  to->k_stride = b.strides[0];
  to->row_stride = b.strides[1];
  return cpu::kDecodeK % to->block_k == 0 && to->block_rows <= 64;
}

const OpenMp &open_mp() {
  static const OpenMp omp;
  return omp;
}

// About one part a thread, so shaped that the operands are read least. even: columns are cut only where it comes out
// even, so that all parts share one packed layout.
Grid cut(const Key &key, bool even) {
  const auto up = [](int64_t x, int64_t step) { return (x + step - 1) / step; };
  const int64_t threads = std::max(key.threads, 1);
  Grid best{};
  double least = 0;
  for (int64_t cols = 1; cols <= threads; ++cols) {
    Grid g{};
    g.col_step = cols == 1 ? key.n : up(up(key.n, cols), 64) * 64;
    g.row_step = std::max<int64_t>(32, up(up(key.m, up(threads, cols)), 32) * 32);
    g.rows = up(key.m, g.row_step), g.cols = up(key.n, g.col_step);
    if (even && key.n % g.col_step != 0) continue;
    const double m = static_cast<double>(g.row_step), n = static_cast<double>(g.col_step);
    // Columns apart leave a strided result, for which oneDNN has slower kernels only. Weights: as measured.
    const double work = g.cols > 1 ? 1.4 * m * n : m * n;
    const double cost = static_cast<double>(up(g.rows * g.cols, threads)) * (work + 100 * (m + n));
    if (best.rows == 0 || cost < least) best = g, least = cost;
  }
  return best;
}

struct Attr {
  dnnl_primitive_attr_t attr = nullptr;
  dnnl_post_ops_t ops = nullptr;
  Attr() {
    dnnl_primitive_attr_create(&attr);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_post_ops_create(&ops);
  }
  ~Attr() {
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
  }
};

}  // namespace

bool Key::operator<(const Key &o) const {
  const auto tie = [](const Key &x) {
    return std::tie(x.m, x.n, x.k, x.a_row, x.a_k, x.b_row, x.b_k, x.d_row, x.a_turned, x.b_turned, x.half, x.d_dtype,
                    x.bias_dtype, x.accumulate, x.threads, x.finish);
  };
  return tie(*this) < tie(o);
}

Piece::~Piece() {
  if (primitive) dnnl_primitive_destroy(primitive);
  if (pd) dnnl_primitive_desc_destroy(pd);
}

uint64_t Plan::workspace() const {
  return aligned(a.bytes) + aligned(b.bytes) + aligned(sums_bytes) + aligned(scales_bytes) +
         static_cast<uint64_t>(parts()) * aligned(scratchpad_bytes) + kAlign;
}

OneThread::OneThread() {
  if (!open_mp().set) return;
  before_ = open_mp().get();
  if (before_ == 1)
    before_ = 0;
  else
    open_mp().set(1);
}

OneThread::~OneThread() {
  if (before_) open_mp().set(before_);
}

std::shared_ptr<const Plan> Plans::get(const Key &key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  std::shared_ptr<const Plan> plan = make(key);
  if (order_.size() >= kMost) {
    plans_.erase(order_.front());
    order_.pop_front();
  }
  plans_[key] = plan;
  order_.push_back(key);
  return plan;
}

bool Plans::make_piece(const Key &key, int64_t m, int64_t n, bool packed, DescView weights, const Plan &plan,
                       Piece *piece) const {
  const dnnl_data_type_t type = key.half ? dnnl_bf16 : dnnl_f32;
  Desc a, b, d;
  if (!plan.a.decoded) {
    a.init(type, m, key.k, key.a_row, key.a_k);
  } else {
    a.init(type, m, key.k, plan.a.turned ? 1 : plan.a.to.row_stride, plan.a.turned ? plan.a.to.row_stride : 1);
  }
  if (!plan.b.decoded) {
    b.init(type, key.k, n, key.b_k, key.b_row);
  } else {
    const int64_t line = plan.b.to.row_stride;
    b.init(type, key.k, n, plan.b.turned ? line : 1, plan.b.turned ? 1 : line, packed);
  }
  d.init(plan.direct ? type_of(key.d_dtype) : dnnl_f32, m, n, plan.direct ? key.d_row : key.n, 1);
  piece->bias.init(type_of(key.bias_dtype), 1, n, n, 1);
  piece->scale_row.init(dnnl_f32, key.finish == Finish::kTensor ? 1 : m, 1, 1, 1);
  piece->scale_col.init(dnnl_f32, 1, n, n, 1);
  Attr attr;
  if (plan.binary_scales >= 1) dnnl_post_ops_append_binary(attr.ops, dnnl_binary_mul, piece->scale_row.get());
  if (plan.binary_scales == 2) dnnl_post_ops_append_binary(attr.ops, dnnl_binary_mul, piece->scale_col.get());
  if (plan.binary_bias) dnnl_post_ops_append_binary(attr.ops, dnnl_binary_add, piece->bias.get());
  if (plan.direct && key.accumulate) append_sum(attr.ops);
  dnnl_primitive_attr_set_post_ops(attr.attr, attr.ops);
  const bool bias = plan.direct && key.bias_dtype && !plan.binary_bias;
  dnnl_primitive_desc_t pd = nullptr;
  if (matmul_desc(&pd, engine_, a.get(), weights ? weights : b.get(), bias ? piece->bias.get() : nullptr, d.get(),
                  attr.attr) != dnnl_success) {
    return false;
  }
  const char *name = "";
  dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
  if (std::strncmp(name, "ref", 3) == 0 || dnnl_primitive_create(&piece->primitive, pd) != dnnl_success) {
    piece->primitive = nullptr;
    dnnl_primitive_desc_destroy(pd);
    return false;
  }
  piece->pd = pd;
  return true;
}

bool Plans::make_pieces(const Key &key, bool packed, Plan *plan) const {
  Plan &p = *plan;
  const Grid &g = p.grid;
  const int64_t size = key.half ? 2 : 4;
  DescView weights = nullptr;
  for (const bool last_row : {false, true}) {
    for (const bool last_col : {false, true}) {
      if ((!last_row && g.rows == 1) || (!last_col && g.cols == 1)) continue;  // no inner ones
      const int64_t m = last_row ? key.m - (g.rows - 1) * g.row_step : g.row_step;
      const int64_t n = last_col ? key.n - (g.cols - 1) * g.col_step : g.col_step;
      Piece &piece = p.pieces[last_row][last_col];
      if (!make_piece(key, m, n, packed, weights, p, &piece)) return false;
      p.scratchpad_bytes = std::max(p.scratchpad_bytes, desc_bytes(desc_of(piece.pd, dnnl_query_scratchpad_md)));
      if (packed && !weights) weights = desc_of(piece.pd, dnnl_query_weights_md);  // the others take this layout
    }
  }
  const Piece &last = p.pieces[1][1];
  if (packed) {
    Blocking blocking{};
    if (!blocking_of(weights, &blocking) || !usable(blocking, key.half, &p.b.to)) return false;
    if (g.cols > 1 && g.col_step % p.b.to.block_rows != 0) return false;
    p.b.bytes = static_cast<uint64_t>(g.cols) * desc_bytes(weights);
  } else if (p.b.decoded) {
    p.b.bytes = static_cast<uint64_t>((p.b.turned ? key.k : key.n) * p.b.to.row_stride * size);
  }
  p.sums_bytes = p.direct ? 0 : static_cast<uint64_t>(key.m * key.n) * 4;
  p.scales_bytes = p.binary_scales ? aligned(key.m * 4) + static_cast<uint64_t>(key.n) * 4 : 0;
  const char *name = "";
  dnnl_primitive_desc_query(last.pd, dnnl_query_impl_info_str, 0, &name);
  p.impl = name;
  return true;
}

std::shared_ptr<const Plan> Plans::make(const Key &key) const {
  const OneThread one;
  const int32_t to_dtype = key.half ? FP8_DTYPE_BF16 : FP8_DTYPE_F32;
  const int64_t size = key.half ? 2 : 4;
  // direct first, then FP32 sums; decoded weights in oneDNN's own layout first, unless the columns are cut
  for (const bool direct : {true, false}) {
    if (direct && key.d_row == 0) continue;
    for (const bool packed : {true, false}) {
      const auto plan = std::make_shared<Plan>();
      Plan &p = *plan;
      p.grid = cut(key, packed);
      p.a.decoded = key.a_row == 0, p.b.decoded = key.b_row == 0;
      p.a.turned = key.a_turned, p.b.turned = key.b_turned;
      // dense rows: oneDNN's best kernels take no others
      p.a.to = {nullptr, to_dtype, 0, 0, 1, p.a.turned ? key.m : key.k, 0};
      p.b.to = {nullptr, to_dtype, 0, 0, 1, p.b.turned ? key.n : key.k, 0};
      if (p.a.decoded) p.a.bytes = static_cast<uint64_t>((p.a.turned ? key.k : key.m) * p.a.to.row_stride * size);
      if (packed && (!p.b.decoded || p.b.turned)) continue;
      const Grid free = cut(key, false);
      if (packed && p.parts() * 2 <= free.rows * free.cols) continue;  // few rows, and columns that divide badly
      p.direct = direct;
      p.binary_scales = direct ? static_cast<int>(key.finish) : 0;
      p.binary_bias = p.binary_scales && key.bias_dtype;
      if (make_pieces(key, packed, &p)) return plan;
    }
  }
  const auto none = std::make_shared<Plan>();
  none->why = "oneDNN has no optimized product for this shape and type on this CPU";
  return none;
}

}  // namespace fp8::onednn
