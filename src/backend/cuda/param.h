// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ops/backend.h"

namespace fp8::cuda {

void fill_param(ops::BackendApi &table);  // and the routed rows

}  // namespace fp8::cuda
