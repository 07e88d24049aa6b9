// SPDX-License-Identifier: Apache-2.0
// Byte and position embeddings. Rows that hold the same byte add into one row of the table: a warp owns 32 columns of a
// chunk of rows, whose sums it keeps in shared memory, and the chunks are added in order.
#include "device.cuh"

namespace gpt {
namespace {

constexpr int kThreads = 256, kMostChunks = 64;

struct Call {
  int64_t seq, batch, rows, dim, chunk;  // chunk: rows of a partial table
  const uint8_t *tokens;
  const float *bytes, *positions, *dresidual;
  float *residual, *dbytes, *dpositions;
  float *partial;  // [chunks, VOCABULARY, dim]
};

int64_t chunk_rows(int64_t rows) {
  const int64_t least = 256, shared = blocks_of(rows, kMostChunks);
  return shared > least ? shared : least;
}

__global__ void embed(Call c) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (i >= c.rows * c.dim) return;
  const int64_t row = i / c.dim, j = i % c.dim;
  const float4 a = *reinterpret_cast<const float4 *>(c.bytes + c.tokens[row] * c.dim + j);
  const float4 b = *reinterpret_cast<const float4 *>(c.positions + row % c.seq * c.dim + j);
  *reinterpret_cast<float4 *>(c.residual + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__global__ void add_positions(Call c) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= c.seq * c.dim) return;
  float sum = c.dpositions[i];
  for (int64_t b = 0; b < c.batch; ++b) sum += c.dresidual[b * c.seq * c.dim + i];
  c.dpositions[i] = sum;
}

__global__ void __launch_bounds__(32) add_rows(Call c) {
  __shared__ float table[VOCABULARY][32];
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t across = c.dim / 32, chunk = blockIdx.x / across, j = blockIdx.x % across * 32 + lane;
  for (int byte = 0; byte < VOCABULARY; ++byte) table[byte][lane] = 0.0f;
  const int64_t last = (chunk + 1) * c.chunk < c.rows ? (chunk + 1) * c.chunk : c.rows;
  for (int64_t row = chunk * c.chunk; row < last; row += 8) {
    float values[8];
    uint8_t tokens[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int64_t at = row + r < last ? row + r : row;
      values[r] = row + r < last ? c.dresidual[at * c.dim + j] : 0.0f;
      tokens[r] = c.tokens[at];
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) table[tokens[r]][lane] += values[r];
  }
  for (int byte = 0; byte < VOCABULARY; ++byte) c.partial[(chunk * VOCABULARY + byte) * c.dim + j] = table[byte][lane];
}

__global__ void add_tables(Call c, int64_t chunks) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= VOCABULARY * c.dim) return;
  float sum = c.dbytes[i];
#pragma unroll 8
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += c.partial[chunk * VOCABULARY * c.dim + i];
  c.dbytes[i] = sum;
}

}  // namespace
}  // namespace gpt

uint64_t cuda_embed_scratch(const Shape *s) {
  const int64_t rows = shape_rows(s), chunks = gpt::blocks_of(rows, gpt::chunk_rows(rows));
  return static_cast<uint64_t>(chunks * VOCABULARY * s->dim) * sizeof(float);
}

void cuda_embed(const Device *d, const Shape *s, const uint8_t *tokens, const float *bytes, const float *positions,
                float *residual) {
  using namespace gpt;
  Call c = {};
  c.seq = s->seq, c.rows = shape_rows(s), c.dim = s->dim;
  c.tokens = tokens, c.bytes = bytes, c.positions = positions, c.residual = residual;
  launch(d, blocks_of(c.rows * c.dim, 4 * kThreads), kThreads, embed, c);
}

void cuda_embed_backward(const Device *d, const Shape *s, const uint8_t *tokens, const float *dresidual, float *dbytes,
                         float *dpositions) {
  using namespace gpt;
  Call c = {};
  c.seq = s->seq, c.batch = s->batch, c.rows = shape_rows(s), c.dim = s->dim, c.chunk = chunk_rows(c.rows);
  c.tokens = tokens, c.dresidual = dresidual, c.dbytes = dbytes, c.dpositions = dpositions;
  c.partial = static_cast<float *>(d->scratch);
  const int64_t chunks = blocks_of(c.rows, c.chunk);
  launch(d, blocks_of(c.seq * c.dim, kThreads), kThreads, add_positions, c);
  launch(d, chunks * (c.dim / 32), 32, add_rows, c);
  launch(d, blocks_of(VOCABULARY * c.dim, kThreads), kThreads, add_tables, c, chunks);
}
