// SPDX-License-Identifier: Apache-2.0
// FP8 products, decoding included, against oneDNN's own 16-bit (FP32 where the CPU has no BF16 units) product with its
// packing of the weights included.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "backend/onednn/dnnl_api.h"
#include "harness.h"

using namespace bench;
using fp8::onednn::Desc;
using fp8::onednn::desc_bytes;
using fp8::onednn::desc_of;
using fp8::onednn::DescView;

namespace {

void must(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return;
  std::fprintf(stderr, "oneDNN: %s: status %d\n", what, static_cast<int>(status));
  std::exit(1);
}

dnnl_primitive_desc_t reorder_desc(DescView from, DescView to, dnnl_engine_t engine) {
  dnnl_primitive_desc_t pd = nullptr;
  must(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, nullptr), "reorder");
  return pd;
}

// d[m, n] = a[m, k] . b[n, k]^T, all of one type; packed: b is first reordered to the layout that oneDNN prefers.
class Peer {
 public:
  Peer(dnnl_engine_t engine, bool half, int64_t m, int64_t n, int64_t k, bool packed)
      : size_(half ? 2 : 4), a_(m * k * size_), b_(n * k * size_), d_(m * n * size_), packed_(packed) {
    const dnnl_data_type_t type = half ? dnnl_bf16 : dnnl_f32;
    must(a_desc_.init(type, m, k, k, 1), "a");
    must(b_desc_.init(type, k, n, 1, k), "b");
    must(any_.init(type, k, n, 1, k, packed), "any");
    must(d_desc_.init(type, m, n, n, 1), "d");
    must(fp8::onednn::matmul_desc(&pd_, engine, a_desc_.get(), any_.get(), nullptr, d_desc_.get(), nullptr), "matmul");
    must(dnnl_primitive_create(&matmul_, pd_), "matmul");
    const DescView weights = desc_of(pd_, dnnl_query_weights_md);
    pack_.reset(new Memory(packed ? desc_bytes(weights) : 1));
    must(dnnl_memory_create(&a_mem_, a_desc_.get(), engine, a_.data()), "memory");
    must(dnnl_memory_create(&b_mem_, b_desc_.get(), engine, b_.data()), "memory");
    must(dnnl_memory_create(&d_mem_, d_desc_.get(), engine, d_.data()), "memory");
    if (packed) {
      must(dnnl_memory_create(&pack_mem_, weights, engine, pack_->data()), "memory");
      must(dnnl_primitive_create(&reorder_, reorder_desc(b_desc_.get(), weights, engine)), "reorder");
    }
    must(dnnl_stream_create(&stream_, engine, dnnl_stream_default_flags), "stream");
    if (half) {
      fill_bf16(a_.data(), m * k, 1.0f, 1);
      fill_bf16(b_.data(), n * k, 0.02f, 2);
    } else {
      for (int64_t i = 0; i < m * k; ++i) static_cast<float *>(a_.data())[i] = static_cast<float>(i % 251) - 125;
      for (int64_t i = 0; i < n * k; ++i) static_cast<float *>(b_.data())[i] = static_cast<float>(i % 241) - 120;
    }
  }
  void operator()() {
    if (packed_) {
      const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, b_mem_}, {DNNL_ARG_TO, pack_mem_}};
      must(dnnl_primitive_execute(reorder_, stream_, 2, args), "reorder");
    }
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, a_mem_}, {DNNL_ARG_WEIGHTS, packed_ ? pack_mem_ : b_mem_}, {DNNL_ARG_DST, d_mem_}};
    must(dnnl_primitive_execute(matmul_, stream_, 3, args), "matmul");
    must(dnnl_stream_wait(stream_), "wait");
  }
  const char *impl() const {
    const char *name = "";
    dnnl_primitive_desc_query(pd_, dnnl_query_impl_info_str, 0, &name);
    return name;
  }

 private:  // lives as long as the program
  int64_t size_;
  Memory a_, b_, d_;
  bool packed_;
  std::unique_ptr<Memory> pack_;
  Desc a_desc_, b_desc_, any_, d_desc_;
  dnnl_primitive_desc_t pd_ = nullptr;
  dnnl_primitive_t matmul_ = nullptr, reorder_ = nullptr;
  dnnl_memory_t a_mem_ = nullptr, b_mem_ = nullptr, d_mem_ = nullptr, pack_mem_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
};

bool has_bf16(dnnl_engine_t engine) {
  Desc a, b, d;
  a.init(dnnl_bf16, 64, 64, 64, 1), b.init(dnnl_bf16, 64, 64, 1, 64), d.init(dnnl_bf16, 64, 64, 64, 1);
  dnnl_primitive_desc_t pd = nullptr;
  if (fp8::onednn::matmul_desc(&pd, engine, a.get(), b.get(), nullptr, d.get(), nullptr) != dnnl_success) return false;
  dnnl_primitive_desc_destroy(pd);
  const unsigned want = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & want) == want;
}

}  // namespace

int main(int argc, char **argv) {
  const Options o = parse(argc, argv, "FP8 products against oneDNN's own.");
  if (auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(o.threads);
  dnnl_engine_t engine = nullptr;
  must(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
  const bool half = has_bf16(engine);
  const dnnl_version_t *v = dnnl_version();
  char peer[160];
  std::snprintf(peer, sizeof peer,
                "oneDNN %d.%d.%d matmul, %s in and out, reorder of the weights included (packed) or none (plain)",
                v->major, v->minor, v->patch, half ? "BF16" : "FP32 (no BF16 units)");
  print_environment(o, peer);
  std::printf(
      "| recipe | M, N, K | ours ms | ours GFLOP/s | oneDNN packed GFLOP/s | oneDNN plain GFLOP/s | ratio to the "
      "faster (quartiles) |\n|---|---|---|---|---|---|---|\n");
  const int64_t big[][3] = {{4096, 4096, 1024}, {2048, 2048, 8192}}, small[][3] = {{64, 96, 256}, {33, 47, 130}};
  fp8_context *context = make_context(o);
  for (const auto &s : o.smoke ? small : big) {
    const int64_t m = s[0], n = s[1], k = s[2];
    const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    Peer packed(engine, half, m, n, k, true), plain(engine, half, m, n, k, false);
    const Result which = compare(
        o.smoke ? 1 : 5, [&] { packed(); }, [&] { plain(); });
    Peer &best = which.ratio >= 1 ? packed : plain;
    std::vector<RecipeCase> cases = kRecipes;
    cases.push_back({"NONE", FP8_PRESET_NONE, 0});
    for (const RecipeCase &c : cases) {
      char name[96];
      std::snprintf(name, sizeof name, "%s | %lld, %lld, %lld", c.name, static_cast<long long>(m),
                    static_cast<long long>(n), static_cast<long long>(k));
      if (!wanted(o, name)) continue;
      fp8_recipe *recipe = make_recipe(c);
      Memory x_memory(m * k * 2), w_memory(n * k * 2), d_memory(m * n * 2);
      fill_bf16(x_memory.data(), m * k, 1.0f, 1);
      fill_bf16(w_memory.data(), n * k, 0.02f, 2);
      const fp8_tensor x = tensor(x_memory.data(), FP8_DTYPE_BF16, m, k),
                       w = tensor(w_memory.data(), FP8_DTYPE_BF16, n, k);
      fp8_tensor d = tensor(d_memory.data(), FP8_DTYPE_BF16, m, n);
      Quantized qx(context, recipe, FP8_ROLE_ACTIVATION, m, k, FP8_SIDE_ROW);
      Quantized qw(context, recipe, FP8_ROLE_WEIGHT, n, k, FP8_SIDE_ROW);
      {
        const Memory wx(quantize_workspace(context, recipe, FP8_ROLE_ACTIVATION, x, qx.q));
        quantize(context, recipe, FP8_ROLE_ACTIVATION, x, qx.q, wx.buffer());
        const Memory ww(quantize_workspace(context, recipe, FP8_ROLE_WEIGHT, w, qw.q));
        quantize(context, recipe, FP8_ROLE_WEIGHT, w, qw.q, ww.buffer());
      }
      fp8_gemm_args args;
      FP8_INIT(&args);
      args.a = &qx.q;
      args.b = &qw.q;
      args.a_side = args.b_side = FP8_SIDE_ROW;
      args.d = &d;
      uint64_t bytes = 0;
      check(fp8_gemm_workspace(context, &args, &bytes), name);
      const Memory workspace(bytes);
      args.workspace = workspace.buffer();
      const Result r = compare(
          o.repeats, [&] { check(fp8_gemm(context, &args, nullptr), name); }, [&] { best(); });
      std::printf("| %s | %.2f | %.0f | %.0f | %.0f | **%.2f** (%.2f-%.2f) |\n", name, r.ours * 1e3,
                  flop / r.ours * 1e-9, flop / which.ours * 1e-9, flop / which.peer * 1e-9, r.ratio, r.low, r.high);
      std::fflush(stdout);
      fp8_recipe_destroy(recipe);
    }
    std::printf("\noneDNN: packed `%s`, plain `%s`\n\n", packed.impl(), plain.impl());
  }
  uint64_t needed = 0;
  check(fp8_context_explain(context, nullptr, 0, &needed), "explain");
  std::string text(needed, 0);
  check(fp8_context_explain(context, &text[0], needed, &needed), "explain");
  std::printf("```\n%s```\n", text.c_str());
  fp8_context_destroy(context);
  return 0;
}
