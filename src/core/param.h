// SPDX-License-Identifier: Apache-2.0
// FP8 primary weights: who owns which elements, and the layout of what travels. Configuration only, no memory.
#pragma once
#include <vector>

#include "core/comm.h"
#include "core/context.h"
#include "core/recipe.h"
#include "fp8/param.h"

struct fp8_param : fp8::Counted {
  fp8::Ref<const fp8_context> context;
  fp8::Ref<const fp8_recipe> recipe;
  int64_t rows = 0, cols = 0;
  std::vector<int64_t> cuts;  // world + 1
  int32_t world = 1, rank = 0;
};

namespace fp8 {

// Of a list: the same on every rank. A slot is the row part, its pieces flush with the part's end, then the column
// part, its pieces from the part's start: what one rank sends is one run of bytes for any choice of sides.
struct ParamLayout {
  int32_t count = 0, world = 0, rank = 0;
  int32_t scaling = 0, dtype = 0;       // of what travels; UNQUANTIZED: BF16
  uint32_t sides = 0;                   // that the recipe's coverage gives an FP8 weight
  std::vector<ops::ParamPiece> pieces;  // [count][world]
  std::vector<int64_t> amax;            // of each param, its first element
  std::vector<int64_t> row_shift;       // of each rank: from a piece's place in the column part to the row part's
  int64_t amax_count = 0;
  int32_t amax_dtype = 0;
  int64_t row_bytes = 0, col_bytes = 0;                         // multiples of 16
  std::vector<int64_t> row_begin, row_end, col_begin, col_end;  // of each rank's owned bytes in its slot
  int64_t slot_bytes(uint32_t sides) const;                     // of gathered
  int64_t slot_first(uint32_t sides) const;                     // where gathered's slot starts in the shard
};

// What one call does with the memory that its arguments name.
enum ParamHow : uint8_t { kUnused, kRead, kWritten };
struct ParamUse {
  ParamHow masters = kUnused, amax = kUnused, shard = kUnused, gathered = kUnused, row = kUnused, col = kUnused;
};
// No output may share an element with anything else of the call; items: as take_full left them.
void refuse_overlaps(const fp8_param_args &args, const ParamLayout &l, const std::vector<ops::ParamItem> &items,
                     const ParamUse &use);

fp8_param *create_param(const fp8_context &c, const fp8_param_config &config);
ParamLayout param_layout(const fp8_param *const *params, int32_t count);
fp8_param_layout param_sizes(const fp8_param *const *params, int32_t count, uint32_t sides);
void check_comm(const ParamLayout &l, const fp8_comm &comm);  // it is the one that the params were made for
void param_check(const fp8_context &c, fp8_comm &comm, const fp8_param *const *params, int32_t count);
void param_amax(const fp8_context &c, const fp8_param_args &args, fp8_stream stream);
void param_cast(const fp8_context &c, const fp8_param_args &args, fp8_stream stream);
void param_assemble(const fp8_context &c, const fp8_param_args &args, fp8_stream stream);
void param_quantize(const fp8_context &c, fp8_comm &comm, const fp8_param_args &args, fp8_stream stream);
void param_gather(const fp8_context &c, fp8_comm &comm, const fp8_param_args &args, fp8_stream stream);

}  // namespace fp8
