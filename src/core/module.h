// SPDX-License-Identifier: Apache-2.0
// Modules (CUDA, oneDNN, MPI) are loaded at run time, once a process, and stay loaded.
#pragma once
#include <string>

namespace fp8 {

// dlopens lib<stem>.so from FP8_MODULE_PATH (a colon list; nothing else is then searched), the folder of this library,
// or its subfolder fp8/. NULL: *why says where was looked and what failed, *present whether
// a file of this name was there.
void *load_module(const char *stem, std::string *why, bool *present = nullptr);
// The number of CUDA devices the driver reports; 0 without a driver.
int cuda_device_count();

}  // namespace fp8
