# SPDX-License-Identifier: Apache-2.0
"""FP8 training on CPU and CUDA: libfp8 for Python.

    import fp8
    linear = fp8.Linear(4096, 16384, "block")
    qw = linear.quantize_weight(w)              # once an optimizer step
    y, saved = linear.forward(x, qw)
    dx, dw, _ = linear.backward(dy, qw, saved)

Arrays come in as they are, without a copy: numpy with ml_dtypes' types, or anything with __dlpack__ (torch, CuPy, JAX); fp8.view(a, "e4m3")
sees uint8 or uint16 as an FP8 or BF16 type. They are row-major; leading dimensions are rows. Results are numpy arrays on the CPU and
fp8.DeviceArray on CUDA. Contexts, recipes and linears may be shared between threads; a Comm belongs to one thread. Long calls give up
the GIL. fp8.capi is the C API itself.
"""
from . import capi
from ._arrays import DeviceArray, view
from ._errors import ArgumentError, CommError, Error, NoMemoryError, UnsupportedError
from .comm import Comm
from .context import Context, default_context, set_default_context
from .gemm import gemm
from .linear import Gradients, Linear
from .param import ParamList
from .quantize import STATS, QTensor, amax, cast, measure, quantize, transpose
from .recipe import Recipe

__version__ = ".".join(str(n) for n in (capi.fp8_version() // 10000, capi.fp8_version() // 100 % 100, capi.fp8_version() % 100))
__all__ = ["ArgumentError", "Comm", "CommError", "Context", "DeviceArray", "Error", "Gradients", "Linear", "NoMemoryError", "ParamList", "QTensor",
           "Recipe", "STATS", "UnsupportedError", "amax", "capi", "cast", "default_context", "gemm", "measure", "quantize",
           "set_default_context", "transpose", "view"]
