// SPDX-License-Identifier: Apache-2.0
#include "fp8/param.h"

#include "api/guard.h"
#include "core/param.h"

using namespace fp8;

namespace {

void run(const fp8_context *c, const fp8_param_args *args, fp8_stream stream,
         void (*step)(const fp8_context &, const fp8_param_args &, fp8_stream)) {
  need(c, "c");
  need(args, "args");
  step(*c, read_sized(args, "args"), stream);
}

void run(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args, fp8_stream stream,
         void (*step)(const fp8_context &, fp8_comm &, const fp8_param_args &, fp8_stream)) {
  need(c, "c");
  need(comm, "comm");
  need(args, "args");
  step(*c, *comm, read_sized(args, "args"), stream);
}

}  // namespace

fp8_status fp8_param_create(const fp8_context *context, const fp8_param_config *config, fp8_param **param) {
  return guard("fp8_param_create", [&] {
    need(param, "param");
    *param = nullptr;
    need(context, "context");
    need(config, "config");
    *param = create_param(*context, read_sized(config, "config"));
  });
}

void fp8_param_destroy(fp8_param *param) { Ref<fp8_param>::adopt(param); }

fp8_status fp8_param_sizes(const fp8_param *const *params, int32_t count, uint32_t sides, fp8_param_layout *layout) {
  return guard("fp8_param_sizes", [&] {
    need(params, "params");
    need(layout, "layout");
    write_sized(layout, param_sizes(params, count, sides), "layout", true);
  });
}

fp8_status fp8_param_check(const fp8_context *c, fp8_comm *comm, const fp8_param *const *params, int32_t count) {
  return guard("fp8_param_check", [&] {
    need(c, "c");
    need(comm, "comm");
    need(params, "params");
    param_check(*c, *comm, params, count);
  });
}

fp8_status fp8_param_amax(const fp8_context *c, const fp8_param_args *args, fp8_stream stream) {
  return guard("fp8_param_amax", [&] { run(c, args, stream, param_amax); });
}

fp8_status fp8_param_cast(const fp8_context *c, const fp8_param_args *args, fp8_stream stream) {
  return guard("fp8_param_cast", [&] { run(c, args, stream, param_cast); });
}

fp8_status fp8_param_assemble(const fp8_context *c, const fp8_param_args *args, fp8_stream stream) {
  return guard("fp8_param_assemble", [&] { run(c, args, stream, param_assemble); });
}

fp8_status fp8_param_quantize(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args, fp8_stream stream) {
  return guard("fp8_param_quantize", [&] { run(c, comm, args, stream, param_quantize); });
}

fp8_status fp8_param_gather(const fp8_context *c, fp8_comm *comm, const fp8_param_args *args, fp8_stream stream) {
  return guard("fp8_param_gather", [&] { run(c, comm, args, stream, param_gather); });
}
