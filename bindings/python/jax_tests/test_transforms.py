# SPDX-License-Identifier: Apache-2.0
"""linear under JAX's transformations."""
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import fp8.jax as fj
from conftest import RECIPES
from test_ops import bf16, same


def loss_of(params, x):
    h = jax.nn.relu(fj.linear(x, params["a"], params["bias"], axis_name=params.get("axis")))
    return (fj.linear(h, params["b"]).astype(jnp.float32) ** 2).mean()


def make(rng, recipe):
    a, b = rng.standard_normal((128, 64), np.float32), rng.standard_normal((32, 128), np.float32)
    return {"a": fj.quantize_weight(a, recipe), "b": fj.quantize_weight(b, recipe), "bias": jnp.zeros(128, jnp.float32)}


@pytest.mark.parametrize("recipe", ["none", "block"])
def test_remat_gives_the_same_gradients(recipe, rng):
    params, x = make(rng, recipe), bf16(rng, 32, 64)
    plain = jax.jit(fj.value_and_grad(loss_of))(params, x)
    again = jax.jit(fj.value_and_grad(jax.checkpoint(loss_of)))(params, x)
    jax.tree.map(same, plain, again)


def test_what_is_saved_is_fp8(rng):
    """backward keeps the FP8 column side of x, not BF16 x"""
    w, x = fj.quantize_weight(rng.standard_normal((128, 256), np.float32), "block"), bf16(rng, 64, 256)
    _, pullback = jax.vjp(lambda a: fj.linear(a, w), x)
    kept = [a for a in jax.tree.leaves(pullback) if a.shape in ((64, 256), (256, 64))]
    assert [a.dtype for a in kept] == [jnp.float8_e4m3fn]


def test_no_fp8_cotangent(rng):
    """only the F32 slot of a weight receives a gradient"""
    params, x = make(rng, "mx"), bf16(rng, 32, 64)
    _, grads = fj.value_and_grad(loss_of)(params, x)
    assert {a.dtype for a in jax.tree.leaves(grads)} == {jnp.dtype(jnp.float32)}
    assert grads["a"].shape == (128, 64) and float(jnp.abs(grads["a"]).max()) > 0
    jaxpr = str(jax.make_jaxpr(lambda s: jax.grad(lambda t: loss_of(fj.attach(params, t), x))(s))(fj.slots(params)))
    assert "add_any:f8" not in jaxpr.replace(" ", "")


def test_scan_over_micro_batches_accumulates_in_f32(rng):
    """the weight is quantized once; the slot adds up, in the same memory"""
    w, xs = rng.standard_normal((64, 128), np.float32), bf16(rng, 4, 32, 128)
    q = fj.quantize_weight(w, "block")
    loss = lambda p, x: (fj.linear(x, p).astype(jnp.float32) ** 2).sum()  # noqa: E731

    @jax.jit
    def summed(weight, batches):
        return lax.scan(lambda total, x: (total + fj.value_and_grad(loss)(weight, x)[1], None), jnp.zeros((64, 128)), batches)[0]

    @jax.jit
    def in_place(weight, batches):
        return lax.scan(lambda total, x: (fj.value_and_grad(loss)(weight.accumulating().with_grad(total), x)[1], None),
                        jnp.zeros((64, 128)), batches)[0]

    want = sum(np.asarray(fj.value_and_grad(loss)(q, x)[1], np.float64) for x in xs)
    np.testing.assert_allclose(summed(q, xs), want, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(in_place(q, xs), want, rtol=1e-5, atol=1e-3)
    text = jax.jit(lambda t, x: fj.value_and_grad(loss)(q.accumulating().with_grad(t), x)[1]).lower(jnp.zeros((64, 128)), xs[0]).as_text()
    assert "output_operand_alias" in text


@pytest.mark.parametrize("recipe", ["none", "block"])
def test_vmap_equals_the_stack(recipe, rng):
    params, xs = make(rng, recipe), bf16(rng, 3, 32, 64)
    got = jax.jit(jax.vmap(fj.value_and_grad(loss_of), in_axes=(None, 0)))(params, xs)
    one = jax.jit(fj.value_and_grad(loss_of))
    want = jax.tree.map(lambda *a: jnp.stack(a), *[one(params, x) for x in xs])
    jax.tree.map(same, got[1], want[1])
    ws = rng.standard_normal((3, 32, 64), np.float32)
    batched = jax.jit(jax.vmap(lambda w, x: fj.linear(x, w, recipe=recipe)))(ws, xs)
    same(batched, jnp.stack([fj.linear(x, w, recipe=recipe) for w, x in zip(ws, xs)]))


def mesh():
    if len(jax.devices()) < 4:
        pytest.skip("it needs 4 devices")
    return Mesh(np.array(jax.devices()[:4]), ("data",))


@pytest.mark.parametrize("recipe", ["tensor", "row", "block"])
def test_shard_map_equals_one_device(recipe, rng):
    """data parallel over 4 devices: with amax reduced, y and dx are bit for bit those of one device"""
    w, x, dy = rng.standard_normal((64, 128), np.float32), bf16(rng, 128, 128), bf16(rng, 128, 64)
    x[100] *= 30  # the amax lies on one rank
    q = fj.quantize_weight(w, recipe)
    axis = "data" if recipe == "tensor" else None

    def step(weight, a, g, axis_name=None):
        y, pull = jax.vjp(lambda v: fj.linear(v, weight, axis_name=axis_name), a)
        return y, pull(g)[0]

    spread = jax.jit(jax.shard_map(partial(step, axis_name=axis), mesh=mesh(), in_specs=(P(), P("data"), P("data")), out_specs=P("data"),
                                   check_vma=False))
    for got, want in zip(spread(q, x, dy), jax.jit(step)(q, x, dy)):
        same(got, want)


def test_without_the_reduction_tensor_scales_differ(rng):
    """plants the fault that axis_name is for"""
    w, x = rng.standard_normal((64, 128), np.float32), bf16(rng, 128, 128)
    x[100] *= 30
    q = fj.quantize_weight(w, "tensor")
    spread = jax.shard_map(lambda p, a: fj.linear(a, p), mesh=mesh(), in_specs=(P(), P("data")), out_specs=P("data"), check_vma=False)
    assert (np.asarray(jax.jit(spread)(q, x)).view(np.uint16) != np.asarray(fj.linear(x, q)).view(np.uint16)).any()


def test_weights_are_ordinary_pytrees(rng):
    w = fj.quantize_weight(rng.standard_normal((64, 128), np.float32), "mx")
    replicated = jax.device_put(w, NamedSharding(mesh(), P()))
    assert isinstance(replicated, fj.QWeight) and replicated.row.sharding.is_fully_replicated
    leaves, tree = jax.tree.flatten(w)
    back = jax.tree.unflatten(tree, [np.asarray(a) for a in leaves])
    assert back.recipe == w.recipe and {str(a.dtype) for a in leaves} == {"float8_e4m3fn", "float8_e8m0fnu", "float32"}
    donated = jax.jit(lambda v: v, donate_argnums=0)(w)
    assert donated.shape == (64, 128)


def test_export(rng):
    params, x = make(rng, "block"), bf16(rng, 32, 64)
    f = jax.jit(lambda s, a: jax.grad(lambda t: loss_of(fj.attach(params, t), a))(s))
    exported = jax.export.export(f, disabled_checks=fj.custom_calls())(fj.slots(params), x)
    pytest.importorskip("flatbuffers")
    again = jax.export.deserialize(exported.serialize())
    jax.tree.map(same, again.call(fj.slots(params), x), f(fj.slots(params), x))


def test_a_sharded_rank_of_masters_gives_the_whole_weight(rng):
    world = 4
    for recipe in ("none", *RECIPES):
        shapes = [(64, 96), (32, 128)]
        plan = fj.param_plan(recipe, shapes, world)
        masters = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        shards = [plan.shards(m, i) for i, m in enumerate(masters)]

        def step(*mine):
            rank, mine = lax.axis_index("data"), [m[0] for m in mine]
            amax = fj.param_amax(plan, rank, mine)
            amax = lax.pmax(amax, "data") if amax.size else amax
            gathered = lax.all_gather(fj.param_cast(plan, rank, amax, mine), "data", tiled=True)
            return [[a for a in (q.row, q.row_scale, q.col, q.col_scale) if a is not None] for q in fj.param_assemble(plan, gathered, amax)]

        got = jax.jit(jax.shard_map(step, mesh=mesh(), in_specs=P("data"), out_specs=P(), check_vma=False))(*shards)
        for m, parts in zip(masters, got):
            q = fj.quantize_weight(m, recipe)
            want = [a for a in (q.row, q.row_scale, q.col, q.col_scale) if a is not None]
            for g, v in zip(parts, want):
                same(g, v)


CACHED = """
import sys
import jax
import numpy as np

hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name == "/jax/compilation_cache/cache_hits" else None)
for name, value in {"jax_compilation_cache_dir": sys.argv[1], "jax_persistent_cache_min_compile_time_secs": 0,
                    "jax_persistent_cache_min_entry_size_bytes": -1}.items():
    jax.config.update(name, value)
import fp8.jax as fj

w = np.linspace(-1, 1, 128 * 64, dtype=np.float32).reshape(128, 64)
x = np.linspace(1, -2, 32 * 64, dtype=np.float32).reshape(32, 64)
weight = fj.quantize_weight(w, "block")
del hits[:]
(value, grad) = jax.jit(fj.value_and_grad(lambda p, a: (fj.linear(a, p) ** 2).sum()))(weight, x)
print(len(hits), float(value).hex(), np.asarray(grad, np.float64).sum().hex(), fj.QWeight.__module__)
"""


def test_persistent_cache_serves_a_second_process(tmp_path):
    """the cached executable has no pointer of the process that compiled it: a hit, and the same numbers"""
    run = lambda: subprocess.run([sys.executable, "-c", CACHED, str(tmp_path)], check=True, capture_output=True, text=True)  # noqa: E731
    (first, *numbers), (second, *again) = run().stdout.split(), run().stdout.split()
    assert first == "0" and int(second) > 0 and numbers == again


def test_flax_layers_in_a_few_lines(rng):
    """the layers of the documentation"""
    linen, nnx = pytest.importorskip("flax.linen"), pytest.importorskip("flax.nnx")

    class Dense(linen.Module):
        features: int
        recipe: str = "block"

        @linen.compact
        def __call__(self, x):
            w = self.param("kernel", linen.initializers.lecun_normal(), (self.features, x.shape[-1]))
            return fj.linear(x, w, self.param("bias", linen.initializers.zeros, (self.features,)), recipe=self.recipe)

    class NnxDense(nnx.Module):
        def __init__(self, features_in, features, *, recipe="block", rngs):
            self.kernel = nnx.Param(jax.random.normal(rngs.params(), (features, features_in)) * features_in**-0.5)
            self.recipe = recipe

        def __call__(self, x):
            return fj.linear(x, self.kernel[...], recipe=self.recipe)

    x = bf16(rng, 32, 64)
    model = Dense(16)
    params = model.init(jax.random.key(0), x)
    grads = jax.jit(jax.grad(lambda p: model.apply(p, x).astype(jnp.float32).sum()))(params)["params"]
    assert grads["kernel"].shape == (16, 64) and grads["kernel"].dtype == jnp.float32 and (grads["bias"] == 32).all()
    layer = NnxDense(64, 16, rngs=nnx.Rngs(0))
    grad = nnx.grad(lambda m: m(x).astype(jnp.float32).sum())(layer)
    want = jax.grad(lambda w: fj.linear(x, w).astype(jnp.float32).sum())(layer.kernel[...])
    same(jax.tree.leaves(grad)[0], want)


def test_handlers_are_prepared_ahead():
    from fp8.jax import _ffi

    prepare = _ffi._library.fp8_jax_prepare
    text = fj.quantize_weight(np.ones((64, 128), np.float32), "block").recipe.encode()
    assert prepare(0, 0, b"", 0, 0, 0, 1, 1) == 0 and prepare(0, 0, text, 64, 128, 64, 3, 3) == 0
    assert prepare(0, 0, b"brick", 64, 128, 64, 3, 3) != 0
