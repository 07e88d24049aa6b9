# SPDX-License-Identifier: Apache-2.0
"""Communicators: ranks of one process (threads), or a borrowed NCCL communicator."""
from __future__ import annotations

from . import capi
from ._arrays import as_struct


class Comm:
    """A rank. Every rank makes the same calls in the same order; one thread a rank."""

    def __init__(self, handle):
        self._handle = handle
        self.rank, self.size, self.caps = capi.fp8_comm_query(handle)

    @staticmethod
    def local(size: int) -> tuple[Comm, ...]:
        """ranks as threads of this process: a rank blocks until its peers arrive"""
        return tuple(Comm(h) for h in capi.fp8_comm_create_local(size))

    @staticmethod
    def nccl(address: int) -> Comm:
        """borrows an ncclComm_t, given by its address"""
        return Comm(capi.fp8_comm_create_nccl(address))

    @property
    def handle(self):
        """the low-level handle"""
        return self._handle

    def check(self, what: str, data: bytes) -> None:
        """fails unless all ranks give the same bytes"""
        capi.fp8_comm_check(self._handle, what, data, len(data))

    def all_reduce_max(self, array, *, context, stream: int | None = None) -> None:
        """the elementwise maximum over the ranks, in place (F32 or uint8)"""
        struct, kept = as_struct(array, context, stream)
        capi.fp8_all_reduce_max(context.handle, self._handle, struct, stream)
        del kept

    def wait(self, stream: int | None = None, timeout_ms: int = 60000) -> None:
        """waits for the stream or for a fault"""
        capi.fp8_comm_wait(self._handle, stream, timeout_ms)

    def close(self) -> None:
        """gives the handle back"""
        self._handle = None

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Comm(rank={self.rank}, size={self.size})"
