// SPDX-License-Identifier: Apache-2.0
// libfp8_onednn.so: FP8 is decoded to BF16 where the CPU multiplies BF16, else to FP32, into the layout that oneDNN
// wants. Two implementations: `onednn bf16` (exact decoding only: it declines what BF16 cannot hold) and `onednn f32`.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>

#include "backend/onednn/plan.h"
#include "cpu/gemm_common.h"
#include "fp8/context.h"
#include "ops/gemm_module.h"

namespace fp8::onednn {

namespace {

struct State;

struct Path {  // one implementation of the list
  State *state;
  bool half;
  std::string name, about;
};

struct State {
  const ops::HostApi *host;
  ops::BackendConfig config;
  dnnl_engine_t engine = nullptr;
  std::unique_ptr<Plans> plans;
  bool has_bf16 = false;
  Path bf16, f32;
  ~State() {
    plans.reset();
    if (engine) dnnl_engine_destroy(engine);
  }
  cpu::GemmPool pool() const { return {config.owner, host->parallel_for, config.threads}; }
};

int32_t decline(char *why, uint64_t bytes, const char *reason) {
  std::snprintf(why, bytes, "%s", reason);
  return ops::kDeclined;
}

// An unquantized operand that oneDNN can read where it lies: its dtype is the path's and one stride is 1.
bool readable(const ops::Side &s, bool half) {
  const ops::Matrix &m = s.codes;
  if (!cpu::unquantized(s) || m.dtype != (half ? FP8_DTYPE_BF16 : FP8_DTYPE_F32) || m.lead > 1) return false;
  const int64_t row = m.lead_stride[0], col = m.col_stride;
  return (col == 1 && row >= m.cols) || (row == 1 && col >= m.rows);
}

// A matrix to be decoded whose rows lie side by side: it is decoded as it lies.
bool side_by_side(const ops::Side &s) {
  return cpu::unquantized(s) && s.codes.lead <= 1 && s.codes.lead_stride[0] == 1 && s.codes.col_stride > 1;
}

Key key_of(const Path &path, const ops::Gemm &g, Finish finish) {
  Key key{};
  key.m = g.d.rows, key.n = g.d.cols, key.k = g.a.codes.cols;
  key.half = path.half;
  key.threads = path.state->config.threads;
  key.finish = finish;
  if (readable(g.a, path.half)) key.a_row = g.a.codes.lead_stride[0], key.a_k = g.a.codes.col_stride;
  if (readable(g.b, path.half)) key.b_row = g.b.codes.lead_stride[0], key.b_k = g.b.codes.col_stride;
  key.a_turned = !key.a_row && side_by_side(g.a);
  key.b_turned = !key.b_row && side_by_side(g.b);
  if (key.m == 1 && key.a_row) key.a_row = key.a_k * key.k;  // strides of one row or column say nothing
  if (key.n == 1 && key.b_row) key.b_row = key.b_k * key.k;
  const bool bias_ok =
      !g.bias.data ||
      (g.bias.stride == 1 && (g.bias.dtype == FP8_DTYPE_F32 || (path.half && g.bias.dtype == FP8_DTYPE_BF16)));
  const bool dtype_ok = g.d.dtype == FP8_DTYPE_F32 || (path.half && g.d.dtype == FP8_DTYPE_BF16);
  if (bias_ok && dtype_ok && g.d.lead <= 1 && g.d.col_stride == 1 && (g.d.rows == 1 || g.d.lead_stride[0] >= key.n)) {
    key.d_row = g.d.rows == 1 ? key.n : g.d.lead_stride[0];
    key.d_dtype = g.d.dtype;
    key.accumulate = g.accumulate != 0;
    key.bias_dtype = g.bias.data ? g.bias.dtype : 0;
  }
  return key;
}

// Scales that may have to wait for the end of the sum.
Finish finish_of(const ops::Gemm &g) {
  if (cpu::unquantized(g.a) || !cpu::scaled_at_end(g.a)) return Finish::kNone;
  return g.a.scaling == FP8_SCALING_TENSOR ? Finish::kTensor : Finish::kRow;
}

int32_t accepts(void *self, const ops::Gemm *g, char *why, uint64_t bytes) {
  const Path &path = *static_cast<Path *>(self);
  if (g->a.codes.cols == 0) return decline(why, bytes, "there is nothing to contract");
  const bool plain = cpu::unquantized(g->a);
  if (path.half && plain && !(readable(g->a, true) && readable(g->b, true))) {
    return decline(why, bytes, "operands are not BF16 matrices of which one stride is 1");
  }
  for (const Finish f : {Finish::kNone, finish_of(*g)}) {
    const auto plan = path.state->plans->get(key_of(path, *g, f));
    if (!plan->why.empty()) return decline(why, bytes, plan->why.c_str());
  }
  return FP8_OK;
}

uint64_t scratch(void *self, const ops::Gemm *g) {
  const Path &path = *static_cast<Path *>(self);
  uint64_t most = 0;
  for (const Finish f : {Finish::kNone, finish_of(*g)}) {
    const uint64_t bytes = path.state->plans->get(key_of(path, *g, f))->workspace();
    if (bytes > most) most = bytes;
  }
  return most;
}

// Decodes where the plan says so; false: BF16 would not be exact.
bool fetch(const ops::Side &side, const Operand &operand, bool fold, void *to, const cpu::GemmPool &pool) {
  if (!operand.decoded) return true;
  cpu::DecodeTo target = operand.to;
  target.data = to;
  target.fold = fold;
  if (!operand.turned) return cpu::decode_operand(side, target, pool);
  ops::Side turned = side;
  turned.codes.rows = turned.codes.lead_shape[0] = side.codes.cols;
  turned.codes.cols = side.codes.rows;
  turned.codes.lead = 1;
  turned.codes.lead_stride[0] = side.codes.col_stride;
  turned.codes.col_stride = 1;
  return cpu::decode_operand(turned, target, pool);
}

class Memory {  // dnnl_memory for one execution
 public:
  Memory(dnnl_engine_t engine, DescView desc, const void *data) {
    if (dnnl_memory_create(&memory_, desc, engine, const_cast<void *>(data)) != dnnl_success) memory_ = nullptr;
  }
  ~Memory() {
    if (memory_) dnnl_memory_destroy(memory_);
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  dnnl_memory_t get() const { return memory_; }

 private:
  dnnl_memory_t memory_ = nullptr;
};

struct Job {  // one product, its parts over the threads
  const State *state;
  const Plan *plan;
  const ops::Gemm *g;
  char *a, *b, *sums, *scratchpad;
  float *scales;
  bool scale_at_end;
  std::atomic<int32_t> status;
};

dnnl_status_t execute(const Job &job, int64_t part) {
  const Plan &p = *job.plan;
  const ops::Gemm &g = *job.g;
  const int64_t grid_row = part / p.grid.cols, grid_col = part % p.grid.cols;
  const Piece &piece = p.piece(grid_row, grid_col);
  const dnnl_engine_t engine = job.state->engine;
  const int64_t i0 = grid_row * p.grid.row_step, rows = std::min(p.grid.row_step, g.d.rows - i0);
  const int64_t j0 = grid_col * p.grid.col_step, cols = std::min(p.grid.col_step, g.d.cols - j0);
  const int64_t size = p.a.to.dtype == FP8_DTYPE_BF16 ? 2 : 4;
  const auto at = [&](char *base, const Operand &operand, const ops::Side &side, int64_t row) {
    if (!operand.decoded) return base + row * side.codes.lead_stride[0] * size;
    if (operand.turned) return base + row * size;
    return base + row / std::max(operand.to.block_rows, 1) * operand.to.row_stride * size;
  };
  const int64_t d_row = g.d.lead_stride[0], d_size = g.d.dtype == FP8_DTYPE_F32 ? 4 : 2;
  char *d = p.direct ? static_cast<char *>(g.d.data) + (i0 * d_row + j0) * d_size : job.sums + (i0 * g.d.cols + j0) * 4;
  const char *bias_at = static_cast<const char *>(g.bias.data);
  if (bias_at) bias_at += j0 * (g.bias.dtype == FP8_DTYPE_F32 ? 4 : 2);
  float *row_scales = job.scales;
  float *col_scales = reinterpret_cast<float *>(reinterpret_cast<char *>(row_scales) + aligned(g.d.rows * 4));
  const auto of = [&](dnnl_query_t what) { return desc_of(piece.pd, what); };
  const Memory src(engine, of(dnnl_query_src_md), at(job.a, p.a, g.a, i0));
  const Memory weights(engine, of(dnnl_query_weights_md), at(job.b, p.b, g.b, j0));
  const Memory dst(engine, of(dnnl_query_dst_md), d);
  const Memory pad(engine, of(dnnl_query_scratchpad_md), job.scratchpad + part * aligned(p.scratchpad_bytes));
  const Memory row(engine, piece.scale_row.get(), p.binary_scales == 2 ? row_scales + i0 : row_scales);
  const Memory col(engine, piece.scale_col.get(), col_scales + j0), bias(engine, piece.bias.get(), bias_at);
  dnnl_exec_arg_t args[8];
  int count = 0, post = 0;
  const auto add = [&](int what, const Memory &m) { args[count++] = {what, m.get()}; };
  add(DNNL_ARG_SRC, src);
  add(DNNL_ARG_WEIGHTS, weights);
  add(DNNL_ARG_DST, dst);
  add(DNNL_ARG_SCRATCHPAD, pad);
  if (p.binary_scales >= 1) add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(post++) | DNNL_ARG_SRC_1, row);
  if (p.binary_scales == 2) add(DNNL_ARG_ATTR_MULTIPLE_POST_OP(post++) | DNNL_ARG_SRC_1, col);
  if (p.direct && bias_at) {
    add(p.binary_bias ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(post) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS, bias);
  }
  for (int i = 0; i < count; ++i) {
    if (!args[i].memory) return dnnl_out_of_memory;
  }
  dnnl_stream_t stream = nullptr;
  dnnl_status_t status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
  if (status != dnnl_success) return status;
  status = dnnl_primitive_execute(piece.primitive, stream, count, args);
  if (status == dnnl_success) status = dnnl_stream_wait(stream);
  dnnl_stream_destroy(stream);
  if (status == dnnl_success && !p.direct) {
    cpu::finish_part(g, reinterpret_cast<const float *>(job.sums), g.d.cols, job.scale_at_end, i0, rows, j0, cols);
  }
  return status;
}

void execute_parts(void *arg, int64_t begin, int64_t end) {
  Job &job = *static_cast<Job *>(arg);
  const OneThread one;
  for (int64_t part = begin; part < end; ++part) {
    const dnnl_status_t status = execute(job, part);
    if (status != dnnl_success) job.status.store(status);
  }
}

int32_t run(void *self, const ops::Gemm *gemm, char *why, uint64_t bytes) {
  const Path &path = *static_cast<Path *>(self);
  const ops::Gemm &g = *gemm;
  const cpu::GemmPool pool = path.state->pool();
  const bool plain = cpu::unquantized(g.a);
  // scales folded into the operands where that is exact (always in FP32, whose finish is still cheaper at the end)
  Finish finish = path.half ? Finish::kNone : finish_of(g);
  for (;;) {
    Key key = key_of(path, g, finish);
    auto plan = path.state->plans->get(key);
    if (!plan->why.empty()) return decline(why, bytes, plan->why.c_str());
    if (plan->workspace() > g.workspace_bytes) {  // sized for other strides (a linear's is): d apart may need less
      key.d_row = key.d_dtype = key.bias_dtype = key.accumulate = 0;
      plan = path.state->plans->get(key);
      if (!plan->why.empty() || plan->workspace() > g.workspace_bytes) {
        return decline(why, bytes, "the workspace is smaller than operands with these strides need");
      }
    }
    char *at = reinterpret_cast<char *>(aligned(reinterpret_cast<uintptr_t>(g.workspace)));
    const auto take = [&](uint64_t size) {
      char *piece = at;
      at += aligned(size);
      return piece;
    };
    Job job{path.state,
            plan.get(),
            &g,
            take(plan->a.bytes),
            take(plan->b.bytes),
            take(plan->sums_bytes),
            nullptr,
            nullptr,
            finish != Finish::kNone,
            {0}};
    job.scales = reinterpret_cast<float *>(take(plan->scales_bytes));
    job.scratchpad = take(0);  // the rest: one for each part
    const bool fold = finish == Finish::kNone && !plain;
    if (!fetch(g.a, plan->a, fold, job.a, pool) || !fetch(g.b, plan->b, fold, job.b, pool)) {
      if (finish_of(g) == Finish::kNone) {
        return decline(why, bytes, "a block's scale is no power of two, or takes values out of BF16's normal range");
      }
      finish = finish_of(g);
      continue;
    }
    if (!plan->a.decoded) job.a = static_cast<char *>(g.a.codes.data);
    if (!plan->b.decoded) job.b = static_cast<char *>(g.b.codes.data);
    if (plan->binary_scales) {
      float *col = reinterpret_cast<float *>(reinterpret_cast<char *>(job.scales) + aligned(g.d.rows * 4));
      cpu::load_scales(g.a, 0, plan->binary_scales == 1 ? 1 : g.d.rows, 0, job.scales);
      cpu::load_scales(g.b, 0, plan->binary_scales == 1 ? 1 : g.d.cols, 0, col);
      if (plan->binary_scales == 1) job.scales[0] *= col[0];
    }
    pool.run(pool.owner, plan->parts(), execute_parts, &job);
    if (const int32_t status = job.status.load()) {
      char text[96];
      std::snprintf(text, sizeof text, "oneDNN's matmul (%s) ended with status %d", plan->impl.c_str(), status);
      return path.state->host->set_error(FP8_ERR_BACKEND, FP8_DOMAIN_ONEDNN, status, text);
    }
    return FP8_OK;
  }
}

template <class Body>
int32_t guarded(void *self, char *why, uint64_t bytes, Body &&body) noexcept {
  try {
    return body();
  } catch (const std::exception &e) {
    (void)self;
    return decline(why, bytes, e.what());
  }
}

int32_t accepts_entry(void *self, const ops::Gemm *g, char *why, uint64_t bytes) noexcept {
  return guarded(self, why, bytes, [&] { return accepts(self, g, why, bytes); });
}

uint64_t scratch_entry(void *self, const ops::Gemm *g) noexcept {
  try {
    return scratch(self, g);
  } catch (const std::exception &) {
    return 0;
  }
}

int32_t run_entry(void *self, const ops::Gemm *g, char *why, uint64_t bytes) noexcept {
  return guarded(self, why, bytes, [&] { return run(self, g, why, bytes); });
}

// The CPU's BF16 units as oneDNN is allowed to use them (DNNL_MAX_CPU_ISA included).
bool bf16_units() {
  const unsigned have = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  const unsigned want = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  return (have & want) == want;
}

int32_t open(const ops::HostApi *host, const ops::BackendConfig *config, void **self, char *why,
             uint64_t bytes) noexcept {
  return guarded(nullptr, why, bytes, [&] {
    std::unique_ptr<State> state(new State);
    state->host = host;
    state->config = *config;
    if (state->config.threads < 1) state->config.threads = 1;
    if (dnnl_engine_create(&state->engine, dnnl_cpu, 0) != dnnl_success) {
      return decline(why, bytes, "oneDNN has no CPU engine");
    }
    state->plans.reset(new Plans(state->engine));
    state->has_bf16 = bf16_units();
    const dnnl_version_t *v = dnnl_version();
    char version[64];
    std::snprintf(version, sizeof version, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    state->bf16 = {state.get(), true, "onednn-bf16",
                   std::string(version) +
                       ": FP8 decoded to BF16 in oneDNN's packed layout, power-of-two scales folded in, FP32 sums"};
    state->f32 = {state.get(), false, "onednn-f32", std::string(version) + ": operands decoded to FP32, FP32 sums"};
    *self = state.release();
    return static_cast<int32_t>(FP8_OK);
  });
}

void close(void *self) noexcept { delete static_cast<State *>(self); }

int32_t list(void *self, int32_t index, ops::GemmImpl *impl, char *why, uint64_t bytes) noexcept {
  State &state = *static_cast<State *>(self);
  if (index < 0 || index > 1) return FP8_ERR_ARGUMENT;
  Path &path = index == 0 ? state.bf16 : state.f32;
  *impl = {path.name.c_str(), path.about.c_str(), &path, accepts_entry, scratch_entry, nullptr, run_entry};
  if (index == 0 && !state.has_bf16) return decline(why, bytes, "oneDNN reports no BF16 units on this CPU");
  return FP8_OK;
}

constexpr ops::GemmModule kTable = {
    ops::kBackendAbi, sizeof(ops::GemmModule), FP8_BUILD_ID, "onednn", open, close, list};

}  // namespace
}  // namespace fp8::onednn

extern "C" __attribute__((visibility("default"))) const fp8::ops::GemmModule *fp8_onednn_table() {
  return &fp8::onednn::kTable;
}
