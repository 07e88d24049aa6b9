# SPDX-License-Identifier: Apache-2.0
"""The golden vectors, through Python."""
import ml_dtypes
import numpy as np

import fp8
from conftest import host

KINDS = {  # golden kind: (role, fields of the recipe)
    "tensor_fp32": ("activation", {"preset": "tensor"}), "row_pow2": ("activation", {"preset": "row"}),
    "b1x128_pow2": ("activation", {"preset": "block"}), "b1x128_fp32": ("activation", {"preset": "block", "scale_rule": "fp32"}),
    "b128x128_pow2": ("weight", {"preset": "block"}), "b128x128_fp32": ("weight", {"preset": "block", "scale_rule": "fp32"}),
    "mx1x32_rceil": ("activation", {"preset": "mx"}), "mx1x32_floor": ("activation", {"preset": "mx", "scale_rule": "e8m0_floor"}),
    "mx32x32_rceil": ("weight", {"preset": "mx_w2d"}),
}
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def load(golden, case, part, which="expected"):
    folder, manifest = golden
    entry = next(c for c in manifest["cases"] if (c["family"], c["case"]) == case)
    return np.load(folder / entry[which][part]["file"])


def test_every_code_decodes(golden, anywhere, put):
    for fmt in ("e4m3", "e5m2"):
        codes = np.arange(256, dtype=np.uint8).view(TYPES[fmt])
        np.testing.assert_array_equal(host(fp8.cast(put(codes), "f32", context=anywhere)), load(golden, ("table", fmt), "f32"))


def test_every_16_bit_pattern_encodes(golden, anywhere, put):
    for source in ("bf16", "f16"):
        values = np.arange(65536, dtype=np.uint16).view(TYPES[source])
        for fmt in ("e4m3", "e5m2"):
            for name, saturate in (("sat", True), ("nosat", False)):
                got = host(fp8.cast(put(values), fmt, saturate=saturate, context=anywhere)).view(np.uint8)
                np.testing.assert_array_equal(got, load(golden, ("exhaustive", f"{source}_to_{fmt}"), name), err_msg=f"{source} {fmt} {name}")


def inputs(golden):
    folder, manifest = golden
    found = {}
    for case in manifest["cases"]:
        if case["family"] == "qinput":
            part = next(iter({**case["inputs"], **case["expected"]}.values()))
            array = np.load(folder / part["file"])
            kind = case["case"].rsplit("_", 1)[1]
            found[case["case"]] = array if kind == "f32" else array.view(TYPES[kind])
    return found


def test_quantizers(golden, anywhere, put):
    folder, manifest = golden
    arrays, ran = inputs(golden), 0
    for case in manifest["cases"]:
        if case["family"] != "quant" or case["params"]["kind"] not in KINDS:
            continue
        role, fields = KINDS[case["params"]["kind"]]
        fields = dict(fields)
        x, fmt = arrays[case["params"]["input"]], case["params"]["fmt"]
        if role == "weight" and x.dtype == np.float32:
            fields["master_rounding"] = "direct"
        if fmt == "e5m2":
            if role == "weight":
                continue
            role = "gradient"
            fields["gradient_dtype"] = "e5m2"
        recipe = fp8.Recipe(fields.pop("preset"), **fields)
        stats = put(np.zeros(8, np.uint64))
        q = fp8.quantize(put(x), recipe, role, "row", stats=stats, context=anywhere)
        np.testing.assert_array_equal(host(q.row).view(np.uint8), np.load(folder / case["expected"]["q"]["file"]), err_msg=case["case"])
        scale = np.load(folder / case["expected"]["s"]["file"])
        got = host(q.row_scale)
        got = got.view(np.uint8) if scale.dtype == np.uint8 else got
        np.testing.assert_array_equal(got.reshape(scale.shape), scale, err_msg=case["case"])
        want = case["params"]["stats"]
        assert dict(zip(fp8.STATS, host(stats).tolist())) == {
            "count": want["n"], **{k: want[k] for k in ("nan", "inf", "nonzero", "underflow", "saturated")}}, case["case"]
        ran += 1
    assert ran >= 50


def test_linear_products(golden, anywhere, put):
    folder, manifest = golden
    recipes = {"tensor_hybrid": "tensor", "row_e4m3": fp8.Recipe("row", scale_rule="fp32"), "block_pow2": "block", "mx": "mx", "mx_w2d": "mx_w2d"}
    ran = 0
    for prefix in ("a", "ragged"):
        x, w, dy = (load(golden, ("linear", f"{prefix}_in"), n, "inputs").view(ml_dtypes.bfloat16) for n in ("x", "w", "dy"))
        for name, recipe in recipes.items():
            qx, qw, qdy = (fp8.quantize(put(a), recipe, role, context=anywhere) for a, role in ((x, "activation"), (w, "weight"), (dy, "gradient")))
            for kind, operands in (("fprop", (qx, qw, "row", "row")), ("dgrad", (qdy, qw, "row", "col")), ("wgrad", (qdy, qx, "col", "col"))):
                try:
                    want = load(golden, ("linear", f"{prefix}_{name}_{kind}"), "y64")
                except StopIteration:
                    continue
                got = host(fp8.gemm(*operands, out_dtype="f32")).astype(np.float64)
                assert np.linalg.norm(got - want) <= (2e-4 if anywhere.is_cuda else 1e-5) * np.linalg.norm(want), f"{prefix} {name} {kind}"
                ran += 1
    assert ran >= 20
