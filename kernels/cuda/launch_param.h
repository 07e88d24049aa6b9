// SPDX-License-Identifier: Apache-2.0
// Launchers of primary weights and routed rows: POD in, a stream, the runtime's error out. `launches` is added to;
// `most` as in launch_cuda.h.
#pragma once
#include "launch_cuda.h"
#include "ops/param.h"
#include "ops/route.h"

namespace fp8::cuda {

int64_t param_table_bytes(const ops::ParamList &p);  // pure: the descriptors in the workspace
cudaError_t launch_param_amax(const ops::ParamList &p, int32_t most, cudaStream_t stream, int32_t *launches);
cudaError_t launch_param_cast(const ops::ParamList &p, int32_t most, cudaStream_t stream, int32_t *launches);
cudaError_t launch_param_assemble(const ops::ParamList &p, int32_t most, cudaStream_t stream, int32_t *launches);
cudaError_t launch_reduce_max(const ops::ReduceMax &r, int32_t most, cudaStream_t stream, int32_t *launches);

cudaError_t launch_route_copy(const ops::RouteCopy &r, int32_t most, cudaStream_t stream);
cudaError_t launch_route_combine(const ops::RouteCombine &r, int32_t most, cudaStream_t stream);
cudaError_t launch_route_backward(const ops::RouteBackward &r, int32_t most, cudaStream_t stream);
cudaError_t launch_route_scalar(const ops::RouteScalar &r, int32_t most, cudaStream_t stream);

// The code that a stream capture must find loaded.
cudaError_t load_partial_amax();
cudaError_t load_partial_cast();
cudaError_t load_partial_assemble();
cudaError_t load_route();

}  // namespace fp8::cuda
