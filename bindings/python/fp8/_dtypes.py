# SPDX-License-Identifier: Apache-2.0
"""Dtypes by name, and the numpy types (with ml_dtypes') that they are."""
import ml_dtypes
import numpy as np

from . import capi

_NUMPY = {
    capi.FP8_DTYPE_F32: np.dtype(np.float32), capi.FP8_DTYPE_F16: np.dtype(np.float16),
    capi.FP8_DTYPE_BF16: np.dtype(ml_dtypes.bfloat16), capi.FP8_DTYPE_E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    capi.FP8_DTYPE_E5M2: np.dtype(ml_dtypes.float8_e5m2), capi.FP8_DTYPE_E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    capi.FP8_DTYPE_U8: np.dtype(np.uint8), capi.FP8_DTYPE_I32: np.dtype(np.int32), capi.FP8_DTYPE_I64: np.dtype(np.int64),
    capi.FP8_DTYPE_U64: np.dtype(np.uint64), capi.FP8_DTYPE_F64: np.dtype(np.float64),
}
_NAMES = {
    "float32": 1, "f32": 1, "float16": 2, "f16": 2, "bfloat16": 3, "bf16": 3, "float8_e4m3fn": 4, "e4m3": 4, "float8_e5m2": 5,
    "e5m2": 5, "float8_e8m0fnu": 6, "e8m0": 6, "uint8": 7, "int32": 8, "int64": 9, "uint64": 10, "float64": 11,
}
_CODES = {dtype: code for code, dtype in _NUMPY.items()}
capi.set_dtypes(_CODES)


def code_of(dtype) -> int:
    """the library's code of a dtype: a code, a name ("bf16", "float8_e4m3fn"), torch's, or anything numpy takes for a dtype"""
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return dtype
    if isinstance(dtype, str) and dtype in _NAMES:
        return _NAMES[dtype]
    try:
        code = _CODES.get(np.dtype(dtype))
    except TypeError:  # torch.float32, torch.float8_e4m3fn
        code = _NAMES.get(str(dtype).rpartition(".")[2])
    if code is None:
        raise TypeError(f"dtype {dtype} is not one of libfp8's")
    return code


def numpy_of(code: int) -> np.dtype:
    """the numpy dtype of a code"""
    return _NUMPY[code]
