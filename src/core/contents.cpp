// SPDX-License-Identifier: Apache-2.0
#include "core/contents.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace fp8 {

namespace {

std::vector<char> read(const fp8_context &c, const fp8_tensor &t, fp8_stream stream) {
  std::vector<char> bytes(tensor_span(t));
  if (bytes.empty()) return bytes;
  check(c.api->copy(c.self, bytes.data(), t.data, bytes.size(), stream));
  check(c.api->stream_sync(c.self, stream));
  return bytes;
}

template <class Good>
void check_floats(const fp8_context &c, const fp8_tensor &t, const char *owner, const char *part, const char *rule,
                  fp8_stream stream, Good &&good) {
  const std::vector<char> bytes = read(c, t, stream);
  const ops::Scale s = scale_view(t);
  if (bytes.empty()) return;
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t j = 0; j < s.cols; ++j) {
      const int64_t at = i * s.row_stride + j * s.col_stride;
      float value;
      if (s.dtype == FP8_DTYPE_E8M0) {
        value = static_cast<unsigned char>(bytes[at]) == 0xff ? NAN : 1.0f;
      } else {
        std::memcpy(&value, bytes.data() + at * 4, 4);
      }
      if (!good(value))
        fail(FP8_ERR_ARGUMENT, "%s%s%s[%lld, %lld] is %g, %s", owner, *part ? "." : "", part, (long long)i,
             (long long)j, double(value), rule);
    }
}

}  // namespace

void check_scales(const fp8_context &c, const fp8_qtensor &q, int32_t side, const char *owner, fp8_stream stream) {
  if (!(c.flags & FP8_CONTEXT_CHECK) || !is_quantized(side_kind(q, side))) return;
  check_floats(c, side_scale(q, side), owner, side == FP8_SIDE_ROW ? "row_scale" : "col_scale",
               "a scale is finite and positive", stream, [](float v) { return v > 0 && std::isfinite(v); });
}

void check_given_amax(const fp8_context &c, const fp8_tensor *amax, const char *name, fp8_stream stream) {
  if (!(c.flags & FP8_CONTEXT_CHECK) || !amax) return;
  check_floats(c, *amax, name, "", "an amax is not negative and not NaN", stream, [](float v) { return v >= 0; });
}

}  // namespace fp8
