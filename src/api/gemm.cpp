// SPDX-License-Identifier: Apache-2.0
#include "core/gemm.h"

#include "api/guard.h"

namespace {

struct Args {  // the caller's structs as this library knows them
  fp8_gemm_args args;
  fp8_qtensor a, b;
  explicit Args(const fp8_gemm_args *user) : args(fp8::read_sized(user, "args")) {
    fp8::need(args.a, "a");
    fp8::need(args.b, "b");
    fp8::need(args.d, "d");
    a = fp8::read_sized(args.a, "a");
    b = fp8::read_sized(args.b, "b");
    args.a = &a;
    args.b = &b;
  }
  Args(const Args &) = delete;
};

}  // namespace

extern "C" {

fp8_status fp8_gemm_workspace(const fp8_context *c, const fp8_gemm_args *args, uint64_t *bytes) {
  return fp8::guard("fp8_gemm_workspace", [&] {
    fp8::need(c, "context");
    fp8::need(bytes, "bytes");
    const Args ours(args);
    *bytes = fp8::gemm_workspace(*c, ours.args);
  });
}

fp8_status fp8_gemm(const fp8_context *c, const fp8_gemm_args *args, fp8_stream stream) {
  return fp8::guard("fp8_gemm", [&] {
    fp8::need(c, "context");
    const Args ours(args);
    fp8::gemm(*c, ours.args, stream);
  });
}

}  // extern "C"
