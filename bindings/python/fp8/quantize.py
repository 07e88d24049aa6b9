# SPDX-License-Identifier: Apache-2.0
"""Quantized matrices, and the functions that make and measure them."""
from __future__ import annotations

import numpy as np

from . import capi
from ._arrays import DeviceArray, empty, host_view, matrix_shape, zeros
from ._dtypes import code_of, numpy_of
from ._errors import Known
from .context import Context, default_context
from .recipe import Recipe, as_recipe

_ROLES = Known("role", {"activation": capi.FP8_ROLE_ACTIVATION, "weight": capi.FP8_ROLE_WEIGHT, "gradient": capi.FP8_ROLE_GRADIENT})
_ONE = {"row": capi.FP8_SIDE_ROW, "col": capi.FP8_SIDE_COL}
_SIDE, _SIDES = Known("side", _ONE), Known("sides", {**_ONE, "both": capi.FP8_SIDE_BOTH})
_KINDS = {getattr(capi, "FP8_SCALING_" + name): name.lower() for name in ("UNQUANTIZED", "TENSOR", "ROW", "1X128", "128X128", "1X32", "32X32",
                                                                           "COPY")}
_new_quantized = capi._capi.new_quantized
STATS = ("count", "nan", "inf", "nonzero", "underflow", "saturated")


class QTensor:
    """A quantized matrix: up to two sides, each with codes and scales that share one piece of memory.

    `row` [rows, cols] serves products over cols, `col` [cols, rows] products over rows; `row_scale`, `col_scale` are their scales.
    The four are views of its memory (numpy with ml_dtypes' types on the CPU, DeviceArray on CUDA), None where a side is absent.
    A side of an unquantized recipe ("none") is a view of the array that was quantized.
    """

    __slots__ = ("struct", "context", "recipe", "_memory", "_source", "__weakref__")

    def __init__(self, struct, context: Context, recipe: Recipe | None, memory, source=None):
        self.struct, self.context, self.recipe, self._memory, self._source = struct, context, recipe, memory, source

    @classmethod
    def empty(cls, recipe: Recipe | str, role: str, rows: int, cols: int, sides: str = "both", *, copy: bool = False,
              context: Context | None = None, stream: int | None = None) -> QTensor:
        """memory for a matrix of this role; copy: an unquantized side gets memory of its own"""
        context, recipe = context or default_context(), as_recipe(recipe)
        which = _SIDES[sides]
        if not context.is_cuda:
            struct, memory = capi.new_qtensor(context.handle, recipe.handle, _ROLES[role], rows, cols, which | (capi.FP8_SIDE_COPY if copy else 0))
            return cls(struct, context, recipe, memory)
        q = capi.fp8_qtensor()
        capi.fp8_recipe_describe(recipe.handle, context.handle, _ROLES[role], rows, cols, which | (capi.FP8_SIDE_COPY if copy else 0), q)
        return cls._placed(q, which, context, recipe, stream)

    @classmethod
    def _placed(cls, q, which: int, context: Context, recipe: Recipe | None, stream=None) -> QTensor:
        nbytes = capi.fp8_qtensor_bytes(q, which)
        if not nbytes:
            return cls(q, context, recipe, None)
        if context.is_cuda:
            memory = DeviceArray(context, (nbytes,), "uint8", stream)
            capi.place(q, which, memory.pointer, nbytes)
        else:
            memory = np.empty(nbytes, np.uint8)
            capi.place_in(q, which, memory)
        return cls(q, context, recipe, memory)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)"""
        return self.struct.rows, self.struct.cols

    @property
    def sides(self) -> str:
        """which sides it holds: "row", "col" or "both" """
        s = self.struct
        return "both" if s.row_kind and s.col_kind else "row" if s.row_kind else "col" if s.col_kind else "none"

    @property
    def nbytes(self) -> int:
        """bytes of memory of its own"""
        return 0 if self._memory is None else self._memory.nbytes if isinstance(self._memory, (np.ndarray, DeviceArray)) else len(self._memory)

    def _part(self, name: str, kind: int):
        t = getattr(self.struct, name)
        if not kind or not t.dtype or (not t.data and 0 not in t.shape[:t.ndim]):
            return None
        shape, stride, dtype = t.shape[:t.ndim], t.stride[:t.ndim], numpy_of(t.dtype)
        if self.context.is_cuda:
            return DeviceArray(self.context, shape, t.dtype, pointer=t.data, owner=self, strides=stride)
        return host_view(t.data, shape, dtype, stride, self)

    @property
    def row(self):
        """codes of the row side"""
        return self._part("row", self.struct.row_kind)

    @property
    def col(self):
        """codes of the column side, stored [cols, rows]"""
        return self._part("col", self.struct.col_kind)

    @property
    def row_scale(self):
        """scales of the row side: value = code * scale"""
        return self._part("row_scale", self.struct.row_kind)

    @property
    def col_scale(self):
        """scales of the column side"""
        return self._part("col_scale", self.struct.col_kind)

    def dequantize(self, dtype="float32", side: str | None = None, *, out=None, stream: int | None = None):
        """the values, [rows, cols], from either side"""
        side = side or ("row" if self.struct.row_kind else "col")
        out = empty(self.context, self.shape, dtype, stream) if out is None else out
        capi.call_dequantize(self.context.handle, self.struct, _SIDE[side], out, stream)
        return out

    def requantize(self, side: str, *, stream: int | None = None) -> QTensor:
        """the other side, made of the values of the one that it holds"""
        which = _SIDE[side]
        other = capi.fp8_qtensor()
        role = next(r for r in _ROLES.values() if self._described_as(r, which, other))
        del role
        made = QTensor._placed(other, which, self.context, self.recipe, stream)
        capi.fp8_requantize(self.context.handle, self.recipe.handle, self.struct, made.struct, None, stream)
        return made

    def _described_as(self, role: int, which: int, other) -> bool:
        held = capi.fp8_qtensor()
        both = capi.FP8_SIDE_BOTH | capi.FP8_SIDE_COPY
        capi.fp8_recipe_describe(self.recipe.handle, self.context.handle, role, *self.shape, both, held)
        s = self.struct
        same = (held.row_kind, held.row.dtype) == (s.row_kind, s.row.dtype) if s.row_kind else (
            (held.col_kind, held.col.dtype) == (s.col_kind, s.col.dtype))
        if same:
            capi.fp8_recipe_describe(self.recipe.handle, self.context.handle, role, *self.shape, which | capi.FP8_SIDE_COPY, other)
        return same

    def slice(self, first: int, rows: int) -> QTensor:
        """a view of these rows"""
        s = capi.fp8_qtensor()
        capi.fp8_qtensor_slice(self.struct, first, rows, s)
        return QTensor(s, self.context, self.recipe, self._memory, self)

    def __repr__(self) -> str:
        s = self.struct
        sides = ", ".join(f"{n}={_KINDS.get(k, k)}" for n, k in (("row", s.row_kind), ("col", s.col_kind)) if k)
        return f"QTensor({s.rows} x {s.cols}, {sides}, {self.nbytes} bytes)"


def quantize(x, recipe: Recipe | str = "block", role: str = "activation", sides: str = "both", *, out: QTensor | None = None, amax=None,
             amax_col=None, amax_given: bool = False, stats=None, dbias=None, copy: bool = False, context: Context | None = None,
             stream: int | None = None) -> QTensor:
    """Quantizes a matrix (leading dimensions are rows).

    sides: "row", "col" or "both". amax, amax_col: F32 arrays of the scales' shapes, written, or read with amax_given.
    stats: U64[8], added to (see STATS). dbias: F32[cols], column sums. out: an earlier result of the same shape, written again.
    """
    context = context or default_context()
    recipe = recipe if type(recipe) is Recipe else as_recipe(recipe)
    if out is None and not (context.is_cuda or amax is not None or amax_col is not None or stats is not None or dbias is not None):
        made = _new_quantized(context.handle, recipe._handle, x, _ROLES[role], _SIDES[sides] | (capi.FP8_SIDE_COPY if copy else 0),
                              capi.FP8_AMAX_GIVEN if amax_given else 0)  # the usual call on the CPU, all in one
        return QTensor(made[0], context, recipe, made[1], x)
    if out is None:
        shape = getattr(x, "shape", ())
        rows, cols = shape if len(shape) == 2 else matrix_shape(x)
        out = QTensor.empty(recipe, role, rows, cols, sides, copy=copy, context=context, stream=stream)
    capi.call_quantize(context.handle, recipe.handle, 0, x, out.struct, _ROLES[role], amax, amax_col, stats, dbias,
                       capi.FP8_AMAX_GIVEN if amax_given else 0, stream)
    out._source = x
    return out


def amax(x, recipe: Recipe | str = "tensor", role: str = "activation", sides: str = "row", *, context: Context | None = None,
         stream: int | None = None):
    """The amaxes that quantize() would take of these sides: one F32 array, or two for "both" where the sides differ (recipe "row")."""
    context, recipe = context or default_context(), as_recipe(recipe)
    rows, cols = matrix_shape(x)
    q = capi.fp8_qtensor()
    capi.fp8_recipe_describe(recipe.handle, context.handle, _ROLES[role], rows, cols, _SIDES[sides], q)
    row = zeros(context, q.row_scale.shape[:q.row_scale.ndim], "f32", stream) if q.row_kind else None
    col = zeros(context, q.col_scale.shape[:q.col_scale.ndim], "f32", stream) if q.col_kind else None
    if row is not None and col is not None and q.row_kind in (capi.FP8_SCALING_TENSOR, capi.FP8_SCALING_128X128, capi.FP8_SCALING_32X32):
        col = None
    capi.call_quantize(context.handle, recipe.handle, 1, x, q, _ROLES[role], row, col, None, None, 0, stream)
    return row if col is None else col if row is None else (row, col)


def cast(x, dtype, *, scale=None, saturate: bool = True, out=None, context: Context | None = None, stream: int | None = None):
    """An elementwise conversion of x * scale (scale: F32[1]); FP8 saturates unless told otherwise."""
    context = context or default_context()
    shape = x.array.shape if hasattr(x, "array") else x.shape
    out = empty(context, shape, code_of(dtype), stream) if out is None else out
    capi.call_cast(context.handle, x, scale, int(saturate), out, stream)
    return out


def transpose(x, *, out=None, context: Context | None = None, stream: int | None = None):
    """The transpose of a matrix, in memory of its own."""
    context = context or default_context()
    if out is None:
        out = empty(context, x.shape[::-1], code_of(x.dtype), stream)
    capi.call_transpose(context.handle, x, out, stream)
    return out


def measure(x, q: QTensor, side: str = "row", *, stream: int | None = None) -> dict[str, float]:
    """How far q is from x: sums x.x, e.e, x.x', max|e| with e = x - x', and the signal-to-noise ratio in dB."""
    sums = zeros(q.context, (4,), "float64", stream)
    capi.call_measure(q.context.handle, x, q.struct, _SIDE[side], sums, stream)
    values = sums.numpy() if isinstance(sums, DeviceArray) else sums
    xx, ee, xy, worst = (float(v) for v in values)
    snr = float("inf") if ee == 0 else 10 * np.log10(xx / ee) if xx else float("-inf")
    return {"xx": xx, "ee": ee, "xy": xy, "max_error": worst, "snr_db": float(snr)}
