// SPDX-License-Identifier: Apache-2.0
// CPU kernels of primary weights and of routed rows: checked PODs in, done when they return.
#pragma once
#include "cpu/launch_cpu.h"
#include "ops/param.h"
#include "ops/route.h"

namespace fp8::cpu {

uint64_t param_workspace(const ops::ParamList &p);
void param_amax(const ops::ParamList &p, const Parallel &parallel);
void param_cast(const ops::ParamList &p, const Parallel &parallel);
void param_assemble(const ops::ParamList &p, const Parallel &parallel);
void reduce_max(const ops::ReduceMax &r, const Parallel &parallel);

void route_copy(const ops::RouteCopy &r, const Parallel &parallel);
void route_combine(const ops::RouteCombine &r, const Parallel &parallel);
void route_backward(const ops::RouteBackward &r, const Parallel &parallel);
void route_scalar(const ops::RouteScalar &r, const Parallel &parallel);

}  // namespace fp8::cpu
