# SPDX-License-Identifier: Apache-2.0
"""quantize, dequantize, gemm and amax as JAX functions."""
from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import capi
from ..gemm import _A_SIDE as A_SIDE
from ..gemm import _B_SIDE as B_SIDE
from . import _ffi
from ._ffi import AMAX_GIVEN, BIAS, ROLES, SIDE, SIDES, call, describe, matrix, quantize_bytes, recipe_text


@partial(jax.tree_util.register_dataclass, data_fields=["row", "row_scale", "col", "col_scale"], meta_fields=["recipe", "role", "rows", "cols"])
@dataclass(frozen=True)
class QArray:
    """A quantized matrix: a pytree of ordinary arrays, compact and unpadded. Absent sides are None; an unquantized side is the
    16-bit matrix itself (in `row`, `col` or both), without scales."""
    row: Any
    row_scale: Any
    col: Any
    col_scale: Any
    recipe: str
    role: str
    rows: int
    cols: int

    def side(self, side: str):
        """(codes, scales) of a side; scales None where it is not quantized"""
        SIDE[side]  # another name ends here
        codes, scale = (self.row, self.row_scale) if side == "row" else (self.col, self.col_scale)
        if codes is None:
            raise ValueError(f"the {side} side is wanted, and this matrix has none")
        return codes, scale

    def operands(self, side: str) -> list:
        """what a handler takes of a side"""
        return [a for a in self.side(side) if a is not None]


def _half(x):
    return x if x.dtype in (jnp.bfloat16, jnp.float16) else x.astype(jnp.bfloat16)


def quantize(x, recipe="block", role: str = "activation", sides: str = "both", *, amax=None) -> QArray:
    """Quantizes a matrix (leading dimensions are rows). amax: of the row side, or (row, col), already reduced."""
    text, x = recipe_text(recipe), matrix(x)
    rows, cols = x.shape
    wanted = ["row", "col"] if sides == "both" else [sides]
    described = {side: describe(text, role, rows, cols, side) for side in wanted}
    bits = sum(SIDES[s] for s, d in described.items() if d)
    parts = {}
    if bits:
        given = [] if amax is None else list(amax) if isinstance(amax, (tuple, list)) else [amax]
        results = _ffi.structs(*described.values())
        out = iter(call("quantize", results, [x, *given], quantize_bytes(text, role, rows, cols, x.dtype, bits), recipe=text, role=ROLES[role],
                        sides=bits, mask=AMAX_GIVEN if given else 0))
        parts = {s: (next(out), next(out)) for s, d in described.items() if d}
    for side, d in described.items():
        if not d:
            parts[side] = (_half(x), None)
    none = (None, None)
    return QArray(*parts.get("row", none), *parts.get("col", none), text, role, rows, cols)


def dequantize(q: QArray, dtype=jnp.float32, side: str | None = None):
    """The values, [rows, cols], from either side."""
    side = side or ("row" if q.row is not None else "col")
    codes, scale = q.side(side)
    if scale is None:
        return codes.astype(dtype)
    result = jax.ShapeDtypeStruct((q.rows, q.cols), dtype)
    return call("dequantize", [result], [codes, scale], 0, recipe=q.recipe, role=ROLES[q.role], rows=q.rows, cols=q.cols, side=SIDE[side])[0]


def gemm(a: QArray, b: QArray, a_side: str = "row", b_side: str = "row", *, bias=None, dtype=jnp.bfloat16, fast: bool = False):
    """a . b^T (+ bias), over the axis that the sides are scaled along."""
    sides = A_SIDE[a_side], B_SIDE[b_side]
    m = a.rows if a_side == "row" else a.cols
    n = b.rows if b_side == "row" else b.cols
    if a.recipe != b.recipe:
        raise ValueError(f"gemm of two recipes: {a.recipe} and {b.recipe}")
    scratch = _gemm_bytes(a.recipe, a.role, a.rows, a.cols, a_side, b.role, b.rows, b.cols, b_side, jnp.dtype(dtype), bias is not None)
    operands = [*a.operands(a_side), *b.operands(b_side), *([] if bias is None else [bias])]
    return call("gemm", [jax.ShapeDtypeStruct((m, n), dtype)], operands, scratch, recipe=a.recipe, a_role=ROLES[a.role], a_rows=a.rows,
                a_cols=a.cols, a_side=sides[0], b_role=ROLES[b.role], b_rows=b.rows, b_cols=b.cols, b_side=sides[1],
                mask=0 if bias is None else BIAS, flags=capi.FP8_GEMM_FAST_ACCUMULATION if fast else 0)[0]


def _gemm_bytes(recipe, a_role, a_rows, a_cols, a_side, b_role, b_rows, b_cols, b_side, dtype, bias) -> int:
    most = 0
    handle = _ffi.as_recipe(recipe).handle
    for c in _ffi.contexts():
        args, q, d = capi.fp8_gemm_args(), [], None
        for role, rows, cols, side in ((a_role, a_rows, a_cols, a_side), (b_role, b_rows, b_cols, b_side)):
            s = capi.fp8_qtensor()
            capi.fp8_recipe_describe(handle, None, ROLES[role], rows, cols, SIDES[side], s)
            q.append(s)
            for scale in (s.row_scale, s.col_scale):
                if scale.dtype:
                    capi.fp8_tensor_compact(scale)
        m, n = (a_rows if a_side == "row" else a_cols), (b_rows if b_side == "row" else b_cols)
        d = _ffi._shaped((m, n), dtype)
        args.a, args.b, args.a_side, args.b_side, args.d = q[0], q[1], SIDES[a_side], SIDES[b_side], d
        try:
            most = max(most, capi.fp8_gemm_workspace(c.handle, args))
        except (ValueError, NotImplementedError):
            continue  # the call itself will say why
    return most


def amax(x, recipe="tensor", role: str = "activation", sides: str = "row"):
    """The F32 amaxes that quantize() would take of these sides: one array, or (row, col) where they differ. Reduce them with lax.pmax."""
    text, x = recipe_text(recipe), matrix(x)
    rows, cols = x.shape
    wanted = ["row", "col"] if sides == "both" else [sides]
    if sides == "both" and _ffi.kind(text, role, "row") in (capi.FP8_SCALING_TENSOR, capi.FP8_SCALING_128X128, capi.FP8_SCALING_32X32):
        wanted = ["row"]
    shapes = [describe(text, role, rows, cols, side) for side in wanted]
    if None in shapes:
        raise ValueError(f"recipe {text} does not quantize the {sides} side of a {role}")
    bits = sum(SIDES[s] for s in wanted)
    out = call("amax", [jax.ShapeDtypeStruct(d[1][0], jnp.float32) for d in shapes], [x], quantize_bytes(text, role, rows, cols, x.dtype, bits),
               recipe=text, role=ROLES[role], sides=bits)
    return out[0] if len(out) == 1 else tuple(out)
