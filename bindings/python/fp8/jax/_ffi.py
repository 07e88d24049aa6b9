# SPDX-License-Identifier: Apache-2.0
"""The handlers, registered under one name for CPU and CUDA; and what a call needs while it is traced."""
from __future__ import annotations

import ctypes
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from .. import capi
from .._dtypes import code_of, numpy_of
from ..context import COUNTERS, Context
from ..quantize import _ROLES as ROLES
from ..quantize import _SIDE as SIDE
from ..quantize import _SIDES as SIDES
from ..recipe import as_recipe

HANDLERS = ("quantize", "amax", "dequantize", "gemm", "linear_forward", "linear_backward", "param_amax", "param_cast", "param_assemble")
# bits of the attribute `mask`: which optional arrays are there
AMAX_GIVEN, BIAS, SAVE, DX, DW, DBIAS, ACCUMULATE, FROM_X = (1 << i for i in range(8))


_library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "libfp8_jax.so"))
_library.fp8_jax_prepare.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, *[ctypes.c_int64] * 3, *[ctypes.c_int32] * 2]
_library.fp8_jax_counters.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p]


def _register() -> None:
    for name in HANDLERS:
        for platform, suffix in (("cpu", "cpu"), ("CUDA", "cuda")):
            jax.ffi.register_ffi_target(f"fp8_{name}", jax.ffi.pycapsule(getattr(_library, f"fp8_jax_{name}_{suffix}")), platform=platform,
                                        api_version=1)


_register()


def custom_calls() -> list:
    """jax.export's checks to disable for programs with these operations: export(f, disabled_checks=custom_calls())"""
    return [jax.export.DisabledSafetyCheck.custom_call(f"fp8_{name}") for name in HANDLERS]


def counters(device=None) -> dict[str, int]:
    """What the handlers have done on a jax.Device (the default one without it): quantizations, gemms, those emulated or padded, ...

    A replayed command buffer runs no handler, so its work is not counted again."""
    device = device or jax.local_devices()[0]
    c, on_gpu = capi.fp8_counters(), device.platform in ("gpu", "cuda")
    if _library.fp8_jax_counters(on_gpu, device.local_hardware_id or 0 if on_gpu else 0, int(c.this)):
        raise RuntimeError(f"the handlers have no context on {device}")
    return {name: getattr(c, name) for name in COUNTERS}


@functools.lru_cache(maxsize=None)
def contexts() -> tuple[Context, ...]:
    """one context for each kind of device here: they are asked for sizes while tracing"""
    found = [Context("cpu")]
    if jax.default_backend() == "gpu":
        found.append(Context("cuda"))
        prepare_cuda("", 0, 0, 0, "f32", "f32")
    return tuple(found)


def prepare_cuda(recipe: str, rows: int, in_features: int, out_features: int, input_dtype, output_dtype) -> None:
    """makes the handlers' contexts and a linear's plans on every CUDA device, before a command buffer may be captured"""
    for device in jax.local_devices():
        _library.fp8_jax_prepare(1, device.local_hardware_id, recipe.encode(), rows, in_features, out_features, code_of(input_dtype),
                                 code_of(output_dtype))


def recipe_text(recipe) -> str:
    """the canonical text, which is the handlers' attribute"""
    return str(as_recipe(recipe))


@functools.lru_cache(maxsize=4096)
def describe(recipe: str, role: str, rows: int, cols: int, side: str):
    """((codes shape, dtype), (scales shape, dtype)) of one side, or None where it is not quantized"""
    q = capi.fp8_qtensor()
    capi.fp8_recipe_describe(as_recipe(recipe).handle, None, ROLES[role], rows, cols, SIDES[side], q)
    kind = q.row_kind if side == "row" else q.col_kind
    if kind in (0, capi.FP8_SCALING_UNQUANTIZED, capi.FP8_SCALING_COPY):
        return None
    codes, scale = (q.row, q.row_scale) if side == "row" else (q.col, q.col_scale)
    return (codes.shape[:codes.ndim], numpy_of(codes.dtype)), (scale.shape[:scale.ndim], numpy_of(scale.dtype))


@functools.lru_cache(maxsize=4096)
def kind(recipe: str, role: str, side: str) -> int:
    """enum fp8_scaling of a side"""
    q = capi.fp8_qtensor()
    capi.fp8_recipe_describe(as_recipe(recipe).handle, None, ROLES[role], 128, 128, SIDES[side], q)
    return q.row_kind if side == "row" else q.col_kind


def structs(*sides):
    """ShapeDtypeStructs of described sides, None left out"""
    return [jax.ShapeDtypeStruct(shape, dtype) for side in sides if side for shape, dtype in side]


def _shaped(shape, dtype):
    t = capi.fp8_tensor()
    t.dtype, t.ndim, t.shape = code_of(dtype), len(shape), shape
    capi.fp8_tensor_compact(t)
    return t


@functools.lru_cache(maxsize=4096)
def quantize_bytes(recipe: str, role: str, rows: int, cols: int, dtype, sides: int) -> int:
    """scratch of a quantize or amax call"""
    most = 0
    for c in contexts():
        r = as_recipe(recipe).handle
        q, args, x = capi.fp8_qtensor(), capi.fp8_quantize_args(), _shaped((rows, cols), dtype)
        capi.fp8_recipe_describe(r, None, ROLES[role], rows, cols, sides, q)
        args.x, args.q, args.role = x, q, ROLES[role]
        most = max(most, capi.fp8_quantize_workspace(c.handle, r, args))
    return most


@functools.lru_cache(maxsize=4096)
def linear_bytes(recipe: str, rows: int, in_features: int, out_features: int, input_dtype, output_dtype) -> int:
    """scratch of a linear's calls"""
    most = 0
    for c in contexts():
        config = capi.fp8_linear_config()
        config.in_features, config.out_features, config.recipe = in_features, out_features, as_recipe(recipe).handle
        config.input_dtype, config.output_dtype = code_of(input_dtype), code_of(output_dtype)
        most = max(most, capi.fp8_linear_workspace(capi.fp8_linear_create(c.handle, config), rows, 0))
    if len(contexts()) > 1:
        prepare_cuda(recipe, rows, in_features, out_features, input_dtype, output_dtype)
    return most


def call(name: str, results, operands, scratch: int, aliases: dict | None = None, **attributes):
    """one handler call; its scratch is one more result, dropped here"""
    results = [*results, jax.ShapeDtypeStruct((max(scratch, 1),), jnp.uint8)]
    attributes = {k: np.int64(v) if isinstance(v, (int, np.integer)) else v for k, v in attributes.items()}
    out = jax.ffi.ffi_call(f"fp8_{name}", results, vmap_method="sequential", input_output_aliases=aliases)(*operands, **attributes)
    return out[:-1]


def want_array(name: str, x, wanted: str) -> None:
    """fails unless x has a shape and a dtype"""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"{name} must be {wanted}, not {type(x).__name__}")


def matrix(x):
    """[..., cols] as [rows, cols]"""
    want_array("x", x, "an array")
    if x.ndim < 1:
        raise ValueError("a matrix is wanted, x has no dimension")
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
