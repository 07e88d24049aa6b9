// SPDX-License-Identifier: Apache-2.0
#include "backend/onednn/plan.h"

#include <dlfcn.h>

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

// Rows a little apart from powers of two: neighbours share no cache set.
int64_t row_length(int64_t k) {
  const int64_t padded = (k + 31) / 32 * 32;
  return padded % 512 == 0 ? padded + 32 : padded;
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

Plan::~Plan() {
  if (primitive) dnnl_primitive_destroy(primitive);
  if (pd) dnnl_primitive_desc_destroy(pd);
}

uint64_t Plan::workspace() const {
  return aligned(a.bytes) + aligned(b.bytes) + aligned(sums_bytes) + aligned(scales_bytes) + aligned(scratchpad_bytes) +
         kAlign;
}

Threads::Threads(int32_t count) {
  static const OpenMp omp;
  if (!omp.set) return;
  before_ = omp.get();
  if (before_ == count)
    before_ = 0;
  else
    omp.set(count);
}

Threads::~Threads() {
  static const OpenMp omp;
  if (before_ && omp.set) omp.set(before_);
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

std::shared_ptr<const Plan> Plans::make(const Key &key) const {
  const Threads threads(key.threads);
  const dnnl_data_type_t type = key.half ? dnnl_bf16 : dnnl_f32;
  const int64_t size = key.half ? 2 : 4;
  const auto plan = std::make_shared<Plan>();
  Plan &p = *plan;
  Desc a, b, d;
  p.a.decoded = key.a_row == 0;
  p.b.decoded = key.b_row == 0;
  const int32_t to_dtype = key.half ? FP8_DTYPE_BF16 : FP8_DTYPE_F32;
  p.a.turned = key.a_turned, p.b.turned = key.b_turned;
  const int64_t a_line = row_length(p.a.turned ? key.m : key.k), b_line = row_length(p.b.turned ? key.n : key.k);
  p.a.to = {nullptr, to_dtype, 0, 0, 1, a_line, 0};
  if (p.a.decoded) p.a.bytes = static_cast<uint64_t>((p.a.turned ? key.k : key.m) * a_line * size);
  if (!p.a.decoded) {
    a.init(type, key.m, key.k, key.a_row, key.a_k);
  } else {
    a.init(type, key.m, key.k, p.a.turned ? 1 : a_line, p.a.turned ? a_line : 1);
  }
  // direct first; then plain FP32 sums. Decoded weights in oneDNN's own layout first.
  for (const bool direct : {true, false}) {
    if (direct && key.d_row == 0) continue;
    for (const bool packed : {true, false}) {
      if (packed && (!p.b.decoded || p.b.turned)) continue;
      Attr attr;
      d.init(direct ? type_of(key.d_dtype) : dnnl_f32, key.m, key.n, direct ? key.d_row : key.n, 1);
      if (!p.b.decoded) {
        b.init(type, key.k, key.n, key.b_k, key.b_row);
      } else {
        b.init(type, key.k, key.n, p.b.turned ? b_line : 1, p.b.turned ? 1 : b_line, packed);
      }
      p.bias.init(type_of(key.bias_dtype), 1, key.n, key.n, 1);
      p.scale_row.init(dnnl_f32, key.finish == Finish::kTensor ? 1 : key.m, 1, 1, 1);
      p.scale_col.init(dnnl_f32, 1, key.n, key.n, 1);
      p.direct = direct;
      p.binary_scales = direct ? static_cast<int>(key.finish) : 0;
      p.binary_bias = p.binary_scales && key.bias_dtype;
      if (p.binary_scales >= 1) dnnl_post_ops_append_binary(attr.ops, dnnl_binary_mul, p.scale_row.get());
      if (p.binary_scales == 2) dnnl_post_ops_append_binary(attr.ops, dnnl_binary_mul, p.scale_col.get());
      if (p.binary_bias) dnnl_post_ops_append_binary(attr.ops, dnnl_binary_add, p.bias.get());
      if (direct && key.accumulate) append_sum(attr.ops);
      dnnl_primitive_attr_set_post_ops(attr.attr, attr.ops);
      const bool bias = direct && key.bias_dtype && !p.binary_bias;
      dnnl_primitive_desc_t pd = nullptr;
      if (matmul_desc(&pd, engine_, a.get(), b.get(), bias ? p.bias.get() : nullptr, d.get(), attr.attr) !=
          dnnl_success) {
        continue;
      }
      const char *name = "";
      dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
      Blocking blocking{};
      const DescView weights = desc_of(pd, dnnl_query_weights_md);
      if (std::strncmp(name, "ref", 3) == 0 ||
          (packed && (!blocking_of(weights, &blocking) || !usable(blocking, key.half, &p.b.to)))) {
        dnnl_primitive_desc_destroy(pd);
        continue;
      }
      if (!packed) p.b.to = {nullptr, to_dtype, 0, 0, 1, b_line, 0};
      if (dnnl_primitive_create(&p.primitive, pd) != dnnl_success) {
        dnnl_primitive_desc_destroy(pd);
        p.primitive = nullptr;
        continue;
      }
      p.pd = pd;
      p.impl = name;
      if (p.b.decoded) {
        p.b.bytes = packed ? desc_bytes(weights) : static_cast<uint64_t>((p.b.turned ? key.k : key.n) * b_line * size);
      }
      if (!direct) p.sums_bytes = static_cast<uint64_t>(key.m * key.n) * 4;
      if (p.binary_scales) p.scales_bytes = static_cast<uint64_t>(aligned(key.m * 4) + key.n * 4);
      p.scratchpad_bytes = desc_bytes(desc_of(pd, dnnl_query_scratchpad_md));
      return plan;
    }
  }
  p.why = "oneDNN has no optimized product for this shape and type on this CPU";
  return plan;
}

}  // namespace fp8::onednn
