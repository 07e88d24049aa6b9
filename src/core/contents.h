// SPDX-License-Identifier: Apache-2.0
// FP8_CONTEXT_CHECK: looks into device memory before a call, which waits for the stream. Nothing without the flag.
#pragma once
#include "core/context.h"
#include "core/tensor.h"

namespace fp8 {

// The scales of a side that is about to be read: finite and positive; E8M0: not the NaN code.
void check_scales(const fp8_context &c, const fp8_qtensor &q, int32_t side, const char *owner, fp8_stream stream);
// An amax that is given: not negative, not NaN. NULL is fine.
void check_given_amax(const fp8_context &c, const fp8_tensor *amax, const char *name, fp8_stream stream);

}  // namespace fp8
