// SPDX-License-Identifier: Apache-2.0
#include "plan_cache.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "cuda/launch_cuda.h"
#include "device.h"
#include "fp8/context.h"
#include "lt_api.h"

namespace fp8::cuda {
namespace {

constexpr int kCandidates = 32;  // cuBLASLt gives fewer where it has no more

int64_t size_of(int32_t dtype) {
  return dtype == FP8_DTYPE_F32 ? 4 : dtype == FP8_DTYPE_F16 || dtype == FP8_DTYPE_BF16 ? 2 : 1;
}

cublasStatus_t make_layout(const LtApi &lt, cublasLtMatrixLayoutOpaque_t *layout, int32_t dtype, int64_t rows,
                           int64_t cols, int64_t ld) {
  return lt.layout_init(layout, sizeof *layout, lt_dtype(dtype), static_cast<uint64_t>(rows),
                        static_cast<uint64_t>(cols), ld);
}

// Buffers of noise in the plan's shapes, for timing and for loading kernels before a capture.
struct Scratch {
  // several operands by turns, larger than L2 together: in use other products come between
  static constexpr int64_t kBytes = int64_t{128} << 20, kMostSets = 16;
  void *a = nullptr, *b = nullptr, *d = nullptr, *vector = nullptr, *workspace = nullptr;
  int64_t sets = 1, bytes_a = 0, bytes_b = 0, bytes_d = 0;  // of one
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  bool good = false;

  Scratch(const PlanKey &k, bool by_turns) {
    const int64_t rows_a = k.a_k_major ? k.m : k.k, rows_b = k.b_k_major ? k.n : k.k;
    const int64_t size_a = size_of(k.a_dtype), size_b = size_of(k.b_dtype), size_d = size_of(k.d_dtype);
    const auto bytes = [](int64_t n) { return (n + 255) / 256 * 256; };
    bytes_a = bytes(rows_a * k.lda * size_a), bytes_b = bytes(rows_b * k.ldb * size_b),
    bytes_d = bytes(k.m * k.ldd * size_d);
    if (by_turns) sets = std::max<int64_t>(1, std::min(kMostSets, kBytes / (bytes_a + bytes_b + bytes_d + 1)));
    const int64_t count_v = std::max(k.m, k.n) * (k.k / 128 + 4) + 1024;
    good = !cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) && !cudaEventCreate(&begin) &&
           !cudaEventCreate(&end) && !cudaMalloc(&a, static_cast<size_t>(sets * bytes_a)) &&
           !cudaMalloc(&b, static_cast<size_t>(sets * bytes_b)) &&
           !cudaMalloc(&d, static_cast<size_t>(sets * bytes_d)) &&
           !cudaMalloc(&vector, static_cast<size_t>(count_v * 4)) && !cudaMalloc(&workspace, kLtWorkspace) &&
           !launch_noise(a, sets * bytes_a / size_a, k.a_dtype, k.sms, stream) &&
           !launch_noise(b, sets * bytes_b / size_b, k.b_dtype, k.sms, stream) &&
           !launch_noise(vector, count_v, FP8_DTYPE_F32, k.sms, stream) &&
           !cudaMemsetAsync(d, 0, static_cast<size_t>(sets * bytes_d), stream);
    if (!good) (void)cudaGetLastError();
  }
  void *at(void *p, int64_t bytes, int call) const { return static_cast<char *>(p) + call % sets * bytes; }
  ~Scratch() {
    if (stream) (void)cudaStreamSynchronize(stream);
    for (void *p : {a, b, d, vector, workspace})
      if (p) (void)cudaFree(p);
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
    if (stream) (void)cudaStreamDestroy(stream);
  }
};

}  // namespace

cudaDataType_t lt_dtype(int32_t dtype) {
  switch (dtype) {
    case FP8_DTYPE_F32:
      return CUDA_R_32F;
    case FP8_DTYPE_F16:
      return CUDA_R_16F;
    case FP8_DTYPE_BF16:
      return CUDA_R_16BF;
    case FP8_DTYPE_E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_8F_E5M2;
  }
}

namespace {

template <class T>
void set(const LtApi &lt, cublasLtMatmulDescOpaque_t *d, cublasStatus_t *s, cublasLtMatmulDescAttributes_t what,
         const T &value) {
  if (*s == CUBLAS_STATUS_SUCCESS) *s = lt.desc_set(d, what, &value, sizeof value);
}

// All but the pointers.
cublasStatus_t lt_describe(const Device &dev, const PlanKey &k, cublasLtMatmulDescOpaque_t *out) {
  const LtApi &lt = *dev.lt;
  cublasStatus_t s = lt.desc_init(out, sizeof *out, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  // our B is its A: K-major means transposed there, and straight for its B
  const int32_t transa = k.b_k_major ? CUBLAS_OP_T : CUBLAS_OP_N, transb = k.a_k_major ? CUBLAS_OP_N : CUBLAS_OP_T;
  if (transa != CUBLAS_OP_N) set(lt, out, &s, CUBLASLT_MATMUL_DESC_TRANSA, transa);
  if (transb != CUBLAS_OP_N) set(lt, out, &s, CUBLASLT_MATMUL_DESC_TRANSB, transb);
  if (k.a_mode != kNoScale) {
    if (k.b_mode != kScalar32F) set(lt, out, &s, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, k.b_mode);
    if (k.a_mode != kScalar32F) set(lt, out, &s, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, k.a_mode);
  }
  if (k.fast) set(lt, out, &s, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  if (k.bias_dtype) {
    set(lt, out, &s, CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t{CUBLASLT_EPILOGUE_BIAS});
    set(lt, out, &s, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(lt_dtype(k.bias_dtype)));
  }
  if (k.sms) set(lt, out, &s, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, k.sms);
  return s;
}

}  // namespace

cublasStatus_t lt_point(const Device &dev, const PlanKey &k, const void *scale_a, const void *scale_b, const void *bias,
                        cublasLtMatmulDescOpaque_t *out) {
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  if (k.a_mode != kNoScale) {
    set(*dev.lt, out, &s, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_b);
    set(*dev.lt, out, &s, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_a);
  }
  if (k.bias_dtype) set(*dev.lt, out, &s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  return s;
}

namespace {

cublasStatus_t ask(const Device &dev, const PlanKey &k, LtPlan *plan, cublasLtMatmulHeuristicResult_t *results,
                   int *found) {
  const LtApi &lt = *dev.lt;
  // vector scale modes are refused without a pointer; the heuristic reads its value and alignment, never the memory
  const void *somewhere = reinterpret_cast<const void *>(uintptr_t{256});
  cublasStatus_t s = lt_describe(dev, k, &plan->desc);
  cublasLtMatmulDescOpaque_t desc = plan->desc;
  if (s == CUBLAS_STATUS_SUCCESS) s = lt_point(dev, k, somewhere, somewhere, somewhere, &desc);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = k.b_k_major ? make_layout(lt, &plan->a, k.b_dtype, k.k, k.n, k.ldb)
                    : make_layout(lt, &plan->a, k.b_dtype, k.n, k.k, k.ldb);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = k.a_k_major ? make_layout(lt, &plan->b, k.a_dtype, k.k, k.m, k.lda)
                    : make_layout(lt, &plan->b, k.a_dtype, k.m, k.k, k.lda);
  if (s == CUBLAS_STATUS_SUCCESS) s = make_layout(lt, &plan->d, k.d_dtype, k.n, k.m, k.ldd);
  cublasLtMatmulPreferenceOpaque_t preference;
  if (s == CUBLAS_STATUS_SUCCESS) s = lt.preference_init(&preference, sizeof preference);
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto &value) {
    if (s == CUBLAS_STATUS_SUCCESS) s = lt.preference_set(&preference, what, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kLtWorkspace));
  // split-K sums in FP32 only: a reduction in D's 16-bit type would round more than once
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(k.d_dtype == FP8_DTYPE_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK
                                                          : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(k.b_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(k.a_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(k.d_align));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(k.d_align));
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  s = lt.heuristic(static_cast<cublasLtHandle_t>(dev.lt_handle), &desc, &plan->a, &plan->b, &plan->d, &plan->d,
                   &preference, dev.config.flags & FP8_CONTEXT_TUNE ? kCandidates : kConsidered, results, found);
  if (s == CUBLAS_STATUS_SUCCESS && *found == 0) s = CUBLAS_STATUS_NOT_SUPPORTED;
  return s;
}

// Candidates on noise in a stream of its own. Calls are timed from a captured graph: for small products the host would
// be the slower one.
class Trial {
 public:
  Trial(const Device &dev, const PlanKey &k, const LtPlan &plan, const cublasLtMatmulHeuristicResult_t *results,
        bool by_turns)
      : dev_(dev),
        plan_(plan),
        results_(results),
        beta_(k.accumulate ? 1.0f : 0.0f),
        t_(k, by_turns),
        desc_(plan.desc) {
    good_ = t_.good && lt_point(dev, k, t_.vector, t_.vector, t_.vector, &desc_) == CUBLAS_STATUS_SUCCESS;
  }
  bool good() const { return good_; }
  bool run(int i, int call) const {
    const float alpha = 1.0f;
    void *a = t_.at(t_.a, t_.bytes_a, call), *b = t_.at(t_.b, t_.bytes_b, call), *d = t_.at(t_.d, t_.bytes_d, call);
    return results_[i].state == CUBLAS_STATUS_SUCCESS &&
           dev_.lt->matmul(static_cast<cublasLtHandle_t>(dev_.lt_handle), &desc_, &alpha, b, &plan_.a, a, &plan_.b,
                           &beta_, d, &plan_.d, d, &plan_.d, &results_[i].algo, t_.workspace, kLtWorkspace,
                           t_.stream) == CUBLAS_STATUS_SUCCESS;
  }
  bool finish() const {
    const bool good = cudaStreamSynchronize(t_.stream) == cudaSuccess;
    if (!good) (void)cudaGetLastError();
    return good;
  }
  // Microseconds a call, of the second and third; 0 = it does not run.
  float first(int i) const { return run(i, 0) && finish() ? replay(i, 1, 2) : 0.0f; }
  // The same over about `us` microseconds of calls that take `once`, at least two.
  float time(int i, float once, float us) const {
    const int calls = std::max(2, std::min(4000, static_cast<int>(us / once))), inner = std::min(calls, 50);
    return replay(i, inner, (calls + inner - 1) / inner);
  }

 private:
  float replay(int i, int calls, int launches) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (cudaStreamBeginCapture(t_.stream, cudaStreamCaptureModeThreadLocal)) return (void)cudaGetLastError(), 0.0f;
    bool good = true;
    for (int c = 0; good && c < calls; ++c) good = run(i, c);
    good = !cudaStreamEndCapture(t_.stream, &graph) && good && !cudaGraphInstantiate(&exec, graph, 0);
    good = good && !cudaGraphLaunch(exec, t_.stream) && !cudaEventRecord(t_.begin, t_.stream);
    for (int l = 0; good && l < launches; ++l) good = !cudaGraphLaunch(exec, t_.stream);
    float ms = 0.0f;
    good = good && !cudaEventRecord(t_.end, t_.stream) && !cudaEventSynchronize(t_.end) &&
           !cudaEventElapsedTime(&ms, t_.begin, t_.end);
    if (exec) (void)cudaGraphExecDestroy(exec);
    if (graph) (void)cudaGraphDestroy(graph);
    if (!good) (void)cudaGetLastError();
    return good ? ms * 1000.0f / static_cast<float>(calls * launches) : 0.0f;
  }

  const Device &dev_;
  const LtPlan &plan_;
  const cublasLtMatmulHeuristicResult_t *results_;
  const float beta_;
  Scratch t_;
  mutable cublasLtMatmulDescOpaque_t desc_;  // as the plans' layouts: not const in its interface
  bool good_ = false;
};

// The shortest: all once, then those within 8 % of the best by turns, since clocks and temperature drift.
void tune(const Trial &trial, int found, LtPlan *plan) {
  constexpr int kFinalists = 6, kRounds = 5;
  std::vector<std::pair<float, int>> times;
  float best = 0.0f;
  // warm, and large products so long that the power's limit tells
  if (const float once = trial.first(0); once > 0.0f) (void)trial.time(0, once, once < 100.0f ? 1e4f : 1e5f);
  for (int i = 0; i < found; ++i) {
    float us = trial.first(i);
    if (us > 0.0f && !(best > 0.0f && us > 1.5f * best)) us = trial.time(i, us, 1000.0f);
    if (!(us > 0.0f)) continue;
    times.emplace_back(us, i);
    best = best > 0.0f ? std::min(best, us) : us;
  }
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  size_t finalists = 1;
  while (finalists < times.size() && finalists < kFinalists && times[finalists].first < times[0].first * 1.08f)
    ++finalists;
  times.resize(finalists);
  if (finalists > 1) {
    std::vector<std::vector<float>> rounds(finalists);
    for (int r = 0; r < kRounds; ++r)
      for (size_t f = 0; f < finalists; ++f) {
        const float us = trial.time(times[f].second, times[f].first, 4000.0f);
        rounds[f].push_back(us > 0.0f ? us : HUGE_VALF);
      }
    for (size_t f = 0; f < finalists; ++f) {
      std::nth_element(rounds[f].begin(), rounds[f].begin() + kRounds / 2, rounds[f].end());
      times[f].first = rounds[f][kRounds / 2];
    }
    std::sort(times.begin(), times.end());
  }
  plan->chosen = times[0].second;
  plan->tuned_us = times[0].first;
}

int32_t config(const LtApi &lt, const cublasLtMatmulAlgo_t &algo, cublasLtMatmulAlgoConfigAttributes_t what) {
  uint32_t value = 0;
  uint16_t half = 0;
  size_t written = 0;
  if (what == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || what == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)
    return lt.algo_get(&algo, what, &half, sizeof half, &written) == CUBLAS_STATUS_SUCCESS ? half : -1;
  return lt.algo_get(&algo, what, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS ? static_cast<int32_t>(value)
                                                                                           : -1;
}

static_assert(kTile176x128 == CUBLASLT_MATMUL_TILE_176x128, "as in cuBLASLt");

int32_t choice(const Device &dev, const PlanKey &k, const cublasLtMatmulHeuristicResult_t *results, int found) {
  Candidate candidates[kConsidered];
  const int count = std::min(found, kConsidered);
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulAlgo_t &algo = results[i].algo;
    candidates[i] = {
        results[i].state == CUBLAS_STATUS_SUCCESS ? config(*dev.lt, algo, CUBLASLT_ALGO_CONFIG_TILE_ID) : -1,
        config(*dev.lt, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), results[i].wavesCount};
  }
  return untuned_choice(k, dev.capability, candidates, count);
}

std::string describe(const LtApi &lt, const PlanKey &k, const LtPlan &p) {
  char text[320];
  snprintf(
      text, sizeof text,
      "cuda: plan %lldx%lldx%lld types %d %d -> %d scales %d %d%s%s: candidate %d of %d, algorithm %d tile %d stages "
      "%d cluster %d split %d reduction %d workspace %llu, %.1f us",
      static_cast<long long>(k.m), static_cast<long long>(k.n), static_cast<long long>(k.k), k.a_dtype, k.b_dtype,
      k.d_dtype, k.a_mode, k.b_mode, k.accumulate ? " +=" : "", k.fast ? " fast" : "", p.chosen, p.candidates,
      config(lt, p.algo, CUBLASLT_ALGO_CONFIG_ID), config(lt, p.algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
      config(lt, p.algo, CUBLASLT_ALGO_CONFIG_STAGES_ID), config(lt, p.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
      config(lt, p.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), config(lt, p.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
      static_cast<unsigned long long>(p.workspace), static_cast<double>(p.tuned_us));
  return text;
}

}  // namespace

const LtPlan *PlanCache::get(const Device &dev, const PlanKey &key, bool times) {
  {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    auto found = plans_.find(key);
    if (found != plans_.end()) return found->second.get();
  }
  auto plan = std::make_unique<LtPlan>();
  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int found = 0;
  plan->status = ask(dev, key, plan.get(), results, &found);
  if (plan->status == CUBLAS_STATUS_SUCCESS) {
    plan->candidates = found;
    plan->chosen = choice(dev, key, results, found);  // the same for the same library, device and shape
    if (times) {
      const bool tunes = (dev.config.flags & FP8_CONTEXT_TUNE) && found > 1;
      const Trial trial(dev, key, *plan, results, tunes);
      if (trial.good() && tunes) tune(trial, found, plan.get());
      // otherwise it runs all the same: its kernel is then loaded before any capture
      else if (trial.good() && trial.run(plan->chosen, 0))
        trial.finish();
    }
    plan->algo = results[plan->chosen].algo;
    plan->workspace = results[plan->chosen].workspaceSize;
    if (dev.host->verbose) dev.host->verbose(describe(*dev.lt, key, *plan).c_str());
  }
  std::unique_lock<std::shared_mutex> lock(mutex_);
  return plans_.emplace(key, std::move(plan)).first->second.get();  // a racing thread's plan stays
}

uint64_t PlanCache::size() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  return plans_.size();
}

std::string PlanCache::explain() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  uint64_t refused = 0, tuned = 0, chosen = 0;
  for (const auto &entry : plans_) {
    refused += entry.second->status != CUBLAS_STATUS_SUCCESS;
    tuned += entry.second->chosen > 0 && entry.second->tuned_us > 0.0f;
    chosen += entry.second->chosen > 0 && !(entry.second->tuned_us > 0.0f);
  }
  return "gemm plans: " + std::to_string(plans_.size()) +
         ", refused by cuBLASLt (then padded): " + std::to_string(refused) +
         ", where timing chose another than the first: " + std::to_string(tuned) +
         ", where its tile did: " + std::to_string(chosen) + "\n";
}

}  // namespace fp8::cuda
