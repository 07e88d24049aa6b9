// SPDX-License-Identifier: Apache-2.0
// TP all-gather along tokens. Codes and scales of a part travel in one slot: [codes, compact][scales, compact]; over a
// transport that fuses groups in two messages, each from and to its place where that is one run of bytes. The row
// side's parts follow each other in full; the column side's interleave, since full's codes run along all tokens.
#include "core/collectives.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "ops/route.h"

namespace fp8 {

namespace {

using ll = long long;

struct Gather {
  ops::Side part, full;  // unquantized: upright, rows x cols, whatever the side
  bool along_cols;       // tokens run along the codes' columns
  int64_t code_bytes, scale_bytes, slot;
};

const char *label(uint32_t side) { return side == FP8_SIDE_ROW ? "row" : "col"; }

void need_flat(const ops::Matrix &m, const char *name, const char *side) {
  if (m.lead > 1)
    fail(FP8_ERR_ARGUMENT, "%s.%s: its leading dimensions do not flatten to rows of one stride", name, side);
}

// A 16-bit column side is a view of rows x cols: gathered as that.
void stand_up(ops::Side &s, const char *name) {
  need_flat(s.codes, name, "col");
  ops::Matrix m = s.codes;
  m.rows = s.codes.cols;
  m.cols = s.codes.rows;
  m.lead = 1;
  m.lead_shape[0] = m.rows;
  m.lead_stride[0] = s.codes.col_stride;
  m.col_stride = m.cols > 1 ? s.codes.lead_stride[0] : 1;
  s.codes = m;
}

void need_dense(const ops::Matrix &m, const char *name, const char *side) {
  if (m.cols > 1 && m.col_stride != 1)
    fail(FP8_ERR_ARGUMENT, "%s.%s has stride %lld along its columns, it must be 1", name, side, ll(m.col_stride));
}

Gather plan_gather(const fp8_context &c, const fp8_comm &comm, const fp8_qtensor &part, uint32_t side,
                   const fp8_qtensor &full, bool shape_only) {
  if (side != FP8_SIDE_ROW && side != FP8_SIDE_COL)
    fail(FP8_ERR_ARGUMENT, "side is %u, it must be FP8_SIDE_ROW or FP8_SIDE_COL", side);
  if (!c.api->route_copy) fail(FP8_ERR_UNSUPPORTED, "the %s backend has no kernels that route rows", c.api->name);
  const int32_t size = comm.ops.size;
  if (part.cols != full.cols)
    fail(FP8_ERR_ARGUMENT, "full.cols is %lld, part.cols is %lld: rows are gathered", ll(full.cols), ll(part.cols));
  if (full.rows != size * part.rows)
    fail(FP8_ERR_ARGUMENT, "full.rows is %lld, it must be %d ranks x part.rows %lld", ll(full.rows), size,
         ll(part.rows));
  Gather g{};
  g.part = side_view(part, side, "part", shape_only);
  g.full = side_view(full, side, "full", shape_only);
  const bool plain = !is_quantized(g.part.scaling);
  if (is_quantized(g.full.scaling) != !plain || (!plain && g.part.scaling != g.full.scaling))
    fail(FP8_ERR_ARGUMENT, "full.%s_kind is %s, part's is %s", label(side), scaling_name(g.full.scaling),
         scaling_name(g.part.scaling));
  if (g.full.scaling == FP8_SCALING_UNQUANTIZED)
    fail(FP8_ERR_ARGUMENT, "full.%s is a view of a source, and a gather has none: describe it with FP8_SIDE_COPY",
         label(side));
  if (g.part.codes.dtype != g.full.codes.dtype)
    fail(FP8_ERR_ARGUMENT, "full.%s.dtype is %s, part's is %s", label(side), dtype_name(g.full.codes.dtype),
         dtype_name(g.part.codes.dtype));
  g.along_cols = side == FP8_SIDE_COL && !plain;
  if (plain && side == FP8_SIDE_COL) {
    stand_up(g.part, "part");
    stand_up(g.full, "full");
  }
  const int64_t tile = g.along_cols ? ops::tile_cols(g.part.scaling) : ops::tile_rows(g.part.scaling);
  if (!plain && tile > 1 && size > 1 && part.rows % tile)
    fail(FP8_ERR_UNSUPPORTED,
         "part.rows is %lld: the %s side's %s scales span %lld tokens, so tokens per rank must be a multiple of %lld "
         "for the gather to equal quantizing the gathered tensor; gather BF16 and quantize after it",
         ll(part.rows), label(side), scaling_name(g.part.scaling), ll(tile), ll(tile));
  need_dense(g.part.codes, "part", label(side));
  need_dense(g.full.codes, "full", label(side));
  if (!g.along_cols) need_flat(g.full.codes, "full", label(side));
  g.code_bytes = round_up(g.part.codes.rows * g.part.codes.cols * dtype_size(g.part.codes.dtype), 16);
  const bool own_scale =
      plain || g.part.scaling == FP8_SCALING_TENSOR || (g.along_cols && g.part.scaling == FP8_SCALING_ROW);
  g.scale_bytes = own_scale ? 0 : round_up(g.part.scale.rows * g.part.scale.cols * dtype_size(g.part.scale.dtype), 16);
  g.slot = g.code_bytes + g.scale_bytes;
  return g;
}

uint64_t need(const Gather &g, int32_t size) {
  Plan plan;
  plan.add(g.slot);
  plan.add(g.slot * size);
  return plan.total();
}

ops::Matrix dense(void *data, int32_t dtype, int64_t rows, int64_t cols) {
  ops::Matrix m{};
  m.data = data;
  m.dtype = dtype;
  m.lead = 1;
  m.rows = m.lead_shape[0] = rows;
  m.cols = m.lead_stride[0] = cols;
  m.col_stride = 1;
  return m;
}

ops::Scale dense_scale(void *data, const ops::Scale &like) {
  ops::Scale s = like;
  s.data = data;
  s.row_stride = like.cols;
  s.col_stride = 1;
  return s;
}

// Rank r's place in full: a window of it.
ops::RouteEnd window(const Gather &g, int64_t r, bool scales) {
  ops::RouteEnd end{};
  end.codes = g.full.codes;
  const int64_t size = dtype_size(end.codes.dtype);
  char *data = static_cast<char *>(end.codes.data);
  end.codes.rows = g.part.codes.rows;
  end.codes.cols = g.part.codes.cols;
  if (g.along_cols) {
    end.codes.data = data + r * g.part.codes.cols * size;
  } else {
    end.codes.data = data + ops::row_offset(g.full.codes, r * g.part.codes.rows) * size;
    end.codes.lead = 1;
    end.codes.lead_shape[0] = end.codes.rows;
  }
  if (!scales) return end;
  end.scale = g.full.scale;
  end.scale.rows = g.part.scale.rows;
  end.scale.cols = g.part.scale.cols;
  const int64_t step =
      g.along_cols ? g.part.scale.cols * end.scale.col_stride : g.part.scale.rows * end.scale.row_stride;
  end.scale.data = static_cast<char *>(end.scale.data) + r * step * dtype_size(end.scale.dtype);
  return end;
}

void copy_lines(const fp8_context &c, const ops::RouteEnd &src, const ops::RouteEnd &dst, fp8_stream stream) {
  if (dst.codes.rows == 0) return;
  ops::RouteCopy copy{};
  copy.src = src;
  copy.dst = dst;
  check(c.api->route_copy(c.self, &copy, stream));
}

void copy_scales(const fp8_context &c, const ops::Scale &src, const ops::Scale &dst, fp8_stream stream) {
  ops::RouteEnd from{}, to{};
  from.codes = to.codes = dense(nullptr, FP8_DTYPE_U8, dst.rows, 0);
  from.scale = src;
  to.scale = dst;
  copy_lines(c, from, to, stream);
}

// Scales of square tiles have fewer rows than codes and go by themselves.
void copy_rows(const fp8_context &c, const ops::RouteEnd &src, const ops::RouteEnd &dst, fp8_stream stream) {
  if (!dst.scale.dtype || dst.scale.rows == dst.codes.rows) return copy_lines(c, src, dst, stream);
  ops::RouteEnd from{}, to{};
  from.codes = src.codes;
  to.codes = dst.codes;
  copy_lines(c, from, to, stream);
  copy_scales(c, src.scale, dst.scale, stream);
}

// Scales that every rank has alike (one tensor's; ROW's column side, reduced over the group), and the zero of native
// padding.
void own_scales(const fp8_context &c, const Gather &g, fp8_stream stream) {
  if (!is_quantized(g.part.scaling) || g.scale_bytes) return;
  ops::Scale part = g.part.scale, full = g.full.scale;
  full.rows = part.rows;
  full.cols = part.cols;
  copy_scales(c, part, full, stream);
}

void zero_padding(const fp8_context &c, const Gather &g, fp8_stream stream) {
  const ops::Scale &s = g.full.scale;
  if (!is_quantized(g.full.scaling) || !s.padded || g.full.codes.rows == 0 || g.full.codes.cols == 0) return;
  const bool down = g.full.scaling == FP8_SCALING_1X128;
  const int64_t outer = down ? s.cols : s.rows, stride = down ? s.col_stride : s.row_stride;
  if ((down ? s.rows : s.cols) < stride)
    check(c.api->zero(c.self, s.data, outer * stride * dtype_size(s.dtype), stream));
}

// Lines that follow each other without a gap.
bool flat(const ops::Matrix &m) {
  return m.lead <= 1 && (m.cols <= 1 || m.col_stride == 1) && (m.rows <= 1 || m.lead_stride[0] == m.cols);
}
bool flat(const ops::Scale &s) { return (s.cols <= 1 || s.col_stride == 1) && (s.rows <= 1 || s.row_stride == s.cols); }

// One of the two messages. `here` and `there`: where the part lies and where all parts go; NULL: by way of staging.
// lines: of `there`, each rank's `step` behind the one before it; 0: all parts are one run.
struct Message {
  char *own, *all;  // staging
  const void *here;
  void *there;
  int64_t bytes, lines, stride, step;
};

void send(const fp8_context &c, fp8_comm &comm, const Message &m, fp8_stream stream) {
  if (m.bytes == 0) return;
  const int32_t size = comm.ops.size;
  const void *src = m.here ? m.here : m.own;
  if (m.there && m.lines)
    return gather_lines(c, comm, src, m.there, m.lines, m.bytes / m.lines, m.stride, m.step, stream);
  std::vector<int64_t> bytes(size, m.bytes), offsets(size);
  for (int32_t r = 0; r < size; ++r) offsets[r] = r * m.bytes;
  gather_bytes(c, comm, src, m.there ? m.there : m.all, bytes.data(), offsets.data(), stream);
}

// Both as they travel apart: scales that run down the rows, transposed, so that they lie as in memory.
struct Apart {
  ops::Scale part, full;
  bool along_cols;
};

Apart scales_apart(const Gather &g) {
  Apart a{g.part.scale, g.full.scale, g.along_cols};
  if (g.part.scaling != FP8_SCALING_1X128) return a;
  for (ops::Scale *s : {&a.part, &a.full}) {
    std::swap(s->rows, s->cols);
    std::swap(s->row_stride, s->col_stride);
  }
  a.along_cols = !a.along_cols;
  return a;
}

// From [ranks, lines, elements] to lines of all ranks' elements, in one launch.
void interleave(const fp8_context &c, char *from, int32_t size, int64_t lines, int64_t elements, int32_t dtype,
                void *data, int64_t stride, fp8_stream stream) {
  ops::RouteEnd src{}, dst{};
  src.codes = dst.codes = dense(from, dtype, size * lines, elements);
  dst.codes.data = data;
  dst.codes.lead = 2;
  dst.codes.lead_shape[0] = size;
  dst.codes.lead_stride[0] = elements;
  dst.codes.lead_shape[1] = lines;
  dst.codes.lead_stride[1] = stride;
  copy_lines(c, src, dst, stream);
}

void place_codes(const fp8_context &c, const Gather &g, char *all, int32_t size, fp8_stream stream) {
  const ops::Matrix &part = g.part.codes, &full = g.full.codes;
  if (g.along_cols && full.lead <= 1)
    return interleave(c, all, size, part.rows, part.cols, part.dtype, full.data, full.lead_stride[0], stream);
  ops::RouteEnd from{}, to{};
  from.codes = dense(all, part.dtype, size * part.rows, part.cols);
  to.codes = full;
  if (!g.along_cols) return copy_lines(c, from, to, stream);
  for (int32_t r = 0; r < size; ++r) {
    from.codes = dense(all + r * part.rows * part.cols * dtype_size(part.dtype), part.dtype, part.rows, part.cols);
    copy_lines(c, from, window(g, r, false), stream);
  }
}

void place_scales(const fp8_context &c, const Apart &a, char *all, int32_t size, fp8_stream stream) {
  const int64_t bytes = dtype_size(a.part.dtype);
  ops::Scale from = dense_scale(all, a.part), to = a.full;
  if (!a.along_cols) {
    from.rows = to.rows = size * a.part.rows;
    return copy_scales(c, from, to, stream);
  }
  if (to.cols <= 1 || to.col_stride == 1)
    return interleave(c, all, size, a.part.rows, a.part.cols, bytes == 4 ? FP8_DTYPE_F32 : FP8_DTYPE_U8, to.data,
                      to.row_stride, stream);
  to.cols = a.part.cols;
  for (int32_t r = 0; r < size; ++r) {
    copy_scales(c, from, to, stream);
    from.data = static_cast<char *>(from.data) + a.part.rows * a.part.cols * bytes;
    to.data = static_cast<char *>(to.data) + a.part.cols * to.col_stride * bytes;
  }
}

// Every rank sends the same two messages, however its own tensors lie.
void gather_apart(const fp8_context &c, fp8_comm &comm, const Gather &g, char *own, char *all, fp8_stream stream) {
  const int32_t size = comm.ops.size;
  const Apart a = scales_apart(g);
  Message codes{own, all, nullptr, nullptr, 0, 0, 0, 0},
      scales{own + g.code_bytes, all + size * g.code_bytes, nullptr, nullptr, 0, 0, 0, 0};
  codes.bytes = g.part.codes.rows * g.part.codes.cols * dtype_size(g.part.codes.dtype);
  if (flat(g.part.codes)) codes.here = g.part.codes.data;
  if (flat(g.full.codes) && !g.along_cols) codes.there = g.full.codes.data;
  if (g.along_cols && g.full.codes.lead <= 1 && codes.bytes && gathers_lines(c, comm)) {
    const int64_t element = dtype_size(g.part.codes.dtype);
    codes.there = g.full.codes.data;
    codes.lines = g.part.codes.rows;
    codes.stride = g.full.codes.lead_stride[0] * element;
    codes.step = g.part.codes.cols * element;
  }
  if (!codes.here) {
    ops::RouteEnd from{}, to{};
    from.codes = g.part.codes;
    to.codes = dense(own, from.codes.dtype, from.codes.rows, from.codes.cols);
    copy_lines(c, from, to, stream);
  }
  if (g.scale_bytes) {
    scales.bytes = a.part.rows * a.part.cols * dtype_size(a.part.dtype);
    if (flat(a.part)) scales.here = a.part.data;
    if (flat(a.full) && !a.along_cols) scales.there = a.full.data;
    if (a.along_cols && (a.full.cols <= 1 || a.full.col_stride == 1) && gathers_lines(c, comm)) {
      const int64_t element = dtype_size(a.part.dtype);
      scales.there = a.full.data;
      scales.lines = a.part.rows;
      scales.stride = a.full.row_stride * element;
      scales.step = a.part.cols * element;
    }
    if (!scales.here) copy_scales(c, a.part, dense_scale(scales.own, a.part), stream);
  }
  CommGroup group(comm);
  send(c, comm, codes, stream);
  send(c, comm, scales, stream);
  group.end();
  if (codes.bytes && !codes.there) place_codes(c, g, codes.all, size, stream);
  if (scales.bytes && !scales.there) place_scales(c, a, scales.all, size, stream);
}

}  // namespace

void all_reduce_max(const fp8_context &c, fp8_comm &comm, const fp8_tensor &inout, fp8_stream stream) {
  check_stream(c, stream);
  check_tensor(inout, "inout", {FP8_DTYPE_F32, FP8_DTYPE_U8}, 0, false);
  int64_t count = 1;
  for (int i = inout.ndim - 1; i >= 0; --i) {
    if (inout.shape[i] > 1 && inout.stride[i] != count)
      fail(FP8_ERR_ARGUMENT, "inout.stride[%d] is %lld, it must be compact: %lld", i, ll(inout.stride[i]), ll(count));
    count *= inout.shape[i];
  }
  reduce_max(c, comm, inout.data, count, inout.dtype, stream);
}

uint64_t all_gather_workspace(const fp8_context &c, const fp8_comm &comm, const fp8_qtensor &part, uint32_t side,
                              const fp8_qtensor &full) {
  return need(plan_gather(c, comm, part, side, full, true), comm.ops.size);
}

void all_gather(const fp8_context &c, fp8_comm &comm, const fp8_qtensor &part, uint32_t side, const fp8_qtensor &full,
                const fp8_buffer *buffer, fp8_stream stream) {
  check_stream(c, stream);
  const Gather g = plan_gather(c, comm, part, side, full, false);
  const int32_t size = comm.ops.size;
  refuse_overlap(side_codes(full, side), "full", side_codes(part, side), "part");
  Workspace workspace(c, buffer, need(g, size), stream);
  char *own = static_cast<char *>(workspace.take(g.slot)), *all = static_cast<char *>(workspace.take(g.slot * size));
  const auto packed = [&](char *slot) {
    ops::RouteEnd end{};
    end.codes = dense(slot, g.part.codes.dtype, g.part.codes.rows, g.part.codes.cols);
    if (g.scale_bytes) end.scale = dense_scale(slot + g.code_bytes, g.part.scale);
    return end;
  };
  zero_padding(c, g, stream);
  own_scales(c, g, stream);
  if (g.slot == 0) return;
  if (comm.ops.group_begin && size > 1) return gather_apart(c, comm, g, own, all, stream);
  ops::RouteEnd src{};
  src.codes = g.part.codes;
  if (g.scale_bytes) src.scale = g.part.scale;
  copy_rows(c, src, packed(own), stream);
  send(c, comm, {own, all, nullptr, nullptr, g.slot, 0, 0, 0}, stream);
  for (int32_t r = 0; r < size; ++r) copy_rows(c, packed(all + r * g.slot), window(g, r, g.scale_bytes != 0), stream);
}

}  // namespace fp8
