# SPDX-License-Identifier: Apache-2.0
"""linear_flat: its vmap is one call on all rows."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fp8.jax as fj
from test_ops import bf16, same


@pytest.mark.parametrize("recipe", ["none", "tensor", "block", "mx"])
def test_linear_flat(recipe, rng):
    """vmap of linear_flat: y, dx are those of linear on all rows; weight gradients those of single calls"""
    q, bias, x = fj.quantize_weight(rng.standard_normal((16, 64), np.float32), recipe), rng.standard_normal(16, np.float32), bf16(rng, 3, 32, 64)
    square = lambda y: (y.astype(jnp.float32) ** 2).sum()  # noqa: E731
    flat = lambda p, a: fj.linear_flat(a, *p)  # noqa: E731
    over = jax.vmap(flat, in_axes=(None, 0))
    same(jax.jit(over)((q, bias), x), fj.linear(x, q, bias))
    same(jax.vmap(over, in_axes=(None, 0))((q, bias), x.reshape(3, 2, 16, 64)), fj.linear(x, q, bias))
    same(fj.linear_flat(x, q, bias), fj.linear(x, q, bias))
    dx = jax.jit(jax.grad(lambda a: square(jax.vmap(jax.checkpoint(partial(flat, (q, bias))))(a))))(x)
    same(dx, jax.grad(lambda a: square(fj.linear(a, q, bias)))(x))
    each = lambda f: jax.jit(jax.vmap(fj.value_and_grad(lambda p, a: square(f(a, *p))), in_axes=(None, 0)))((q, bias), x)[1]  # noqa: E731
    members = [fj.value_and_grad(lambda p, a: square(fj.linear(a, *p)))((q, bias), a)[1] for a in x]
    if recipe != "tensor":  # whose y, and so dy, has the amax of all rows
        jax.tree.map(same, each(fj.linear_flat), each(fj.linear))
        jax.tree.map(lambda got, *parts: same(got, np.stack(parts)), each(fj.linear_flat), *members)
    together = jax.jit(fj.value_and_grad(lambda p, a: square(over(p, a))))
    dw, db = together((q, bias), x)[1]
    want = [np.sum([np.asarray(m[i], np.float64) for m in members], 0) for i in (0, 1)]
    worst = 0.05 if recipe == "tensor" else 1e-5
    assert np.abs(dw - want[0]).max() <= worst * np.abs(want[0]).max() and np.abs(db - want[1]).max() <= worst * np.abs(want[1]).max()
    calls = str(jax.jit(over).lower((q, bias), x).as_text()).count("custom_call @fp8_linear_forward")
    assert calls == 1 and "while" not in jax.jit(over).lower((q, bias), x).as_text()


def test_linear_flat_with_a_weight_a_member(rng):
    ws, x = rng.standard_normal((3, 16, 64), np.float32), bf16(rng, 3, 32, 64)
    run = lambda f: jax.vmap(lambda a, w: f(a, w, recipe="block"))(x, ws)  # noqa: E731
    same(run(fj.linear_flat), run(fj.linear))
    with pytest.raises(ValueError, match="take linear"):
        fj.linear_flat(x, fj.quantize_weight(ws[0]).accumulating())
