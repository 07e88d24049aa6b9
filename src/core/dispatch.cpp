// SPDX-License-Identifier: Apache-2.0
// Calls on a plan: pack rows, exchange them, place them. A packed row is its codes, then its scales (or weights).
#include "core/dispatch.h"

#include <algorithm>

#include "core/tensor.h"
#include "ops/route.h"

namespace fp8 {

namespace {

using ll = long long;

int64_t total(const std::vector<int64_t> &counts) {
  int64_t n = 0;
  for (int64_t c : counts) n += c;
  return n;
}

// Rows of one packed form.
struct Packed {
  int64_t code_bytes, extra, bytes;  // of a row: codes; where its scales start; all of it
  int32_t dtype, extra_dtype;
  int64_t cols, extras;
};

Packed packed_form(int64_t cols, int32_t dtype, int64_t extras, int32_t extra_dtype) {
  Packed p{};
  p.cols = cols;
  p.dtype = dtype;
  p.extras = extras;
  p.extra_dtype = extra_dtype;
  p.code_bytes = cols * dtype_size(dtype);
  p.extra = round_up(p.code_bytes, 4);
  p.bytes = round_up(p.extra + extras * (extras ? dtype_size(extra_dtype) : 0), 16);
  return p;
}

ops::RouteEnd packed_rows(const Packed &p, void *data, int64_t rows) {
  ops::RouteEnd end{};
  end.codes.data = data;
  end.codes.dtype = p.dtype;
  end.codes.lead = 1;
  end.codes.rows = end.codes.lead_shape[0] = rows;
  end.codes.lead_stride[0] = p.bytes / dtype_size(p.dtype);
  end.codes.cols = p.cols;
  end.codes.col_stride = 1;
  if (p.extras == 0) return end;
  end.scale.data = static_cast<char *>(data) + p.extra;
  end.scale.dtype = p.extra_dtype;
  end.scale.rows = rows;
  end.scale.cols = p.extras;
  end.scale.row_stride = p.bytes / dtype_size(p.extra_dtype);
  end.scale.col_stride = 1;
  return end;
}

Packed dispatch_form(const fp8_dispatch_plan &p) { return packed_form(p.hidden, p.dtype, p.scales, p.scale_dtype); }

void exchange(const fp8_dispatch_plan &p, const void *src, const std::vector<int64_t> &out, void *dst,
              const std::vector<int64_t> &in, int64_t unit, fp8_stream stream) {
  std::vector<int64_t> table(4 * out.size());
  int64_t *out_bytes = table.data(), *out_at = out_bytes + out.size(), *in_bytes = out_at + out.size(),
          *in_at = in_bytes + out.size();
  int64_t from = 0, to = 0;
  for (size_t r = 0; r < out.size(); ++r) {
    out_at[r] = from;
    from += out_bytes[r] = out[r] * unit;
    in_at[r] = to;
    to += in_bytes[r] = in[r] * unit;
  }
  all_to_all(*p.context, *p.comm, src, out_bytes, out_at, dst, in_bytes, in_at, stream);
}

void copy_rows(const fp8_dispatch_plan &p, const int32_t *index, const ops::RouteEnd &src, const ops::RouteEnd &dst,
               fp8_stream stream) {
  if (dst.codes.rows == 0) return;
  ops::RouteCopy copy{};
  copy.index = index;
  copy.src = src;
  copy.dst = dst;
  copy.dtype = p.dtype;
  copy.rule = p.recipe->config.scale_rule;
  copy.amax_floor = p.recipe->config.amax_floor;
  check(p.context->api->route_copy(p.context->self, &copy, stream));
}

ops::RouteEnd qtensor_rows(const fp8_dispatch_plan &p, const fp8_qtensor &q, const char *name, int64_t rows, bool out) {
  if (q.rows != rows || q.cols != p.hidden)
    fail(FP8_ERR_ARGUMENT, "%s is %lld x %lld, the plan has %lld x %lld", name, ll(q.rows), ll(q.cols), ll(rows),
         ll(p.hidden));
  const ops::Side s = side_view(q, FP8_SIDE_ROW, name, false);
  const bool plain = !is_quantized(p.scaling);
  if (plain && out && s.scaling == FP8_SCALING_UNQUANTIZED)
    fail(FP8_ERR_ARGUMENT, "%s.row is a view of a source, and a dispatch has none: describe it with FP8_SIDE_COPY",
         name);
  if (plain ? is_quantized(s.scaling) : s.scaling != p.scaling)
    fail(FP8_ERR_ARGUMENT, "%s.row_kind is %s, the plan's recipe gives activations %s", name, scaling_name(s.scaling),
         scaling_name(p.scaling));
  if (s.codes.dtype != p.dtype)
    fail(FP8_ERR_ARGUMENT, "%s.row.dtype is %s, the plan's recipe gives activations %s", name,
         dtype_name(s.codes.dtype), dtype_name(p.dtype));
  if (s.codes.cols > 1 && s.codes.col_stride != 1)
    fail(FP8_ERR_ARGUMENT, "%s.row.stride[1] is %lld, it must be 1", name, ll(s.codes.col_stride));
  ops::RouteEnd end{};
  end.codes = s.codes;
  if (!plain) end.scale = s.scale;
  return end;
}

ops::Matrix matrix_of(const fp8_tensor &t, const char *name, int64_t rows, int64_t cols) {
  check_tensor(t, name, {FP8_DTYPE_BF16, FP8_DTYPE_F16, FP8_DTYPE_F32}, 16, false);
  if (tensor_rows(t) != rows || tensor_cols(t) != cols)
    fail(FP8_ERR_ARGUMENT, "%s is %lld x %lld, the plan has %lld x %lld", name, ll(tensor_rows(t)), ll(tensor_cols(t)),
         ll(rows), ll(cols));
  const ops::Matrix m = matrix(t);
  if (cols > 1 && m.col_stride != 1)
    fail(FP8_ERR_ARGUMENT, "%s has stride %lld along its columns, it must be 1", name, ll(m.col_stride));
  return m;
}

ops::Scale weights_of(const fp8_dispatch_plan &p, const fp8_tensor &t, const char *name) {
  check_tensor(t, name, {FP8_DTYPE_F32}, 0, false);
  if (t.ndim != 2 || t.shape[0] != p.tokens || t.shape[1] != p.k)
    fail(FP8_ERR_ARGUMENT, "%s has shape [%lld, %lld], the plan has [%lld, %d]", name, ll(tensor_rows(t)),
         ll(tensor_cols(t)), ll(p.tokens), p.k);
  return scale_view(t);
}

uint64_t two(int64_t a, int64_t b) {
  Plan plan;
  plan.add(a);
  plan.add(b);
  return plan.total();
}

uint64_t dispatch_need(const fp8_dispatch_plan &p) {
  const int64_t bytes = dispatch_form(p).bytes;
  return two(total(p.sent) * bytes, total(p.received) * bytes);
}

uint64_t combine_need(const fp8_dispatch_plan &p, int32_t dtype) {
  const int64_t bytes = packed_form(p.hidden, dtype, 0, 0).bytes;
  return two(total(p.returned) * bytes, total(p.taken) * bytes);
}

uint64_t backward_need(const fp8_dispatch_plan &p, int32_t dtype, bool dots) {
  const int64_t bytes = packed_form(p.hidden, dtype, p.k, FP8_DTYPE_F32).bytes;
  Plan plan;
  plan.add(total(p.sent) * bytes);
  plan.add(total(p.received) * bytes);
  if (dots) {
    plan.add(total(p.returned) * sizeof(float));
    plan.add(total(p.taken) * sizeof(float));
  }
  return plan.total();
}

}  // namespace

uint64_t dispatch_workspace(const fp8_dispatch_plan &p) {
  return std::max({dispatch_need(p), combine_need(p, FP8_DTYPE_F32), backward_need(p, FP8_DTYPE_F32, true)});
}

void dispatch(const fp8_dispatch_plan &p, const fp8_qtensor &tokens, const fp8_qtensor &grouped,
              const fp8_buffer *buffer, fp8_stream stream) {
  check_stream(*p.context, stream);
  const ops::RouteEnd src = qtensor_rows(p, tokens, "tokens", p.tokens, false),
                      dst = qtensor_rows(p, grouped, "grouped", p.rows, true);
  refuse_overlap(grouped.row, "grouped", tokens.row, "tokens");
  Workspace workspace(*p.context, buffer, dispatch_need(p), stream);
  const Packed form = dispatch_form(p);
  const int64_t sent = total(p.sent), received = total(p.received);
  void *out = workspace.take(sent * form.bytes), *in = workspace.take(received * form.bytes);
  copy_rows(p, p.send_token, src, packed_rows(form, out, sent), stream);
  exchange(p, out, p.sent, in, p.received, form.bytes, stream);
  copy_rows(p, p.row_source, packed_rows(form, in, received), dst, stream);
}

void combine(const fp8_dispatch_plan &p, const fp8_tensor &expert_rows, const fp8_tensor *weights,
             const fp8_tensor &tokens, const char *rows_name, const char *tokens_name, const fp8_buffer *buffer,
             fp8_stream stream) {
  check_stream(*p.context, stream);
  ops::RouteEnd src{};
  src.codes = matrix_of(expert_rows, rows_name, p.rows, p.hidden);
  ops::RouteCombine sum{};
  sum.out = matrix_of(tokens, tokens_name, p.tokens, p.hidden);
  if (weights) sum.weight = weights_of(p, *weights, "weights");
  refuse_overlap(tokens, tokens_name, expert_rows, rows_name);
  Workspace workspace(*p.context, buffer, combine_need(p, expert_rows.dtype), stream);
  const Packed form = packed_form(p.hidden, expert_rows.dtype, 0, 0);
  const int64_t returned = total(p.returned), taken = total(p.taken);
  void *out = workspace.take(returned * form.bytes), *in = workspace.take(taken * form.bytes);
  copy_rows(p, p.return_row, src, packed_rows(form, out, returned), stream);
  exchange(p, out, p.returned, in, p.taken, form.bytes, stream);
  if (p.tokens == 0) return;
  sum.index = p.token_place;
  sum.rows = packed_rows(form, in, taken).codes;
  sum.k = p.k;
  check(p.context->api->route_combine(p.context->self, &sum, stream));
}

void combine_backward(const fp8_dispatch_plan &p, const fp8_combine_backward_args &args, fp8_stream stream) {
  check_stream(*p.context, stream);
  if (!args.dtokens) fail(FP8_ERR_ARGUMENT, "args.dtokens is NULL");
  if (!args.weights) fail(FP8_ERR_ARGUMENT, "args.weights is NULL");
  if (!args.dexpert_rows) fail(FP8_ERR_ARGUMENT, "args.dexpert_rows is NULL");
  if (args.dweights && !args.expert_rows)
    fail(FP8_ERR_ARGUMENT, "args.expert_rows is NULL, and args.dweights needs it");
  ops::RouteEnd src{};
  src.codes = matrix_of(*args.dtokens, "args.dtokens", p.tokens, p.hidden);
  src.scale = weights_of(p, *args.weights, "args.weights");
  ops::RouteBackward back{};
  back.dst = matrix_of(*args.dexpert_rows, "args.dexpert_rows", p.rows, p.hidden);
  refuse_overlap(*args.dexpert_rows, "args.dexpert_rows", *args.dtokens, "args.dtokens");
  ops::RouteScalar scalar{};
  if (args.dweights) {
    back.expert = matrix_of(*args.expert_rows, "args.expert_rows", p.rows, p.hidden);
    scalar.out = weights_of(p, *args.dweights, "args.dweights");
    refuse_overlap(*args.dexpert_rows, "args.dexpert_rows", *args.expert_rows, "args.expert_rows");
    refuse_overlap(*args.dweights, "args.dweights", *args.weights, "args.weights");
  }
  const bool dots = args.dweights != nullptr;
  Workspace workspace(*p.context, args.workspace, backward_need(p, args.dtokens->dtype, dots), stream);
  const Packed form = packed_form(p.hidden, args.dtokens->dtype, p.k, FP8_DTYPE_F32);
  const int64_t sent = total(p.sent), received = total(p.received);
  void *out = workspace.take(sent * form.bytes), *in = workspace.take(received * form.bytes);
  copy_rows(p, p.send_token, src, packed_rows(form, out, sent), stream);
  exchange(p, out, p.sent, in, p.received, form.bytes, stream);
  const ops::RouteEnd arrived = packed_rows(form, in, received);
  back.source = p.row_source;
  back.slots = p.row_slots;
  back.place = p.row_place;
  back.tokens = arrived.codes;
  back.weight = arrived.scale;
  float *dot_out = nullptr, *dot_in = nullptr;
  if (dots) {
    dot_out = static_cast<float *>(workspace.take(total(p.returned) * sizeof(float)));
    dot_in = static_cast<float *>(workspace.take(total(p.taken) * sizeof(float)));
    back.dot = dot_out;
  }
  if (p.rows) check(p.context->api->route_backward(p.context->self, &back, stream));
  if (!dots) return;
  exchange(p, dot_out, p.returned, dot_in, p.taken, sizeof(float), stream);
  scalar.index = p.token_place;
  scalar.values = dot_in;
  if (p.tokens) check(p.context->api->route_scalar(p.context->self, &scalar, stream));
}

}  // namespace fp8
