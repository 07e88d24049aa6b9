# SPDX-License-Identifier: Apache-2.0
"""FP8 primary weights under ZeRO-1, for shard_map: amax -> lax.pmax -> cast -> lax.all_gather -> assemble."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from .. import capi
from . import _ffi
from ._ffi import SIDES, call, describe, recipe_text
from .linear import QWeight


@dataclass(frozen=True)
class ParamPlan:
    """A list of weights and how each is cut: configuration only, equal on every rank. Made by param_plan()."""
    recipe: str
    shapes: tuple[tuple[int, int], ...]
    cuts: tuple[tuple[int, ...], ...]

    @property
    def world(self) -> int:
        """ranks"""
        return len(self.cuts[0]) - 1

    def shard_size(self, i: int) -> int:
        """elements of weight i's largest shard: the size of every rank's master array, padded at its end"""
        return max(b - a for a, b in zip(self.cuts[i], self.cuts[i][1:]))

    @cached_property
    def layout(self) -> dict[str, int]:
        """sizes of what is exchanged"""
        context = _ffi.contexts()[-1]
        params, kept = [], []
        for (rows, cols), offsets in zip(self.shapes, self.cuts):
            config, array = capi.fp8_param_config(), (ctypes.c_int64 * len(offsets))(*offsets)
            config.rows, config.cols, config.cuts, config.world, config.rank = rows, cols, ctypes.addressof(array), self.world, -1
            config.recipe = _ffi.as_recipe(self.recipe).handle
            params.append(capi.fp8_param_create(context.handle, config))
            kept.append(array)
        table, layout = (ctypes.c_void_p * len(params))(*[int(p.this) for p in params]), capi.fp8_param_layout()
        capi.fp8_param_sizes(ctypes.addressof(table), len(params), capi.FP8_SIDE_BOTH, layout)
        return {n: getattr(layout, n) for n in ("amax_count", "amax_dtype", "row_bytes", "col_bytes", "gathered_bytes", "workspace_bytes")}

    def shards(self, w, i: int):
        """weight i cut into [world, shard_size], padded with zeroes: shard it over the mesh axis"""
        flat, size = w.reshape(-1).astype(jnp.float32), self.shard_size(i)
        return jnp.stack([jnp.pad(flat[a:b], (0, size - (b - a))) for a, b in zip(self.cuts[i], self.cuts[i][1:])])

    def _attributes(self) -> dict:
        return {"recipe": self.recipe, "rows": np.array([s[0] for s in self.shapes], np.int64),
                "cols": np.array([s[1] for s in self.shapes], np.int64), "cuts": np.array(self.cuts, np.int64).reshape(-1), "world": self.world}


def param_plan(recipe, shapes, world: int, cuts=None) -> ParamPlan:
    """shapes: (rows, cols) of each weight; cuts: world + 1 ascending flat offsets of each, None = even"""
    shapes = tuple(tuple(s) for s in shapes)
    if not shapes:
        raise ValueError("param_plan: shapes is empty, a plan is of one weight at least")
    if world < 1:
        raise ValueError(f"param_plan: world is {world}, at least 1 is needed")
    if cuts is not None and [len(c) for c in cuts] != [world + 1] * len(shapes):
        raise ValueError(f"param_plan: cuts has {[len(c) for c in cuts]} offsets, world + 1 = {world + 1} are needed for each of {len(shapes)} weights")
    if cuts is None:
        cuts = [[min(-(-r * c // world) * i, r * c) for i in range(world)] + [r * c] for r, c in shapes]
    return ParamPlan(recipe_text(recipe), shapes, tuple(tuple(int(v) for v in c) for c in cuts))


def _rank(rank):
    return jnp.asarray(rank, jnp.int32).reshape(1)


def param_amax(plan: ParamPlan, rank, masters):
    """This rank's masters (flat, F32 or BF16, of plan.shard_size) -> its part of the amaxes. Now lax.pmax it."""
    layout = plan.layout
    if not layout["amax_count"]:
        return jnp.zeros((0,), jnp.uint8)
    dtype = jnp.float32 if layout["amax_dtype"] == capi.FP8_DTYPE_F32 else jnp.uint8
    result = jax.ShapeDtypeStruct((layout["amax_count"],), dtype)
    return call("param_amax", [result], [_rank(rank), *masters], layout["workspace_bytes"], **plan._attributes())[0]


def param_cast(plan: ParamPlan, rank, amax, masters):
    """Masters and the reduced amaxes -> this rank's shard (uint8, of equal size on every rank). Now lax.all_gather it, tiled."""
    layout = plan.layout
    result = jax.ShapeDtypeStruct((layout["row_bytes"] + layout["col_bytes"],), jnp.uint8)
    return call("param_cast", [result], [_rank(rank), amax, *masters], layout["workspace_bytes"], **plan._attributes())[0]


def param_assemble(plan: ParamPlan, gathered, amax, sides: str = "both") -> list[QWeight]:
    """All ranks' shards and the amaxes -> the full weights, bit for bit those of quantize_weight() on the whole masters."""
    bits = SIDES[sides]
    wanted = ["row", "col"] if sides == "both" else [sides]
    plain = describe(plan.recipe, "weight", 128, 128, "row") is None
    results, shapes = [], []
    for rows, cols in plan.shapes:
        if plain:
            shapes.append(None)
            results.append(jax.ShapeDtypeStruct((rows, cols), jnp.bfloat16))
            continue
        shapes.append([describe(plan.recipe, "weight", rows, cols, s) for s in wanted])
        results += _ffi.structs(*shapes[-1])
    bits = SIDES["row"] if plain else bits
    out = iter(call("param_assemble", results, [gathered, amax], plan.layout["workspace_bytes"], sides=bits, **plan._attributes()))
    weights = []
    for shape, described in zip(plan.shapes, shapes):
        parts = {"row": (None, None), "col": (None, None)}
        if described is None:
            matrix = next(out)
            parts = {s: (matrix, None) for s in wanted}
            parts.setdefault("row", (None, None)), parts.setdefault("col", (None, None))
        else:
            for side in wanted:
                parts[side] = (next(out), next(out))
        weights.append(QWeight(*parts["row"], *parts["col"], jnp.zeros(shape, jnp.float32), plan.recipe, shape))
    return weights
