// SPDX-License-Identifier: Apache-2.0
// Primary weights and routed rows: workspace checks and launches.
#include "param.h"

#include "cuda/launch_param.h"
#include "device.h"
#include "fp8/context.h"

namespace fp8::cuda {
namespace {

int32_t workspace(void *, const ops::ParamList *p, uint64_t *bytes) {
  *bytes = static_cast<uint64_t>(param_table_bytes(*p));
  return FP8_OK;
}

template <cudaError_t (*launch)(const ops::ParamList &, int32_t, cudaStream_t, int32_t *)>
int32_t run_list(void *self, const ops::ParamList *p, fp8_stream stream) {
  const Device &d = device_of(self);
  const int64_t need = param_table_bytes(*p);
  if (p->workspace_bytes < static_cast<uint64_t>(need))
    return refuse(d, FP8_ERR_ARGUMENT, "workspace.bytes is %llu, the list's tables need %lld",
                  static_cast<unsigned long long>(p->workspace_bytes), static_cast<long long>(need));
  Current current(d);
  int32_t launches = 0;
  try {
    const cudaError_t e = launch(*p, most_blocks(d), stream_of(stream), &launches);
    count(d, ops::Counters::kLaunches, static_cast<uint64_t>(launches));
    return check_cuda(d, e, "a list of primary weights");
  } catch (const std::exception &e) {
    return refuse(d, FP8_ERR_NO_MEMORY, "%s", e.what());
  }
}

int32_t reduce(void *self, const ops::ReduceMax *r, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  int32_t launches = 0;
  const cudaError_t e = launch_reduce_max(*r, most_blocks(d), stream_of(stream), &launches);
  count(d, ops::Counters::kLaunches, static_cast<uint64_t>(launches));
  return check_cuda(d, e, "a maximum over ranks");
}

template <class Op, cudaError_t (*launch)(const Op &, int32_t, cudaStream_t)>
int32_t route(void *self, const Op *op, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  count(d, ops::Counters::kLaunches);
  return check_cuda(d, launch(*op, most_blocks(d), stream_of(stream)), "routing rows");
}

}  // namespace

void fill_param(ops::BackendApi &t) {
  t.param_workspace = workspace;
  t.param_amax = run_list<launch_param_amax>;
  t.param_cast = run_list<launch_param_cast>;
  t.param_assemble = run_list<launch_param_assemble>;
  t.reduce_max = reduce;
  t.route_copy = route<ops::RouteCopy, launch_route_copy>;
  t.route_combine = route<ops::RouteCombine, launch_route_combine>;
  t.route_backward = route<ops::RouteBackward, launch_route_backward>;
  t.route_scalar = route<ops::RouteScalar, launch_route_scalar>;
}

}  // namespace fp8::cuda
