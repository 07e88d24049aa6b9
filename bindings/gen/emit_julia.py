# SPDX-License-Identifier: Apache-2.0
"""Julia: the module LibFP8. One wrapper a function: outputs are returned, a failing status is thrown by `check`."""
import re

NAMES = {
    "void": "Cvoid", "char": "Cchar", "size_t": "Csize_t", "float": "Cfloat", "double": "Cdouble", "int": "Cint",
    "unsigned int": "Cuint", "fp8_status": "Int32", "fp8_stream": "Ptr{Cvoid}",
    **{f"{u}int{n}_t": f"{'U' if u else ''}Int{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
}
KEYWORDS = {"type", "in", "end", "begin", "function", "local", "where", "struct", "module"}


def safe(name):
    return f"{name}_" if name in KEYWORDS else name


class Emitter:
    def __init__(self, model):
        self.model = model

    def type(self, t):
        if t[0] == "ptr":
            return "Ptr{Cvoid}" if t[2][0] == "func" else f"Ptr{{{self.type(t[2])}}}"
        if t[0] == "array":
            return f"NTuple{{{t[1]},{self.type(t[2])}}}"
        alias = self.model.alias(t[1])
        if t[1] not in NAMES and alias:
            return self.type(alias.type)
        return NAMES.get(t[1], t[1])

    def default(self, f, sized_name):
        if f.name == "struct_size":
            return f"sizeof({sized_name})"
        if f.type[0] == "array":
            return f"ntuple(_ -> zero({self.type(f.type[2])}), {f.type[1]})"
        t = self.type(f.type)
        if t.startswith("Ptr"):
            return "C_NULL"
        return f"{t}()" if self.model.struct(f.type[1]) else "0"


def docs(text, signature):
    body = re.sub(r"@param(\[[a-z,]+\])?\s+(\w+)", r"* `\2`:", text)
    body = re.sub(r"@returns?\b", "Returns", body)
    body = body.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return ['"""', f"    {signature}", *(["", body] if body else []), '"""']


def emit(model, banner):
    e = Emitter(model)
    out = [f"# {line}" for line in banner]
    out += ["module LibFP8", "", "# The loader finds the library by this name; FP8.__init__ opens it first where FP8_LIBRARY says so.",
            'const lib = "libfp8.so.0"', "", "include(\"error.jl\")  # check: a failing status becomes an FP8Error", ""]
    for c in model.constants:
        if not c.name.startswith("FP8_VERSION"):
            out.append(f"const {c.name} = {c.value}")
    for en in model.enums:
        out.append(f"# enum {en.name}")
        out += [f"const {i.name} = {'UInt32' if en.unsigned else 'Int32'}({i.value})" for i in en.items]
    out.append("")
    for h in model.handles:
        out += [f"\"An opaque handle, given back by `{h.destroy}`.\"", f"mutable struct {h.name} end"]
    out.append("")
    for s in model.structs:
        out += docs(s.doc, f"{s.name}(; fields...)")
        out += [f"struct {s.name}"] + [f"    {safe(f.name)}::{e.type(f.type)}" for f in s.fields] + ["end"]
        pairs = ", ".join(f"{safe(f.name)} = {e.default(f, s.name)}" for f in s.fields)
        out += [f"{s.name}(; {pairs}) =", f"    {s.name}({', '.join(safe(f.name) for f in s.fields)})"]
        out.append(f"Base.zero(::Type{{{s.name}}}) = {s.name}()")
    out.append("")
    for f in model.functions:
        out += function(e, f)
    out += layout(model)
    out += ["", "end # module", ""]
    return "\n".join(out)


def function(e, f):
    text = f.text()
    inputs = [safe(p.name) for p in f.parameters if not p.out]
    status = f.result == ("name", "fp8_status")
    lines = docs(f.doc, f"{f.name}({', '.join(inputs)})") + [f"function {f.name}({', '.join(inputs)})"]
    arguments, results = [], []
    for i, p in enumerate(f.parameters):
        name = safe(p.name)
        if text is not None and i >= text:
            continue
        if p.out:
            inner = e.type(p.type[2])
            lines.append(f"    {name} = Ref{{{inner}}}({'C_NULL' if inner.startswith('Ptr') else '0'})")
            results.append(f"{name}[]")
        arguments.append(name)
    if text is not None:
        lines += ["    text = Vector{UInt8}(undef, 65536)", "    needed = Ref{UInt64}(0)"]
        arguments += ["pointer(text)", "length(text)", "needed"]
        results.append("unsafe_string(pointer(text))")
    types = ", ".join(e.type(p.type) for p in f.parameters) + ("," if len(f.parameters) == 1 else "")
    call = f"ccall((:{f.name}, lib), {e.type(f.result)}, ({types}), {', '.join(arguments)})".replace("), )", "))").replace(", ())", ", ())")
    call = re.sub(r",\s*\)$", ")", call)
    if text is not None:
        call = f"GC.@preserve text {call}"
    if status:
        lines.append(f"    check({call})")
        value = {0: "nothing", 1: results[0] if results else ""}.get(len(results), ", ".join(results))
        lines.append(f"    return {'(' + value + ')' if len(results) > 1 else value}" if text is None else
                     f"    return GC.@preserve text {results[0]}")
    else:
        lines.append(f"    return {call}")
    return lines + ["end", ""]


def layout(model):
    out = ["\"Throws unless every struct lies in memory as C has it.\"", "function check_layout()", "    Sys.WORD_SIZE == 64 || return nothing"]
    for s in model.structs:
        offsets = ", ".join(str(f.offset) for f in s.fields)
        out.append(f"    same({s.name}, {s.size}, ({offsets},))")
    out += ["    return nothing", "end", "",
            "function same(T, size, offsets)",
            "    sizeof(T) == size || error(\"$T has $(sizeof(T)) bytes, C has $size\")",
            "    for i in 1:fieldcount(T)",
            "        fieldoffset(T, i) == offsets[i] || error(\"$T.$(fieldname(T, i)) lies at $(fieldoffset(T, i)), in C at $(offsets[i])\")",
            "    end", "end"]
    return out
