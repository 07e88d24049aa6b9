// SPDX-License-Identifier: Apache-2.0
// What the partial kernels share: a list's work as one row of units, so that 500 small weights cost one pass.
#pragma once
#include <algorithm>

#include "cpu/launch_param.h"
#include "cpu/tile.h"

namespace fp8::cpu {

inline int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Runs body(item, unit of that item) for units(item) units of each item; first has room for count + 1 numbers.
template <class Units, class Body>
void each_unit(const Parallel &parallel, int32_t count, int64_t *first, Units &&units, Body &&body) {
  first[0] = 0;
  for (int32_t i = 0; i < count; ++i) first[i + 1] = first[i] + units(i);
  struct Args {
    int32_t count;
    const int64_t *first;
    std::remove_reference_t<Body> *body;
  } args{count, first, &body};
  const auto run = [](void *arg, int64_t begin, int64_t end) {
    const Args &a = *static_cast<const Args *>(arg);
    int32_t item = static_cast<int32_t>(std::upper_bound(a.first, a.first + a.count + 1, begin) - a.first) - 1;
    for (int64_t u = begin; u < end; ++u) {
      while (u >= a.first[item + 1]) ++item;
      (*a.body)(item, u - a.first[item]);
    }
  };
  if (first[count] == 0) return;
  if (parallel.run && first[count] > 1) {
    parallel.run(parallel.owner, first[count], run, &args);
  } else {
    run(&args, 0, first[count]);
  }
}

inline int32_t rank_of(const ops::ParamList &p) { return p.rank >= 0 ? p.rank : *p.rank_data; }
inline const ops::ParamPiece &piece(const ops::ParamList &p, int32_t item, int64_t rank) {
  return p.pieces[int64_t{item} * p.world + rank];
}
// Amax tiles of the column side in its own orientation; the row side's are [tile_rows, tile_cols] of rows x cols.
inline int64_t scale_cols(int32_t scaling, int64_t contraction) {
  const int64_t tile = ops::tile_cols(scaling);
  return tile ? tiles(contraction, tile) : 1;
}
inline bool unquantized(const ops::ParamList &p) {
  return !ops::tile_cols(p.scaling) && p.scaling != 2 && p.scaling != 3;
}

}  // namespace fp8::cpu
