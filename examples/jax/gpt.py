# SPDX-License-Identifier: Apache-2.0
"""A byte-level GPT in JAX whose linear layers run in FP8, each recipe paired with BF16: same start, same batches.
It needs fp8 with JAX (docs/jax.md), and optax: pip install optax

    python gpt.py                                    a small model on the CPU
    python gpt.py --layers 14 --dim 768 --heads 12 --seq 1024 --batch 32 --steps 500 --attention cudnn      100 M parameters, on a GPU

Each block's qkv, projection, fc1 and fc2 use fp8.jax.linear; embedding and head stay in BF16, as is the habit. Weights are quantized
once a step and serve all micro-batches; masters are F32 and live in optax. Recipe "jax" is JAX's own BF16: jnp.dot instead of
fp8.jax.linear. The recipes' programs are compiled side by side before the first trains.
"""
import argparse
import csv
import glob
import json
import math
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fp8.jax as fp8
from fp8 import Recipe

LAYERS = ("qkv", "proj", "fc1", "fc2")


def read_text(path):
    """the bytes to learn: a file, or Perl's manual (Debian's perl-doc), or the licence texts that every Debian has"""
    manuals = sorted(glob.glob("/usr/share/perl/*/pod"))[:1]  # the other versions are links
    names = [path] if path else sorted(glob.glob(f"{manuals[0]}/*.pod")) if manuals else sorted(glob.glob("/usr/share/common-licenses/*"))
    data = b"".join(pathlib.Path(n).read_bytes() for n in names)
    if len(data) < 100_000:
        raise SystemExit(f"{len(data)} bytes of text are too few: give a file with --data")
    return np.frombuffer(data, np.uint8)


def init(key, o):
    """F32 masters"""
    def weight(key, out, features, scale=1.0):
        return jax.random.normal(key, (out, features)) * 0.02 * scale

    keys = iter(jax.random.split(key, 4 * o.layers + 3))
    shapes = {"qkv": (3 * o.dim, o.dim), "proj": (o.dim, o.dim), "fc1": (4 * o.dim, o.dim), "fc2": (o.dim, 4 * o.dim)}
    block = lambda: {n: {"w": weight(next(keys), *s, 1 / math.sqrt(2 * o.layers) if n in ("proj", "fc2") else 1.0),  # noqa: E731
                         "b": jnp.zeros(s[0])} for n, s in shapes.items()} | {"ln1": jnp.ones(o.dim), "ln2": jnp.ones(o.dim)}
    return {"embed": weight(next(keys), 256, o.dim), "place": weight(next(keys), o.seq, o.dim), "head": weight(next(keys), 256, o.dim),
            "norm": jnp.ones(o.dim), "blocks": [block() for _ in range(o.layers)]}


def linear(x, w, bias):
    """fp8.jax.linear, or JAX's own product where the weight is a plain array"""
    return fp8.linear(x, w, bias) if isinstance(w, fp8.QWeight) else x @ w.astype(x.dtype).T + bias.astype(x.dtype)


def quantized(params, recipe):
    """the same tree with FP8 weights in the blocks: once an optimizer step"""
    weight = lambda w: w if recipe == "jax" else fp8.quantize_weight(w, recipe)  # noqa: E731
    blocks = [{n: {"w": weight(v["w"]), "b": v["b"]} if n in LAYERS else v for n, v in b.items()} for b in params["blocks"]]
    return {**params, "blocks": blocks}


def norm(x, gain):
    x = x.astype(jnp.float32)
    return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * gain).astype(jnp.bfloat16)


def block(x, p, heads, attention):
    n, t, d = x.shape
    qkv = linear(norm(x, p["ln1"]), p["qkv"]["w"], p["qkv"]["b"]).reshape(n, t, 3, heads, d // heads)
    a = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True, implementation=attention)
    a = a.reshape(n, t, d)
    x = x + linear(a, p["proj"]["w"], p["proj"]["b"])
    h = jax.nn.gelu(linear(norm(x, p["ln2"]), p["fc1"]["w"], p["fc1"]["b"]))
    return x + linear(h, p["fc2"]["w"], p["fc2"]["b"])


def loss_fn(params, tokens, heads, attention):
    x = (params["embed"][tokens[:, :-1]] + params["place"][: tokens.shape[1] - 1]).astype(jnp.bfloat16)
    for p in params["blocks"]:
        x = jax.checkpoint(partial(block, heads=heads, attention=attention))(x, p)
    logits = jnp.einsum("btd,vd->btv", norm(x, params["norm"]), params["head"].astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def optimizer_of(o):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.warmup_cosine_decay_schedule(0, o.lr, o.steps // 10 + 1, o.steps)))


def program(recipe, o):
    """an optimizer step, to be compiled"""
    optimizer = optimizer_of(o)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(masters, state, micro_batches):
        params = quantized(masters, recipe)
        one = fp8.value_and_grad(partial(loss_fn, heads=o.heads, attention=o.attention))

        def add(total, tokens):
            loss, grads = one(params, tokens)
            return jax.tree.map(jnp.add, total, (loss, grads)), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, masters))
        loss, grads = jax.tree.map(lambda a: a / o.micro, jax.lax.scan(add, zero, micro_batches)[0])
        updates, state = optimizer.update(grads, state, masters)
        return optax.apply_updates(masters, updates), state, loss

    masters = jax.eval_shape(lambda: init(jax.random.key(0), o))
    tokens = jax.ShapeDtypeStruct((o.micro, o.batch // o.micro, o.seq + 1), jnp.int32)
    return step.lower(masters, jax.eval_shape(optimizer.init, masters), tokens)


def train(recipe, step, text, o):
    """the losses of a run, and its tokens a second"""
    masters = init(jax.random.key(o.seed), o)
    state = optimizer_of(o).init(masters)
    rng, losses, begin = np.random.default_rng(o.seed), [], None
    for i in range(o.steps):
        starts = rng.integers(0, len(text) - o.seq - 1, o.batch)
        tokens = np.stack([text[s:s + o.seq + 1] for s in starts]).astype(np.int32).reshape(o.micro, o.batch // o.micro, -1)
        masters, state, loss = step(masters, state, tokens)
        losses.append(loss)
        if i == 1:
            loss.block_until_ready()  # has run once warm
            begin = time.perf_counter()
        if o.verbose and (i + 1) % max(o.steps // 10, 1) == 0:
            print(f"  {recipe:8} step {i + 1:5}  loss {float(loss):.4f}", flush=True)
    losses = [float(v) for v in losses]
    rate = o.batch * o.seq * (o.steps - 2) / max(time.perf_counter() - begin, 1e-9)
    return losses, rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"layers": 2, "dim": 128, "heads": 4, "seq": 64, "batch": 8, "micro": 2, "steps": 60, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--recipes", default="tensor,row,block,mx", help="compared with none (BF16); jax: JAX's own BF16")
    parser.add_argument("--attention", choices=("xla", "cudnn"), default="xla")
    parser.add_argument("--data", help="a file of text")
    parser.add_argument("--json", help="write losses and tokens/s here")
    parser.add_argument("--csv", help="write a line of losses a step here, a column a recipe")
    parser.add_argument("--no-check", dest="check", action="store_false", help="few steps: do not judge the losses")
    parser.add_argument("--quiet", dest="verbose", action="store_false")
    o = parser.parse_args()
    if o.steps < 3:
        parser.error(f"--steps {o.steps}: at least 3 are needed, the first two are not timed")
    text, results = read_text(o.data), {}
    count = sum(a.size for a in jax.tree.leaves(jax.eval_shape(lambda: init(jax.random.key(0), o))))
    print(f"{count / 1e6:.1f} M parameters, {o.batch} x {o.seq} tokens a step in {o.micro} micro-batches, {len(text)} bytes of text", flush=True)
    recipes = ["none", *o.recipes.split(",")]
    for recipe in recipes:
        if recipe != "jax":
            Recipe(recipe)  # a wrong name ends here
    begin = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        steps = list(pool.map(lambda traced: traced.compile(), [program(r, o) for r in recipes]))
    print(f"compiled in {time.perf_counter() - begin:.1f} s", flush=True)
    for recipe, step in zip(recipes, steps):
        losses, rate = train(recipe, step, text, o)
        results[recipe] = {"losses": losses, "tokens_per_second": rate}
        tail = lambda r: float(np.mean(results[r]["losses"][-max(o.steps // 10, 1):]))  # noqa: E731
        gap = tail(recipe) - tail("none")
        print(f"{recipe:8} loss {losses[0]:.4f} -> {tail(recipe):.4f}   gap to BF16 {gap:+.4f} ({100 * gap / tail('none'):+.2f} %)   "
              f"{rate:.0f} tokens/s on {jax.default_backend()}", flush=True)
        if o.csv:
            with open(o.csv, "w", newline="") as f:
                lines = csv.writer(f)
                lines.writerow(["step", *results])
                lines.writerows([i + 1, *(f"{v:.5f}" for v in row)] for i, row in enumerate(zip(*(r["losses"] for r in results.values()))))
        if o.check and not tail(recipe) < 0.8 * losses[0]:
            raise SystemExit(f"{recipe}: the loss did not fall below 0.8 of the first, {0.8 * losses[0]:.4f}; few steps are not judged with --no-check")
        if o.check and abs(gap) > 0.05 * tail("none"):
            raise SystemExit(f"{recipe}: the gap to BF16 is larger than 5 %")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps({"options": vars(o), "results": results}))


if __name__ == "__main__":
    main()
