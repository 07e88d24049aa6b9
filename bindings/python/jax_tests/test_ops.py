# SPDX-License-Identifier: Apache-2.0
"""Every operation equals the C API's, bit for bit."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fp8
import fp8.jax as fj
from conftest import RECIPES


def bf16(rng, *shape):
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def host(a):
    return a.numpy() if isinstance(a, fp8.DeviceArray) else np.asarray(a)


def same(a, b):
    a, b = host(a), np.ascontiguousarray(host(b))
    np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


@pytest.mark.parametrize("role", ["activation", "weight", "gradient"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_quantize_and_dequantize(recipe, role, context, put, rng):
    x = bf16(rng, 96, 160)
    want = fp8.quantize(put(x), recipe, role, context=context)
    got = jax.jit(lambda a: fj.quantize(a, recipe, role))(x)
    for part in ("row", "row_scale", "col", "col_scale"):
        same(getattr(got, part), getattr(want, part))
    for side in ("row", "col"):
        same(jax.jit(lambda q, s=side: fj.dequantize(q, side=s))(got), want.dequantize(side=side))


@pytest.mark.parametrize("recipe", ["none", *RECIPES])
def test_gemm(recipe, context, put, rng):
    x, w, bias = bf16(rng, 64, 256), bf16(rng, 48, 256), rng.standard_normal(48, np.float32)
    want = fp8.gemm(fp8.quantize(put(x), recipe, context=context), fp8.quantize(put(w), recipe, "weight", context=context), bias=put(bias),
                    out_dtype="f32")
    run = jax.jit(lambda a, b, c: fj.gemm(fj.quantize(a, recipe), fj.quantize(b, recipe, "weight"), bias=c, dtype=jnp.float32))
    same(run(x, w, bias), want)


def test_amax_apart_equals_amax_inside(context, put, rng):
    x = bf16(rng, 64, 96)
    a = jax.jit(fj.amax)(x)
    assert float(a[0]) == np.abs(x.astype(np.float32)).max()
    same(fj.quantize(x, "tensor", amax=a).row, fj.quantize(x, "tensor").row)
    same(a, fp8.amax(put(x), context=context))
    row, col = fj.amax(x, "row", sides="both")
    given, own = fj.quantize(x, "row", amax=(row, col)), fj.quantize(x, "row")
    same(given.row, own.row)
    same(given.col, own.col)


def test_errors_carry_the_message(rng):
    with pytest.raises(fp8.ArgumentError, match="brick"):
        fj.quantize(bf16(rng, 16, 16), "brick")
    with pytest.raises(ValueError, match="quantized with"):
        fj.linear(bf16(rng, 16, 32), fj.quantize_weight(bf16(rng, 16, 32), "mx"), recipe="block")
    for shape in [(15,), (16, 1), (1, 16), ()]:  # while tracing, as a wrong x is
        with pytest.raises(ValueError, match=r"bias has shape .* \[16\] is wanted"):
            jax.eval_shape(fj.linear, bf16(rng, 4, 32), bf16(rng, 16, 32), np.zeros(shape, np.float32))
    with pytest.raises(Exception, match="none"):
        fj.gemm(fj.quantize(bf16(rng, 16, 32), "mx", sides="row"), fj.quantize(bf16(rng, 16, 32), "mx", sides="row"), "col", "row")


def test_wrong_arguments_are_named(rng):
    x, w = bf16(rng, 16, 32), bf16(rng, 8, 32)
    q, qw = fj.quantize(x), fj.quantize_weight(w)
    plan = fj.param_plan("none", [(4, 4)], world=2)
    for kind, text, call in (
            (fp8.ArgumentError, "sides is 'rows', known are row, col, both", lambda: fj.quantize_weight(w, "block", "rows")),
            (fp8.ArgumentError, "role is 'weights', known are activation", lambda: fj.quantize(x, "block", "weights")),
            (fp8.ArgumentError, "sides is 'x'", lambda: fj.amax(x, sides="x")),
            (fp8.ArgumentError, "sides is 'x'", lambda: fj.param_assemble(plan, None, None, "x")),
            (fp8.ArgumentError, "side is 'x', known are row, col$", lambda: fj.dequantize(fj.quantize(x, "none"), side="x")),
            (fp8.ArgumentError, "a_side is 'x'", lambda: fj.gemm(q, q, "x")),
            (fp8.ArgumentError, "b_side is 'both'", lambda: fj.gemm(q, q, "row", "both")),
            (TypeError, r"w must be a quantized weight \(quantize_weight\(w\)\) or an array \[out, in\], not NoneType", lambda: fj.linear(x, None)),
            (TypeError, "w must be an array .*not list", lambda: fj.quantize_weight([[1.0]])),
            (TypeError, "x must be an array .*not NoneType", lambda: fj.linear(None, qw)),
            (TypeError, "x must be an array, not list", lambda: fj.quantize([[1.0]])),
            (TypeError, "bias must be an array .*not float", lambda: fj.linear(x, qw, 1.0)),
            (ValueError, r"x has shape \(\), .*\[\.\.\., 32\] is wanted", lambda: fj.linear(np.float32(1), qw)),
            (ValueError, "world is 0, at least 1", lambda: fj.param_plan("block", [(4, 4)], world=0)),
            (ValueError, "world . 1 = 3 are needed", lambda: fj.param_plan("block", [(4, 4)], world=2, cuts=[[0, 16]])),
            (ValueError, "shapes is empty", lambda: fj.param_plan("block", [], world=2))):
        with pytest.raises(kind, match=text):
            call()


@pytest.mark.parametrize("recipe", ["none", *RECIPES])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_linear_equals_c(recipe, dtype, context, put, rng):
    x, w, dy = bf16(rng, 2, 40, 256), rng.standard_normal((64, 256), np.float32), bf16(rng, 2, 40, 64)
    bias = rng.standard_normal(64, np.float32)
    if dtype == "f32":
        x, dy = x.astype(np.float32), dy.astype(np.float32)
    c = fp8.Linear(256, 64, recipe, input_dtype=dtype, output_dtype=dtype, context=context)
    qw = c.quantize_weight(put(w))
    plain = recipe == "none"  # nothing is saved then: backward reads x
    x_there = put(x)
    y, saved = c.forward(x_there, qw, put(bias), save=not plain)
    want = c.backward(put(dy), qw, saved, x=x_there if plain else None, dbias=True)

    def loss(params, a):
        out = fj.linear(a, params["w"], params["b"])
        return (out.astype(jnp.float32) * dy.astype(np.float32)).sum(), out

    params = {"w": fj.quantize_weight(w, recipe), "b": jnp.asarray(bias)}
    (_, out), (grads, dx) = jax.jit(lambda p, a: _value_and_grads(loss, p, a))(params, x)
    same(out, y)
    same(dx, want.dx)
    same(grads["w"], want.dw)
    same(grads["b"], want.dbias)


def _value_and_grads(loss, params, a):
    (value, out), grads = fj.value_and_grad(loss, has_aux=True)(params, a)
    dx = jax.grad(lambda v: loss(params, v)[0])(a)
    return (value, out), (grads, dx)


def test_dropin_weight(rng):
    """an array as weight: the same product and gradient as its QWeight, in its own dtype"""
    x, w = bf16(rng, 32, 128), bf16(rng, 64, 128)
    q = fj.quantize_weight(w, "block")
    same(fj.linear(x, w, recipe="block"), fj.linear(x, q))
    dw = jax.grad(lambda v: fj.linear(x, v, recipe="block").astype(jnp.float32).sum())(jnp.asarray(w))
    dq = fj.value_and_grad(lambda p: fj.linear(x, p).astype(jnp.float32).sum())(q)[1]
    assert dw.dtype == jnp.bfloat16 and dq.dtype == jnp.float32
    same(dw, np.asarray(dq).astype(ml_dtypes.bfloat16))


def test_arrays_are_not_copied(context):
    """a JAX array reaches the library by its own pointer"""
    x = jnp.arange(4096, dtype=jnp.float32).reshape(64, 64)
    t = fp8.capi.fp8_tensor()
    fp8.capi.tensor_of(x, 0, t)
    assert t.data == x.unsafe_buffer_pointer()
    b = x.astype(jnp.bfloat16)
    q = fp8.quantize(b, "block", context=context)
    same(q.row, fj.quantize(b, "block").row)
