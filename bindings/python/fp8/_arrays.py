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
        self.array, self.shape, self.dtype = array, tuple(array.shape), numpy_of(code_of(dtype))
        self._fp8_view = (array, code_of(dtype))


class DeviceArray:
    """Memory of a context's device. Exports __dlpack__ (torch, CuPy, JAX take it without a copy); numpy() copies to the host.

    Without `pointer` it allocates; with one it views memory that `owner` keeps. Strides are in elements, None = row-major. `stream` is
    the one that it is written on: a consumer's stream is made to wait for it.
    """

    def __init__(self, context: Context, shape: tuple, dtype, stream=None, *, pointer: int | None = None, owner=None,
                 strides: tuple | None = None):
        self.context, self.shape, self.dtype, self._stream = context, tuple(shape), numpy_of(code_of(dtype)), _address(stream)
        if strides is not None and tuple(strides) == _row_major(self.shape):
            strides = None
        self.strides = None if strides is None else tuple(strides)
        self._owner, self._buffer, self.pointer = owner, None, pointer
        if pointer is None:
            buffer, self._context_handle = capi.fp8_buffer(), context.handle
            capi.fp8_buffer_alloc(context.handle, max(self.nbytes, 1), buffer, stream)
            self._buffer, self.pointer = buffer, buffer.data
        t = capi.fp8_tensor()
        t.data, t.dtype, t.ndim, t.shape, t.stride = self.pointer, code_of(self.dtype), len(self.shape), self.shape, self.strides or _row_major(self.shape)
        self._fp8_tensor = (t, *self.__dlpack_device__())  # what the library's own calls take

    @property
    def nbytes(self) -> int:
        """size of its elements in bytes"""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """dimensions"""
        return len(self.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.context.device) if self.context.is_cuda else (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule for a consumer that will work on `stream` (DLPack's numbers: None or 1 the default stream, -1 no waiting)."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a DeviceArray is exported as it is: no copy, no other device")
        if self.context.is_cuda and stream != -1:
            consumer = _address(stream)
            if consumer != self._stream:
                self.context.wait(consumer, self._stream)
        bits = self._fp8_tensor is None  # a view as "uint16"
        code = capi.FP8_DTYPE_BF16 if bits else code_of(self.dtype)
        return capi.make_dlpack(self, self.pointer or 0, code, self.shape, self.strides, *self.__dlpack_device__(), bits)

    def view(self, dtype) -> DeviceArray:
        """The same memory as another dtype of equal size: codes as "uint8" for a library that knows no FP8, BF16 as "uint16", which
        libfp8's own calls take by view(array, "bf16") alone."""
        bits = dtype in ("uint16", np.uint16)
        wanted = np.dtype(np.uint16) if bits else numpy_of(code_of(dtype))
        if wanted.itemsize != self.dtype.itemsize:
            raise TypeError(f"elements of {self.dtype} cannot be viewed as {wanted}")
        out = DeviceArray(self.context, self.shape, self.dtype if bits else dtype, self._stream, pointer=self.pointer, owner=self,
                          strides=self.strides)
        if bits:
            out.dtype, out._fp8_tensor = wanted, None
        return out

    def numpy(self) -> np.ndarray:
        """a copy in host memory"""
        strides = self.strides or _row_major(self.shape)
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        size = self.dtype.itemsize
        span = np.empty(1 + sum((n - 1) * s for n, s in zip(self.shape, strides)), f"u{size}")  # up to the last element
        capi.fp8_buffer_copy(self.context.handle, span.view(np.uint8), self.pointer, span.nbytes, self._stream)
        self.context.sync(self._stream)
        strided = np.lib.stride_tricks.as_strided(span, self.shape, [s * size for s in strides])  # of bits: it knows no FP8
        return np.array(strided, order="C").view(self.dtype)

    def copy_from(self, array) -> DeviceArray:
        """fills it from host memory"""
        array = np.ascontiguousarray(array, self.dtype)
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} for {self.shape}")
        if self.strides is not None:
            raise ValueError("a strided view cannot be filled: fill its owner")
        if array.size:
            capi.fp8_buffer_copy(self.context.handle, self.pointer, array.reshape(-1).view(np.uint8), self.nbytes, self._stream)
            self.context.sync(self._stream)
        return self

    def __del__(self, free=capi._capi.fp8_buffer_free):  # bound here: the module may be gone at the interpreter's end
        if getattr(self, "_buffer", None) is not None:
            free(self._context_handle, self._buffer, self._stream)

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype.name})"


def _address(stream) -> int | None:
    """a stream's address; None for the default one (0, and DLPack's 1)"""
    address = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    return None if address in (None, 0, 1) else address


def _row_major(shape) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


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


def as_struct(array, context: Context, stream=None):
    """(the low-level tensor that views the array, what must stay alive with it)"""
    struct = capi.fp8_tensor()
    kept = capi.tensor_on(context.handle, array, stream, struct)
    return struct, (kept, array)
