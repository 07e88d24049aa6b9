# SPDX-License-Identifier: Apache-2.0
"""ZeRO-1 with FP8 primary weights on 4 devices (4 CPU devices by default): each rank owns a quarter of every F32 master and of its optimizer
state. What is gathered is FP8, and equals gathering BF16 and quantizing it everywhere, bit for bit: so the losses are identical.
It needs fp8 with JAX (docs/jax.md), and optax: pip install optax

    python zero1.py [--recipe block] [--steps 20]
"""
import argparse
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import fp8.jax as fp8  # noqa: E402

SHAPES = [(256, 128), (256, 256), (64, 256)]
JUDGED = 20  # fewer steps are shown, not judged


def loss_fn(weights, x, target):
    for w in weights[:-1]:
        x = jax.nn.gelu(fp8.linear(x, w, axis_name="data"))
    y = fp8.linear(x, weights[-1], axis_name="data").astype(jnp.float32)
    return jnp.mean((y - target) ** 2)


def gather_fp8(plan, rank, masters):
    """amaxes are reduced, the owned elements cast, one byte an element travels (two directions for row and mx)"""
    amax = fp8.param_amax(plan, rank, masters)
    amax = lax.pmax(amax, "data") if amax.size else amax
    shard = fp8.param_cast(plan, rank, amax, masters)
    return fp8.param_assemble(plan, lax.all_gather(shard, "data", tiled=True), amax), shard.size


def gather_bf16(plan, rank, masters):
    """two bytes an element travel, every rank quantizes everything"""
    weights, nbytes = [], 0
    for i, (rows, cols) in enumerate(plan.shapes):
        flat = lax.all_gather(masters[i].astype(jnp.bfloat16), "data", tiled=True)[: rows * cols]
        weights.append(fp8.quantize_weight(flat.reshape(rows, cols), plan.recipe))
        nbytes += 2 * masters[i].size
    return weights, nbytes


def train(gather, plan, mesh, steps, seed):
    optimizer = optax.adam(1e-3)
    rng = np.random.default_rng(seed)
    masters = [plan.shards(jnp.asarray(rng.standard_normal(s, np.float32) / np.sqrt(s[1])), i) for i, s in enumerate(plan.shapes)]
    teacher = rng.standard_normal((128, 64), np.float32) / 11
    sizes = {}

    def step(masters, state, x, target):
        rank = lax.axis_index("data")
        mine = [m[0] for m in masters]
        weights, sizes["bytes"] = gather(plan, rank, mine)
        loss, grads = fp8.value_and_grad(loss_fn)(weights, x, target)
        # each rank takes its own part of the summed gradient: a reduce-scatter
        own = [lax.psum_scatter(jnp.pad(g.reshape(-1), (0, 4 * m.size - g.size)), "data", tiled=True) / 4 for g, m in zip(grads, mine)]
        updates, state = optimizer.update(own, jax.tree.map(lambda a: a[0], state), mine)
        new = optax.apply_updates(mine, updates)
        return [m[None] for m in new], jax.tree.map(lambda a: a[None], state), lax.pmean(loss, "data")

    run = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P("data"), P("data"), P("data"), P("data")), out_specs=(P("data"), P("data"), P()),
                                check_vma=False))
    state = jax.vmap(lambda *m: optimizer.init(list(m)))(*masters)
    losses = []
    for _ in range(steps):
        x = rng.standard_normal((128, 128), np.float32)
        target = np.tanh(x @ teacher)
        masters, state, loss = run(masters, state, x.astype(jnp.bfloat16), target)
        losses.append(float(loss))
    return losses, masters, sizes["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="tensor,block,mx")
    parser.add_argument("--steps", type=int, default=JUDGED, help=f"from {JUDGED} on (the default) the loss must fall below 0.8 of the first")
    o = parser.parse_args()
    if o.steps < 1:
        parser.error(f"--steps {o.steps}: at least 1 is needed")
    if len(jax.devices()) < 4:
        raise SystemExit(f"4 devices are needed, JAX has {len(jax.devices())}; on the CPU XLA_FLAGS=--xla_force_host_platform_device_count=4 makes them")
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    plans = {recipe: fp8.param_plan(recipe, SHAPES, world=4) for recipe in o.recipe.split(",")}  # a wrong name ends here
    for recipe, plan in plans.items():
        a, masters_a, sent_a = train(gather_fp8, plan, mesh, o.steps, 3)
        b, masters_b, sent_b = train(gather_bf16, plan, mesh, o.steps, 3)
        same = a == b and all((np.asarray(m) == np.asarray(n)).all() for m, n in zip(masters_a, masters_b))
        print(f"{recipe:7} loss {a[0]:.5f} -> {a[-1]:.5f}   a rank sends {sent_a} bytes instead of {sent_b}   "
              f"FP8 gather == BF16 gather + quantize, bit for bit: {same}", flush=True)
        if not same:
            raise SystemExit(f"{recipe}: the two differ")
        if o.steps >= JUDGED and not a[-1] < 0.8 * a[0]:
            raise SystemExit(f"{recipe}: the loss is {a[-1]:.5f} after {o.steps} steps, less than 0.8 of the first, {0.8 * a[0]:.5f}, was required")


if __name__ == "__main__":
    main()
