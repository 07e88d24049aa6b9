# SPDX-License-Identifier: Apache-2.0
"""Recipes: format, granularity and coverage."""
from __future__ import annotations

from functools import lru_cache

from . import capi
from ._dtypes import code_of
from ._errors import Known

_FIELDS = ("preset", "activation_dtype", "weight_dtype", "gradient_dtype", "activation_scaling", "weight_scaling", "gradient_scaling",
           "scale_rule", "coverage", "fast_accumulation", "amax_floor", "history", "margin", "master_rounding")


_NAMES = {name: Known.constants(name, prefix) for name, prefix in {
    "preset": "FP8_PRESET_", "scale_rule": "FP8_SCALE_", "master_rounding": "FP8_MASTER_",
    **{f"{role}_scaling": "FP8_SCALING_" for role in ("activation", "weight", "gradient")}}.items()}
_BITS = ("coverage", "fast_accumulation")
for _name in _BITS:
    _NAMES[_name] = Known(_name, {"none": capi.FP8_NO_GEMM, "fprop": capi.FP8_FPROP, "dgrad": capi.FP8_DGRAD, "wgrad": capi.FP8_WGRAD,
                                  "no_gemm": capi.FP8_NO_GEMM})


def _value(name: str, value):
    if name.endswith("_dtype"):
        return code_of(value)
    if not isinstance(value, str):
        return value
    if name not in _NAMES:
        raise TypeError(f"{name} is a number, not {value!r}")
    bits = 0
    for part in value.split("|") if name in _BITS else [value]:
        bits |= _NAMES[name][part.strip().lower()]
    return bits


class Recipe:
    """How a linear layer's tensors become FP8. Immutable.

    Recipe("block"), Recipe("tensor"), "row", "mx", "mx_w2d", "none" (BF16), or a name as other projects have ("blockwise", "mxfp8").
    Keywords replace single fields: Recipe("block", scale_rule="fp32"), Recipe("tensor", coverage="fprop|dgrad").
    """

    def __init__(self, text: str = "block", **fields):
        self._handle = capi.fp8_recipe_from_string(text)
        if fields:
            config = capi.fp8_recipe_config()
            capi.fp8_recipe_query(self._handle, config)
            preset = capi.fp8_recipe_config()
            capi.fp8_recipe_config_preset(config.preset, preset)
            for name, value in fields.items():
                if name not in _FIELDS:
                    raise TypeError(f"a recipe has no field {name!r}; it has {', '.join(_FIELDS)}")
                setattr(config, name, _value(name, value))
            self._handle = capi.fp8_recipe_create(config)
        self._text = capi.fp8_recipe_to_string(self._handle)

    @property
    def handle(self):
        """the low-level handle"""
        return self._handle

    @property
    def config(self) -> dict:
        """every field, resolved"""
        c = capi.fp8_recipe_config()
        capi.fp8_recipe_query(self._handle, c)
        return {name: getattr(c, name) for name in _FIELDS}

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Recipe({self._text!r})"

    def __eq__(self, other) -> bool:
        return isinstance(other, Recipe) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self):
        return Recipe, (self._text,)


@lru_cache(maxsize=256)
def _by_text(text: str) -> Recipe:
    return Recipe(text)


def as_recipe(recipe: Recipe | str) -> Recipe:
    """a recipe from its text or itself"""
    return recipe if isinstance(recipe, Recipe) else _by_text(recipe)
