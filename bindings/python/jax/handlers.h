// SPDX-License-Identifier: Apache-2.0
// What every XLA FFI handler needs: buffers as tensors, attributes, and the contexts, recipes and linears that live as
// long as the process (XLA gives a handler no life of its own to tie them to).
#pragma once
#include <fp8/fp8.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace fp8_jax {
namespace ffi = xla::ffi;

struct Failure {
  ffi::Error error;
};

[[noreturn]] inline void fail(const std::string &message) { throw Failure{ffi::Error::InvalidArgument(message)}; }

// The calling thread's last error, as XLA's.
inline void check(fp8_status status) {
  if (status == FP8_OK) return;
  fp8_error e;
  FP8_INIT(&e);
  fp8_last_error(&e);
  const std::string message = e.message ? e.message : fp8_status_name(status);
  if (status == FP8_ERR_ARGUMENT) throw Failure{ffi::Error::InvalidArgument(message)};
  if (status == FP8_ERR_UNSUPPORTED) throw Failure{ffi::Error(ffi::ErrorCode::kUnimplemented, message)};
  throw Failure{ffi::Error::Internal(message)};
}

template <class T>
T value(ffi::ErrorOr<T> got) {
  if (!got.has_value()) throw Failure{got.error()};
  return *got;
}

inline int32_t dtype_of(ffi::DataType t) {
  switch (t) {
    case ffi::DataType::F32:
      return FP8_DTYPE_F32;
    case ffi::DataType::F16:
      return FP8_DTYPE_F16;
    case ffi::DataType::BF16:
      return FP8_DTYPE_BF16;
    case ffi::DataType::F8E4M3FN:
      return FP8_DTYPE_E4M3;
    case ffi::DataType::F8E5M2:
      return FP8_DTYPE_E5M2;
    case ffi::DataType::F8E8M0FNU:
      return FP8_DTYPE_E8M0;
    case ffi::DataType::U8:
      return FP8_DTYPE_U8;
    case ffi::DataType::S32:
      return FP8_DTYPE_I32;
    case ffi::DataType::S64:
      return FP8_DTYPE_I64;
    case ffi::DataType::U64:
      return FP8_DTYPE_U64;
    case ffi::DataType::F64:
      return FP8_DTYPE_F64;
    default:
      fail("libfp8 has no such element type");
  }
}

inline fp8_tensor tensor_of(const ffi::AnyBuffer &b) {
  fp8_tensor t;
  std::memset(&t, 0, sizeof t);
  const auto dims = b.dimensions();
  if (dims.size() > 4) fail("an array of more than 4 dimensions");
  t.data = b.untyped_data();
  t.dtype = dtype_of(b.element_type());
  t.ndim = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) t.shape[i] = dims[i];
  check(fp8_tensor_compact(&t));
  return t;
}

// ---- kept for the life of the process
struct Kept {
  std::mutex mutex;
  std::map<std::pair<bool, int>, fp8_context *> contexts;
  std::map<std::string, fp8_recipe *> recipes;
  std::map<std::tuple<const fp8_context *, std::string, int64_t, int64_t, int32_t, int32_t>, fp8_linear *> linears;
  std::map<std::pair<const fp8_linear *, int64_t>, uint64_t> scratch;  // a linear's, by rows
};
inline Kept &kept() {
  static Kept *k = new Kept;
  return *k;
}

inline const fp8_context *context_of(bool cuda, int device) {
  std::lock_guard<std::mutex> lock(kept().mutex);
  fp8_context *&c = kept().contexts[{cuda, device}];
  if (!c) {
    fp8_context_config config;
    FP8_INIT(&config);
    config.backend = cuda ? FP8_BACKEND_CUDA : FP8_BACKEND_CPU;
    config.device = device;
    check(fp8_context_create(&config, &c));
  }
  return c;
}

inline const fp8_recipe *recipe_of(const std::string &text) {
  std::lock_guard<std::mutex> lock(kept().mutex);
  fp8_recipe *&r = kept().recipes[text];
  if (!r) check(fp8_recipe_from_string(text.c_str(), &r));
  return r;
}

inline const fp8_linear *linear_of(const fp8_context *c, const std::string &recipe, int64_t in, int64_t out,
                                   int32_t input, int32_t output) {
  const fp8_recipe *r = recipe_of(recipe);
  std::lock_guard<std::mutex> lock(kept().mutex);
  fp8_linear *&linear = kept().linears[{c, recipe, in, out, input, output}];
  if (!linear) {
    fp8_linear_config config;
    FP8_INIT(&config);
    config.in_features = in;
    config.out_features = out;
    config.recipe = r;
    config.input_dtype = input;
    config.output_dtype = output;
    check(fp8_linear_create(c, &config, &linear));
  }
  return linear;
}

// Kept, since it plans every legal call of the linear: far more work than the call itself.
inline uint64_t linear_scratch(const fp8_linear *linear, int64_t rows) {
  {
    std::lock_guard<std::mutex> lock(kept().mutex);
    const auto found = kept().scratch.find({linear, rows});
    if (found != kept().scratch.end()) return found->second;
  }
  uint64_t bytes = 0;
  check(fp8_linear_workspace(linear, rows, 0, &bytes));
  std::lock_guard<std::mutex> lock(kept().mutex);
  return kept().scratch[{linear, rows}] = bytes;
}

// ---- one call: its context, its arguments in order, its results in order
class Call {
 public:
  Call(bool cuda, int device, void *stream, ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attrs)
      : context(context_of(cuda, device)), stream(stream), args_(args), rets_(rets), attrs_(attrs) {}

  const fp8_context *const context;
  const fp8_stream stream;

  fp8_tensor in() { return tensor_of(value(args_.get<ffi::AnyBuffer>(arg_++))); }
  size_t inputs_left() const { return args_.size() - arg_; }
  fp8_tensor out() { return tensor_of(*value(rets_.get<ffi::AnyBuffer>(ret_++))); }
  int64_t number(const char *name) const { return value(attrs_.get<int64_t>(name)); }
  std::string text(const char *name) const { return std::string(value(attrs_.get<std::string_view>(name))); }
  ffi::Span<const int64_t> numbers(const char *name) const { return value(attrs_.get<ffi::Span<const int64_t>>(name)); }
  const fp8_recipe *recipe() const { return recipe_of(text("recipe")); }

  // The last result is scratch. It was sized while tracing; where that was for another device, the context's allocator
  // serves.
  const fp8_buffer *workspace(uint64_t needed) {
    const ffi::AnyBuffer b = *value(rets_.get<ffi::AnyBuffer>(rets_.size() - 1));
    workspace_.data = b.untyped_data();
    workspace_.bytes = b.size_bytes();
    return workspace_.bytes >= needed ? &workspace_ : nullptr;
  }

 private:
  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  ffi::Dictionary attrs_;
  size_t arg_ = 0, ret_ = 0;
  fp8_buffer workspace_{nullptr, 0};
};

// ---- quantized matrices whose parts are arrays of their own, scales compact
inline bool quantized(int32_t kind) { return kind != 0 && kind != FP8_SCALING_UNQUANTIZED && kind != FP8_SCALING_COPY; }

inline fp8_qtensor describe(const fp8_recipe *r, int64_t role, int64_t rows, int64_t cols, uint32_t sides) {
  fp8_qtensor q;
  FP8_INIT(&q);
  check(fp8_recipe_describe(r, nullptr, static_cast<int32_t>(role), rows, cols, sides, &q));
  return q;
}

inline int32_t kind_of(const fp8_qtensor &q, uint32_t side) { return side == FP8_SIDE_ROW ? q.row_kind : q.col_kind; }

inline void put(fp8_tensor &part, const fp8_tensor &array, const char *what) {
  int64_t want = 1, got = 1;
  for (int i = 0; i < part.ndim; ++i) want *= part.shape[i];
  for (int i = 0; i < array.ndim; ++i) got *= array.shape[i];
  if (want != got)
    fail(std::string(what) + " has " + std::to_string(got) + " elements, the recipe gives it " + std::to_string(want));
  part.data = array.data;
  check(fp8_tensor_compact(&part));
}

// Binds a side to arrays; an unquantized side is a view of the matrix itself, [rows, cols].
template <class Next>
void bind(fp8_qtensor &q, uint32_t side, Next next) {
  fp8_tensor &codes = side == FP8_SIDE_ROW ? q.row : q.col;
  if (!quantized(kind_of(q, side))) {
    const fp8_tensor m = next();
    codes = m;
    codes.ndim = 2;
    codes.shape[0] = side == FP8_SIDE_ROW ? q.rows : q.cols;
    codes.shape[1] = side == FP8_SIDE_ROW ? q.cols : q.rows;
    codes.stride[0] = side == FP8_SIDE_ROW ? q.cols : 1;
    codes.stride[1] = side == FP8_SIDE_ROW ? 1 : q.cols;
    return;
  }
  put(codes, next(), "codes");
  put(side == FP8_SIDE_ROW ? q.row_scale : q.col_scale, next(), "scales");
}

inline int64_t rows_of(const fp8_tensor &t) {
  int64_t n = 1;
  for (int i = 0; i + 1 < t.ndim; ++i) n *= t.shape[i];
  return n;
}
inline int64_t cols_of(const fp8_tensor &t) { return t.ndim ? t.shape[t.ndim - 1] : 1; }

using Body = void (*)(Call &);

inline ffi::Error run(Body body, bool cuda, int device, void *stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                      ffi::Dictionary attrs) {
  try {
    Call call(cuda, device, stream, args, rets, attrs);
    body(call);
    return ffi::Error::Success();
  } catch (const Failure &f) {
    return f.error;
  } catch (const std::exception &e) {
    return ffi::Error::Internal(e.what());
  }
}

struct DeviceOrdinal {};

}  // namespace fp8_jax

template <>
struct xla::ffi::CtxDecoding<fp8_jax::DeviceOrdinal> {
  using Type = int32_t;
  static std::optional<Type> Decode(const XLA_FFI_Api *api, XLA_FFI_ExecutionContext *ctx, DiagnosticEngine &) {
    XLA_FFI_DeviceOrdinal_Get_Args args;
    std::memset(&args, 0, sizeof args);
    args.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
    args.ctx = ctx;
    if (XLA_FFI_Error *error = api->XLA_FFI_DeviceOrdinal_Get(&args)) {
      internal::DestroyError(api, error);
      return std::nullopt;
    }
    return args.device_ordinal;
  }
};

// One body, two handlers: NAME_cpu, and NAME_cuda on XLA's stream, which only enqueues and may be captured.
#define FP8_JAX_HANDLER(NAME, BODY)                                                               \
  static xla::ffi::Error NAME##_run_cpu(xla::ffi::RemainingArgs a, xla::ffi::RemainingRets r,     \
                                        xla::ffi::Dictionary d) {                                 \
    return fp8_jax::run(BODY, false, 0, nullptr, a, r, d);                                        \
  }                                                                                               \
  static xla::ffi::Error NAME##_run_cuda(void *stream, int32_t device, xla::ffi::RemainingArgs a, \
                                         xla::ffi::RemainingRets r, xla::ffi::Dictionary d) {     \
    return fp8_jax::run(BODY, true, device, stream, a, r, d);                                     \
  }                                                                                               \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME##_cpu, NAME##_run_cpu,                                       \
                                xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());   \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME##_cuda, NAME##_run_cuda,                                     \
                                xla::ffi::Ffi::Bind()                                             \
                                    .Ctx<xla::ffi::PlatformStream<void *>>()                      \
                                    .Ctx<fp8_jax::DeviceOrdinal>()                                \
                                    .RemainingArgs()                                              \
                                    .RemainingRets()                                              \
                                    .Attrs(),                                                     \
                                {xla::ffi::Traits::kCmdBufferCompatible})
