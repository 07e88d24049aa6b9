// SPDX-License-Identifier: Apache-2.0
// A linear layer: configuration only. The same code plans without memory (shapes, bytes) and with it; a call whose
// workspace is the caller's plans with it at once. The plan then runs without further checks.
#pragma once
#include <mutex>

#include "core/gemm.h"
#include "core/quantize.h"
#include "fp8/linear.h"

struct fp8_linear : fp8::Counted {
  fp8::Ref<const fp8_context> context;
  fp8::Ref<const fp8_recipe> recipe;
  int64_t in_features = 0, out_features = 0;
  int32_t input_dtype = FP8_DTYPE_BF16, output_dtype = FP8_DTYPE_BF16;
  // Answers of linear_workspace: planning every call of a size takes a while. The oldest goes first.
  struct Answer {
    int64_t rows = -1;
    uint32_t gemms = 0;
    uint64_t bytes = 0;
  };
  mutable std::mutex answers_mutex;
  mutable Answer answers[16];
  mutable uint32_t next_answer = 0;
};

namespace fp8 {

struct LinearPlan {
  QuantizePlan quantize[2];  // backward: dy, then x
  ops::Gemm gemm[2];         // backward: dx, then dw
  int quantize_count = 0, gemm_count = 0;
  uint64_t scratch = 0;   // of the largest step; the steps share it
  uint64_t total = 0;     // with the sides that live in the workspace
  bool has_view = false;  // saved_x or saved_dy has an UNQUANTIZED column side, which views its source
  fp8_tensor view{};
};

struct ShortWorkspace {};  // thrown where a side does not fit: a query then says how many bytes are needed

// Sides that a call makes for itself: counted, and placed where there is a workspace.
class Temps {
 public:
  explicit Temps(Workspace *ws) : ws_(ws) {}
  void place(fp8_qtensor &q, uint32_t sides);
  Mode mode() const { return ws_ ? Mode::kRun : Mode::kQuery; }
  bool query() const { return !ws_; }
  uint64_t total(uint64_t scratch);

 private:
  Workspace *ws_;
  Plan plan_;
};

fp8_linear *create_linear(const fp8_context &c, const fp8_linear_config &config);
fp8_qtensor linear_describe(const fp8_linear &l, int32_t role, int64_t rows, uint32_t sides);
uint64_t linear_workspace(const fp8_linear &l, int64_t rows, uint32_t gemms);
void linear_prepare(const fp8_linear &l, int64_t rows, uint32_t gemms);

// args hold this library's own copies of the nested qtensors. ws NULL: the query.
LinearPlan plan_forward(const fp8_linear &l, const fp8_linear_forward_args &args, Workspace *ws);
LinearPlan plan_backward(const fp8_linear &l, const fp8_linear_backward_args &args, Workspace *ws);
void refuse_overlaps(const fp8_linear_forward_args &args);
void refuse_overlaps(const fp8_linear_backward_args &args);
void check_contents(const fp8_linear &l, const fp8_linear_forward_args &args, fp8_stream stream);
void check_contents(const fp8_linear &l, const fp8_linear_backward_args &args, fp8_stream stream);
void run_linear(const fp8_linear &l, LinearPlan &plan, Workspace &ws, fp8_stream stream);

// Shared by both directions.
int64_t check_rows(const fp8_tensor &t, const char *name, int32_t dtype, int64_t features, const char *features_name,
                   bool query);
void check_extents(const fp8_qtensor &q, const char *name, int64_t rows, const char *rows_name, int64_t cols,
                   const char *cols_name);
ops::Side weight_side(const fp8_linear &l, const fp8_qtensor &w, int32_t side, bool query);
// An unquantized operand that is given as a tensor: read in place where its dtype is `target`, else rounded once into
// the workspace.
void plain_operand(fp8_qtensor &q, int32_t side, const fp8_tensor &t, const char *name, int32_t target,
                   const char *partner);
void add_quantize(LinearPlan &plan, const QuantizePlan &quantize);
void add_gemm(const fp8_linear &l, LinearPlan &plan, const ops::Gemm &op);
uint32_t gemm_flags(const fp8_linear &l, int32_t gemm, bool accumulate);

}  // namespace fp8
