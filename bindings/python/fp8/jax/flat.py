# SPDX-License-Identifier: Apache-2.0
"""linear_flat: a linear whose vmap over x is one call on all rows."""
from __future__ import annotations

from functools import partial

import jax
from jax.custom_batching import custom_vmap

from ._ffi import DW, DX
from .linear import QWeight, _apply, _backward, _cotangents, _forward, _linear_fwd, _parts
from .ops import quantize


def linear_flat(x, w, bias=None, *, recipe=None, axis_name=None):
    """linear, whose vmap over x with one weight joins the batch to the rows: one product for y and one for dx, of all members.

    So y is linear(the batch) bit for bit, and what depends on the rows that are quantized together is the batch's: the one amax of
    recipe "tensor". dw and dbias are made member by member, equal to those of linear, and so is what is saved for them; jax.vmap of a
    gradient gives each its own, jax.grad of a vmap their sum. Where weights are batched too, vmap is the stack of single calls.
    """
    if isinstance(w, QWeight) and w.accumulate:
        raise ValueError("linear_flat: a slot that adds up has no place under vmap: take linear")
    return _apply(_linear_flat, x, w, bias, recipe, axis_name)


def _rows(call, *others):
    """call(x, *others) as a function whose vmap over x alone flattens; so does a vmap of that"""
    run = custom_vmap(call)

    @run.def_vmap
    def _(size, batched, x, *given):
        if any(jax.tree.leaves(batched[1:])):
            return _stacked(call, size, batched, x, *given), True
        y = _rows(call, *given)(x.reshape(size * x.shape[1], x.shape[2]), *given)
        return y.reshape(size, x.shape[1], y.shape[1]), True

    return run


def _stacked(call, size, batched, *given):
    axes = jax.tree.map(lambda b: 0 if b else None, tuple(batched))
    return jax.vmap(call, in_axes=axes, axis_size=size)(*given)


def _all(batched, tree, value=True):
    return jax.tree.map(lambda _: value, tree)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _linear_flat(static, present, x, codes, grad, bias):
    return _rows(lambda a, c, b: _forward(static, present, a, c, b, False)[0])(x, codes, bias)


def _fwd(static, present, x, codes, grad, bias):
    def both(x, codes, bias):
        y, (kept_x, saved, *_) = _linear_fwd(static, present, x, codes, None, bias)
        return y, (kept_x, saved)

    run = custom_vmap(both)

    @run.def_vmap
    def _(size, batched, x, codes, bias):
        if any(jax.tree.leaves(batched[1:])):
            out = _stacked(both, size, batched, x, codes, bias)
            return out, jax.tree.map(lambda _: True, out)
        y = jax.vmap(lambda a: _linear_flat(static, present, a, codes, None, bias))(x)
        shapes = jax.eval_shape(both, x[0], codes, bias)[1]

        def member(a):
            amax = static.reduced(a, "activation")
            q = quantize(a, static.recipe, "activation", "col", amax=amax or None)
            return q.col, q.col_scale

        kept = (None, jax.vmap(member)(x)) if shapes[1] else (x, ())
        return (y, kept), jax.tree.map(lambda _: True, (y, kept))

    y, (kept_x, saved) = run(x, codes, bias)
    _, _, col, col_scale = _parts(codes, present)
    return y, (kept_x, saved, col, col_scale)


def _bwd(static, present, residuals, dy):
    kept_x, saved, col, col_scale = residuals
    kept = list(saved) if saved else [kept_x]
    dx_of = _rows(lambda g, c: _backward(static, c, (), g, wanted=DX)[0])
    dw_of = lambda g, k: tuple(_backward(static, (None, None), k, g, wanted=DW))  # noqa: E731

    def both(g, c, k):
        return tuple(_backward(static, c, k, g))

    run = custom_vmap(both)

    @run.def_vmap
    def _(size, batched, g, c, k):
        if any(jax.tree.leaves(batched[1])):
            out = _stacked(both, size, batched, g, c, k)
        else:
            dx = jax.vmap(lambda a: dx_of(a, c))(g) if batched[0] else dx_of(g, c)
            out = (dx, *_stacked(dw_of, size, (batched[0], batched[2]), g, k))
            return out, (batched[0], *[True] * (len(out) - 1))
        return out, (True,) * len(out)

    return _cotangents(static, *run(dy, (col, col_scale), kept))


_linear_flat.defvjp(_fwd, _bwd)
