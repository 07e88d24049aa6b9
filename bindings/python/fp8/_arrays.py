# SPDX-License-Identifier: Apache-2.0
"""Arrays in and out. In: numpy (with ml_dtypes), anything with __dlpack__, never copied. Out: numpy on the CPU, DeviceArray on CUDA."""
from __future__ import annotations

import math

import numpy as np

from . import capi
from ._dtypes import code_of, numpy_of
from .context import Context


class view:
    """An array seen as another dtype of equal size: uint8 as "e4m3", uint16 as "bf16", where an exporter has no such type."""

    def __init__(self, array, dtype):
        self.array = array
        self._fp8_view = (array, code_of(dtype))


class DeviceArray:
    """Memory of a context's device. Exports __dlpack__ (torch, CuPy, JAX take it without a copy); numpy() copies to the host.

    Without `pointer` it allocates; with one it views memory that `owner` keeps. Strides are in elements, None = row-major.
    """

    def __init__(self, context: Context, shape: tuple, dtype, stream: int | None = None, *, pointer: int | None = None, owner=None,
                 strides: tuple | None = None):
        self.context, self.shape, self.dtype, self.strides, self._stream = context, tuple(shape), numpy_of(code_of(dtype)), strides, stream
        if strides is not None and tuple(strides) == tuple(math.prod(self.shape[i + 1:]) for i in range(len(self.shape))):
            self.strides = None  # row-major
        self._owner, self._buffer, self.pointer = owner, None, pointer
        if pointer is None:
            self._buffer = capi.fp8_buffer()
            self._context_handle = context.handle
            capi.fp8_buffer_alloc(context.handle, max(self.nbytes, 1), self._buffer, stream)
            self.pointer = self._buffer.data

    @property
    def nbytes(self) -> int:
        """size in bytes"""
        return math.prod(self.shape) * self.dtype.itemsize

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.context.query(capi.FP8_QUERY_DEVICE)) if self.context.is_cuda else (1, 0)

    def __dlpack__(self, **_):
        return capi.make_dlpack(self, self.pointer or 0, code_of(self.dtype), self.shape, self.strides, *self.__dlpack_device__())

    def numpy(self) -> np.ndarray:
        """a copy in host memory"""
        if self.strides is not None:
            raise ValueError("a strided view: copy its owner, or take it through __dlpack__")
        out = np.empty(self.shape, self.dtype)
        if out.size:
            capi.fp8_buffer_copy(self.context.handle, out.reshape(-1).view(np.uint8), self.pointer, self.nbytes, self._stream)
            self.context.sync(self._stream)
        return out

    def copy_from(self, array) -> DeviceArray:
        """fills it from host memory"""
        array = np.ascontiguousarray(array, self.dtype)
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} for {self.shape}")
        if array.size:
            capi.fp8_buffer_copy(self.context.handle, self.pointer, array.reshape(-1).view(np.uint8), self.nbytes, self._stream)
            self.context.sync(self._stream)
        return self

    def __del__(self):
        if getattr(self, "_buffer", None) is not None and capi is not None:
            capi.fp8_buffer_free(self._context_handle, self._buffer, self._stream)

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype.name})"


class _Host:
    """host memory that `owner` keeps, for numpy"""

    def __init__(self, pointer: int, shape, itemsize: int, strides, owner):
        self.owner = owner
        self.__array_interface__ = {"data": (pointer, False), "shape": tuple(shape), "strides": tuple(n * itemsize for n in strides),
                                    "typestr": {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}[itemsize], "version": 3}


def host_view(pointer: int, shape, dtype: np.dtype, strides, owner) -> np.ndarray:
    """a numpy view of host memory that `owner` keeps"""
    return np.asarray(_Host(pointer, shape, dtype.itemsize, strides, owner)).view(dtype)


def empty(context: Context, shape, dtype, stream: int | None = None):
    """an output: numpy on the CPU, a DeviceArray on CUDA"""
    if context.is_cuda:
        return DeviceArray(context, shape, dtype, stream)
    return np.empty(shape, numpy_of(code_of(dtype)))


def zeros(context: Context, shape, dtype, stream: int | None = None):
    """as empty, with zeroes"""
    out = empty(context, shape, dtype, stream)
    if isinstance(out, np.ndarray):
        out.view(np.uint8)[...] = 0
    elif out.nbytes:
        capi.fp8_buffer_zero(context.handle, out.pointer, out.nbytes, stream)
    return out


def matrix_shape(array) -> tuple[int, int]:
    """(rows, cols) of an array whose leading dimensions are rows"""
    shape = array.array.shape if isinstance(array, view) else array.shape
    if len(shape) < 1:
        raise ValueError("a matrix is wanted, the array has no dimension")
    return math.prod(shape[:-1]), shape[-1]


def as_struct(array):
    """(the low-level tensor that views the array, what must stay alive with it)"""
    struct = capi.fp8_tensor()
    _, _, kept = capi.tensor_of(array, 0, struct)
    return struct, (kept, array)
