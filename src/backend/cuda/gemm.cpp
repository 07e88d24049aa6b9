// SPDX-License-Identifier: Apache-2.0
// One product: copies where the plan asks, cuBLASLt, what was left out, the last rounding.
#include "cuda/launch_cuda.h"
#include "device.h"
#include "fp8/context.h"
#include "fp8/recipe.h"
#include "lt_api.h"
#include "plan_cache.h"

namespace fp8::cuda {
namespace {

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

char *at(void *workspace, int64_t offset) { return static_cast<char *>(workspace) + offset; }

struct Chosen {
  GemmPlan plan;
  PlanKey key;
  const LtPlan *lt = nullptr;
};

const void *address(const ops::Side &s, const OperandPlan &p, void *workspace) {
  return p.copied ? at(workspace, p.at) : s.codes.data;
}

int32_t lt_error(const Device &d, cublasStatus_t status, const ops::Gemm &g, const char *what) {
  char text[512];
  snprintf(
      text, sizeof text,
      "%s: cuBLASLt %zu answers %s for %lld x %lld x %lld (a scaling %d dtype %d, b scaling %d dtype %d, d dtype %d)",
      what, d.lt->version, d.lt->status_name(status), static_cast<long long>(g.d.rows),
      static_cast<long long>(g.d.cols), static_cast<long long>(g.a.codes.cols), g.a.scaling, g.a.codes.dtype,
      g.b.scaling, g.b.codes.dtype, g.d.dtype);
  return d.host->set_error(status == CUBLAS_STATUS_NOT_SUPPORTED ? FP8_ERR_UNSUPPORTED : FP8_ERR_BACKEND,
                           FP8_DOMAIN_CUBLAS, status, text);
}

// As it is, else with m padded too.
int32_t choose(const Device &d, const ops::Gemm &g, bool times, Chosen *c) {
  for (int strict = 0; strict < 2; ++strict) {
    c->plan = plan_gemm(g, d.capability, strict != 0);
    if (c->plan.way == Way::kRefused) return refuse(d, FP8_ERR_UNSUPPORTED, "%s", c->plan.refusal);
    if (c->plan.way == Way::kEmpty || c->plan.way == Way::kSmall) return FP8_OK;
    if (!d.lt) return refuse(d, FP8_ERR_BACKEND, "%s", d.lt_refusal.c_str());
    const void *y = c->plan.direct ? g.d.data : at(g.workspace, c->plan.y_at);
    c->key = plan_key(g, c->plan, address(g.a, c->plan.a, g.workspace), address(g.b, c->plan.b, g.workspace), y);
    c->lt = d.plans->get(d, c->key, times);
    if (c->lt->status == CUBLAS_STATUS_SUCCESS) return FP8_OK;
    if (strict || !has_strict(g, c->plan)) break;
  }
  return lt_error(d, c->lt->status, g, "no algorithm");
}

cudaError_t prepare_operand(const ops::Side &s, const OperandPlan &p, Way way, void *workspace, int32_t most,
                            cudaStream_t stream, int *launches) {
  cudaError_t e = cudaSuccess;
  if (p.copied) {
    e = launch_pack(s.codes, at(workspace, p.at), p.dtype, p.rows, p.ld, most, stream);
    ++*launches;
  }
  if (!e && p.repacked) {
    e = way == Way::kSwizzled ? launch_swizzle(s, at(workspace, p.scale_at), most, stream)
                              : launch_repack(s.scale, at(workspace, p.scale_at), p.scale_row_stride,
                                              p.scale_col_stride, p.scale_size, most, stream);
    ++*launches;
  }
  return e;
}

}  // namespace

int32_t gemm_workspace(void *self, const ops::Gemm *g, uint64_t *bytes) {
  *bytes = gemm_bytes(*g, device_of(self).capability);
  return FP8_OK;
}

int32_t gemm_prepare(void *self, const ops::Gemm *g) {
  const Device &d = device_of(self);
  if (!g->d.rows || !g->d.cols) return FP8_OK;
  Current current(d);
  Chosen c;
  return choose(d, *g, true, &c);
}

int32_t gemm(void *self, const ops::Gemm *gemm, fp8_stream s) {
  const Device &d = device_of(self);
  const ops::Gemm &g = *gemm;
  if (!g.d.rows || !g.d.cols) return FP8_OK;
  Current current(d);
  cudaStream_t stream = stream_of(s);
  const int32_t most = most_blocks(d, g.max_sms);
  int launches = 0;
  Chosen c;
  const bool times = (d.config.flags & FP8_CONTEXT_TUNE) && !capturing(stream);
  if (int32_t status = choose(d, g, times, &c)) return status;
  const GemmPlan &p = c.plan;
  if (p.way == Way::kEmpty) {
    if (g.accumulate && !g.bias.data) return FP8_OK;
    count(d, ops::Counters::kLaunches);
    return check_cuda(d, launch_finish(g, nullptr, 0, most, stream), "finishing a product with k = 0");
  }
  if (p.way == Way::kSmall) {
    count(d, ops::Counters::kEmulatedGemms);
    count(d, ops::Counters::kLaunches);
    return check_cuda(d, launch_small(g, most ? most : 8 * d.sms, stream), "a small MX product");
  }
  if (g.workspace_bytes < static_cast<uint64_t>(p.bytes))
    return refuse(d, FP8_ERR_ARGUMENT, "workspace.bytes is %llu, this product needs %lld",
                  static_cast<unsigned long long>(g.workspace_bytes), static_cast<long long>(p.bytes));
  uint8_t *flags = p.way == Way::kWidened ? reinterpret_cast<uint8_t *>(at(g.workspace, p.flag_at)) : nullptr;
  cudaError_t e = cudaSuccess;
  if (flags) {
    e = launch_widen({&g.a, at(g.workspace, p.a.at), p.a.rows, p.a.ld},
                     {&g.b, at(g.workspace, p.b.at), p.b.rows, p.b.ld}, flags, most, stream);
    ++launches;
  } else {
    e = prepare_operand(g.a, p.a, p.way, g.workspace, most, stream, &launches);
    if (!e) e = prepare_operand(g.b, p.b, p.way, g.workspace, most, stream, &launches);
  }
  const void *bias = g.bias.data;
  if (!e && p.bias_copied) {
    ops::Matrix row{};
    row.data = g.bias.data, row.dtype = g.bias.dtype, row.lead = 1, row.rows = 1, row.cols = g.bias.size;
    row.lead_shape[0] = 1, row.lead_stride[0] = g.bias.size * g.bias.stride, row.col_stride = g.bias.stride;
    bias = at(g.workspace, p.bias_at);
    e = launch_pack(row, at(g.workspace, p.bias_at), g.bias.dtype, 1, g.bias.size, most, stream);
    ++launches;
  }
  if (e) return check_cuda(d, e, "preparing the operands of a product");

  const void *scale_a = p.a.repacked ? at(g.workspace, p.a.scale_at) : g.a.scale.data;
  const void *scale_b = p.b.repacked ? at(g.workspace, p.b.scale_at) : g.b.scale.data;
  void *y = p.direct ? g.d.data : at(g.workspace, p.y_at);
  cublasLtMatmulDescOpaque_t desc = c.lt->desc;
  cublasStatus_t status = lt_point(d, c.key, scale_a, scale_b, bias, &desc);
  const float alpha = 1.0f, beta = c.key.accumulate ? 1.0f : 0.0f;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = d.lt->matmul(static_cast<cublasLtHandle_t>(d.lt_handle), &desc, &alpha, address(g.b, p.b, g.workspace),
                          &c.lt->a, address(g.a, p.a, g.workspace), &c.lt->b, &beta, y, &c.lt->d, y, &c.lt->d,
                          &c.lt->algo, at(g.workspace, p.lt_at), static_cast<size_t>(p.lt_bytes), stream);
  if (status != CUBLAS_STATUS_SUCCESS) return lt_error(d, status, g, "cublasLtMatmul");
  ++launches;
  if (flags) {
    ops::Matrix target = g.d;
    if (!p.direct) {
      target.data = y;
      target.dtype = FP8_DTYPE_F32;
      target.lead = 1;
      target.lead_stride[0] = p.ldd;
      target.col_stride = 1;
    }
    e = launch_outside(g.a, g.b, target, flags, p.flags, most ? most : 2 * d.sms, stream);
    ++launches;
    count(d, ops::Counters::kEmulatedGemms);
  }
  if (!e && !p.direct) {
    e = launch_finish(g, static_cast<const float *>(y), p.ldd, most, stream);
    ++launches;
  }
  if (p.padded) count(d, ops::Counters::kPaddedGemms);
  count(d, ops::Counters::kLaunches, static_cast<uint64_t>(launches));
  return check_cuda(d, e, "finishing a product");
}

}  // namespace fp8::cuda
