// SPDX-License-Identifier: Apache-2.0
// The steps of a primary weight: checks, then one backend call for the whole list.
#include "core/param.h"

#include <algorithm>

#include "core/tensor.h"

namespace fp8 {

namespace {

using ll = long long;

enum Step { kAmax = 1, kCast = 2, kAssemble = 4 };

struct Call {
  ParamLayout layout;
  std::vector<ops::ParamItem> items;
  std::vector<const void *> slots;
  ops::ParamList list{};
};

void check_backend(const fp8_context &c) {
  if (!c.api->param_workspace || !c.api->param_amax || !c.api->param_cast || !c.api->param_assemble)
    fail(FP8_ERR_UNSUPPORTED, "the %s backend has no kernels for primary weights", c.api->name);
}

void check_sides(const ParamLayout &l, uint32_t sides) {
  if (sides < FP8_SIDE_ROW || sides > FP8_SIDE_BOTH)
    fail(FP8_ERR_ARGUMENT, "sides is %u, it must be FP8_SIDE_ROW, FP8_SIDE_COL or FP8_SIDE_BOTH", sides);
  if (sides & ~l.sides)
    fail(FP8_ERR_UNSUPPORTED,
         "sides is %u: the recipe runs %s in BF16, which needs w in BF16, and an FP8-only weight has none; gather that "
         "weight with a recipe of preset none",
         sides, l.sides == FP8_SIDE_ROW ? "dgrad" : "fprop");
}

uint64_t backend_workspace(const fp8_context &c, const ops::ParamList &list) {
  uint64_t bytes = 0;
  check(c.api->param_workspace(c.self, &list, &bytes));
  return bytes;
}

// Shapes and layout; no pointer to data yet.
Call make_call(const fp8_param *const *params, int32_t count, uint32_t sides) {
  Call call{param_layout(params, count), {}, {}, {}};
  const ParamLayout &l = call.layout;
  check_sides(l, sides);
  const fp8_recipe_config &recipe = params[0]->recipe->config;
  call.items.resize(count);
  for (int32_t i = 0; i < count; ++i) {
    ops::ParamItem &item = call.items[i];
    item.rows = params[i]->rows;
    item.cols = params[i]->cols;
    item.master_dtype = FP8_DTYPE_F32;
    item.amax = l.amax[i];
  }
  ops::ParamList &p = call.list;
  p.items = call.items.data();
  p.pieces = l.pieces.data();
  p.row_shift = l.row_shift.data();
  p.count = count;
  p.world = l.world;
  p.rank = l.rank;
  p.scaling = l.scaling;
  p.rule = recipe.scale_rule;
  p.dtype = l.dtype;
  p.round_bf16 = recipe.master_rounding != FP8_MASTER_DIRECT;
  p.amax_floor = recipe.amax_floor;
  p.sides = sides;
  p.amax_dtype = l.amax_dtype;
  p.amax_count = l.amax_count;
  p.col_part = l.row_bytes;
  return call;
}

void check_buffer(const fp8_buffer *b, const char *name, uint64_t need, uint64_t align) {
  if (!b) fail(FP8_ERR_ARGUMENT, "args.%s is NULL", name);
  if (b->bytes < need)
    fail(FP8_ERR_ARGUMENT, "args.%s has %llu bytes, %llu are needed", name, static_cast<unsigned long long>(b->bytes),
         static_cast<unsigned long long>(need));
  if (need && !b->data) fail(FP8_ERR_ARGUMENT, "args.%s.data is NULL", name);
  if (need && reinterpret_cast<uintptr_t>(b->data) % align)
    fail(FP8_ERR_ARGUMENT, "args.%s.data is not aligned to %llu bytes", name, static_cast<unsigned long long>(align));
}

void take_amax(Call &call, const fp8_param_args &args) {
  const ParamLayout &l = call.layout;
  if (l.amax_count == 0) return;
  const int64_t size = dtype_size(l.amax_dtype);
  check_buffer(args.amax, "amax", l.amax_count * size, size);
  call.list.amax = args.amax->data;
}

void take_shard(Call &call, const fp8_param_args &args) {
  check_buffer(args.shard, "shard", call.layout.row_bytes + call.layout.col_bytes, 16);
  call.list.shard = args.shard->data;
}

void take_masters(Call &call, const fp8_param_args &args) {
  const ParamLayout &l = call.layout;
  if (!args.masters) fail(FP8_ERR_ARGUMENT, "args.masters is NULL");
  if (l.rank < 0) {
    if (!args.rank) fail(FP8_ERR_ARGUMENT, "args.rank is NULL, and the params were created with rank -1");
    check_tensor(*args.rank, "args.rank", {FP8_DTYPE_I32}, 0, false);
    if (tensor_rows(*args.rank) != 1 || tensor_cols(*args.rank) != 1)
      fail(FP8_ERR_ARGUMENT, "args.rank has shape [%lld, %lld], it must hold one element", ll(tensor_rows(*args.rank)),
           ll(tensor_cols(*args.rank)));
    call.list.rank_data = static_cast<const int32_t *>(args.rank->data);
  } else if (args.rank) {
    fail(FP8_ERR_ARGUMENT, "args.rank is given, and the params were created with rank %d", l.rank);
  }
  for (int32_t i = 0; i < l.count; ++i) {
    const ops::ParamPiece *pieces = &l.pieces[int64_t{i} * l.world];
    int64_t want = 0;
    if (l.rank >= 0) want = pieces[l.rank].count;
    for (int32_t r = 0; l.rank < 0 && r < l.world; ++r) want = std::max(want, pieces[r].count);
    const std::string name = format("args.masters[%d]", i);
    if (!args.masters[i]) {
      if (want) fail(FP8_ERR_ARGUMENT, "%s is NULL, this rank owns %lld elements", name.c_str(), ll(want));
      continue;
    }
    const fp8_tensor &t = *args.masters[i];
    check_tensor(t, name.c_str(), {FP8_DTYPE_F32, FP8_DTYPE_BF16}, 0, false);
    if (t.ndim > 1) fail(FP8_ERR_ARGUMENT, "%s.ndim is %d, it must be 1", name.c_str(), t.ndim);
    if (tensor_cols(t) != want)
      fail(FP8_ERR_ARGUMENT, "%s.shape[0] is %lld, %s %lld", name.c_str(), ll(tensor_cols(t)),
           l.rank < 0 ? "the largest shard of this weight has" : "this rank's cuts give it", ll(want));
    if (want > 1 && t.stride[0] != 1)
      fail(FP8_ERR_ARGUMENT, "%s.stride[0] is %lld, it must be 1", name.c_str(), ll(t.stride[0]));
    call.items[i].master = t.data;
    call.items[i].master_dtype = t.dtype;
  }
}

ops::ParamSide side_of(const ParamLayout &l, const fp8_qtensor &q, int32_t side, const std::string &name,
                       const fp8_param &p) {
  const ops::Side s = side_view(q, side, name.c_str(), false);
  const char *which = side == FP8_SIDE_ROW ? "row" : "col";
  const bool plain = !is_quantized(l.scaling);
  if (q.rows != p.rows || q.cols != p.cols)
    fail(FP8_ERR_ARGUMENT, "%s is %lld x %lld, the param was created with %lld x %lld", name.c_str(), ll(q.rows),
         ll(q.cols), ll(p.rows), ll(p.cols));
  if (plain && s.scaling == FP8_SCALING_UNQUANTIZED)
    fail(FP8_ERR_ARGUMENT, "%s.%s is a view of a source, and a gather has none: describe it with FP8_SIDE_COPY",
         name.c_str(), which);
  if (s.scaling != (plain ? int32_t{FP8_SCALING_COPY} : l.scaling))
    fail(FP8_ERR_ARGUMENT, "%s.%s_kind is %s, the recipe gives weights %s", name.c_str(), which,
         scaling_name(s.scaling), scaling_name(plain ? int32_t{FP8_SCALING_COPY} : l.scaling));
  if (s.codes.dtype != l.dtype)
    fail(FP8_ERR_ARGUMENT, "%s.%s.dtype is %s, the recipe gives weights %s", name.c_str(), which,
         dtype_name(s.codes.dtype), dtype_name(l.dtype));
  if (s.codes.lead > 1)
    fail(FP8_ERR_ARGUMENT, "%s.%s: its leading dimensions do not flatten to rows of one stride", name.c_str(), which);
  ops::ParamSide out{};
  out.codes = s.codes.data;
  out.row_stride = s.codes.rows > 1 ? s.codes.lead_stride[0] : s.codes.cols;
  out.col_stride = s.codes.cols > 1 ? s.codes.col_stride : plain && side == FP8_SIDE_COL ? s.codes.rows : 1;
  if (plain && side == FP8_SIDE_COL && s.codes.rows <= 1) out.row_stride = 1;
  if (plain) return out;
  out.scale = s.scale.data;
  out.scale_rows = out.padded_rows = s.scale.rows;
  out.scale_cols = out.padded_cols = s.scale.cols;
  out.scale_row_stride = s.scale.row_stride;
  out.scale_col_stride = s.scale.col_stride;
  if (s.codes.rows == 0 || s.codes.cols == 0 || !s.scale.padded) return out;
  if (l.scaling == FP8_SCALING_1X128)
    out.padded_rows = s.scale.col_stride;
  else
    out.padded_cols = s.scale.row_stride;
  return out;
}

// `travels` is false where the column side comes from the row side.
void take_full(Call &call, const fp8_param_args &args, bool travels) {
  const ParamLayout &l = call.layout;
  if (!args.full) fail(FP8_ERR_ARGUMENT, "args.full is NULL");
  uint32_t sides = args.sides;
  if (!travels) {
    if (!is_quantized(l.scaling))
      fail(FP8_ERR_ARGUMENT, "args.gathered is NULL: a BF16 weight has one copy, there is no side to make");
    if (!ops::shares_scale(l.scaling))
      fail(FP8_ERR_UNSUPPORTED,
           "args.gathered is NULL: with %s scales the column side is quantized from the master and must travel",
           scaling_name(l.scaling));
    if (sides != FP8_SIDE_COL)
      fail(FP8_ERR_ARGUMENT, "args.sides is %u with args.gathered NULL: only FP8_SIDE_COL is made from the row side",
           sides);
    sides = FP8_SIDE_BOTH;  // the row side is read
  }
  for (int32_t i = 0; i < l.count; ++i) {
    const std::string name = format("args.full[%d]", i);
    if (!args.full[i]) fail(FP8_ERR_ARGUMENT, "%s is NULL", name.c_str());
    if (args.full[i]->struct_size < sizeof(fp8_qtensor))
      fail(FP8_ERR_ARGUMENT, "%s.struct_size is %zu: FP8_INIT it first", name.c_str(), args.full[i]->struct_size);
    const fp8_qtensor &q = *args.full[i];
    const fp8_param &param = *args.params[i];
    if (sides & FP8_SIDE_ROW) call.items[i].row = side_of(l, q, FP8_SIDE_ROW, name, param);
    if (sides & FP8_SIDE_COL) call.items[i].col = side_of(l, q, FP8_SIDE_COL, name, param);
  }
  call.list.col_part = l.row_bytes - l.slot_first(args.sides);
}

ParamHow written(uint32_t sides, uint32_t side) { return sides & side ? kWritten : kUnused; }

Call start(const fp8_context &c, const fp8_param_args &args, fp8_stream stream) {
  if (!args.params) fail(FP8_ERR_ARGUMENT, "args.params is NULL");
  check_stream(c, stream);
  check_backend(c);
  Call call = make_call(args.params, args.count, args.sides);
  if (args.params[0]->context.get() != &c) fail(FP8_ERR_ARGUMENT, "args.params: they were created for another context");
  return call;
}

// Slots one after another, as the three steps take them.
void take_slots(Call &call, const void *gathered, int64_t bytes) {
  for (int32_t r = 0; r < call.layout.world; ++r)
    call.slots.push_back(bytes ? static_cast<const char *>(gathered) + r * bytes : nullptr);
  call.list.slots = call.slots.data();
}

void run(const fp8_context &c, Call &call, Workspace &workspace, int steps, fp8_stream stream) {
  const uint64_t bytes = backend_workspace(c, call.list);
  call.list.workspace = workspace.take(bytes);
  call.list.workspace_bytes = bytes;
  if (steps & kAmax) check(c.api->param_amax(c.self, &call.list, stream));
  if (steps & kCast) check(c.api->param_cast(c.self, &call.list, stream));
  if (steps & kAssemble) check(c.api->param_assemble(c.self, &call.list, stream));
}

uint64_t step_workspace(const fp8_context &c, const Call &call) {
  Plan plan;
  plan.add(backend_workspace(c, call.list));
  return plan.total();
}

// Flat copies of whole weights in the workspace, however the ranks' slots are padded.
uint64_t staging(const ParamLayout &l, uint32_t sides) {
  return l.world * l.slot_bytes(sides) + (l.world > 1 ? l.count * int64_t{16} : 0);
}

constexpr int64_t kDirectBytes = int64_t{1} << 18;

// Weights whose pieces are worth a message each go in one group, each into its place, where the transport fuses such a
// group and only rows travel. Every rank decides alike: by what params say, not by how `full` lies here.
bool goes_direct(const Call &call, const fp8_comm &comm) {
  const ParamLayout &l = call.layout;
  if (!comm.ops.group_begin || (l.col_bytes && call.list.sides != FP8_SIDE_ROW)) return false;
  int64_t bytes = 0, pieces = 0;
  for (const ops::ParamPiece &piece : l.pieces) {
    bytes += piece.count * dtype_size(l.dtype);
    pieces += piece.count > 0;
  }
  return pieces && bytes / pieces >= kDirectBytes;
}

// Where a weight's rows lie one after another as the caller wants them; NULL where they don't.
char *flat_place(const Call &call, const ops::ParamItem &m) {
  const bool plain = !is_quantized(call.layout.scaling), row = call.list.sides & FP8_SIDE_ROW,
             col = call.list.sides & FP8_SIDE_COL;
  const auto flat = [&](int64_t down, int64_t across) {
    return (m.cols <= 1 || across == 1) && (m.rows <= 1 || down == m.cols);
  };
  if (row && !flat(m.row.row_stride, m.row.col_stride)) return nullptr;
  if (row) return plain && col && m.col.codes != m.row.codes ? nullptr : static_cast<char *>(m.row.codes);
  return plain && flat(m.col.col_stride, m.col.row_stride) ? static_cast<char *>(m.col.codes) : nullptr;
}

// Gathers each weight by itself, then finishes: those in place lack scales (and their transpose), the others are copied
// out of `staged` as if one rank had sent them.
void gather_direct(const fp8_context &c, fp8_comm &comm, Call &call, const char *shard, char *staged,
                   Workspace &workspace, fp8_stream stream) {
  const ParamLayout &l = call.layout;
  const int64_t size = dtype_size(l.dtype);
  std::vector<ops::ParamItem> here, there;
  std::vector<ops::ParamPiece> none, whole;
  std::vector<int64_t> bytes(l.world), offsets(l.world);
  int64_t used = 0;
  CommGroup group(comm);
  for (int32_t i = 0; i < l.count; ++i) {
    const ops::ParamItem &m = call.items[i];
    const ops::ParamPiece *pieces = &l.pieces[int64_t{i} * l.world];
    char *place = flat_place(call, m);
    (place ? here : there).push_back(m);
    (place ? none : whole).push_back({0, m.rows * m.cols, used});
    if (!place) {
      place = staged + used;
      used += round_up(m.rows * m.cols * size, 16);
    }
    for (int32_t r = 0; r < l.world; ++r) {
      bytes[r] = pieces[r].count * size;
      offsets[r] = pieces[r].begin * size;
    }
    if (m.rows && m.cols)
      gather_bytes(c, comm, shard + l.row_shift[l.rank] + pieces[l.rank].at, place, bytes.data(), offsets.data(),
                   stream);
  }
  group.end();
  const uint64_t mark = workspace.mark();
  const int64_t shift = 0;
  const void *const slots[] = {staged};
  for (const bool in_place : {true, false}) {
    const std::vector<ops::ParamItem> &items = in_place ? here : there;
    if (items.empty()) continue;
    ops::ParamList &list = call.list;
    list.items = items.data();
    list.pieces = (in_place ? none : whole).data();
    list.row_shift = &shift;
    list.count = static_cast<int32_t>(items.size());
    list.world = 1;
    list.rank = 0;
    list.slots = in_place ? nullptr : slots;
    list.row_ready = in_place;
    list.row_part = list.col_part = 0;
    workspace.rewind(mark);
    run(c, call, workspace, kAssemble, stream);
  }
}

}  // namespace

void check_comm(const ParamLayout &l, const fp8_comm &comm) {
  if (l.rank < 0) fail(FP8_ERR_ARGUMENT, "the params were created with rank -1, which serves the stateless steps only");
  if (comm.ops.size != l.world || comm.ops.rank != l.rank)
    fail(FP8_ERR_ARGUMENT, "comm is rank %d of %d, the params were created for rank %d of %d", comm.ops.rank,
         comm.ops.size, l.rank, l.world);
}

fp8_param_layout param_sizes(const fp8_param *const *params, int32_t count, uint32_t sides) {
  const Call call = make_call(params, count, sides);
  const ParamLayout &l = call.layout;
  const fp8_context &c = *params[0]->context;
  check_backend(c);
  fp8_param_layout out{};
  out.struct_size = sizeof out;
  out.amax_count = l.amax_count;
  out.amax_dtype = l.amax_dtype;
  out.world = l.world;
  out.amax_bytes = l.amax_count * dtype_size(l.amax_dtype);
  out.row_bytes = l.row_bytes;
  out.col_bytes = l.col_bytes;
  out.gathered_bytes = l.world * l.slot_bytes(sides);
  Plan plan;
  plan.add(staging(l, sides));
  plan.add(backend_workspace(c, call.list));
  out.workspace_bytes = plan.total();
  return out;
}

void param_amax(const fp8_context &c, const fp8_param_args &args, fp8_stream stream) {
  Call call = start(c, args, stream);
  take_masters(call, args);
  take_amax(call, args);
  refuse_overlaps(args, call.layout, call.items, {kRead, kWritten});
  Workspace workspace(c, args.workspace, step_workspace(c, call), stream);
  run(c, call, workspace, kAmax, stream);
}

void param_cast(const fp8_context &c, const fp8_param_args &args, fp8_stream stream) {
  Call call = start(c, args, stream);
  take_masters(call, args);
  take_amax(call, args);
  take_shard(call, args);
  refuse_overlaps(args, call.layout, call.items, {kRead, kRead, kWritten});
  Workspace workspace(c, args.workspace, step_workspace(c, call), stream);
  run(c, call, workspace, kCast, stream);
}

void param_assemble(const fp8_context &c, const fp8_param_args &args, fp8_stream stream) {
  Call call = start(c, args, stream);
  if (args.gathered) {
    const int64_t slot = call.layout.slot_bytes(args.sides);
    check_buffer(args.gathered, "gathered", call.layout.world * slot, 16);
    take_slots(call, args.gathered->data, slot);
    take_amax(call, args);
  }
  take_full(call, args, args.gathered != nullptr);
  const ParamHow row = args.gathered ? written(args.sides, FP8_SIDE_ROW) : kRead;
  refuse_overlaps(args, call.layout, call.items,
                  {kUnused, args.gathered ? kRead : kUnused, kUnused, args.gathered ? kRead : kUnused, row,
                   written(args.sides, FP8_SIDE_COL)});
  Workspace workspace(c, args.workspace, step_workspace(c, call), stream);
  run(c, call, workspace, kAssemble, stream);
}

void param_quantize(const fp8_context &c, fp8_comm &comm, const fp8_param_args &args, fp8_stream stream) {
  Call call = start(c, args, stream);
  check_comm(call.layout, comm);
  take_masters(call, args);
  take_amax(call, args);
  take_shard(call, args);
  refuse_overlaps(args, call.layout, call.items, {kRead, kWritten, kWritten});
  Workspace workspace(c, args.workspace, step_workspace(c, call), stream);
  const uint64_t mark = workspace.mark();
  if (call.list.amax) {
    run(c, call, workspace, kAmax, stream);
    reduce_max(c, comm, call.list.amax, call.list.amax_count, call.list.amax_dtype, stream);
    workspace.rewind(mark);
  }
  run(c, call, workspace, kCast, stream);
}

void param_gather(const fp8_context &c, fp8_comm &comm, const fp8_param_args &args, fp8_stream stream) {
  Call call = start(c, args, stream);
  const ParamLayout &l = call.layout;
  check_comm(l, comm);
  take_amax(call, args);
  take_shard(call, args);
  const int64_t slot = l.slot_bytes(args.sides), first = l.slot_first(args.sides);
  Plan plan;
  plan.add(staging(l, args.sides));
  plan.add(backend_workspace(c, call.list));
  // everything is checked before the ranks meet
  take_full(call, args, true);
  refuse_overlaps(
      args, l, call.items,
      {kUnused, kRead, kRead, kUnused, written(args.sides, FP8_SIDE_ROW), written(args.sides, FP8_SIDE_COL)});
  Workspace workspace(c, args.workspace, plan.total(), stream);
  char *gathered = static_cast<char *>(workspace.take(staging(l, args.sides)));
  std::vector<int64_t> bytes(l.world), offsets(l.world);
  for (int32_t r = 0; r < l.world; ++r) {
    const int64_t begin = first ? l.row_bytes + l.col_begin[r] : l.row_begin[r];
    const int64_t end = slot > l.row_bytes || first ? l.row_bytes + l.col_end[r] : l.row_end[r];
    bytes[r] = end - begin;
    offsets[r] = r * slot + begin - first;
  }
  const char *shard = static_cast<const char *>(args.shard->data) + first;
  const auto assemble = [&] { run(c, call, workspace, kAssemble, stream); };
  if (l.world == 1) {  // one rank reads its own shard in place
    take_slots(call, shard, slot);
    return assemble();
  }
  if (goes_direct(call, comm)) return gather_direct(c, comm, call, shard, gathered, workspace, stream);
  const char *own = shard + offsets[l.rank] - l.rank * slot;
  // Where the others' shards are within reach they are read in place too: no byte moves twice.
  const auto in_place = [&](const void *const *sources) {
    for (int32_t r = 0; r < l.world; ++r)
      call.slots.push_back(bytes[r] ? static_cast<const char *>(sources[r]) - (offsets[r] - r * slot) : nullptr);
    call.list.slots = call.slots.data();
    assemble();
  };
  if (visit_parts(c, comm, own, bytes.data(), stream, in_place)) return;
  gather_bytes(c, comm, own, gathered, bytes.data(), offsets.data(), stream);
  take_slots(call, gathered, slot);
  assemble();
}

}  // namespace fp8
