// SPDX-License-Identifier: Apache-2.0
// Creation of a param, and the layout of a list: pure arithmetic on shapes and cuts.
#include <algorithm>
#include <memory>

#include "core/param.h"
#include "core/tensor.h"

namespace fp8 {

namespace {

constexpr int64_t kAlign = 16;  // a piece lies at its flat offset modulo this
using ll = long long;

// Scaling of what travels, and which sides an FP8 weight can serve under the recipe's coverage.
int32_t travelling(const fp8_recipe &r, uint32_t *sides) {
  const int32_t row = side_scaling(r, FP8_ROLE_WEIGHT, FP8_SIDE_ROW),
                col = side_scaling(r, FP8_ROLE_WEIGHT, FP8_SIDE_COL);
  *sides = FP8_SIDE_BOTH;
  if (is_quantized(row) == is_quantized(col)) return row;
  *sides = is_quantized(row) ? FP8_SIDE_ROW : FP8_SIDE_COL;
  return is_quantized(row) ? row : col;
}

}  // namespace

fp8_param *create_param(const fp8_context &c, const fp8_param_config &config) {
  if (!config.recipe) fail(FP8_ERR_ARGUMENT, "config.recipe is NULL");
  if (!config.cuts) fail(FP8_ERR_ARGUMENT, "config.cuts is NULL");
  if (config.rows < 0) fail(FP8_ERR_ARGUMENT, "config.rows is %lld, it must not be negative", ll(config.rows));
  if (config.cols < 0) fail(FP8_ERR_ARGUMENT, "config.cols is %lld, it must not be negative", ll(config.cols));
  int64_t size;
  if (__builtin_mul_overflow(config.rows, config.cols, &size) || size > INT64_MAX / 16)
    fail(FP8_ERR_ARGUMENT, "config: %lld x %lld elements are too many to address", ll(config.rows), ll(config.cols));
  if (config.world < 1) fail(FP8_ERR_ARGUMENT, "config.world is %d, it must be at least 1", config.world);
  if (config.rank < -1 || config.rank >= config.world)
    fail(FP8_ERR_ARGUMENT, "config.rank is %d, it must be in [0, %d), or -1 for a rank that is data", config.rank,
         config.world);
  if (config.recipe->config.preset == FP8_PRESET_TENSOR_DELAYED)
    fail(FP8_ERR_UNSUPPORTED, "config.recipe: delayed scaling is not built for primary weights");
  if (config.cuts[0] != 0) fail(FP8_ERR_ARGUMENT, "config.cuts[0] is %lld, it must be 0", ll(config.cuts[0]));
  for (int32_t r = 0; r < config.world; ++r)
    if (config.cuts[r + 1] < config.cuts[r])
      fail(FP8_ERR_ARGUMENT, "config.cuts[%d] is %lld after cuts[%d] %lld: cuts ascend", r + 1, ll(config.cuts[r + 1]),
           r, ll(config.cuts[r]));
  if (config.cuts[config.world] != size)
    fail(FP8_ERR_ARGUMENT, "config.cuts[%d] is %lld, it must be rows x cols = %lld", config.world,
         ll(config.cuts[config.world]), ll(size));
  auto param = std::make_unique<fp8_param>();
  param->context = Ref<const fp8_context>::share(&c);
  param->recipe = Ref<const fp8_recipe>::share(config.recipe);
  param->rows = config.rows;
  param->cols = config.cols;
  param->cuts.assign(config.cuts, config.cuts + config.world + 1);
  param->world = config.world;
  param->rank = config.rank;
  return param.release();
}

int64_t ParamLayout::slot_bytes(uint32_t s) const {
  if (col_bytes == 0) return row_bytes;
  return (s & FP8_SIDE_ROW ? row_bytes : 0) + (s & FP8_SIDE_COL ? col_bytes : 0);
}

int64_t ParamLayout::slot_first(uint32_t s) const { return col_bytes && !(s & FP8_SIDE_ROW) ? row_bytes : 0; }

namespace {

void check_list(const fp8_param *const *params, int32_t count) {
  if (count < 1) fail(FP8_ERR_ARGUMENT, "count is %d, it must be at least 1", count);
  for (int32_t i = 0; i < count; ++i) {
    if (!params[i]) fail(FP8_ERR_ARGUMENT, "params[%d] is NULL", i);
    const fp8_param &p = *params[i], &first = *params[0];
    if (p.context.get() != first.context.get())
      fail(FP8_ERR_ARGUMENT, "params[%d] has another context than params[0]", i);
    if (p.recipe.get() != first.recipe.get() && recipe_text(*p.recipe) != recipe_text(*first.recipe))
      fail(FP8_ERR_ARGUMENT, "params[%d] has recipe %s, params[0] %s: a list has one recipe", i,
           recipe_text(*p.recipe).c_str(), recipe_text(*first.recipe).c_str());
    if (p.world != first.world || p.rank != first.rank)
      fail(FP8_ERR_ARGUMENT, "params[%d] is for rank %d of %d, params[0] for rank %d of %d", i, p.rank, p.world,
           first.rank, first.world);
  }
}

// Lays the pieces of every rank; both parts hold them alike. The row part's end with it, so that they join the column
// part's.
void lay_parts(ParamLayout &l, const fp8_param *const *params, int64_t size, bool col) {
  std::vector<int64_t> used(l.world, 0), begin(l.world, 0);
  for (int32_t i = 0; i < l.count; ++i)
    for (int32_t r = 0; r < l.world; ++r) {
      ops::ParamPiece &piece = l.pieces[int64_t{i} * l.world + r];
      piece.begin = params[i]->cuts[r];
      piece.count = params[i]->cuts[r + 1] - piece.begin;
      if (piece.count == 0) continue;
      const int64_t want = piece.begin * size % kAlign, at = used[r] + (want - used[r] % kAlign + kAlign) % kAlign;
      if (used[r] == 0) begin[r] = at;
      piece.at = at;
      used[r] = at + piece.count * size;
    }
  const int64_t bytes = round_up(*std::max_element(used.begin(), used.end()), kAlign);
  l.row_bytes = bytes;
  if (col) l.col_bytes = bytes;
  for (int32_t r = 0; r < l.world; ++r) {
    l.row_shift.push_back(bytes - round_up(used[r], kAlign));
    l.row_begin.push_back(l.row_shift[r] + begin[r]);
    l.row_end.push_back(l.row_shift[r] + used[r]);
    l.col_begin.push_back(begin[r]);
    l.col_end.push_back(used[r]);
  }
}

}  // namespace

ParamLayout param_layout(const fp8_param *const *params, int32_t count) {
  check_list(params, count);
  const fp8_recipe &recipe = *params[0]->recipe;
  ParamLayout l;
  l.count = count;
  l.world = params[0]->world;
  l.rank = params[0]->rank;
  l.scaling = travelling(recipe, &l.sides);
  const bool quantized = is_quantized(l.scaling), both = quantized && !ops::shares_scale(l.scaling);
  l.dtype = quantized ? role_dtype(recipe, FP8_ROLE_WEIGHT) : int32_t{FP8_DTYPE_BF16};
  l.pieces.resize(int64_t{count} * l.world);
  lay_parts(l, params, dtype_size(l.dtype), both);
  if (!quantized) {
    l.amax.assign(count, 0);
    return l;
  }
  l.amax_dtype = l.scaling == FP8_SCALING_1X32 || l.scaling == FP8_SCALING_32X32 ? FP8_DTYPE_U8 : FP8_DTYPE_F32;
  for (int32_t i = 0; i < count; ++i) {
    int64_t shape[2];
    scale_shape(l.scaling, params[i]->rows, params[i]->cols, shape);
    l.amax.push_back(l.amax_count);
    l.amax_count += shape[0] * shape[1];
    if (!both) continue;
    scale_shape(l.scaling, params[i]->cols, params[i]->rows, shape);
    l.amax_count += shape[0] * shape[1];
  }
  return l;
}

}  // namespace fp8
