# SPDX-License-Identifier: Apache-2.0
"""Type stubs of the Python low level (fp8/capi.pyi)."""
KEYWORDS = {"from", "in", "is", "None", "lambda"}


def py_type(model, t, member=False):
    if t == ("name", "void"):
        return "None"
    if t[0] == "array":
        return "tuple[int, ...]"
    if t[0] == "ptr":
        name = t[2][1] if t[2][0] == "name" else None
        if name and (model.struct(name) or model.is_handle(name)):
            return f"{name} | None"
        if name == "char":
            return "str"
        return "int | None" if member else "Any"
    if t[1] in ("float", "double"):
        return "float"
    if model.struct(t[1]):
        return t[1]
    if t[1] == "fp8_stream":
        return "Any"
    return "int"


def emit(model, banner):
    out = [f"# {line}" for line in banner] + ["from typing import Any", ""]
    out += [f"{c.name}: int" for c in model.constants + [i for e in model.enums for i in e.items]] + [""]
    out += [f"class {h.name}: ..." for h in model.handles] + [""]
    for s in model.structs:
        out += [f"class {s.name}:", "    def __init__(self) -> None: ..."]
        out += [f"    {f.name}: {py_type(model, f.type, True)}" for f in s.fields]
    out.append("")
    destroyers = {h.destroy for h in model.handles} | {"fp8_struct_init"}
    for f in model.functions:
        if f.name in destroyers:
            continue
        inputs = [f"{p.name}: {py_type(model, p.type)}" for p in f.parameters if not p.out]
        outs = ["str"] if f.text() is not None else [
            py_type(model, p.type[2] if p.type[2][0] == "name" else p.type[2]).replace(" | None", "") for p in f.parameters if p.out]
        if f.result == ("name", "fp8_status"):
            result = "None" if not outs else outs[0] if len(outs) == 1 else f"tuple[{', '.join(outs)}]"
        else:
            result = py_type(model, f.result)
        out.append(f"def {f.name}({', '.join(inputs)}) -> {result}: ...")
    out += ["def tensor_of(array: Any, dtype: int, t_into: fp8_tensor) -> tuple[int, int, Any]: ...",
            "def tensor_on(c: fp8_context | None, array: Any, stream: Any, t_into: fp8_tensor) -> Any: ...", ""]
    return "\n".join(out)
