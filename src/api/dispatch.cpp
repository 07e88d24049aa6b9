// SPDX-License-Identifier: Apache-2.0
// The expert-parallel half of collectives.h.
#include "core/dispatch.h"

#include <algorithm>

#include "api/guard.h"

using namespace fp8;

fp8_status fp8_dispatch_plan_sizes(const fp8_context *c, const fp8_comm *comm, const fp8_dispatch_config *config,
                                   uint64_t *bytes, int64_t *max_rows) {
  return guard("fp8_dispatch_plan_sizes", [&] {
    need(c, "c");
    need(comm, "comm");
    need(config, "config");
    const DispatchSizes sizes = dispatch_sizes(*comm, read_sized(config, "config"));
    if (bytes) *bytes = sizes.memory;
    if (max_rows) *max_rows = sizes.max_rows;
  });
}

fp8_status fp8_dispatch_plan_create(const fp8_context *c, fp8_comm *comm, const fp8_dispatch_config *config,
                                    fp8_stream stream, fp8_dispatch_plan **plan) {
  return guard("fp8_dispatch_plan_create", [&] {
    need(plan, "plan");
    *plan = nullptr;
    need(c, "c");
    need(comm, "comm");
    need(config, "config");
    *plan = create_plan(*c, *comm, read_sized(config, "config"), stream);
  });
}

fp8_status fp8_dispatch_plan_query(const fp8_dispatch_plan *plan, int64_t *rows, int64_t *group_ends,
                                   int64_t *group_rows, uint64_t *workspace_bytes) {
  return guard("fp8_dispatch_plan_query", [&] {
    need(plan, "plan");
    if (rows) *rows = plan->rows;
    if (group_ends) std::copy(plan->group_ends.begin(), plan->group_ends.end(), group_ends);
    if (group_rows) std::copy(plan->group_rows.begin(), plan->group_rows.end(), group_rows);
    if (workspace_bytes) *workspace_bytes = dispatch_workspace(*plan);
  });
}

fp8_status fp8_dispatch(const fp8_dispatch_plan *plan, const fp8_qtensor *tokens, fp8_qtensor *grouped,
                        const fp8_buffer *workspace, fp8_stream stream) {
  return guard("fp8_dispatch", [&] {
    need(plan, "plan");
    need(tokens, "tokens");
    need(grouped, "grouped");
    dispatch(*plan, read_sized(tokens, "tokens"), read_sized(grouped, "grouped"), workspace, stream);
  });
}

fp8_status fp8_dispatch_backward(const fp8_dispatch_plan *plan, const fp8_tensor *dgrouped, fp8_tensor *dtokens,
                                 const fp8_buffer *workspace, fp8_stream stream) {
  return guard("fp8_dispatch_backward", [&] {
    need(plan, "plan");
    need(dgrouped, "dgrouped");
    need(dtokens, "dtokens");
    combine(*plan, *dgrouped, nullptr, *dtokens, "dgrouped", "dtokens", workspace, stream);
  });
}

fp8_status fp8_combine(const fp8_dispatch_plan *plan, const fp8_tensor *expert_rows, const fp8_tensor *weights,
                       fp8_tensor *tokens, const fp8_buffer *workspace, fp8_stream stream) {
  return guard("fp8_combine", [&] {
    need(plan, "plan");
    need(expert_rows, "expert_rows");
    need(weights, "weights");
    need(tokens, "tokens");
    combine(*plan, *expert_rows, weights, *tokens, "expert_rows", "tokens", workspace, stream);
  });
}

fp8_status fp8_combine_backward(const fp8_dispatch_plan *plan, const fp8_combine_backward_args *args,
                                fp8_stream stream) {
  return guard("fp8_combine_backward", [&] {
    need(plan, "plan");
    need(args, "args");
    combine_backward(*plan, read_sized(args, "args"), stream);
  });
}

void fp8_dispatch_plan_destroy(fp8_dispatch_plan *plan) { Ref<fp8_dispatch_plan>::adopt(plan); }
