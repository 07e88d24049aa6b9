// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel collectives on quantized tensors.
#pragma once
#include "core/comm.h"
#include "core/context.h"
#include "fp8/collectives.h"

namespace fp8 {

void all_reduce_max(const fp8_context &c, fp8_comm &comm, const fp8_tensor &inout, fp8_stream stream);
uint64_t all_gather_workspace(const fp8_context &c, const fp8_comm &comm, const fp8_qtensor &part, uint32_t side,
                              const fp8_qtensor &full);
void all_gather(const fp8_context &c, fp8_comm &comm, const fp8_qtensor &part, uint32_t side, const fp8_qtensor &full,
                const fp8_buffer *workspace, fp8_stream stream);

}  // namespace fp8
