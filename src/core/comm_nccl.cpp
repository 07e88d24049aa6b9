// SPDX-License-Identifier: Apache-2.0
// Communicators that the CUDA module makes.
#include <dlfcn.h>

#include <cstring>

#include "core/comm.h"
#include "core/module.h"
#include "ops/comm.h"

namespace fp8 {

namespace {

const ops::NcclApi &nccl() {
  std::string why;
  bool present = false;
  void *module = load_module("fp8_cuda", &why, &present);
  if (!module)
    fail(present ? FP8_ERR_BACKEND : FP8_ERR_UNSUPPORTED,
         "NCCL communicators live in libfp8_cuda.so, which was not loaded (%s)", why.c_str());
  auto get = reinterpret_cast<const ops::NcclApi *(*)()>(dlsym(module, "fp8_nccl_table"));
  const ops::NcclApi *table = get ? get() : nullptr;
  if (!table || table->abi != ops::kBackendAbi || table->size != sizeof(ops::NcclApi) ||
      std::strcmp(table->build_id, FP8_BUILD_ID) != 0)
    fail(FP8_ERR_BACKEND, "libfp8_cuda.so is of another build than libfp8.so: install both from one build");
  return *table;
}

fp8_comm *adopt(const ops::CommTable &table) {
  CommExtra extra{};
  extra.wait = table.wait;
  extra.gather_host = table.gather_host;
  extra.gather_lines = table.gather_lines;
  extra.sets_detail = true;
  return create_comm(table.ops, extra);
}

}  // namespace

void nccl_id(uint8_t *id) { check(nccl().unique_id(&host_api(), id)); }

fp8_comm *create_nccl(void *comm) {
  ops::CommTable table{};
  check(nccl().borrow(&host_api(), comm, &table));
  return adopt(table);
}

fp8_comm *create_nccl_rank(const fp8_context &c, const uint8_t *id, int32_t rank, int32_t size) {
  if (c.backend != FP8_BACKEND_CUDA) fail(FP8_ERR_ARGUMENT, "context is a CPU context, NCCL needs a CUDA one");
  if (size < 1) fail(FP8_ERR_ARGUMENT, "size is %d, it must be at least 1", size);
  if (rank < 0 || rank >= size) fail(FP8_ERR_ARGUMENT, "rank is %d, it must be in [0, %d)", rank, size);
  ops::CommTable table{};
  check(nccl().create(&host_api(), c.device, id, rank, size, &table));
  return adopt(table);
}

}  // namespace fp8
