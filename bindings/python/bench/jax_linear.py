# SPDX-License-Identifier: Apache-2.0
"""fp8.jax.linear forward and backward on a GPU beside the C API's linear, by turns in one process.

    python jax_linear.py [--tokens 16384] [--shape 4096,16384] [--recipes none,tensor,row,block,mx]

A step quantizes the weight once and takes 4 micro-batches forward and backward, dw added up in F32: fp8_linear_* through the package's
low level into memory of the caller's; JAX by a jitted function a micro-batch and, second, by one for the whole step.
"""
import argparse
import os
import time
from functools import partial

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import fp8  # noqa: E402
import fp8.jax as fj  # noqa: E402

MICRO = 4


def c_step(context, recipe, x, w, dy):
    """a function that enqueues a step of the C API, on arrays of JAX's"""
    out, features = w.shape
    linear = fp8.Linear(features, out, recipe, context=context)
    linear.prepare(x.shape[0])
    qw = linear.quantize_weight(w)
    y, saved = linear.forward(x, qw)
    plain = saved.nbytes == 0
    g = linear.backward(dy, qw, None if plain else saved, x=x if plain else None)
    handle, capi = linear.handle, fp8.capi

    def step():
        linear.quantize_weight(w, out=qw)
        for m in range(MICRO):
            capi.call_forward(context.handle, handle, x, None, qw.struct, None, y, None if plain else saved.struct, None, None, 0, 0, None)
            capi.call_backward(context.handle, handle, dy, None, qw.struct, None if plain else saved.struct, x if plain else None, g.dx, g.dw, None,
                               None, None, None, capi.FP8_LINEAR_ACCUMULATE_DW if m else 0, 0, None)
        return g.dw

    return step, lambda _: context.sync()


def jax_micro(weight, total, x, dy):
    y, pull = jax.vjp(lambda a, slot: fj.linear(a, weight.accumulating().with_grad(slot)), x, total)
    return (y, *pull(dy))


def jax_steps(recipe, x, w, dy):
    """two functions that enqueue a step of JAX"""
    quantize, micro = jax.jit(lambda a: fj.quantize_weight(a, recipe)), jax.jit(jax_micro, donate_argnums=1)
    zeros = jax.jit(lambda: jnp.zeros(w.shape, jnp.float32))

    def apart():
        weight, total = quantize(w), zeros()
        for _ in range(MICRO):
            y, dx, total = micro(weight, total, x, dy)
        return y, dx, total

    @jax.jit
    def whole(w, xs, dys):
        weight, total, out = fj.quantize_weight(w, recipe), jnp.zeros(w.shape, jnp.float32), []
        for x, dy in zip(xs, dys):
            y, dx, total = jax_micro(weight, total, x, dy)
            out.append((y, dx))
        return out, total

    xs, dys = [x] + [x + 0 for _ in range(MICRO - 1)], [dy] + [dy + 0 for _ in range(MICRO - 1)]
    return apart, partial(whole, w, xs, dys)


def timed(step, wait, repeats):
    begin = time.perf_counter()
    for _ in range(repeats):
        out = step()
    enqueued = time.perf_counter()
    wait(out)
    end = time.perf_counter()
    return (end - begin) / repeats, (enqueued - begin) / repeats


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--shape", default="4096,16384", help="in,out")
    parser.add_argument("--recipes", default="none,tensor,row,block,mx")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-ms", type=float, default=300)
    o = parser.parse_args()
    features, out = (int(n) for n in o.shape.split(","))
    gpu = jax.default_backend() == "gpu"
    context = fp8.Context("cuda" if gpu else "cpu")
    key = jax.random.split(jax.random.key(1), 3)
    x, w, dy = (jax.random.normal(k, s, jnp.bfloat16) * scale for k, s, scale in zip(
        key, ((o.tokens, features), (out, features), (o.tokens, out)), (1, 0.02, 0.01)))
    jax.block_until_ready((x, w, dy))
    print(f"JAX {jax.__version__}, {fp8.capi.fp8_build_info()}, {jax.devices()[0].device_kind}; {o.tokens} tokens, {features} -> {out}, {MICRO} "
          f"micro-batches a step\n")
    print("| recipe | C API ms a step | JAX, a call a micro-batch | C / JAX | JAX, one program | C / JAX | JAX enqueues in ms |\n"
          "|---|---:|---:|---:|---:|---:|---:|")
    for recipe in o.recipes.split(","):
        step_c, wait_c = c_step(context, recipe, x, w, dy)
        apart, whole = jax_steps(recipe, x, w, dy)
        steps = [(step_c, wait_c), (apart, jax.block_until_ready), (whole, jax.block_until_ready)]
        dw = [np.asarray(jax.block_until_ready(s())[-1])[:64] for s, _ in steps[1:]]
        step_c(), wait_c(None)
        for s in steps:
            timed(*s, 2)
        repeats = max(1, int(o.round_ms * 1e-3 / timed(*steps[0], 3)[0]))
        rounds = np.array([[timed(*s, repeats) for s in steps] for _ in range(o.rounds)])
        ms = np.median(rounds, 0) * 1e3
        ratio = [np.median(rounds[:, 0, 0] / rounds[:, i, 0]) for i in (1, 2)]
        print(f"| {recipe} | {ms[0, 0]:.3f} | {ms[1, 0]:.3f} | {ratio[0]:.3f} | {ms[2, 0]:.3f} | {ratio[1]:.3f} | {ms[1, 1]:.3f} |", flush=True)
        assert (dw[0] == dw[1]).all() and np.isfinite(dw[0]).all()


if __name__ == "__main__":
    main()
