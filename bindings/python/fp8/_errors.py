# SPDX-License-Identifier: Apache-2.0
"""Exceptions: the library's message, its status, and the native code where another library failed."""
from . import capi


class Error(RuntimeError):
    """A call of libfp8 failed. The message names function, tensor, dimension, value and rule."""

    def __init__(self, message: str, status: int = 0, domain: int = 0, native_code: int = 0):
        super().__init__(message)
        self.status, self.domain, self.native_code = status, domain, native_code


class ArgumentError(Error, ValueError):
    """An argument breaks a rule."""


class Known(dict):
    """The values of one argument by their names. Any other name is an ArgumentError that says so."""

    def __init__(self, argument: str, values: dict):
        super().__init__(values)
        self.argument = argument

    @classmethod
    def constants(cls, argument: str, prefix: str) -> "Known":
        """of all constants with this prefix"""
        return cls(argument, {n[len(prefix):].lower(): value for n, value in vars(capi).items() if n.startswith(prefix)})

    def __missing__(self, name):
        raise ArgumentError(f"{self.argument} is {name!r}, known are {', '.join(self)}", capi.FP8_ERR_ARGUMENT)


class UnsupportedError(Error, NotImplementedError):
    """Not built, not implemented, or not possible on this device."""


class NoMemoryError(Error, MemoryError):
    """Memory ran out."""


class CommError(Error):
    """A communicator failed, or its ranks disagree."""


capi.set_errors({
    capi.FP8_ERR_ARGUMENT: ArgumentError, capi.FP8_ERR_UNSUPPORTED: UnsupportedError, capi.FP8_ERR_NO_MEMORY: NoMemoryError,
    capi.FP8_ERR_NO_ALLOC: Error, capi.FP8_ERR_STATE: Error, capi.FP8_ERR_BACKEND: Error, capi.FP8_ERR_COMM: CommError,
    capi.FP8_ERR_IO: Error, capi.FP8_ERR_INTERNAL: Error,
})
