# SPDX-License-Identifier: Apache-2.0
"""The CUDA handlers' own duties; skipped without a GPU."""
import os
import subprocess
import sys

import numpy as np
import pytest

import fp8
import fp8.jax as fj
from conftest import CUDA, RECIPES
from test_ops import bf16, host, same

pytestmark = pytest.mark.skipif(not CUDA, reason="FP8_TEST_BACKEND is not cuda")


@pytest.mark.parametrize("role", ["activation", "weight", "gradient"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_quantize_gives_the_cpus_bits(recipe, role, rng):
    cpu = fp8.Context("cpu")
    for shape in ((96, 160), (1, 32), (300, 513)):
        x = bf16(rng, *shape)
        got, want = fj.quantize(x, recipe, role), fp8.quantize(x, recipe, role, context=cpu)
        for part in ("row", "row_scale", "col", "col_scale"):
            same(getattr(got, part), getattr(want, part))


REPLAY = """
import hashlib
import jax
import jax.numpy as jnp
import numpy as np
import fp8.jax as fj

w = np.linspace(-1, 1, 512 * 256, dtype=np.float32).reshape(512, 256)
weight = fj.quantize_weight(w, "RECIPE")

@jax.jit
def step(weight, x):
    def loss(p, a):
        y = fj.linear(jax.nn.gelu(fj.linear(a, p) @ jnp.ones((512, 256), jnp.bfloat16) * 0.01), p)
        return (y.astype(jnp.float32) ** 2).mean()
    return fj.value_and_grad(loss)(weight, x)

calls, marks = [], []
for i in range(16):
    x = jnp.asarray(np.cos(np.arange(128 * 256) * (i + 1)).reshape(128, 256), jnp.bfloat16)
    value, grad = jax.block_until_ready(step(weight, x))
    marks.append(hashlib.sha1(np.asarray(grad).tobytes()).hexdigest()[:12] + float(value).hex())
    calls.append(fj.counters()["gemms"])
    del x, value, grad  # the next step then gets the same memory: a graph holds addresses, others make it be captured again
print(*marks)
print(*np.diff(calls))
"""


@pytest.mark.parametrize("recipe", ["tensor", "block", "mx"])
def test_command_buffers_replay(recipe):
    """captured and replayed with new data: the same bits as without, and the handlers are no longer called"""

    def run(flags):
        environment = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run([sys.executable, "-c", REPLAY.replace("RECIPE", recipe)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        marks, calls = done.stdout.strip().splitlines()
        return marks.split(), [int(c) for c in calls.split()]

    plain, called = run("--xla_gpu_enable_command_buffer=")
    captured, replayed = run("--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1")
    print(recipe, "handler products a step: without", called, "with command buffers", replayed)
    assert plain == captured and len(set(plain)) == 16
    assert all(called) and 0 in replayed


def test_calls_only_enqueue(rng):
    """the host is through long before the device"""
    import time

    import jax

    x = bf16(rng, 8192, 8192)
    x, weight = jax.device_put(x), fj.quantize_weight(bf16(rng, 8192, 8192), "block")
    run = jax.jit(lambda a, p: fj.linear(fj.linear(fj.linear(a, p), p), p))
    jax.block_until_ready(run(x, weight))
    enqueue, total = [], []
    for _ in range(5):
        begin = time.perf_counter()
        y = run(x, weight)
        enqueue.append(time.perf_counter() - begin)
        jax.block_until_ready(y)
        total.append(time.perf_counter() - begin)
    print(f"enqueue {1e3 * min(enqueue):.3f} ms of {1e3 * min(total):.3f} ms")
    assert min(enqueue) < 0.5 * min(total)
    assert np.isfinite(host(y).astype(np.float32)).all()
