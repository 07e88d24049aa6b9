// SPDX-License-Identifier: Apache-2.0
// Quantize, dequantize, measure, transpose, cast: workspace checks and launches.
#include "cuda/launch_cuda.h"
#include "device.h"
#include "fp8/context.h"
#include "fp8/recipe.h"

namespace fp8::cuda {
namespace {

int32_t short_workspace(const Device &d, uint64_t got, int64_t need, const char *what) {
  return refuse(d, FP8_ERR_ARGUMENT, "workspace.bytes is %llu, %s needs %lld", static_cast<unsigned long long>(got),
                what, static_cast<long long>(need));
}

}  // namespace

int32_t quantize_workspace(void *self, const ops::Quantize *q, uint64_t *bytes) {
  const Device &d = device_of(self);
  *bytes = static_cast<uint64_t>(quantize_layout(*q, d.sms).bytes);
  return FP8_OK;
}

int32_t quantize(void *self, const ops::Quantize *q, fp8_stream stream) {
  const Device &d = device_of(self);
  const QuantizeLayout l = quantize_layout(*q, d.sms);
  if (q->workspace_bytes < static_cast<uint64_t>(l.bytes))
    return short_workspace(d, q->workspace_bytes, l.bytes, "quantizing");
  Current current(d);
  int32_t launches = 0;
  const cudaError_t e = launch_quantize(*q, d.sms, stream_of(stream), &launches);
  count(d, ops::Counters::kLaunches, static_cast<uint64_t>(launches));
  return check_cuda(d, e, "quantizing");
}

int32_t dequantize(void *self, const ops::Dequantize *q, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  count(d, ops::Counters::kLaunches);
  return check_cuda(d, launch_dequantize(*q, most_blocks(d), stream_of(stream)), "dequantizing");
}

int32_t measure_workspace(void *, const ops::Measure *m, uint64_t *bytes) {
  *bytes = static_cast<uint64_t>(measure_bytes(m->x.rows, m->x.cols));
  return FP8_OK;
}

int32_t measure(void *self, const ops::Measure *m, fp8_stream stream) {
  const Device &d = device_of(self);
  const int64_t need = measure_bytes(m->x.rows, m->x.cols);
  if (m->workspace_bytes < static_cast<uint64_t>(need))
    return short_workspace(d, m->workspace_bytes, need, "measuring");
  Current current(d);
  count(d, ops::Counters::kLaunches, 3);
  return check_cuda(d, launch_measure(*m, m->workspace, most_blocks(d), stream_of(stream)), "measuring");
}

int32_t transpose(void *self, const ops::Transpose *t, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  count(d, ops::Counters::kLaunches);
  return check_cuda(d, launch_transpose(*t, most_blocks(d), stream_of(stream)), "transposing");
}

int32_t cast(void *self, const ops::Cast *c, fp8_stream stream) {
  const Device &d = device_of(self);
  Current current(d);
  count(d, ops::Counters::kLaunches);
  return check_cuda(d, launch_cast(*c, most_blocks(d, c->max_sms), stream_of(stream)), "casting");
}

}  // namespace fp8::cuda
