// SPDX-License-Identifier: Apache-2.0
// Partial amax and cast of one rank's elements. A unit is a 128 x 128 tile of a weight that holds owned elements:
// elements of other ranks count as absent, and their codes are never written.
#include <cstring>

#include "cpu/partial.h"

namespace fp8::cpu {
namespace {

using namespace num;

// A tile of the weight and the owned part of each of its rows.
struct Unit {
  const ops::ParamItem &item;
  int64_t begin, end;              // owned, flat
  int64_t row0, col0, rows, cols;  // the tile
  int64_t low(int64_t r) const { return std::max(begin, (row0 + r) * item.cols + col0); }
  int64_t high(int64_t r) const { return std::min(end, (row0 + r) * item.cols + col0 + cols); }
  int64_t at(int64_t flat, int64_t r) const { return flat - (row0 + r) * item.cols - col0; }  // column in the tile
  bool whole() const { return begin <= row0 * item.cols + col0 && (row0 + rows - 1) * item.cols + col0 + cols <= end; }
};

int64_t units_of(const ops::ParamList &p, int32_t i, int32_t rank) {
  const ops::ParamItem &item = p.items[i];
  const ops::ParamPiece &own = piece(p, i, rank);
  if (own.count == 0) return 0;
  const int64_t first = own.begin / item.cols / kTile, last = (own.begin + own.count - 1) / item.cols / kTile;
  return (last - first + 1) * tiles(item.cols, kTile);
}

Unit unit_of(const ops::ParamList &p, int32_t i, int32_t rank, int64_t index) {
  const ops::ParamItem &item = p.items[i];
  const ops::ParamPiece &own = piece(p, i, rank);
  const int64_t across = tiles(item.cols, kTile);
  const int64_t row0 = (own.begin / item.cols / kTile + index / across) * kTile, col0 = index % across * kTile;
  return Unit{item,
              own.begin,
              own.begin + own.count,
              row0,
              col0,
              std::min(kTile, item.rows - row0),
              std::min(kTile, item.cols - col0)};
}

// The tile's elements as the quantizer would see them; zero where another rank owns them.
Tile load_tile(const ops::ParamList &p, const Unit &u, void *scratch) {
  const bool f32 = u.item.master_dtype == kF32, bf16 = !f32 || p.round_bf16;
  const char *master = static_cast<const char *>(u.item.master);
  const int64_t from = f32 ? 4 : 2, to = bf16 ? 2 : 4;
  if (u.whole() && from == to)
    return Tile{master + (u.row0 * u.item.cols + u.col0 - u.begin) * from, f32 ? kF32 : kBF16, u.item.cols * from,
                u.rows, u.cols};
  for (int64_t r = 0; r < u.rows; ++r) {
    char *out = static_cast<char *>(scratch) + r * kTile * to;
    const int64_t low = u.low(r), high = u.high(r);
    if (high - low < u.cols) std::memset(out, 0, u.cols * to);
    if (high <= low) continue;
    out += u.at(low, r) * to;
    if (from == to) {
      std::memcpy(out, master + (low - u.begin) * from, (high - low) * from);
      continue;
    }
    const float *x = reinterpret_cast<const float *>(master) + (low - u.begin);
    uint16_t *h = reinterpret_cast<uint16_t *>(out);
    for (int64_t c = 0; c < high - low; ++c) h[c] = encode_bf16(x[c]);
  }
  return Tile{scratch, bf16 ? kBF16 : kF32, kTile * to, u.rows, u.cols};
}

void raise(float *slot, float value) {  // atomic max of magnitudes: the order cannot matter
  uint32_t *bits = reinterpret_cast<uint32_t *>(slot);
  const uint32_t v = bits_of(value);
  uint32_t seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (v > seen && !__atomic_compare_exchange_n(bits, &seen, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

void merge(const ops::ParamList &p, int64_t index, float amax) {
  if (p.amax_dtype == kF32) return raise(static_cast<float *>(p.amax) + index, amax);
  static_cast<uint8_t *>(p.amax)[index] =
      scale_of(p.dtype, p.rule, amax, p.amax_floor).code;  // tiles of codes lie in one unit
}

float multiplier(const ops::ParamList &p, int64_t index) {
  if (p.amax_dtype == kF32)
    return scale_of(p.dtype, p.rule, static_cast<const float *>(p.amax)[index], p.amax_floor).multiplier;
  return reciprocal_e8m0(static_cast<const uint8_t *>(p.amax)[index]);
}

struct Grid {                                // scales of the row side inside one unit
  int64_t seg, down, across, stride, first;  // columns a segment; rows and segments a scale; of the amax array
};

Grid row_grid(const ops::ParamList &p, const Unit &u) {
  const int64_t tr = ops::tile_rows(p.scaling), tc = ops::tile_cols(p.scaling);
  Grid g;
  g.seg = tc == 32 ? 32 : kTile;
  g.down = tr == 0 ? kTile : tr;
  g.across = tiles(u.cols, g.seg);
  g.stride = scale_cols(p.scaling, u.item.cols);
  g.first = u.item.amax + (tr == 0 ? 0 : u.row0 / tr * g.stride) + (tc == 0 ? 0 : u.col0 / tc);
  return g;
}

void amax_unit(const ops::ParamList &p, const Unit &u, void *scratch) {
  const Tile x = load_tile(p, u, scratch);
  float found[kTile * 4];
  const bool both = !ops::shares_scale(p.scaling);
  if (!both || (p.sides & 1)) {
    const Grid g = row_grid(p, u);
    tile_ops().amax_rows(x, g.seg, found);
    for (int64_t r = 0; r < u.rows; r += g.down)
      for (int64_t s = 0; s < g.across; ++s) {
        float a = 0;
        for (int64_t i = r; i < std::min(u.rows, r + g.down); ++i) a = std::max(a, found[i * g.across + s]);
        merge(p, g.first + r / g.down * g.stride + s, a);
      }
  }
  if (both && (p.sides & 2)) {
    const int64_t tc = ops::tile_cols(p.scaling), group = tc ? tc : kTile, stride = scale_cols(p.scaling, u.item.rows);
    const int64_t first = ops::amax_col(p.scaling, u.item);
    tile_ops().amax_cols(x, group, found);
    for (int64_t g = 0; g < tiles(u.rows, group); ++g)
      for (int64_t c = 0; c < u.cols; ++c)
        merge(p, first + (u.col0 + c) * stride + (tc ? u.row0 / tc + g : 0), found[g * u.cols + c]);
  }
}

void store_owned(const Unit &u, const uint8_t *codes, uint8_t *piece_at) {
  for (int64_t r = 0; r < u.rows; ++r) {
    const int64_t low = u.low(r), high = u.high(r);
    if (low < high) std::memcpy(piece_at + (low - u.begin), codes + r * kTile + u.at(low, r), high - low);
  }
}

void cast_unit(const ops::ParamList &p, const Unit &u, const ops::ParamPiece &own, void *scratch) {
  const Tile x = load_tile(p, u, scratch);
  uint8_t *shard = static_cast<uint8_t *>(p.shard), codes[kTileElements];
  float m[kTile * 4];
  const bool both = !ops::shares_scale(p.scaling);
  if (!both || (p.sides & 1)) {
    const Grid g = row_grid(p, u);
    for (int64_t r = 0; r < u.rows; ++r)
      for (int64_t s = 0; s < g.across; ++s)
        m[r * g.across + s] =
            r % g.down ? m[(r - 1) * g.across + s] : multiplier(p, g.first + r / g.down * g.stride + s);
    tile_ops().cast_rows(x, p.dtype, Range::kSaturate, g.seg, m, codes, kTile);
    store_owned(u, codes, shard + p.row_part + p.row_shift[rank_of(p)] + own.at);
  }
  if (both && (p.sides & 2)) {
    const int64_t tc = ops::tile_cols(p.scaling), group = tc ? tc : kTile, stride = scale_cols(p.scaling, u.item.rows);
    const int64_t first = ops::amax_col(p.scaling, u.item);
    for (int64_t g = 0; g < tiles(u.rows, group); ++g)
      for (int64_t c = 0; c < u.cols; ++c)
        m[g * u.cols + c] = multiplier(p, first + (u.col0 + c) * stride + (tc ? u.row0 / tc + g : 0));
    tile_ops().cast_cols(x, p.dtype, Range::kSaturate, group, m, codes, kTile);
    store_owned(u, codes, shard + p.col_part + own.at);
  }
}

constexpr int64_t kFlat = int64_t{1} << 16;  // elements of a unit where nothing is scaled

void copy_bf16(const ops::ParamItem &item, int64_t begin, int64_t end, uint16_t *out) {
  if (item.master_dtype == kBF16) {
    std::memcpy(out, static_cast<const uint16_t *>(item.master) + begin, (end - begin) * 2);
    return;
  }
  const float *x = static_cast<const float *>(item.master) + begin;
  for (int64_t i = 0; i < end - begin; ++i) out[i] = encode_bf16(x[i]);
}

}  // namespace

uint64_t param_workspace(const ops::ParamList &p) { return (uint64_t(p.count) * 4 + 1) * sizeof(int64_t); }

void param_amax(const ops::ParamList &p, const Parallel &parallel) {
  if (unquantized(p) || p.amax_count == 0) return;
  std::memset(p.amax, 0, p.amax_count * (p.amax_dtype == kF32 ? 4 : 1));
  const int32_t rank = rank_of(p);
  each_unit(
      parallel, p.count, static_cast<int64_t *>(p.workspace), [&](int32_t i) { return units_of(p, i, rank); },
      [&](int32_t i, int64_t index) {
        alignas(64) char scratch[kTileElements * 4];
        amax_unit(p, unit_of(p, i, rank, index), scratch);
      });
}

void param_cast(const ops::ParamList &p, const Parallel &parallel) {
  const int32_t rank = rank_of(p);
  int64_t *first = static_cast<int64_t *>(p.workspace);
  if (unquantized(p)) {
    each_unit(
        parallel, p.count, first, [&](int32_t i) { return tiles(piece(p, i, rank).count, kFlat); },
        [&](int32_t i, int64_t index) {
          const ops::ParamPiece &own = piece(p, i, rank);
          uint8_t *out = static_cast<uint8_t *>(p.shard) + p.row_part + p.row_shift[rank] + own.at;
          const int64_t begin = index * kFlat, end = std::min(own.count, begin + kFlat);
          copy_bf16(p.items[i], begin, end, reinterpret_cast<uint16_t *>(out) + begin);
        });
    return;
  }
  each_unit(
      parallel, p.count, first, [&](int32_t i) { return units_of(p, i, rank); },
      [&](int32_t i, int64_t index) {
        alignas(64) char scratch[kTileElements * 4];
        cast_unit(p, unit_of(p, i, rank, index), piece(p, i, rank), scratch);
      });
}

void reduce_max(const ops::ReduceMax &r, const Parallel &parallel) {
  const auto body = [&r](int64_t begin, int64_t end) {
    for (int32_t s = 0; s < r.count; ++s) {
      if (r.sources[s] == r.dst) continue;
      if (r.dtype == kF32) {
        float *dst = static_cast<float *>(r.dst);
        const float *src = static_cast<const float *>(r.sources[s]);
        for (int64_t i = begin; i < end; ++i) dst[i] = std::max(dst[i], src[i]);
      } else {
        uint8_t *dst = static_cast<uint8_t *>(r.dst);
        const uint8_t *src = static_cast<const uint8_t *>(r.sources[s]);
        for (int64_t i = begin; i < end; ++i) dst[i] = std::max(dst[i], src[i]);
      }
    }
  };
  const auto run = [](void *arg, int64_t begin, int64_t end) { (*static_cast<decltype(body) *>(arg))(begin, end); };
  if (parallel.run && r.size > (int64_t{1} << 15)) {
    parallel.run(parallel.owner, r.size, run, const_cast<void *>(static_cast<const void *>(&body)));
  } else {
    body(0, r.size);
  }
}

}  // namespace fp8::cpu
