// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/param.h"

#include "backend/cpu/backend.h"
#include "cpu/launch_param.h"

namespace fp8::cpu {

void fill_param(ops::BackendApi &t) {
  t.param_workspace = workspace<ops::ParamList, param_workspace>;
  t.param_amax = run<ops::ParamList, param_amax>;
  t.param_cast = run<ops::ParamList, param_cast>;
  t.param_assemble = run<ops::ParamList, param_assemble>;
  t.reduce_max = run<ops::ReduceMax, reduce_max>;
}

void fill_route(ops::BackendApi &t) {
  t.route_copy = run<ops::RouteCopy, route_copy>;
  t.route_combine = run<ops::RouteCombine, route_combine>;
  t.route_backward = run<ops::RouteBackward, route_backward>;
  t.route_scalar = run<ops::RouteScalar, route_scalar>;
}

}  // namespace fp8::cpu
