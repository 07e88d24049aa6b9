# SPDX-License-Identifier: Apache-2.0
"""FP8 primary weights under ZeRO-1: FP32 masters sharded by flat offsets, FP8 weights gathered."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence

from . import capi
from ._arrays import as_struct, zeros
from .comm import Comm
from .context import Context, default_context
from .quantize import _SIDES, QTensor
from .recipe import Recipe, as_recipe


def _addresses(proxies) -> ctypes.Array:
    return (ctypes.c_void_p * max(len(proxies), 1))(*[int(p.this) for p in proxies])


class ParamList:
    """A list of weights with one recipe. shapes: (rows, cols) each; cuts: world + 1 ascending flat offsets each (None: even cuts).

    With a communicator: quantize(comm, masters), then gather(comm, full). With collectives of one's own: amax_of(masters), max-reduce
    `amax`, cast(masters), gather `shard` (equal size on every rank), assemble(gathered, full).
    """

    def __init__(self, recipe: Recipe | str, shapes: Sequence[tuple[int, int]], cuts: Sequence[Sequence[int]] | None = None, *,
                 world: int | None = None, rank: int = 0, context: Context | None = None, stream: int | None = None):
        self.recipe, self.context, self.rank = as_recipe(recipe), context or default_context(), rank
        self.shapes, self._stream = [tuple(s) for s in shapes], stream
        if not self.shapes:
            raise ValueError("shapes is empty, a list is of one weight at least")
        if cuts is None:
            if world is None:
                raise ValueError("cuts or world is needed")
            if world < 1:
                raise ValueError(f"world is {world}, at least 1 is needed")
            cuts = [[-(-rows * cols // world) * i if i < world else rows * cols for i in range(world + 1)] for rows, cols in self.shapes]
            cuts = [[min(c, rows * cols) for c in row] for row, (rows, cols) in zip(cuts, self.shapes)]
        self.cuts, self.world = [list(c) for c in cuts], len(cuts[0]) - 1
        if world is not None and world != self.world:
            raise ValueError(f"cuts of {self.world + 1} offsets are those of {self.world} ranks, world is {world}")
        self._params = []
        for (rows, cols), offsets in zip(self.shapes, self.cuts):
            config, array = capi.fp8_param_config(), (ctypes.c_int64 * len(offsets))(*offsets)
            config.rows, config.cols, config.cuts = rows, cols, ctypes.addressof(array)
            config.world, config.rank, config.recipe = self.world, rank, self.recipe.handle
            self._params.append(capi.fp8_param_create(self.context.handle, config))
        self._list = _addresses(self._params)
        self.layout = capi.fp8_param_layout()
        capi.fp8_param_sizes(ctypes.addressof(self._list), len(self._params), capi.FP8_SIDE_BOTH, self.layout)
        self.amax = zeros(self.context, (self.layout.amax_count,), self.layout.amax_dtype or capi.FP8_DTYPE_U8, stream)
        self.shard = zeros(self.context, (self.layout.row_bytes + self.layout.col_bytes,), "uint8", stream)
        self._workspace = zeros(self.context, (self.layout.workspace_bytes,), "uint8", stream)

    def owned(self, i: int) -> slice:
        """this rank's flat range of weight i"""
        return slice(self.cuts[i][self.rank], self.cuts[i][self.rank + 1])

    def full(self, sides: str = "both") -> list[QTensor]:
        """memory for the gathered weights"""
        return [QTensor.empty(self.recipe, "weight", *s, sides, copy=True, context=self.context, stream=self._stream) for s in self.shapes]

    def check(self, comm: Comm) -> None:
        """fails unless recipes, shapes, cuts and order agree on all ranks: once, at setup"""
        capi.fp8_param_check(self.context.handle, comm.handle, ctypes.addressof(self._list), len(self._params))

    def _args(self, masters=None, full=None, gathered=None, sides="both"):
        args, kept = capi.fp8_param_args(), []

        def buffer(array):
            b, (struct, keep) = capi.fp8_buffer(), as_struct(array, self.context, self._stream)
            b.data, b.bytes = struct.data, array.nbytes
            kept.extend((b, struct, keep, array))
            return b

        args.params, args.count, args.sides = ctypes.addressof(self._list), len(self._params), _SIDES[sides]
        if masters is not None:
            views = [as_struct(m, self.context, self._stream) for m in masters]
            table = _addresses([v[0] for v in views])
            args.masters = ctypes.addressof(table)
            kept.extend((views, table, masters))
        if full is not None:
            table = _addresses([q.struct for q in full])
            args.full = ctypes.addressof(table)
            kept.extend((table, full))
        args.amax, args.shard, args.workspace = buffer(self.amax), buffer(self.shard), buffer(self._workspace)
        if gathered is not None:
            args.gathered = buffer(gathered)
        return args, kept

    def _count(self, masters=None, full=None):
        for name, given in (("masters", masters), ("full", full)):
            if given is not None and len(given) != len(self._params):
                raise ValueError(f"a list of {len(self._params)} weights was given {len(given)} {name}")

    def amax_of(self, masters) -> None:
        """masters -> amax, this rank's part: now max-reduce it over the ranks, as it is"""
        self._count(masters)
        args, kept = self._args(masters)
        capi.fp8_param_amax(self.context.handle, args, self._stream)
        del kept

    def cast(self, masters) -> None:
        """masters and amax -> shard: now gather it"""
        self._count(masters)
        args, kept = self._args(masters)
        capi.fp8_param_cast(self.context.handle, args, self._stream)
        del kept

    def assemble(self, gathered, full: list[QTensor], sides: str = "both") -> None:
        """all ranks' shards, in rank order -> full weights"""
        self._count(full=full)
        args, kept = self._args(None, full, gathered, sides)
        capi.fp8_param_assemble(self.context.handle, args, self._stream)
        del kept

    def quantize(self, comm: Comm, masters) -> None:
        """masters -> amax and shard: one all-reduce(max)"""
        self._count(masters)
        args, kept = self._args(masters)
        capi.fp8_param_quantize(self.context.handle, comm.handle, args, self._stream)
        del kept

    def gather(self, comm: Comm, full: list[QTensor], sides: str = "both") -> None:
        """shard -> full weights: one all-gather"""
        self._count(full=full)
        args, kept = self._args(None, full, None, sides)
        capi.fp8_param_gather(self.context.handle, comm.handle, args, self._stream)
        del kept

    def __repr__(self) -> str:
        return f"ParamList({len(self._params)} weights, rank {self.rank} of {self.world}, {str(self.recipe)!r})"
