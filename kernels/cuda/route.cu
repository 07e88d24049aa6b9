// SPDX-License-Identifier: Apache-2.0
// Rows between tokens, packed buffers and expert groups.
#include <algorithm>

#include "device/cuda_api.cuh"
#include "launch_param.h"

namespace fp8::cuda {
namespace {

using namespace num;

// ---------------------------------------------------------------- kernels

constexpr int kThreads = 128;

__device__ __forceinline__ int64_t row_offset_of(const ops::Matrix &m, int64_t row) {
  if (m.lead <= 1) return row * m.lead_stride[0];
  int64_t offset = 0;
  for (int i = m.lead - 1; i >= 0; --i) {
    offset += row % m.lead_shape[i] * m.lead_stride[i];
    row /= m.lead_shape[i];
  }
  return offset;
}

constexpr int kCopyRows = 8;                    // of a block, a warp each
constexpr int64_t kSegment = int64_t{1} << 14;  // bytes of a row that one warp copies

// n bytes by a warp; `in` NULL = zeros.
__device__ __forceinline__ void copy_line(uint8_t *out, const uint8_t *in, int64_t n, int lane) {
  int64_t done = 0;
  if ((reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(in)) % 16 == 0) {
    const int64_t vectors = n / 16;
    const uint4 *from = reinterpret_cast<const uint4 *>(in);
    uint4 *to = reinterpret_cast<uint4 *>(out);
    int64_t v = lane;
    for (; in && v + 3 * 32 < vectors; v += 4 * 32) {  // four loads under way before the first store
      uint4 x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = from[v + k * 32];
#pragma unroll
      for (int k = 0; k < 4; ++k) to[v + k * 32] = x[k];
    }
    for (; v < vectors; v += 32) to[v] = in ? from[v] : make_uint4(0, 0, 0, 0);
    done = vectors * 16;
  }
  for (int64_t i = done + lane; i < n; i += 32) out[i] = in ? in[i] : uint8_t(0);
}

__device__ __forceinline__ void copy_block(const ops::RouteCopy &r, int size, int64_t first, int64_t segment) {
  const int warp = int(threadIdx.x) >> 5, lane = int(threadIdx.x) & 31;
  const int64_t i = first + warp, begin = segment * kSegment, bytes = r.dst.codes.cols * size;
  if (i < r.dst.codes.rows && begin < bytes) {
    const int64_t from = r.index ? r.index[i] : i;
    uint8_t *out = static_cast<uint8_t *>(r.dst.codes.data) + row_offset_of(r.dst.codes, i) * size + begin;
    const uint8_t *in =
        from < 0 ? nullptr
                 : static_cast<const uint8_t *>(r.src.codes.data) + row_offset_of(r.src.codes, from) * size + begin;
    copy_line(out, in, bytes - begin < kSegment ? bytes - begin : kSegment, lane);
  }
  const ops::Scale &d = r.dst.scale, &s = r.src.scale;
  if (!d.dtype || segment) return;
  const ScaleOf zero = scale_of(r.dtype, r.rule, 0.0f, r.amax_floor);
  // neighbours in the order of whichever stride is one
  const bool rows_inner = d.row_stride == 1;
  const unsigned cols = unsigned(d.cols);
  for (unsigned n = unsigned(threadIdx.x); n < cols * kCopyRows; n += 32 * kCopyRows) {
    const int64_t row = first + (rows_inner ? n % kCopyRows : n / cols), j = rows_inner ? n / kCopyRows : n % cols;
    if (row >= r.dst.codes.rows) continue;
    const int64_t from = r.index ? r.index[row] : row;
    const int64_t to = row * d.row_stride + j * d.col_stride, at = from * s.row_stride + j * s.col_stride;
    if (d.dtype == kF32)
      static_cast<float *>(d.data)[to] = from < 0 ? zero.inverse : static_cast<const float *>(s.data)[at];
    else
      static_cast<uint8_t *>(d.data)[to] = from < 0 ? zero.code : static_cast<const uint8_t *>(s.data)[at];
  }
}

template <bool kFew>
__global__ void __launch_bounds__(32 * kCopyRows)
    copy_rows(const __grid_constant__ ops::RouteCopy r, int size, unsigned segments, unsigned blocks) {
  each_block<kFew>(
      blocks, [&](unsigned block) { copy_block(r, size, int64_t{block / segments} * kCopyRows, block % segments); });
}

__device__ __forceinline__ void combine_row(const ops::RouteCombine &r, int64_t t) {
  const int64_t out = row_offset_of(r.out, t);
  const int32_t *index = r.index + t * r.k;
  for (int64_t c = threadIdx.x; c < r.out.cols; c += kThreads) {
    float sum = 0;
    for (int64_t j = 0; j < r.k; ++j) {
      if (index[j] < 0) continue;
      const float w = r.weight.data
                          ? static_cast<const float *>(r.weight.data)[t * r.weight.row_stride + j * r.weight.col_stride]
                          : 1.0f;
      sum = add_rn(sum,
                   mul_rn(w, load(r.rows.dtype, r.rows.data, row_offset_of(r.rows, index[j]) + c * r.rows.col_stride)));
    }
    store(r.out.dtype, r.out.data, out + c * r.out.col_stride, sum);
  }
}

template <bool kFew>
__global__ void __launch_bounds__(kThreads) combine_rows(const __grid_constant__ ops::RouteCombine r) {
  each_block<kFew>(unsigned(r.out.rows), [&](unsigned t) { combine_row(r, t); });
}

__device__ __forceinline__ void backward_row(const ops::RouteBackward &r, int64_t i, float *lane) {
  const int64_t out = row_offset_of(r.dst, i), source = r.source[i];
  if (source < 0) {
    for (int64_t c = threadIdx.x; c < r.dst.cols; c += blockDim.x)
      store(r.dst.dtype, r.dst.data, out + c * r.dst.col_stride, 0.0f);
    return;
  }
  const float *weights = static_cast<const float *>(r.weight.data) + source * r.weight.row_stride;
  const uint32_t slots = uint32_t(r.slots[i]);
  float w = 0;
  bool first = true;
  for (int64_t j = 0; j < r.weight.cols; ++j) {
    if (!(slots >> j & 1u)) continue;
    w = first ? weights[j * r.weight.col_stride] : add_rn(w, weights[j * r.weight.col_stride]);
    first = false;
  }
  const int64_t token = row_offset_of(r.tokens, source), expert = r.expert.dtype ? row_offset_of(r.expert, i) : 0;
  float sum = 0;
  for (int64_t c = threadIdx.x; c < r.dst.cols; c += ops::kRouteLanes) {
    const float x = load(r.tokens.dtype, r.tokens.data, token + c * r.tokens.col_stride);
    store(r.dst.dtype, r.dst.data, out + c * r.dst.col_stride, mul_rn(w, x));
    if (r.expert.dtype)
      sum = add_rn(sum, mul_rn(x, load(r.expert.dtype, r.expert.data, expert + c * r.expert.col_stride)));
  }
  if (!r.expert.dtype) return;
  lane[threadIdx.x] = sum;
  __syncthreads();
  for (int half = ops::kRouteLanes / 2; half; half /= 2) {
    if (int(threadIdx.x) < half) lane[threadIdx.x] = add_rn(lane[threadIdx.x], lane[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) r.dot[r.place[i]] = canonical(lane[0]);
}

template <bool kFew>
__global__ void __launch_bounds__(ops::kRouteLanes) backward_rows(const __grid_constant__ ops::RouteBackward r) {
  __shared__ float lane[ops::kRouteLanes];
  each_block<kFew>(unsigned(r.dst.rows), [&](unsigned i) { backward_row(r, i, lane); });
}

__global__ void __launch_bounds__(256) scalar_units(const __grid_constant__ ops::RouteScalar r) {
  const int64_t n = r.out.rows * r.out.cols;
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < n; i += gridDim.x * int64_t{256}) {
    const int32_t at = r.index[i];
    static_cast<float *>(r.out.data)[i / r.out.cols * r.out.row_stride + i % r.out.cols * r.out.col_stride] =
        at < 0 ? 0.0f : r.values[at];
  }
}

}  // namespace

// ---------------------------------------------------------------- launchers

cudaError_t launch_route_copy(const ops::RouteCopy &r, int32_t most, cudaStream_t stream) {
  const int size = r.dst.codes.dtype == 7 ? 1 : int(element_size(r.dst.codes.dtype));
  const int64_t segments = std::max<int64_t>((r.dst.codes.cols * size + kSegment - 1) / kSegment, 1);
  const int64_t blocks = (r.dst.codes.rows + kCopyRows - 1) / kCopyRows * segments;
  return launch_blocks(copy_rows<false>, copy_rows<true>, blocks, most, 32 * kCopyRows, stream, r, size,
                       unsigned(segments), unsigned(blocks));
}

cudaError_t launch_route_combine(const ops::RouteCombine &r, int32_t most, cudaStream_t stream) {
  return launch_blocks(combine_rows<false>, combine_rows<true>, r.out.rows, most, kThreads, stream, r);
}

cudaError_t launch_route_backward(const ops::RouteBackward &r, int32_t most, cudaStream_t stream) {
  return launch_blocks(backward_rows<false>, backward_rows<true>, r.dst.rows, most, unsigned(ops::kRouteLanes), stream,
                       r);
}

cudaError_t launch_route_scalar(const ops::RouteScalar &r, int32_t most, cudaStream_t stream) {
  const int64_t n = r.out.rows * r.out.cols;
  dim3 grid;
  if (n == 0) return cudaSuccess;
  grid_of(std::min<int64_t>((n + 255) / 256, 4096), most, &grid);
  return launch(scalar_units, grid, 256, stream, false, r);
}

cudaError_t load_route() {
  return load_code(&copy_rows<false>, &combine_rows<false>, &backward_rows<false>, &copy_rows<true>,
                   &combine_rows<true>, &backward_rows<true>, &scalar_units);
}

}  // namespace fp8::cuda
