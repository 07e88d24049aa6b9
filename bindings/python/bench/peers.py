# SPDX-License-Identifier: Apache-2.0
"""Quantization on one CPU thread beside what Python users do today, in one run; by hand on an idle machine. Seconds are the thread's own.

    PYTHONPATH=build/release/python python bindings/python/tests/peers.py [rows cols]

The peers' chain is what per-tensor current scaling takes: amax, scale, clamp, astype. torch joins if it is installed.
"""
import sys
import time

import ml_dtypes
import numpy as np

import fp8


def best(call, rounds=7):
    """seconds of the fastest round"""
    least = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        call()
        least = min(least, time.thread_time() - begin)
    return least


def main():
    rows, cols = (int(v) for v in sys.argv[1:3]) if len(sys.argv) > 2 else (2048, 4096)
    x = np.random.default_rng(1).standard_normal((rows, cols), np.float32)
    context = fp8.Context("cpu", threads=1)
    q = fp8.quantize(x, "tensor", sides="row", context=context)

    def chain():
        scale = np.float32(448) / np.abs(x).max()
        return np.clip(x * scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)

    assert (chain().view(np.uint8) == q.row.view(np.uint8)).mean() > 0.999
    results = {"fp8.quantize": best(lambda: fp8.quantize(x, "tensor", out=q, context=context)), "numpy + ml_dtypes": best(chain)}
    try:
        import torch

        torch.set_num_threads(1)
        t = torch.from_numpy(x)
        results["torch"] = best(lambda: (t * (448 / t.abs().max())).clamp(-448, 448).to(torch.float8_e4m3fn))
    except ImportError:
        print("torch is not installed: left out")
    ours = results["fp8.quantize"]
    for name, seconds in results.items():
        print(f"{name:18} {rows} x {cols} F32 -> E4M3  {x.size / seconds / 1e9:.3f} Gel/s   {seconds / ours:.1f} x the time of fp8.quantize")


if __name__ == "__main__":
    main()
