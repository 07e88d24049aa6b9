// SPDX-License-Identifier: Apache-2.0
// Expert-parallel dispatch: who sends which token where, decided once, then calls that only enqueue.
#pragma once
#include <vector>

#include "core/comm.h"
#include "core/context.h"
#include "core/recipe.h"
#include "fp8/collectives.h"

struct fp8_dispatch_plan : fp8::Counted {
  fp8::Ref<const fp8_context> context;
  fp8::Ref<fp8_comm> comm;
  fp8::Ref<const fp8_recipe> recipe;
  int64_t tokens = 0, hidden = 0;
  int32_t k = 0, experts = 0;
  int32_t scaling = 0, dtype = 0, scale_dtype = 0;  // of an activation's row side
  int64_t scales = 0;                               // a row
  int64_t rows = 0;
  std::vector<int64_t> group_ends, group_rows;
  // rows of each rank: tokens sent and received by dispatch; expert rows sent back and received by combine
  std::vector<int64_t> sent, received, returned, taken;
  // tables in the caller's memory
  const int32_t *send_token = nullptr;   // [sent] token of each packed row
  const int32_t *row_source = nullptr;   // [rows] received row of each grouped row, -1 padding
  const int32_t *row_slots = nullptr;    // [rows] its slots, a bit each
  const int32_t *row_place = nullptr;    // [rows] its place among the returned rows
  const int32_t *return_row = nullptr;   // [returned] grouped row of each
  const int32_t *token_place = nullptr;  // [tokens, k] place among the taken rows, -1 none
};

namespace fp8 {

struct DispatchSizes {
  int64_t alignment, max_sent, max_received, max_rows, max_returned;
  uint64_t memory;
};

DispatchSizes dispatch_sizes(const fp8_comm &comm, const fp8_dispatch_config &config);
fp8_dispatch_plan *create_plan(const fp8_context &c, fp8_comm &comm, const fp8_dispatch_config &config,
                               fp8_stream stream);
uint64_t dispatch_workspace(const fp8_dispatch_plan &plan);
void dispatch(const fp8_dispatch_plan &plan, const fp8_qtensor &tokens, const fp8_qtensor &grouped,
              const fp8_buffer *workspace, fp8_stream stream);
// weights NULL: of one
void combine(const fp8_dispatch_plan &plan, const fp8_tensor &expert_rows, const fp8_tensor *weights,
             const fp8_tensor &tokens, const char *rows_name, const char *tokens_name, const fp8_buffer *workspace,
             fp8_stream stream);
void combine_backward(const fp8_dispatch_plan &plan, const fp8_combine_backward_args &args, fp8_stream stream);

}  // namespace fp8
