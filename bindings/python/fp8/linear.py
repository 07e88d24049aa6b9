# SPDX-License-Identifier: Apache-2.0
"""Linear layers: configuration and plans. Weights and activations are the caller's."""
from __future__ import annotations

from typing import Any, NamedTuple

from . import capi
from ._arrays import empty
from ._dtypes import code_of
from ._errors import ArgumentError
from .context import Context, default_context
from .quantize import _ROLES, _SIDES, QTensor, quantize
from .recipe import Recipe, as_recipe


def _want_array(name: str, x) -> None:
    if not isinstance(x, QTensor) and not hasattr(x, "shape") and not hasattr(x, "_fp8_view"):
        raise TypeError(f"{name} must be an array (numpy, or anything with __dlpack__) or a QTensor, not {type(x).__name__}")


def _want_weight(w) -> None:
    if not isinstance(w, QTensor):
        raise TypeError(f"w must be a QTensor, not {type(w).__name__}: use quantize_weight(w)")


def _hinted(error: ArgumentError) -> ArgumentError:
    """the same, with the option that decides the dtype of x and dx, or of y and dy"""
    text = str(error)
    for names, option in (("x", "dx"), "input_dtype"), (("y", "dy"), "output_dtype"):
        if any(f": {name}.dtype is " in text for name in names):
            return ArgumentError(f"{text}: Linear(..., {option}=) decides", error.status, error.domain, error.native_code)
    return error


class Gradients(NamedTuple):
    """What backward() returns; None for what was not asked."""
    dx: Any
    dw: Any
    dbias: Any


class Linear:
    """y = x . w^T (+ bias) in FP8, forward and backward.

    quantize_weight() once an optimizer step; forward() returns (y, saved), backward() takes what was saved.
    """

    def __init__(self, in_features: int, out_features: int, recipe: Recipe | str = "block", *, input_dtype="bfloat16",
                 output_dtype="bfloat16", context: Context | None = None):
        self.in_features, self.out_features = in_features, out_features
        self.recipe, self.context = as_recipe(recipe), context or default_context()
        self.input_dtype, self.output_dtype = code_of(input_dtype), code_of(output_dtype)
        config = capi.fp8_linear_config()
        config.in_features, config.out_features, config.recipe = in_features, out_features, self.recipe.handle
        config.input_dtype, config.output_dtype = self.input_dtype, self.output_dtype
        self._handle = capi.fp8_linear_create(self.context.handle, config)

    @property
    def handle(self):
        """the low-level handle"""
        return self._handle

    def quantize_weight(self, w, sides: str = "both", *, out: QTensor | None = None, stream: int | None = None) -> QTensor:
        """the quantized weight, w [out, in]"""
        shape = tuple(getattr(getattr(w, "array", w), "shape", ()))
        if not shape:
            raise TypeError(f"w must be an array [out_features, in_features], not {type(w).__name__}")
        if shape != (self.out_features, self.in_features):
            raise ArgumentError(f"quantize_weight: w is {[int(n) for n in shape]}, this linear wants [out_features {self.out_features}, "
                                f"in_features {self.in_features}]", capi.FP8_ERR_ARGUMENT)
        copy = code_of(w.dtype) == capi.FP8_DTYPE_F32 if hasattr(w, "dtype") and not hasattr(w, "_fp8_view") else False
        return quantize(w, self.recipe, "weight", sides, out=out, copy=copy, context=self.context, stream=stream)

    def describe(self, role: str, rows: int, sides: str):
        """the low-level description of one operand"""
        q = capi.fp8_qtensor()
        capi.fp8_linear_describe(self._handle, _ROLES[role], rows, _SIDES[sides], q)
        return q

    def workspace_bytes(self, rows: int) -> int:
        """scratch that is enough for each call of up to these rows"""
        return capi.fp8_linear_workspace(self._handle, rows, 0)

    def prepare(self, rows: int) -> None:
        """builds plans and loads kernels: before capture or timing"""
        capi.fp8_linear_prepare(self._handle, rows, 0)

    def forward(self, x, w: QTensor, bias=None, *, save: bool = True, out=None, amax=None, amax_given: bool = False, stats=None,
                max_sms: int = 0, stream: int | None = None):
        """(y, saved). x: an array [..., in] or a QTensor; saved: for backward(), None without `save` (inference)."""
        _want_array("x", x)
        _want_weight(w)
        saved = None
        if isinstance(x, QTensor):
            rows, lead, array, qx = x.shape[0], (x.shape[0],), None, x
            saved = x if save else None
            saved_struct = None
        else:
            lead = tuple(x.array.shape[:-1]) if hasattr(x, "array") else tuple(x.shape[:-1])
            rows = 1
            for n in lead:
                rows *= n
            array, qx, saved_struct = x, None, None
            if save:
                saved = QTensor._placed(self.describe("activation", rows, "col"), capi.FP8_SIDE_COL, self.context, self.recipe, stream)
                saved._source = x
                saved_struct = saved.struct
        y = empty(self.context, (*lead, self.out_features), self.output_dtype, stream) if out is None else out
        try:
            capi.call_forward(self.context.handle, self._handle, array, qx.struct if qx else None, w.struct, bias, y, saved_struct, amax, stats,
                              capi.FP8_LINEAR_AMAX_GIVEN if amax_given else 0, max_sms, stream)
        except ArgumentError as error:
            raise _hinted(error) from None
        return y, saved

    def backward(self, dy, w: QTensor | None = None, saved: QTensor | None = None, *, x=None, dx=True, dw=True, dbias=False,
                 dw_dtype="float32", accumulate_dw: bool = False, amax=None, amax_given: bool = False, stats=None, max_sms: int = 0,
                 stream: int | None = None) -> Gradients:
        """Gradients(dx, dw, dbias). dx, dw, dbias: True to make it, an array to write it there, False to leave it out."""
        _want_array("dy", dy)
        if w is not None:
            _want_weight(w)
        lead = tuple(dy.array.shape[:-1]) if hasattr(dy, "array") else (dy.shape[0],) if isinstance(dy, QTensor) else tuple(dy.shape[:-1])

        def output(wanted, shape, dtype):
            if wanted is True:
                return empty(self.context, shape, dtype, stream)
            return None if wanted is False else wanted

        dx = output(dx if w is not None else False, (*lead, self.in_features), self.input_dtype)
        dw = output(dw if saved is not None or x is not None else False, (self.out_features, self.in_features), dw_dtype)
        dbias = output(dbias, (self.out_features,), "float32")
        flags = (capi.FP8_LINEAR_ACCUMULATE_DW if accumulate_dw else 0) | (capi.FP8_LINEAR_AMAX_GIVEN if amax_given else 0)
        quantized = isinstance(dy, QTensor)
        try:
            capi.call_backward(self.context.handle, self._handle, None if quantized else dy, dy.struct if quantized else None,
                               w.struct if w is not None and dx is not None else None, saved.struct if saved is not None and dw is not None else None,
                               x, dx, dw, dbias, None, amax, stats, flags, max_sms, stream)
        except ArgumentError as error:
            raise _hinted(error) from None
        return Gradients(dx, dw, dbias)

    def __repr__(self) -> str:
        return f"Linear({self.in_features}, {self.out_features}, {str(self.recipe)!r})"
