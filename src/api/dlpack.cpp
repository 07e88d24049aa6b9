// SPDX-License-Identifier: Apache-2.0
#include "fp8/dlpack.h"

#include "api/guard.h"
#include "core/tensor.h"

namespace {

using fp8::fail;

struct DlDtype {
  uint8_t code, bits;
  uint16_t lanes;
};

// The frozen part of DLPack: its DLTensor.
struct DlTensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  DlDtype dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct Pair {
  int32_t dtype;
  uint8_t code, bits;
};

// type codes: 0 int, 1 uint, 2 float, 4 bfloat, 10 e4m3fn, 12 e5m2, 14 e8m0fnu
constexpr Pair kPairs[] = {
    {FP8_DTYPE_F32, 2, 32},  {FP8_DTYPE_F16, 2, 16},  {FP8_DTYPE_BF16, 4, 16}, {FP8_DTYPE_E4M3, 10, 8},
    {FP8_DTYPE_E5M2, 12, 8}, {FP8_DTYPE_E8M0, 14, 8}, {FP8_DTYPE_U8, 1, 8},    {FP8_DTYPE_I32, 0, 32},
    {FP8_DTYPE_I64, 0, 64},  {FP8_DTYPE_U64, 1, 64},  {FP8_DTYPE_F64, 2, 64},
};

int32_t dtype_from(const DlDtype &d, int32_t asked) {
  if (d.lanes != 1) fail(FP8_ERR_UNSUPPORTED, "dl_tensor.dtype.lanes is %d, must be 1", d.lanes);
  if (asked) {
    const int64_t size = fp8::dtype_size(asked);
    if (!size) fail(FP8_ERR_ARGUMENT, "dtype is %d, not an enum fp8_dtype", asked);
    if (size * 8 != d.bits)
      fail(FP8_ERR_ARGUMENT, "dtype is %s, dl_tensor has elements of %d bits", fp8::dtype_name(asked), d.bits);
    return asked;
  }
  for (const Pair &p : kPairs)
    if (p.code == d.code && p.bits == d.bits) return p.dtype;
  fail(FP8_ERR_UNSUPPORTED, "dl_tensor.dtype has code %d and %d bits, which no fp8_dtype is; name one in dtype", d.code,
       d.bits);
}

}  // namespace

extern "C" {

fp8_status fp8_tensor_from_dlpack(const void *dl_tensor, int32_t dtype, fp8_tensor *tensor, int32_t *device_type,
                                  int32_t *device_id) {
  return fp8::guard("fp8_tensor_from_dlpack", [&] {
    fp8::need(dl_tensor, "dl_tensor");
    fp8::need(tensor, "tensor");
    const DlTensor &from = *static_cast<const DlTensor *>(dl_tensor);
    if (from.ndim < 0 || from.ndim > 4) fail(FP8_ERR_UNSUPPORTED, "dl_tensor.ndim is %d, must be 0 to 4", from.ndim);
    if (from.ndim && !from.shape) fail(FP8_ERR_ARGUMENT, "dl_tensor.shape is NULL");
    fp8_tensor t{};
    t.dtype = dtype_from(from.dtype, dtype);
    t.ndim = from.ndim;
    t.data = from.data ? static_cast<char *>(from.data) + from.byte_offset : nullptr;
    int64_t step = 1;
    for (int i = from.ndim - 1; i >= 0; --i) {
      t.shape[i] = from.shape[i];
      t.stride[i] = from.strides ? from.strides[i] : step;
      step *= from.shape[i] > 0 ? from.shape[i] : 1;
    }
    fp8::check_tensor(t, "dl_tensor", {t.dtype}, 0, true);
    *tensor = t;
    if (device_type) *device_type = from.device_type;
    if (device_id) *device_id = from.device_id;
  });
}

fp8_status fp8_tensor_to_dlpack(const fp8_tensor *tensor, int32_t device_type, int32_t device_id, void *dl_tensor) {
  return fp8::guard("fp8_tensor_to_dlpack", [&] {
    fp8::need(tensor, "tensor");
    fp8::need(dl_tensor, "dl_tensor");
    DlTensor &to = *static_cast<DlTensor *>(dl_tensor);
    fp8::check_tensor(*tensor, "tensor", {tensor->dtype}, 0, true);
    if (tensor->ndim && (!to.shape || !to.strides))
      fail(FP8_ERR_ARGUMENT, "dl_tensor.%s is NULL", to.shape ? "strides" : "shape");
    const Pair *pair = nullptr;
    for (const Pair &p : kPairs)
      if (p.dtype == tensor->dtype) pair = &p;
    if (!pair) fail(FP8_ERR_ARGUMENT, "tensor.dtype is %d, not an enum fp8_dtype", tensor->dtype);
    to.data = tensor->data;
    to.device_type = device_type;
    to.device_id = device_id;
    to.ndim = tensor->ndim;
    to.dtype = DlDtype{pair->code, pair->bits, 1};
    to.byte_offset = 0;
    for (int i = 0; i < tensor->ndim; ++i) {
      to.shape[i] = tensor->shape[i];
      to.strides[i] = tensor->stride[i];
    }
  });
}

}  // extern "C"
