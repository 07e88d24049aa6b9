# SPDX-License-Identifier: Apache-2.0
"""Products of quantized matrices."""
from __future__ import annotations

from . import capi
from ._arrays import empty
from ._errors import Known
from .context import Context
from .quantize import _ONE, QTensor

_A_SIDE, _B_SIDE = Known("a_side", _ONE), Known("b_side", _ONE)


def gemm(a: QTensor, b: QTensor, a_side: str = "row", b_side: str = "row", *, bias=None, out=None, out_dtype="bfloat16",
         accumulate: bool = False, fast: bool = False, max_sms: int = 0, context: Context | None = None, stream: int | None = None):
    """d [m, n] = a . b^T (+ bias [n]), over the axis that the sides are scaled along.

    fprop: gemm(x, w); dgrad: gemm(dy, w, "row", "col"); wgrad: gemm(dy, x, "col", "col").
    """
    context = context or a.context
    if out is None:
        m = a.shape[0] if a_side == "row" else a.shape[1]
        n = b.shape[0] if b_side == "row" else b.shape[1]
        out = empty(context, (m, n), out_dtype, stream)
    flags = (capi.FP8_GEMM_ACCUMULATE if accumulate else 0) | (capi.FP8_GEMM_FAST_ACCUMULATION if fast else 0)
    capi.call_gemm(context.handle, a.struct, _A_SIDE[a_side], b.struct, _B_SIDE[b_side], bias, out, flags, max_sms, stream)
    return out
