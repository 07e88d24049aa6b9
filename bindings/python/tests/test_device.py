# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries on the context's device: no copies, results equal to the CPU's, streams in order. CUDA parts skip without one."""
import gc
import importlib
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import fp8
from conftest import RECIPES, host
from fp8 import capi

BF16 = ml_dtypes.bfloat16


class Own:
    """fp8.DeviceArray"""

    def __init__(self, context):
        self.context = context

    def put(self, a):
        return fp8.DeviceArray(self.context, a.shape, a.dtype).copy_from(a)

    def pointer(self, a):
        return a.pointer

    def take(self, exporter):
        return fp8.view(exporter, exporter.dtype)

    def host(self, a):
        return host(getattr(a, "array", a))


class Torch(Own):
    def __init__(self, context):
        self.context, self.torch = context, pytest.importorskip("torch")
        if context.is_cuda and not self.torch.cuda.is_available():
            pytest.skip("this torch has no CUDA")
        self.where = "cuda" if context.is_cuda else "cpu"

    def put(self, a):
        if a.dtype == BF16:
            return self.torch.from_numpy(a.view(np.int16)).view(self.torch.bfloat16).to(self.where)
        return self.torch.from_numpy(a).to(self.where)

    def pointer(self, a):
        return a.data_ptr()

    def take(self, exporter):
        return self.torch.from_dlpack(exporter)

    def host(self, a):
        a = a.cpu()
        return a.view(self.torch.int16).numpy().view(BF16) if a.dtype == self.torch.bfloat16 else a.numpy()


class Cupy(Own):
    """which has no BF16 everywhere: bytes with a type"""

    def __init__(self, context):
        self.context, self.cupy = context, pytest.importorskip("cupy")
        if not context.is_cuda:
            pytest.skip("CuPy has no CPU arrays")

    def put(self, a):
        return fp8.view(self.cupy.asarray(a.view(np.uint16)), "bf16") if a.dtype == BF16 else self.cupy.asarray(a)

    def pointer(self, a):
        return getattr(a, "array", a).data.ptr

    def take(self, exporter):
        return self.cupy.from_dlpack(exporter.view("uint16") if exporter.dtype == BF16 else exporter)

    def host(self, a):
        a = a.get()
        return a.view(BF16) if a.dtype == np.uint16 else a


class Jax(Own):
    def __init__(self, context):
        self.context, self.jax = context, pytest.importorskip("jax")
        if (self.jax.default_backend() == "gpu") != context.is_cuda:
            pytest.skip("JAX works on another device")

    def put(self, a):
        return self.jax.block_until_ready(self.jax.numpy.asarray(a))

    def pointer(self, a):
        return a.unsafe_buffer_pointer()

    def take(self, exporter):
        return self.jax.dlpack.from_dlpack(exporter)

    def host(self, a):
        return np.asarray(a)


@pytest.fixture(params=[Own, Torch, Cupy, Jax], ids=lambda c: c.__name__.lower())
def library(request, anywhere):
    return request.param(anywhere)


def bf16(rng, *shape):
    return rng.standard_normal(shape, np.float32).astype(BF16)


def same(a, b):
    a, b = np.ascontiguousarray(host(a)), np.ascontiguousarray(host(b))
    np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


def test_arrays_are_not_copied(library, anywhere, rng):
    for a in (bf16(rng, 32, 64), rng.standard_normal((32, 64), np.float32)):
        there, t = library.put(a), capi.fp8_tensor()
        kept = capi.tensor_on(anywhere.handle, there, None, t)
        assert t.data == library.pointer(there) and t.shape[:2] == (32, 64) and t.stride[:2] == (64, 1)
        del kept


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(150, 130), (256, 384), (1, 16), (0, 128)])
def test_quantize_gives_the_cpus_bits(shape, recipe, library, anywhere, context, rng):
    x = bf16(rng, *shape)
    got, want = fp8.quantize(library.put(x), recipe, context=anywhere), fp8.quantize(x, recipe, context=context)
    for part in ("row", "row_scale", "col", "col_scale"):
        same(getattr(got, part), getattr(want, part))
    for side in ("row", "col"):
        same(got.dequantize(side=side), want.dequantize(side=side))


@pytest.mark.parametrize("recipe", ["none", *RECIPES])
def test_linear(recipe, library, anywhere, rng):
    """forward and backward on the library's arrays; results go back without a copy"""
    x, w, dy = bf16(rng, 2, 64, 256), rng.standard_normal((128, 256), np.float32), bf16(rng, 2, 64, 128)
    bias = rng.standard_normal(128, np.float32)
    linear = fp8.Linear(256, 128, recipe, context=anywhere)
    qw = linear.quantize_weight(library.put(w))
    there = library.put(x)
    y, saved = linear.forward(there, qw, library.put(bias))
    g = linear.backward(library.put(dy), qw, saved, dbias=True)
    f64 = lambda a: np.asarray(a, np.float64).reshape(-1, a.shape[-1])  # noqa: E731
    for got, want, worst in ((y, f64(x) @ w.T.astype(np.float64) + bias, 0.06), (g.dx, f64(dy) @ w, 0.06), (g.dw, f64(dy).T @ f64(x), 0.06)):
        got = f64(host(got))
        assert np.linalg.norm(got - want) <= worst * np.linalg.norm(want)
    np.testing.assert_allclose(host(g.dbias), f64(dy).sum(0), rtol=1e-3, atol=1e-3)
    if isinstance(y, fp8.DeviceArray):
        taken = library.take(y)
        assert type(library) is Own or library.pointer(taken) == y.pointer
        same(library.host(taken), y)


def test_exported_memory_lives_with_its_consumer(library, anywhere, rng):
    x = rng.standard_normal((32, 48), np.float32)
    d = fp8.DeviceArray(anywhere, (32, 48), "f32").copy_from(x)
    taken, alive = library.take(d), weakref.ref(d)
    del d
    gc.collect()
    assert alive() is not None
    same(library.host(taken), x)
    del taken
    gc.collect()
    assert alive() is None


def test_codes_are_exported(anywhere, rng):
    q = fp8.quantize(fp8.DeviceArray(anywhere, (64, 128), "bf16").copy_from(bf16(rng, 64, 128)), "block", context=anywhere)
    row = q.row if anywhere.is_cuda else fp8.DeviceArray(anywhere, (64, 128), "e4m3", pointer=q.row.ctypes.data, owner=q)
    torch = pytest.importorskip("torch")
    if anywhere.is_cuda and not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    as_bytes = torch.from_dlpack(row.view("uint8"))
    assert as_bytes.data_ptr() == row.pointer
    same(as_bytes.cpu().numpy(), host(row).view(np.uint8))
    for wrong in ("f32", "uint16"):
        with pytest.raises(TypeError, match="cannot be viewed"):
            row.view(wrong)


def test_every_dtype_comes_to_the_host(anywhere, rng):
    """numpy() of each dtype, and of a strided view of it"""
    for dtype in ("e4m3", "e5m2", "e8m0", "bf16", "f16", "f32", "uint8", "int32", "int64", "float64"):
        d = fp8.DeviceArray(anywhere, (6, 10), dtype)
        data = rng.integers(0, 256, d.nbytes, np.uint8).view(d.dtype).reshape(6, 10)
        d.copy_from(data)
        assert d.numpy().dtype == d.dtype
        same(d.numpy(), data)
        part = fp8.DeviceArray(anywhere, (10, 3), dtype, pointer=d.pointer, owner=d, strides=(1, 10))
        same(part.numpy(), np.ascontiguousarray(data[:3].T))


def test_bf16_as_bits(context, rng):
    """for a library that knows no BF16: uint16 out, and back by fp8.view"""
    x = bf16(rng, 64, 96)
    bits = fp8.DeviceArray(context, x.shape, "bf16").copy_from(x).view("uint16")
    taken = np.from_dlpack(bits)
    assert taken.dtype == np.uint16 and taken.ctypes.data == bits.pointer
    same(taken, x)
    same(bits.numpy(), x)
    for again in (bits, taken):
        same(fp8.quantize(fp8.view(again, "bf16"), "block", context=context).row, fp8.quantize(x, "block", context=context).row)
        with pytest.raises((TypeError, fp8.UnsupportedError), match="dtype"):
            fp8.quantize(again, "block", context=context)


def test_strided_views(anywhere, rng):
    """scales lie in native strides"""
    x = bf16(rng, 150, 300)
    q = fp8.quantize(fp8.DeviceArray(anywhere, x.shape, "bf16").copy_from(x) if anywhere.is_cuda else x, "block", context=anywhere)
    t = q.struct.row_scale
    strided = fp8.DeviceArray(anywhere, (150, 3), "f32", pointer=t.data, owner=q, strides=t.stride[:2])
    assert strided.strides == (1, 152)
    same(strided.numpy(), host(q.row_scale))
    with pytest.raises(ValueError, match="strided"):
        strided.copy_from(np.zeros((150, 3), np.float32))


def test_protocol_of_a_device_array(anywhere):
    d = fp8.DeviceArray(anywhere, (2, 3), "f32")
    assert d.__dlpack_device__() == ((2, anywhere.device) if anywhere.is_cuda else (1, 0))
    d.__dlpack__(stream=-1 if anywhere.is_cuda else None, max_version=(1, 0), copy=False, dl_device=d.__dlpack_device__())
    for wrong in ({"copy": True}, {"dl_device": (10, 0)}):
        with pytest.raises(BufferError):
            d.__dlpack__(**wrong)


def test_torchs_dtypes_have_names():
    torch = pytest.importorskip("torch")
    from fp8._dtypes import code_of

    assert [code_of(t) for t in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8)] == [1, 3, 4, 5, 7]
    with pytest.raises(TypeError, match="not one of"):
        code_of(torch.complex64)


# ---- CUDA alone
@pytest.fixture
def torch(cuda):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def test_wrong_places_are_told(cuda, torch, context, rng):
    x = bf16(rng, 16, 64)
    with pytest.raises(ValueError, match="x lies in host memory"):
        fp8.quantize(x, "mx", context=cuda)
    with pytest.raises(ValueError, match="x lies in host memory"):
        fp8.quantize(torch.zeros(16, 64), "mx", context=cuda)
    with pytest.raises(ValueError, match="x lies on a CUDA device"):
        fp8.quantize(torch.zeros(16, 64, device="cuda"), "mx", context=context)
    with pytest.raises(TypeError, match="expected a stream"):
        fp8.quantize(torch.zeros(16, 64, device="cuda"), "mx", context=cuda, stream="main")


def test_streams_are_ordered(cuda, torch, context, rng):
    """in: torch's pending work is waited for by the stream of the call; out: the consumer's stream waits for the call's"""
    late, ours, theirs = bf16(rng, 512, 512), torch.cuda.Stream(), torch.cuda.Stream()
    want = fp8.quantize(late, "block", context=context)
    source = torch.from_numpy(late.view(np.int16)).view(torch.bfloat16).cuda()
    fp8.quantize(source, "block", context=cuda)  # kernels are loaded
    torch.cuda.synchronize()
    x = torch.zeros_like(source)
    torch.cuda.synchronize()
    with torch.cuda.stream(theirs):
        torch.cuda._sleep(200_000_000)  # about 0.1 s
        x.copy_(source)
        q = fp8.quantize(x, "block", context=cuda, stream=ours)
    cuda.sync(ours.cuda_stream)
    same(q.row, want.row)
    with torch.cuda.stream(ours):
        torch.cuda._sleep(200_000_000)
    q = fp8.quantize(source, "block", context=cuda, stream=ours.cuda_stream)
    codes = fp8.DeviceArray(cuda, (512, 512), "uint8", ours, pointer=q.row.pointer, owner=q)
    with torch.cuda.stream(theirs):
        taken = torch.from_dlpack(codes).clone()
    theirs.synchronize()
    same(taken.cpu().numpy(), want.row.view(np.uint8))


def test_a_graph_of_torch_replays_with_new_data(cuda, torch, rng):
    linear = fp8.Linear(512, 256, "block", context=cuda)
    w, first, second = (torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in ((256, 512), (128, 512), (128, 512)))
    qw = linear.quantize_weight(w)
    x, y = first.clone(), torch.empty(128, 256, device="cuda", dtype=torch.bfloat16)
    linear.prepare(128)
    linear.forward(x, qw, save=False, out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        linear.forward(x, qw, save=False, out=y, stream=torch.cuda.current_stream())
    for data in (first, second):
        x.copy_(data)
        graph.replay()
        torch.cuda.synchronize()
        want = linear.forward(data, qw, save=False)[0]
        same(y.view(torch.int16).cpu().numpy(), want.numpy().view(np.int16))


PROCESS = """
import numpy as np
def torch_first():
    import torch
    a = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
    assert float((a @ a).sum()) == 64 ** 3
def jax_first():
    import jax.numpy as jnp
    a = jnp.ones((1024, 1024), jnp.bfloat16)
    assert float((a @ a)[0, 0]) == 1024
def ours():
    import fp8
    c = fp8.Context("cuda")
    put = lambda a, t: fp8.DeviceArray(c, a.shape, t).copy_from(a)
    l = fp8.Linear(256, 128, "tensor", context=c)
    y, _ = l.forward(put(np.ones((64, 256)), "bf16"), l.quantize_weight(put(np.ones((128, 256)), "bf16")))
    assert (y.numpy().astype(np.float32) == 256).all()
    assert c.counters()["gemms"] == 1
    print([line.strip() for line in c.explain().splitlines() if "cublas" in line.lower()])
"""


@pytest.mark.parametrize("order", ["ours", "torch_first,ours", "jax_first,ours", "ours,torch_first", "ours,jax_first", "torch_first,jax_first,ours"])
def test_cublas_is_found_beside_others(order, cuda):
    """alone and in a process that has torch's or JAX's: one copy is used, and each library still works"""
    for name in ("torch", "jax"):
        if name in order and importlib.util.find_spec(name) is None:
            pytest.skip(f"without {name}")
    maps = "\nprint('COPIES', *sorted({l.split()[-1] for l in open('/proc/self/maps') if 'libcublasLt' in l}))\n"
    code = PROCESS + "\n".join(f"{step}()" for step in order.split(",")) + maps
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    print(order, done.stdout)
    copies = done.stdout.split("COPIES")[1].split()
    assert len(copies) == 1, copies
