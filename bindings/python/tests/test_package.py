# SPDX-License-Identifier: Apache-2.0
import gc
import pickle
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import fp8
from conftest import RECIPES
from fp8 import capi


def bf16(rng, *shape):
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def f32(array):
    return np.asarray(array).astype(np.float32)


def test_recipe_texts():
    block = fp8.Recipe("block")
    assert "1x128" in repr(block) and "128x128" in repr(block)
    assert fp8.Recipe(str(block)) == block == fp8.Recipe("blockwise") and hash(block) == hash(fp8.Recipe("blockwise"))
    assert pickle.loads(pickle.dumps(block)) == block
    assert fp8.Recipe("block", scale_rule="fp32") != block
    assert fp8.Recipe("tensor", coverage="fprop|dgrad").config["coverage"] == capi.FP8_FPROP | capi.FP8_DGRAD
    with pytest.raises(TypeError, match="no field 'colour'"):
        fp8.Recipe("block", colour=1)


def test_errors_carry_the_message():
    with pytest.raises(fp8.ArgumentError, match='preset "brick"') as caught:
        fp8.Recipe("brick")
    assert caught.value.status == capi.FP8_ERR_ARGUMENT and isinstance(caught.value, ValueError)
    with pytest.raises(fp8.UnsupportedError):
        fp8.Recipe("tensor", weight_scaling="1x32")


def test_context():
    with fp8.Context("cpu", threads=2) as c:
        assert repr(c) == "Context('cpu', threads=2)"
        before = c.counters()["quantizations"]
        fp8.quantize(np.ones((16, 32), np.float32), "tensor", context=c)
        assert c.counters()["quantizations"] > before
        assert "gemm" in c.explain() and c.support("block") in ("native", "emulated")
    with pytest.raises(ValueError, match="closed"):
        c.counters()


@pytest.mark.parametrize("recipe", RECIPES)
def test_quantize_and_back(recipe, context, rng):
    x = bf16(rng, 3, 50, 130)
    q = fp8.quantize(x, recipe, context=context)
    assert q.shape == (150, 130) and q.sides == "both" and q.row.dtype == ml_dtypes.float8_e4m3fn
    for side in ("row", "col"):
        back = q.dequantize(side=side)
        assert 0 < np.abs(back - f32(x).reshape(150, 130)).max() < 0.3
    assert 28 < fp8.measure(x, q)["snr_db"] < 40
    assert recipe.split("_")[0] in repr(q) or "1x" in repr(q)


def test_scales_multiply_codes(context, rng):
    x = bf16(rng, 64, 256)
    q = fp8.quantize(x, "block", context=context)
    by_hand = f32(q.row) * np.repeat(q.row_scale, 128, axis=1)
    np.testing.assert_array_equal(by_hand, q.dequantize())
    np.testing.assert_array_equal(f32(q.col) * np.repeat(q.col_scale, 64, axis=1), q.dequantize(side="col").T)


def test_arrays_are_not_copied(context, rng):
    x = bf16(rng, 32, 64)
    t = capi.fp8_tensor()
    capi.tensor_of(x, 0, t)
    assert t.data == x.ctypes.data and t.shape[:2] == (32, 64) and t.stride[:2] == (64, 1)
    capi.tensor_of(x.T, 0, t)
    assert t.data == x.ctypes.data and t.stride[:2] == (1, 64)
    q = fp8.quantize(x, "none", context=context)
    assert q.row.ctypes.data == x.ctypes.data and q.nbytes == 0
    np.testing.assert_array_equal(q.row.view(np.uint16), x.view(np.uint16))
    y = np.empty((32, 64), np.float32)
    assert fp8.quantize(x, "mx", context=context).dequantize(out=y) is y


def test_strided_input_gives_the_same_codes(context, rng):
    x = bf16(rng, 64, 96)
    a = fp8.quantize(np.asfortranarray(x), "block", context=context)
    b = fp8.quantize(x, "block", context=context)
    np.testing.assert_array_equal(a.row.view(np.uint8), b.row.view(np.uint8))


def test_view_gives_bytes_a_type(context, rng):
    x = bf16(rng, 16, 64)
    a, b = fp8.quantize(fp8.view(x.view(np.int16), "bf16"), "mx", context=context), fp8.quantize(x, "mx", context=context)
    np.testing.assert_array_equal(a.row.view(np.uint8), b.row.view(np.uint8))
    with pytest.raises(TypeError, match="cannot be viewed"):
        fp8.quantize(fp8.view(x, "f32"), "mx", context=context)
    with pytest.raises(TypeError, match="complex64 are not supported"):
        fp8.quantize(np.zeros((4, 4), np.complex64), "mx", context=context)
    with pytest.raises(TypeError, match="expected an array"):
        fp8.cast(type("Shape", (), {"shape": (2, 2)})(), "f32", context=context)


def test_dlpack_both_ways(context, rng):
    x = rng.standard_normal((32, 48), np.float32)

    class Foreign:
        shape, dtype = x.shape, x.dtype

        def __dlpack__(self, **_):
            return x.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    a, b = fp8.quantize(Foreign(), "row", context=context), fp8.quantize(x, "row", context=context)
    np.testing.assert_array_equal(a.row.view(np.uint8), b.row.view(np.uint8))
    d = fp8.DeviceArray(context, (32, 48), "f32").copy_from(x)
    shared = np.from_dlpack(d)
    np.testing.assert_array_equal(shared, x)
    assert shared.ctypes.data == d.pointer
    alive = weakref.ref(d)
    del d
    gc.collect()
    assert alive() is not None  # the numpy array holds it
    del shared
    gc.collect()
    assert alive() is None


def test_memory_lives_as_long_as_its_views(context, rng):
    row = fp8.quantize(bf16(rng, 64, 64), "tensor", context=context).row
    gc.collect()
    other = [fp8.quantize(bf16(rng, 64, 64), "tensor", context=context) for _ in range(20)]
    assert np.isfinite(f32(row)).all() and f32(row).std() > 1 and other


def test_amax_apart_equals_amax_inside(context, rng):
    x = bf16(rng, 64, 96)
    a = fp8.amax(x, "tensor", context=context)
    assert a.shape == (1,) and a[0] == np.abs(f32(x)).max()
    given = fp8.quantize(x, "tensor", amax=a, amax_given=True, context=context)
    own = fp8.quantize(x, "tensor", context=context)
    np.testing.assert_array_equal(given.row.view(np.uint8), own.row.view(np.uint8))
    row, col = fp8.amax(x, "row", sides="both", context=context)
    np.testing.assert_array_equal(row, np.abs(f32(x)).max(1))
    np.testing.assert_array_equal(col, np.abs(f32(x)).max(0))


def test_cast_and_transpose(context, rng):
    x = rng.standard_normal((40, 24), np.float32) * 1000
    np.testing.assert_array_equal(fp8.cast(x, "bf16", context=context).view(np.uint16), x.astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.abs(f32(fp8.cast(x, "e4m3", context=context))).max() == 448
    scaled = fp8.cast(x, "e4m3", scale=np.array([0.125], np.float32), context=context)
    small = np.abs(x * 0.125) < 440
    np.testing.assert_array_equal(f32(scaled)[small], f32((x * 0.125).astype(ml_dtypes.float8_e4m3fn))[small])
    np.testing.assert_array_equal(fp8.transpose(x, context=context), x.T)


def test_requantize_and_slice(context, rng):
    x = bf16(rng, 256, 128)
    w = fp8.quantize(x, "block", "weight", "both", context=context)
    row = fp8.quantize(x, "block", "weight", "row", context=context)
    np.testing.assert_array_equal(row.requantize("col").col.view(np.uint8), w.col.view(np.uint8))
    part = w.slice(128, 128)
    np.testing.assert_array_equal(part.dequantize(), w.dequantize()[128:])


@pytest.mark.parametrize("recipe", ["none", *RECIPES])
def test_linear(recipe, context, rng):
    x, w, dy = bf16(rng, 2, 48, 256), rng.standard_normal((64, 256), np.float32), bf16(rng, 2, 48, 64)
    bias = rng.standard_normal(64, np.float32)
    linear = fp8.Linear(256, 64, recipe, context=context)
    qw = linear.quantize_weight(w)
    y, saved = linear.forward(x, qw, bias)
    g = linear.backward(dy, qw, saved, dbias=True)
    x2, dy2 = f32(x).reshape(96, 256), f32(dy).reshape(96, 64)
    for got, want in ((y, x2 @ w.T + bias), (g.dx, dy2 @ w), (g.dw, dy2.T @ x2), (g.dbias, dy2.sum(0))):
        got = f32(got).reshape(want.shape)
        assert np.linalg.norm(got - want) < (0.01 if recipe == "none" else 0.06) * np.linalg.norm(want), recipe
    again = linear.backward(dy, qw, saved, dx=False, dw=g.dw.copy(), accumulate_dw=True)
    np.testing.assert_allclose(again.dw, 2 * g.dw, rtol=1e-6, atol=1e-4)
    assert again.dx is None and linear.forward(x, qw, save=False)[1] is None
    shared = fp8.quantize(x, recipe, context=context)
    np.testing.assert_array_equal(linear.forward(shared, qw, bias)[0].view(np.uint16).ravel(), y.view(np.uint16).ravel())
    assert linear.workspace_bytes(96) > 0 and "Linear(256, 64" in repr(linear)


def test_wrong_shapes_are_named(context, rng):
    linear = fp8.Linear(256, 64, "block", context=context)
    qw = linear.quantize_weight(bf16(rng, 64, 256))
    with pytest.raises(fp8.ArgumentError, match="128.*256"):
        linear.forward(bf16(rng, 16, 128), qw)


def test_a_wrong_dtype_names_the_option(context, rng):
    linear = fp8.Linear(256, 64, "block", context=context)
    qw, x = linear.quantize_weight(bf16(rng, 64, 256)), rng.standard_normal((16, 256), np.float32)
    with pytest.raises(fp8.ArgumentError, match=r"x\.dtype is F32.*input_dtype=") as caught:
        linear.forward(x, qw)
    assert caught.value.status == fp8.capi.FP8_ERR_ARGUMENT
    with pytest.raises(fp8.ArgumentError, match=r"dy\.dtype is F32.*output_dtype="):
        linear.backward(x[:, :64], qw)
    wide = fp8.Linear(256, 64, "block", input_dtype="float32", output_dtype="float32", context=context)
    y, saved = wide.forward(x, qw)
    assert y.dtype == np.float32 and wide.backward(y, qw, saved).dx.dtype == np.float32


def test_a_transposed_weight_is_refused(context, rng):
    linear = fp8.Linear(192, 320, "block", context=context)
    for w in (bf16(rng, 192, 320), fp8.view(bf16(rng, 192, 320).view(np.uint16), "bf16")):
        with pytest.raises(fp8.ArgumentError, match=r"w is \[192, 320\], this linear wants \[out_features 320, in_features 192\]"):
            linear.quantize_weight(w)


def test_wrong_types_are_named(context, rng):
    linear = fp8.Linear(64, 32, "block", context=context)
    x, w, dy = bf16(rng, 16, 64), bf16(rng, 32, 64), bf16(rng, 16, 32)
    qw = linear.quantize_weight(w)
    saved = linear.forward(x, qw)[1]
    for call in (lambda: linear.forward(x, w), lambda: linear.backward(dy, w, saved)):
        with pytest.raises(TypeError, match=r"w must be a QTensor, not ndarray: use quantize_weight\(w\)"):
            call()
    for name, call in (("x", lambda: linear.forward([[1.0] * 64], qw)), ("dy", lambda: linear.backward([[1.0] * 32], qw, saved)),
                       ("w", lambda: linear.quantize_weight([[1.0] * 64] * 32))):
        with pytest.raises(TypeError, match=f"^{name} must be an array.*not list"):
            call()


def test_unknown_names_are_named(context, rng):
    x = bf16(rng, 32, 64)
    q = fp8.quantize(x, "block", context=context)
    linear = fp8.Linear(64, 32, context=context)
    for text, call in (
            ("role is 'weights', known are activation, weight, gradient", lambda: fp8.quantize(x, "block", "weights", context=context)),
            ("role is None", lambda: fp8.amax(x, role=None, context=context)),
            ("sides is 'x', known are row, col, both", lambda: fp8.quantize(x, sides="x", context=context)),
            ("sides is 'rows'", lambda: linear.quantize_weight(x, "rows")),
            ("side is 'both', known are row, col$", lambda: q.dequantize(side="both")),
            ("side is 'column'", lambda: q.requantize("column")),
            ("side is 'x'", lambda: fp8.measure(x, q, "x")),
            ("a_side is 'rows', known are row, col$", lambda: fp8.gemm(q, q, "rows")),
            ("b_side is 'both'", lambda: fp8.gemm(q, q, "row", "both")),
            ("backend is 'gpu', known are auto, cpu, cuda", lambda: fp8.Context("gpu")),
            ("flags is 'fast', known are no_alloc", lambda: fp8.Context("cpu", flags=("check", "fast"))),
            ("recipe is 'brick', known are none, tensor", lambda: context.support("brick")),
            ("scale_rule is 'fp31', known are fp32, pow2", lambda: fp8.Recipe("block", scale_rule="fp31")),
            ("weight_scaling is '1x31', known are .*1x32", lambda: fp8.Recipe("block", weight_scaling="1x31")),
            (r"scale_rule is 'fp32\|pow2', known are fp32, pow2", lambda: fp8.Recipe("block", scale_rule="fp32|pow2")),
            ("coverage is 'ok', known are none, fprop, dgrad, wgrad", lambda: fp8.Recipe("tensor", coverage="fprop|ok"))):
        with pytest.raises(fp8.ArgumentError, match=f"^{text}") as caught:
            call()
        assert caught.value.status == capi.FP8_ERR_ARGUMENT
    assert fp8.Recipe("tensor", coverage="fprop|fprop") == fp8.Recipe("tensor", coverage="fprop")
    assert fp8.Recipe("tensor", fast_accumulation="none") == fp8.Recipe("tensor", fast_accumulation="no_gemm") == fp8.Recipe("tensor;fast=none")
    assert fp8.Recipe("tensor", coverage="none") == fp8.Recipe("tensor;coverage=none")
    with pytest.raises(TypeError, match="margin is a number, not 'two'"):
        fp8.Recipe("tensor", margin="two")


def test_param_list_counts(context):
    for text, given in (("world is 0, at least 1", {"world": 0}), ("3 offsets are those of 2 ranks, world is 3", {"world": 3, "cuts": [[0, 8, 16]]})):
        with pytest.raises(ValueError, match=text):
            fp8.ParamList("block", [(4, 4)], context=context, **given)
    with pytest.raises(ValueError, match="shapes is empty"):
        fp8.ParamList("block", [], world=1, context=context)


def test_empty_matrices(context):
    q = fp8.quantize(np.zeros((0, 128), np.float32), "block", context=context)
    assert q.dequantize().shape == (0, 128)


def test_threads_give_the_same_bits(context, rng):
    x = bf16(rng, 512, 512)
    want = fp8.quantize(x, "block", context=context).row.view(np.uint8)
    got = [None] * 4

    def work(i):
        for _ in range(5):
            got[i] = fp8.quantize(x, "block", context=context).row.view(np.uint8)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for g in got:
        np.testing.assert_array_equal(g, want)


def test_the_gil_is_given_up():
    """two ranks that wait for each other would hang for ever if a call kept the GIL"""
    ranks, done = fp8.Comm.local(2), []

    def work(rank):
        rank.check("a value", b"same")
        done.append(rank.rank)

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in ranks]
    [t.start() for t in threads]
    [t.join(20) for t in threads]
    assert sorted(done) == [0, 1]


def test_ranks_that_differ_are_told():
    ranks, errors = fp8.Comm.local(2), []

    def work(rank):
        try:
            rank.check("the seed", bytes([rank.rank]))
        except fp8.CommError as e:
            errors.append(str(e))

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in ranks]
    [t.start() for t in threads]
    [t.join(20) for t in threads]
    assert len(errors) == 2 and "the seed" in errors[0]


@pytest.mark.parametrize("recipe", ["none", *RECIPES])
def test_sharded_weights_equal_whole_ones(recipe, context, rng):
    shapes = [(64, 96), (128, 40)]
    masters = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    world, results = 3, [None] * 3
    ranks = fp8.Comm.local(world)

    def work(comm):
        params = fp8.ParamList(recipe, shapes, world=world, rank=comm.rank, context=context)
        params.check(comm)
        params.quantize(comm, [m.reshape(-1)[params.owned(i)] for i, m in enumerate(masters)])
        full = params.full()
        params.gather(comm, full)
        results[comm.rank] = full

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in ranks]
    [t.start() for t in threads]
    [t.join(30) for t in threads]
    for i, m in enumerate(masters):
        want = fp8.quantize(m, recipe, "weight", copy=True, context=context)
        for full in results:
            assert full is not None
            for side in ("row", "col"):
                np.testing.assert_array_equal(full[i].dequantize(side=side), want.dequantize(side=side))


def test_handles_do_not_leak(context, rng):
    x = bf16(rng, 16, 32)
    for _ in range(500):
        fp8.quantize(x, fp8.Recipe("tensor"), context=context)
        fp8.Context("cpu", threads=1).close()
    gc.collect()
