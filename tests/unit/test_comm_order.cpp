// SPDX-License-Identifier: Apache-2.0
// Callbacks on a device's memory: what the stream has to write is there when they come, unless they enqueue themselves.
#include <string>

#include "core/comm.h"
#include "core/context.h"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
//
#include <cmocka.h>
}

using namespace fp8;

namespace {

std::string g_calls;  // s: a wait for the stream; the others by the callback's letter
fp8_stream const kStream = reinterpret_cast<fp8_stream>(uintptr_t{64});

int32_t stream_sync(void *, fp8_stream stream) {
  assert_ptr_equal(stream, kStream);
  g_calls += 's';
  return FP8_OK;
}
fp8_status gather(void *, const void *, void *, const int64_t *, const int64_t *, fp8_stream) {
  g_calls += 'g';
  return FP8_OK;
}
fp8_status reduce(void *, void *, int64_t, int32_t, fp8_stream) {
  g_calls += 'r';
  return FP8_OK;
}
fp8_status exchange(void *, const void *, const int64_t *, const int64_t *, void *, const int64_t *, const int64_t *,
                    fp8_stream) {
  g_calls += 'x';
  return FP8_OK;
}

std::string calls_of(int32_t backend, uint32_t caps) {
  ops::BackendApi api{};
  api.stream_sync = stream_sync;
  Ref<fp8_context> c = Ref<fp8_context>::adopt(new fp8_context);
  c->backend = backend, c->api = &api;
  fp8_comm_ops o{};
  o.struct_size = sizeof o, o.size = 2, o.caps = caps;
  o.all_gather = gather, o.all_reduce_max = reduce, o.all_to_all = exchange;
  Ref<fp8_comm> comm = Ref<fp8_comm>::adopt(create_comm(o));
  char memory[64] = {};
  const int64_t bytes[2] = {8, 8}, offsets[2] = {0, 8};
  g_calls.clear();
  const fp8_stream stream = backend == FP8_BACKEND_CPU ? nullptr : kStream;
  gather_bytes(*c, *comm, memory, memory, bytes, offsets, stream);
  reduce_max(*c, *comm, memory, 4, FP8_DTYPE_F32, stream);
  all_to_all(*c, *comm, memory, bytes, offsets, memory + 32, bytes, offsets, stream);
  return g_calls;
}

void waits_where_callbacks_do_not_enqueue(void **) {
  assert_string_equal(calls_of(FP8_BACKEND_CUDA, FP8_COMM_DEVICE).c_str(), "sgsrsx");
  assert_string_equal(calls_of(FP8_BACKEND_CUDA, FP8_COMM_HOST | FP8_COMM_DEVICE).c_str(), "sgsrsx");
  assert_string_equal(calls_of(FP8_BACKEND_CUDA, FP8_COMM_DEVICE | FP8_COMM_STREAM_ORDERED).c_str(), "grx");
  assert_string_equal(calls_of(FP8_BACKEND_CPU, FP8_COMM_HOST).c_str(), "grx");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(waits_where_callbacks_do_not_enqueue)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
