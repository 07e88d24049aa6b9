// SPDX-License-Identifier: Apache-2.0
// XLA FFI handlers of primary weights: the three stateless steps. The rank is data (SPMD); masters have the largest
// shard's size.
#include "handlers.h"

namespace fp8_jax {
namespace {

// The list that the attributes describe: rows, cols and cuts of each param, created for the call (configuration only).
struct List {
  explicit List(Call &call) {
    const auto rows = call.numbers("rows"), cols = call.numbers("cols"), cuts = call.numbers("cuts");
    const int64_t world = call.number("world");
    for (size_t i = 0; i < rows.size(); ++i) {
      fp8_param_config config;
      FP8_INIT(&config);
      config.rows = rows[i];
      config.cols = cols[i];
      config.cuts = cuts.begin() + i * static_cast<size_t>(world + 1);
      config.world = static_cast<int32_t>(world);
      config.rank = -1;
      config.recipe = call.recipe();
      fp8_param *made = nullptr;
      check(fp8_param_create(call.context, &config, &made));
      params.push_back(made);
    }
    FP8_INIT(&layout);
    check(fp8_param_sizes(params.data(), count(), FP8_SIDE_BOTH, &layout));
    FP8_INIT(&args);
    args.params = params.data();
    args.count = count();
    args.sides = FP8_SIDE_BOTH;
    args.workspace = call.workspace(layout.workspace_bytes);
  }
  ~List() {
    for (const fp8_param *p : params) fp8_param_destroy(const_cast<fp8_param *>(p));
  }
  List(const List &) = delete;
  List &operator=(const List &) = delete;
  int32_t count() const { return static_cast<int32_t>(params.size()); }

  void take_masters(Call &call) {
    for (int32_t i = 0; i < count(); ++i) masters.push_back(call.in());
    for (const fp8_tensor &m : masters) master_pointers.push_back(&m);
    args.masters = master_pointers.data();
  }
  static fp8_buffer buffer(const fp8_tensor &t, int64_t size) {
    int64_t n = size;
    for (int i = 0; i < t.ndim; ++i) n *= t.shape[i];
    return fp8_buffer{t.data, static_cast<uint64_t>(n)};
  }
  fp8_buffer amax_buffer(const fp8_tensor &t) const { return buffer(t, layout.amax_dtype == FP8_DTYPE_F32 ? 4 : 1); }

  std::vector<const fp8_param *> params;
  std::vector<fp8_tensor> masters;
  std::vector<const fp8_tensor *> master_pointers;
  fp8_param_layout layout;
  fp8_param_args args;
};

// rank, masters... -> amax, scratch
void param_amax(Call &call) {
  List list(call);
  const fp8_tensor rank = call.in();
  list.take_masters(call);
  const fp8_buffer amax = list.amax_buffer(call.out());
  list.args.rank = &rank;
  list.args.amax = &amax;
  check(fp8_param_amax(call.context, &list.args, call.stream));
}

// rank, amax, masters... -> shard, scratch
void param_cast(Call &call) {
  List list(call);
  const fp8_tensor rank = call.in();
  const fp8_buffer amax = list.amax_buffer(call.in());
  list.take_masters(call);
  const fp8_buffer shard = List::buffer(call.out(), 1);
  list.args.rank = &rank;
  list.args.amax = &amax;
  list.args.shard = &shard;
  check(fp8_param_cast(call.context, &list.args, call.stream));
}

// gathered, amax -> of each param: row codes, [row scales], [col codes, col scales]; scratch
void param_assemble(Call &call) {
  List list(call);
  const fp8_buffer gathered = List::buffer(call.in(), 1);
  const fp8_buffer amax = list.amax_buffer(call.in());
  const auto rows = call.numbers("rows"), cols = call.numbers("cols");
  const uint32_t sides = static_cast<uint32_t>(call.number("sides"));
  std::vector<fp8_qtensor> full(list.params.size());
  std::vector<fp8_qtensor *> pointers;
  for (size_t i = 0; i < full.size(); ++i) {
    full[i] = describe(call.recipe(), FP8_ROLE_WEIGHT, rows[i], cols[i], sides | FP8_SIDE_COPY);
    for (uint32_t side : {FP8_SIDE_ROW, FP8_SIDE_COL})
      if (sides & side) bind(full[i], side, [&] { return call.out(); });
    pointers.push_back(&full[i]);
  }
  list.args.sides = sides;
  list.args.gathered = &gathered;
  list.args.amax = &amax;
  list.args.full = pointers.data();
  check(fp8_param_assemble(call.context, &list.args, call.stream));
}

}  // namespace
}  // namespace fp8_jax

FP8_JAX_HANDLER(fp8_jax_param_amax, fp8_jax::param_amax);
FP8_JAX_HANDLER(fp8_jax_param_cast, fp8_jax::param_cast);
FP8_JAX_HANDLER(fp8_jax_param_assemble, fp8_jax::param_assemble);
