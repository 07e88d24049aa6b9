# SPDX-License-Identifier: Apache-2.0
"""Contexts: a device with its allocator and threads."""
from __future__ import annotations

import ctypes
import functools
import glob
import os
import sys
import threading

from . import capi
from ._errors import Known

_BACKENDS = Known.constants("backend", "FP8_BACKEND_")
_FLAGS = Known("flags", {"no_alloc": capi.FP8_CONTEXT_NO_ALLOC, "reference": capi.FP8_CONTEXT_REFERENCE,
                         "check": capi.FP8_CONTEXT_CHECK, "tune": capi.FP8_CONTEXT_TUNE})
_PRESETS = Known.constants("recipe", "FP8_PRESET_")
COUNTERS = ("allocations", "launches", "quantizations", "gemms", "emulated_gemms", "padded_gemms", "bytes_communicated")


@functools.lru_cache(maxsize=None)
def find_cublas() -> str | None:
    """Loads cuBLASLt of pip's packages from sys.path, which the CUDA module cannot see; returns its file, or None where there is no
    driver, where the process has cuBLASLt already (torch's or JAX's copy serves), or where pip has none: the system's loader is next."""
    names = ("libcublasLt.so.13", "libcublasLt.so.12")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    for name in names:
        try:
            ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_NOW)
            return None
        except OSError:
            pass
    for name in names:
        for folder in sys.path:
            for file in sorted(glob.glob(os.path.join(glob.escape(folder or "."), "nvidia", "*", "lib", name))):
                try:
                    ctypes.CDLL(file)
                    return file
                except OSError:
                    pass
    return None


class Context:
    """A device. Functions take one as `context=`; without it they use `default_context()`.

    backend "auto" (CUDA if there is one), "cpu" or "cuda"; threads: CPU worker threads, 0 = all;
    flags: any of "no_alloc", "reference", "check", "tune". Usable as a context manager, and from several threads.
    """

    def __init__(self, backend: str = "auto", device: int = 0, threads: int = 0, flags: tuple = (), max_sms: int = 0):
        config = capi.fp8_context_config()
        config.backend = _BACKENDS[backend]
        config.device, config.threads, config.max_sms = device, threads, max_sms
        config.flags = sum(_FLAGS[f] for f in ((flags,) if isinstance(flags, str) else flags))
        if backend != "cpu":
            find_cublas()
        self._handle = capi.fp8_context_create(config)
        self.is_cuda = self.query(capi.FP8_QUERY_BACKEND) == capi.FP8_BACKEND_CUDA
        self.device = self.query(capi.FP8_QUERY_DEVICE) if self.is_cuda else 0

    @property
    def handle(self):
        """the low-level handle"""
        if self._handle is None:
            raise ValueError("the context is closed")
        return self._handle

    def query(self, what: int) -> int:
        """a fact about the device (capi.FP8_QUERY_...)"""
        return capi.fp8_context_query(self.handle, what)

    def support(self, recipe: str) -> str:
        """how GEMMs of a preset run here: "native", "emulated" or "none" """
        return ("none", "native", "emulated")[self.query(capi.FP8_QUERY_SUPPORT + _PRESETS[recipe.lower()])]

    def explain(self) -> str:
        """implementations, refusals and why"""
        return capi.fp8_context_explain(self.handle)

    def counters(self) -> dict[str, int]:
        """what it has done so far"""
        c = capi.fp8_counters()
        capi.fp8_context_counters(self.handle, c)
        return {name: getattr(c, name) for name in COUNTERS}

    def sync(self, stream: int | None = None) -> None:
        """waits for the stream's work"""
        capi.fp8_stream_sync(self.handle, stream)

    def wait(self, stream: int | None, other: int | None) -> None:
        """what is enqueued on `stream` from now on starts after what `other` holds now"""
        capi.fp8_stream_wait(self.handle, stream, other)

    def close(self) -> None:
        """gives the handle back; what was made with it keeps a reference of its own"""
        self._handle = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "Context(closed)"
        if self.is_cuda:
            return f"Context('cuda', device={self.device})"
        return f"Context('cpu', threads={self.query(capi.FP8_QUERY_THREADS)})"


_default: Context | None = None
_lock = threading.Lock()


def default_context() -> Context:
    """the context of calls that are given none: made at first use, "auto" """
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Context()
    return _default


def set_default_context(context: Context | None) -> None:
    """replaces the default (None: made anew at next use)"""
    global _default
    _default = context
