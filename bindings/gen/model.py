# SPDX-License-Identifier: Apache-2.0
"""The public API as SWIG's parse tree shows it: one parser, read by every emitter.

`load(path)` returns a Model whose parts keep the headers' order. Types are nested tuples:
  ("name", "int64_t")  ("ptr", is_const, inner)  ("array", count, inner)  ("func", result, [arguments])
"""
import ast
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field

SCALARS = {  # name: (bytes, kind) in LP64
    "char": (1, "char"), "int8_t": (1, "int"), "uint8_t": (1, "uint"), "int16_t": (2, "int"), "uint16_t": (2, "uint"),
    "int32_t": (4, "int"), "uint32_t": (4, "uint"), "int64_t": (8, "int"), "uint64_t": (8, "uint"),
    "int": (4, "int"), "unsigned int": (4, "uint"), "size_t": (8, "size"), "float": (4, "float"), "double": (8, "float"),
}


@dataclass
class Constant:
    name: str
    value: object
    doc: str = ""


@dataclass
class Enum:
    name: str
    items: list  # of Constant
    unsigned: bool
    doc: str = ""


@dataclass
class Field:
    name: str
    type: tuple
    offset: int = 0
    doc: str = ""


@dataclass
class Struct:
    name: str
    fields: list
    sized: bool
    size: int = 0
    align: int = 1
    doc: str = ""


@dataclass
class Handle:
    name: str
    destroy: str
    shared: bool
    doc: str = ""


@dataclass
class Alias:
    name: str
    type: tuple
    doc: str = ""


@dataclass
class Parameter:
    name: str
    type: tuple
    out: bool


@dataclass
class Function:
    name: str
    result: tuple
    parameters: list
    waits: bool
    doc: str = ""

    def text(self):
        """the first of (char *text, uint64_t bytes, uint64_t *needed), or None"""
        names = [p.name for p in self.parameters]
        return names.index("text") if names[-3:] == ["text", "bytes", "needed"] else None


@dataclass
class Model:
    constants: list = field(default_factory=list)
    enums: list = field(default_factory=list)
    structs: list = field(default_factory=list)
    handles: list = field(default_factory=list)
    aliases: list = field(default_factory=list)
    functions: list = field(default_factory=list)

    def struct(self, name):
        return next((s for s in self.structs if s.name == name), None)

    def alias(self, name):
        return next((a for a in self.aliases if a.name == name), None)

    def is_handle(self, name):
        return any(h.name == name for h in self.handles)


class Unsupported(Exception):
    """a construct that some language cannot express: change the header"""


def attributes(node):
    items = node.find("attributelist")
    return {} if items is None else {a.get("name"): a.get("value") for a in items.findall("attribute")}


def parameters_of(node):
    items = node.find("attributelist")
    return [] if items is None else [attributes(p) for p in items.findall("parmlist/parm")]


def split_arguments(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p for p in parts if p and p != "void"]


def closing(text):
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0:
            return i
    raise Unsupported(f"unbalanced type {text}")


def parse_type(text):
    const = False
    if text.startswith("q("):
        end = closing(text)
        const = "const" in text[2:end]
        text = text[end + 2:]
    if text.startswith("p."):
        target = text[2:]
        return ("ptr", target.startswith("q(const)"), parse_type(target))
    if text.startswith("a("):
        end = closing(text)
        return ("array", int(text[2:end]), parse_type(text[end + 2:]))
    if text.startswith("f("):
        end = closing(text)
        return ("func", parse_type(text[end + 2:]), [parse_type(a) for a in split_arguments(text[2:end])])
    del const
    return ("name", re.sub(r"^(struct|union|enum) ", "", text))


def evaluate(text, known):
    """an integer or float constant expression of C: literals, known names, + - * | << ( )"""
    text = re.sub(r"(?<=[0-9a-fA-F])[uUlL]+\b", "", text)

    def walk(node):
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.BinOp):
            a, b = walk(node.left), walk(node.right)
            for kind, apply in ((ast.Add, lambda: a + b), (ast.Sub, lambda: a - b), (ast.Mult, lambda: a * b),
                                (ast.BitOr, lambda: a | b), (ast.LShift, lambda: a << b)):
                if isinstance(node.op, kind):
                    return apply()
        raise Unsupported(f"constant expression {text}")

    return walk(ast.parse(text.strip(), mode="eval").body)


def clean_doc(text):
    """the text of a Doxygen comment, without its frame"""
    lines = [re.sub(r"^\s*(/\*[*!]<?|\*/|\*(?!/))\s?", "", line) for line in (text or "").splitlines()]
    lines = [re.sub(r"\s*\*/\s*$", "", line).rstrip() for line in lines]
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    out = "\n".join(lines)
    out = re.sub(r"[@\\](brief|ref|copybrief|c|p|a)\s+", "", out)
    return re.sub(r"[@\\](ingroup|defgroup|addtogroup)[^\n]*\n?|@[{}]", "", out).strip()


class Loader:
    def __init__(self):
        self.model = Model()
        self.known = {}

    def read(self, node):
        a = attributes(node)
        if "feature_fp8_skip" in a:
            return
        if node.tag == "constant" and a.get("name", "").startswith("FP8_"):
            self.constant(a)
        elif node.tag == "enum":
            self.enum(node, a)
        elif node.tag == "class":
            self.struct(node, a)
        elif node.tag == "cdecl" and a.get("kind") == "function":
            self.function(node, a)
        elif node.tag == "cdecl" and a.get("storage") == "typedef":
            self.typedef(a)

    def constant(self, a):
        try:
            value = evaluate(a["value"], self.known)
        except (Unsupported, SyntaxError):
            return  # a macro that is no number, as FP8_API
        self.known[a["name"]] = value
        self.model.constants.append(Constant(a["name"], value, clean_doc(a.get("doxygen"))))

    def enum(self, node, a):
        name = a.get("name")
        if not name or name.startswith("$"):
            raise Unsupported("an enum without a tag")
        items, last = [], -1
        for child in node.findall("enumitem"):
            c = attributes(child)
            last = evaluate(c["enumvalue"], self.known) if "enumvalue" in c else last + 1
            self.known[c["name"]] = last
            items.append(Constant(c["name"], last, clean_doc(c.get("doxygen"))))
        self.model.enums.append(Enum(name, items, a.get("feature_fp8_bits") == "1", clean_doc(a.get("doxygen"))))

    def struct(self, node, a):
        fields = []
        for child in node.findall("cdecl"):
            c = attributes(child)
            if c.get("kind") != "variable":
                continue
            if "bitfield" in c or c.get("nested") == "1":
                raise Unsupported(f"{a['name']}.{c.get('name')}: bit field or unnamed struct")
            fields.append(Field(c["name"], parse_type(c.get("decl", "") + c["type"]), 0, clean_doc(c.get("doxygen"))))
        s = Struct(a["name"], fields, fields[0].name == "struct_size", doc=clean_doc(a.get("doxygen")))
        if s.sized != (a.get("feature_fp8_sized") == "1"):
            raise Unsupported(f"{s.name}: say FP8PY_SIZED in the interface file, as it starts with struct_size")
        self.model.structs.append(s)
        for f in fields:
            size, align = self.extent(f.type)
            f.offset = -(-s.size // align) * align
            s.size, s.align = f.offset + size, max(s.align, align)
        s.size = -(-s.size // s.align) * s.align

    def extent(self, t):
        if t[0] == "ptr":
            return 8, 8
        if t[0] == "array":
            size, align = self.extent(t[2])
            return t[1] * size, align
        if t[1] in SCALARS:
            return SCALARS[t[1]][0], SCALARS[t[1]][0]
        inner = self.model.struct(t[1])
        if inner:
            return inner.size, inner.align
        alias = self.model.alias(t[1])
        if alias:
            return self.extent(alias.type)
        raise Unsupported(f"a field of type {t}")

    def typedef(self, a):
        name, t, doc = a["name"], parse_type(a.get("decl", "") + a["type"]), clean_doc(a.get("doxygen"))
        if t == ("name", name):  # typedef struct x x: a struct already read, or an opaque handle
            if not self.model.struct(name) and not self.model.is_handle(name):
                if "feature_fp8_destroy" not in a:
                    raise Unsupported(f"{name} is opaque: say who destroys it (FP8_HANDLE in the interface file)")
                self.model.handles.append(Handle(name, a["feature_fp8_destroy"], a["feature_fp8_threads"] == "shared", doc))
            return
        self.model.aliases.append(Alias(name, t, doc))

    def function(self, node, a):
        kind = parse_type(a["decl"] + a["type"])
        parameters, inside = [], 0
        for p, t in zip([p for p in parameters_of(node) if p["type"] != "void"], kind[2]):
            skipped = p.get("tmap_in_numinputs") == "0"
            if p["name"] == "text" and skipped:
                inside = 3  # one typemap covers text, bytes and needed
            parameters.append(Parameter(p["name"], t, skipped or inside > 0))
            inside -= 1
        if len(parameters) != len(kind[2]):
            raise Unsupported(f"{a['name']}: a parameter without a name")
        self.model.functions.append(
            Function(a["name"], kind[1], parameters, a.get("feature_fp8_waits") == "1", clean_doc(a.get("doxygen"))))


def load(path):
    loader = Loader()
    for include in ElementTree.parse(path).getroot().iter("include"):
        if re.search(r"(^|/)fp8/[a-z0-9_]+\.h$", attributes(include).get("name", "")):
            for node in include:
                loader.read(node)
    if not loader.model.functions:
        raise Unsupported(f"no public header found in {path}")
    return loader.model
