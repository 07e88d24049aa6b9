# SPDX-License-Identifier: Apache-2.0
"""What Python adds to a small quantize, in microseconds: run by hand on an idle machine.

    PYTHONPATH=build/release/python python bindings/python/bench/overhead.py
"""
import time

import ml_dtypes
import numpy as np

import fp8
from fp8 import capi


def best(call, repeats=2000, rounds=9):
    """seconds of this thread in the fastest round"""
    least = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(repeats):
            call()
        least = min(least, (time.thread_time() - begin) / repeats)
    return least


def main():
    context, recipe = fp8.Context("cpu", threads=1), fp8.Recipe("tensor")
    for shape in ((1, 16), (16, 128)):
        x = np.ones(shape, ml_dtypes.bfloat16)
        q = fp8.quantize(x, recipe, sides="row", context=context)
        args, t = capi.fp8_quantize_args(), capi.fp8_tensor()
        kept = capi.tensor_of(x, 0, t)
        args.x, args.q, args.role = t, q.struct, capi.FP8_ROLE_ACTIVATION
        c = best(lambda: capi.fp8_quantize(context.handle, recipe.handle, args, None))
        into = best(lambda: fp8.quantize(x, recipe, out=q, context=context))
        new = best(lambda: fp8.quantize(x, recipe, sides="row", context=context))
        print(f"{shape}: low level {1e6 * c:.2f} us; quantize(out=) +{1e6 * (into - c):.2f} us; quantize() +{1e6 * (new - c):.2f} us")
        del kept


if __name__ == "__main__":
    main()
