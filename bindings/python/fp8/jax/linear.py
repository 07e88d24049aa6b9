# SPDX-License-Identifier: Apache-2.0
"""linear: y = x . w^T (+ bias) in FP8, forward and backward, with weights that are quantized once an optimizer step."""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .. import capi
from . import _ffi
from ._ffi import ACCUMULATE, AMAX_GIVEN, BIAS, DBIAS, DW, DX, FROM_X, SAVE, call, describe, linear_bytes, recipe_text, want_array
from .ops import amax as amax_of
from .ops import quantize


@partial(jax.tree_util.register_dataclass, data_fields=["row", "row_scale", "col", "col_scale", "grad"], meta_fields=["recipe", "shape", "accumulate"])
@dataclass(frozen=True)
class QWeight:
    """A quantized weight [out, in]: a pytree of ordinary arrays, so sharding, donation and checkpoints just work.

    row, row_scale serve forward, col ([in, out]), col_scale serve dx; a side may be None. grad is an F32 [out, in] slot: its value plays
    no part, its gradient is the weight's. No gradient reaches the codes. With accumulating(), the slot's value is the sum so far and
    its "gradient" is the new sum, in the same memory: micro-batches in a scan.
    """
    row: Any
    row_scale: Any
    col: Any
    col_scale: Any
    grad: Any
    recipe: str
    shape: tuple[int, int]
    accumulate: bool = False

    def with_grad(self, grad) -> QWeight:
        """the same weight with another slot"""
        return dataclasses.replace(self, grad=grad)

    def accumulating(self, on: bool = True) -> QWeight:
        """the same weight, whose slot adds up"""
        return dataclasses.replace(self, accumulate=on)


def quantize_weight(w, recipe="block", sides: str = "both", *, amax=None) -> QWeight:
    """w [out, in], BF16 or F32 (rounded to BF16 first unless the recipe says otherwise), quantized; with a slot of zeroes."""
    want_array("w", w, "an array [out, in]")
    if w.ndim != 2:
        raise ValueError(f"a weight [out, in] is wanted, this one has shape {w.shape}")
    q = quantize(lax.stop_gradient(w), recipe, "weight", sides, amax=amax)
    return QWeight(q.row, q.row_scale, q.col, q.col_scale, jnp.zeros(w.shape, jnp.float32), q.recipe, tuple(w.shape))


def _is_weight(x) -> bool:
    return isinstance(x, QWeight)


def slots(tree):
    """the F32 slots of a tree's QWeights, other leaves as they are: what to differentiate by"""
    return jax.tree.map(lambda w: w.grad if _is_weight(w) else w, tree, is_leaf=_is_weight)


def attach(tree, values):
    """the tree with these slots and leaves: loss(attach(params, s)) is differentiated by s"""
    return jax.tree.map(lambda w, v: w.with_grad(v) if _is_weight(w) else v, tree, values, is_leaf=_is_weight)


def value_and_grad(fun, has_aux: bool = False):
    """jax.value_and_grad by the first argument, a tree with QWeights: its gradients have an F32 array for each QWeight."""

    def run(params, *args, **kwargs):
        return jax.value_and_grad(lambda s: fun(attach(params, s), *args, **kwargs), has_aux=has_aux)(slots(params))

    return run


def linear(x, w, bias=None, *, recipe=None, axis_name=None):
    """y [..., out] = x [..., in] . w^T (+ bias), w [out, in].

    w: an array, quantized here in every call (a drop-in; its gradient has its dtype), or a QWeight. recipe: a text or Recipe; a QWeight
    brings its own. axis_name: a mesh axis or several over which amax of x and of dy are reduced with lax.pmax (recipe "tensor").
    Saved for backward: the FP8 column side of x, where the recipe's wgrad runs in FP8; else x.
    """
    return _apply(_linear, x, w, bias, recipe, axis_name)


def _apply(function, x, w, bias, recipe, axis_name):
    want_array("x", x, "an array [..., in]")
    if isinstance(w, QWeight):
        if recipe is not None and recipe_text(recipe) != w.recipe:
            raise ValueError(f"linear: the recipe is {recipe_text(recipe)}, the weight was quantized with {w.recipe}")
        out, text, accumulate = w.shape[0], w.recipe, w.accumulate
        grad, weight = w.grad, w
    else:
        want_array("w", w, "a quantized weight (quantize_weight(w)) or an array [out, in]")
        if w.ndim != 2:
            raise ValueError(f"linear: a weight [out, in] is wanted, this one has shape {w.shape}")
        out, text, accumulate = w.shape[0], recipe_text("block" if recipe is None else recipe), False
        weight, grad = quantize_weight(w, text), w
    features = w.shape[1]
    if x.ndim < 1 or x.shape[-1] != features:
        raise ValueError(f"linear: x has shape {x.shape}, the weight {features} features: [..., {features}] is wanted")
    if bias is not None:
        want_array("bias", bias, "an array [out]")
    if bias is not None and bias.shape != (out,):
        raise ValueError(f"linear: bias has shape {bias.shape}, the weight {out} outputs: [{out}] is wanted")
    static = _Static(text, out, features, axis_name, accumulate, bias is not None, x.dtype, grad.dtype, None if bias is None else bias.dtype)
    codes = tuple(lax.stop_gradient(a) for a in (weight.row, weight.row_scale, weight.col, weight.col_scale) if a is not None)
    present = tuple(a is not None for a in (weight.row, weight.row_scale, weight.col, weight.col_scale))
    y = function(static, present, x.reshape(-1, features), codes, grad, bias)
    return y.reshape(*x.shape[:-1], out)


@dataclass(frozen=True)
class _Static:
    recipe: str
    out: int
    features: int
    axis_name: Any
    accumulate: bool
    bias: bool
    dtype: Any
    grad_dtype: Any
    bias_dtype: Any

    def scratch(self, rows: int) -> int:
        """bytes"""
        return linear_bytes(self.recipe, rows, self.features, self.out, self.dtype, self.dtype)

    def per_tensor(self, role: str) -> bool:
        """whether the role has one amax, to be reduced over the axis"""
        return self.axis_name is not None and any(_ffi.kind(self.recipe, role, s) == capi.FP8_SCALING_TENSOR for s in ("row", "col"))

    def reduced(self, x, role: str) -> list:
        """[amax of x over the axis], or []"""
        if not self.per_tensor(role):
            return []
        side = "row" if _ffi.kind(self.recipe, role, "row") == capi.FP8_SCALING_TENSOR else "col"
        return [lax.pmax(amax_of(x, self.recipe, role, side), self.axis_name)]


def _parts(codes, present):
    it = iter(codes)
    return [next(it) if p else None for p in present]


def _forward(static: _Static, present, x, codes, bias, save: bool):
    row, row_scale, _, _ = _parts(codes, present)
    if row is None:
        raise ValueError("linear: forward needs the weight's row side")
    rows = x.shape[0]
    saved = describe(static.recipe, "activation", rows, static.features, "col") if save else None
    amax = static.reduced(x, "activation")
    operands = [x, row, *([] if row_scale is None else [row_scale]), *([bias] if static.bias else []), *amax]
    mask = (BIAS if static.bias else 0) | (AMAX_GIVEN if amax else 0) | (SAVE if saved else 0)
    y, *kept = call("linear_forward", [jax.ShapeDtypeStruct((rows, static.out), static.dtype), *_ffi.structs(saved)], operands,
                    static.scratch(rows), recipe=static.recipe, out_features=static.out, mask=mask)
    return y, tuple(kept)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _linear(static, present, x, codes, grad, bias):
    return _forward(static, present, x, codes, bias, False)[0]


def _linear_fwd(static, present, x, codes, grad, bias):
    y, saved = _forward(static, present, x, codes, bias, True)
    _, _, col, col_scale = _parts(codes, present)
    return y, (x if not saved else None, saved, col, col_scale, grad if static.accumulate else None)


def _backward(static, codes, kept, dy, total=None, wanted=DX | DW):
    """[dx], [dw, [dbias]]: codes (col, col_scale) serve dx; kept, the saved parts or x, dw; dw is added to total"""
    col, col_scale = codes
    rows = dy.shape[0]
    amax = static.reduced(dy, "gradient")
    from_x = describe(static.recipe, "activation", rows, static.features, "col") is None
    operands, results = [dy], []
    mask = wanted | (AMAX_GIVEN if amax else 0)
    if wanted & DX:
        if col is None:
            raise ValueError("linear: dx needs the weight's column side: quantize_weight(w, recipe, sides='both')")
        operands += [col, *([] if col_scale is None else [col_scale])]
        results.append(jax.ShapeDtypeStruct((rows, static.features), static.dtype))
    if wanted & DW:
        operands += kept
        results.append(jax.ShapeDtypeStruct((static.out, static.features), jnp.float32))
        mask |= (FROM_X if from_x else 0) | (DBIAS if static.bias else 0)
        if static.bias:
            results.append(jax.ShapeDtypeStruct((static.out,), jnp.float32))
    operands += amax
    aliases = None
    if total is not None:
        aliases = {len(operands): 1}
        operands.append(total)
        mask |= ACCUMULATE
    return call("linear_backward", results, operands, static.scratch(rows), aliases, recipe=static.recipe, in_features=static.features,
                input_dtype=_ffi.code_of(static.dtype), mask=mask)


def _cotangents(static, dx, dw, dbias=None):
    return dx, None, dw.astype(static.grad_dtype), None if dbias is None else dbias.astype(static.bias_dtype)


def _linear_bwd(static, present, residuals, dy):
    x, saved, col, col_scale, total = residuals
    return _cotangents(static, *_backward(static, (col, col_scale), list(saved) if saved else [x], dy, total))


_linear.defvjp(_linear_fwd, _linear_bwd)
