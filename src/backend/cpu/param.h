// SPDX-License-Identifier: Apache-2.0
// Entries of the CPU's table for primary weights and routed rows.
#pragma once
#include "ops/backend.h"

namespace fp8::cpu {

void fill_param(ops::BackendApi &table);
void fill_route(ops::BackendApi &table);

}  // namespace fp8::cpu
