// SPDX-License-Identifier: Apache-2.0
// FP8_VERBOSE=1 prints each choice and refusal on stderr.
#pragma once

namespace fp8 {

bool verbose_on();
void verbose(const char *line);  // does nothing when off

}  // namespace fp8
