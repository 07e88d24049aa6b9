# SPDX-License-Identifier: Apache-2.0
"""FP8 for JAX: libfp8's operations as XLA FFI calls, on CPU and CUDA under one name.

    from fp8.jax import linear, quantize_weight, value_and_grad
    params = {"fc": quantize_weight(w, "block")}               # once an optimizer step
    loss, grads = value_and_grad(loss_fn)(params, batch)       # loss_fn calls linear(x, params["fc"]); grads["fc"] is an F32 array

Pure functions of arrays: right under jit, grad, remat, scan, vmap (equal to the stack of single calls), shard_map and jax.export
(disabled_checks=custom_calls()). A sharded operand outside shard_map is gathered by XLA: use shard_map, with axis_name for amaxes.
"""
from ._ffi import counters, custom_calls
from .flat import linear_flat
from .linear import QWeight, attach, linear, quantize_weight, slots, value_and_grad
from .ops import QArray, amax, dequantize, gemm, quantize
from .param import ParamPlan, param_amax, param_assemble, param_cast, param_plan

__all__ = ["ParamPlan", "QArray", "QWeight", "amax", "attach", "counters", "custom_calls", "dequantize", "gemm", "linear", "linear_flat", "param_amax",
           "param_assemble", "param_cast", "param_plan", "quantize", "quantize_weight", "slots", "value_and_grad"]
