# SPDX-License-Identifier: Apache-2.0
"""libfp8 on one CPU thread beside what Python users do today, by turns in one run; by hand on an idle machine.

    PYTHONPATH=build/release/python python bindings/python/bench/peers.py [--quantize 2048,4096] [--linear 512,2048,2048]

Quantization: the peers' chain is what per-tensor current scaling takes: amax, scale, clamp, astype, by numpy with ml_dtypes and by torch.
Linear forward of BF16 x with an FP8 weight: torch makes the weight BF16 (codes times scale) and multiplies; libfp8 quantizes x too and
multiplies in FP8. torch joins if it is installed. Each figure is the median of the rounds, each ratio that of the rounds' ratios.
"""
import argparse
import os
import pathlib
import statistics
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import fp8  # noqa: E402

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None
BF16 = ml_dtypes.bfloat16


def by_turns(calls, rounds=9):
    """name -> seconds of each round"""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return times


def table(title, work, unit, times):
    first = next(iter(times))
    print(f"\n{title}\n\n| | {unit} | time as a multiple of {first} |\n|---|---:|---:|")
    for name, seconds in times.items():
        ratio = statistics.median(a / b for a, b in zip(seconds, times[first]))
        print(f"| {name} | {work / statistics.median(seconds) / 1e9:.3f} | {ratio:.2f} |")


def quantization(rows, cols, context):
    x32 = np.random.default_rng(1).standard_normal((rows, cols), np.float32)
    for x, kind in ((x32, "F32"), (x32.astype(BF16), "BF16")):
        q = fp8.quantize(x, "tensor", sides="row", context=context)

        def chain(x=x):
            scale = np.float32(448) / np.abs(x).max().astype(np.float32)
            return np.clip(x * scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)

        assert (chain().view(np.uint8) == q.row.view(np.uint8)).mean() > 0.999
        calls = {"fp8.quantize": lambda x=x, q=q: fp8.quantize(x, "tensor", out=q, context=context), "numpy + ml_dtypes": chain}
        if torch:
            t = torch.from_numpy(x) if kind == "F32" else torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)

            def of_torch(t=t):
                return (t.float() * (448 / t.abs().max().float())).clamp(-448, 448).to(torch.float8_e4m3fn)

            assert (of_torch().view(torch.uint8).numpy() == q.row.view(np.uint8)).mean() > 0.999
            calls["torch"] = of_torch
        table(f"{rows} x {cols} {kind} -> E4M3, per-tensor current scaling", x.size, "Gel/s", by_turns(calls))


def linear(tokens, features, out, context):
    if not torch:
        return
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s, np.float32).astype(BF16) for s in ((tokens, features), (out, features)))
    tx, tw = (torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) for a in (x, w))
    scale = tw.abs().max().float() / 448
    codes = (tw.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)

    def of_torch():
        return tx @ (codes.to(torch.bfloat16) * scale.to(torch.bfloat16)).T

    calls = {}
    for recipe in ("tensor", "row", "block", "mx"):
        layer = fp8.Linear(features, out, recipe, context=context)
        qw, y = layer.quantize_weight(w, "row"), np.empty((tokens, out), BF16)
        calls[f"fp8 linear, {recipe}"] = lambda layer=layer, qw=qw, y=y: layer.forward(x, qw, save=False, out=y)[0]
    calls["torch: dequantize + BF16"] = of_torch
    calls["torch: BF16 alone"] = lambda: tx @ tw.T
    want = x.astype(np.float32) @ w.astype(np.float32).T
    for name, call in calls.items():
        got = call()
        got = got.float().numpy() if hasattr(got, "numpy") else np.asarray(got).astype(np.float32)
        assert np.linalg.norm(got - want) < 0.06 * np.linalg.norm(want), name
    table(f"forward of {tokens} tokens, {features} -> {out}, BF16 in and out", 2.0 * tokens * features * out, "GFLOP/s", by_turns(calls))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quantize", default="2048,4096", help="rows,cols")
    parser.add_argument("--linear", default="512,2048,2048", help="tokens,in,out")
    o = parser.parse_args()
    context = fp8.Context("cpu", threads=1)
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    print(f"{cpu}; {fp8.capi.fp8_build_info()}; numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}, torch {torch and torch.__version__}; "
          "one thread")
    print("\n".join(f"    {line.strip()}" for line in context.explain().splitlines() if "gemm" in line or "onednn" in line.lower()))
    quantization(*(int(n) for n in o.quantize.split(",")), context)
    linear(*(int(n) for n in o.linear.split(",")), context)


if __name__ == "__main__":
    main()
