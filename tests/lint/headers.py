#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the public headers that keep the C ABI bindable: what a compiler accepts and a binding generator gets wrong.

usage: headers.py [INCLUDE_FOLDER]
Reads the headers of every folder in it.
"""
import pathlib
import re
import sys

FROZEN = {"fp8_tensor", "fp8_buffer"}  # views that never grow: no struct_size
SYSTEM = {"<stddef.h>", "<stdint.h>"}
# words that Julia, Rust, Python, C++ or SWIG keep for themselves
KEYWORDS = set("""type where in end begin local function ref module mod use fn let match self super impl trait pub move mut
    loop async await dyn crate unsafe as box abstract final override macro yield try lambda def pass raise import from global
    nonlocal class del with is not and or None True False elif except finally assert quote struct mutable primitive baremodule
    using export let do catch nothing missing this new delete template typename namespace operator private public protected
    virtual friend explicit throw inline""".split())
MACROS_THAT_ARE_CODE = {"FP8_INIT", "FP8_API"}
LITERAL = re.compile(r'^\(?-?(0x[0-9A-Fa-f]+|\d+(\.\d+)?)([uUlLf]*)\)?$|^"[^"]*"$|^$|^@\w+@$')


def strip(text):
    """The text without comments, its lines kept."""
    keep_lines = lambda match: re.sub(r"[^\n]", " ", match.group(0))  # noqa: E731
    return re.sub(r"/\*.*?\*/", keep_lines, text, flags=re.S)


def split_top(text, separator):
    parts, depth, current = [], 0, ""
    for char in text:
        depth += char in "([{"
        depth -= char in ")]}"
        if char == separator and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


class Header:
    def __init__(self, path):
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.code = strip(self.text)
        self.faults = []

    def fault(self, position, message):
        self.faults.append(f"{self.path.name}:{self.code.count(chr(10), 0, position) + 1}: {message}")

    def name(self, word, position, what):
        if word in KEYWORDS:
            self.fault(position, f"{what} is named {word!r}, a keyword somewhere")

    def preprocessor(self):
        for match in re.finditer(r"^[ \t]*#\s*(\w+)[ \t]*(.*)$", self.code, re.M):
            directive, rest = match.group(1), match.group(2).strip()
            if directive == "include":
                mine = re.match(r'^"(?:fp8/)?\w+\.h"$', rest)
                if rest not in SYSTEM and not mine:
                    self.fault(match.start(), f"includes {rest}: only stddef.h, stdint.h and our own")
            if directive == "define":
                name, value = re.match(r"(\w+)(?:\([^)]*\))?\s*(.*)", rest).groups()
                if name not in MACROS_THAT_ARE_CODE and not name.endswith("_H") and not LITERAL.match(value):
                    self.fault(match.start(), f"{name} is not a plain literal: SWIG drops it in silence")
            if directive in ("pragma", "error", "if") and "defined(__GNUC__)" not in rest:
                self.fault(match.start(), f"#{directive} in a public header")

    def bodies(self):
        for match in re.finditer(r"\b(struct|union|enum)\b\s*(\w*)\s*\{([^}]*)\}\s*([^;]*);", self.code):
            kind, tag, body, after = match.groups()
            where = match.start()
            if kind == "union":
                self.fault(where, "a union: Julia has none")
            if not tag:
                self.fault(where, f"{kind} without a tag")
            if kind == "enum":
                self.enum(tag, body, where, after)
            elif kind == "struct":
                self.struct(tag, body, match.start(3), after.strip())
        if re.search(r"\{[^}]*\b(struct|union|enum)\b[^;{}]*\{", self.code.replace('extern "C" {', "")):
            self.fault(0, "a struct, union or enum inside another")

    def enum(self, tag, body, where, after):
        if after.strip():
            self.fault(where, f"enum {tag} has a typedef or variable: enums travel as int32_t or uint32_t")
        for item in filter(None, (part.strip() for part in body.split(","))):
            if not re.match(r"^FP8_\w+\s*=\s*-?\d+$", item):
                self.fault(where, f"enumerator {item!r} of {tag}: want FP8_NAME = number")

    def struct(self, tag, body, where, after):
        if after != tag:
            self.fault(where, f"struct {tag} needs a typedef of the same name")
        fields = [field.strip() for field in body.split(";") if field.strip()]
        if tag not in FROZEN and not (fields and re.match(r"^size_t struct_size$", fields[0])):
            self.fault(where, f"struct {tag} does not start with size_t struct_size")
        for field in fields:
            if ":" in field:
                self.fault(where, f"bit field in {tag}: {field!r}")
            if "(" in field:
                self.fault(where, f"callback in {tag} without a named typedef: {field!r}")
            for part in split_top(field, ","):
                names = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", part))
                if names:
                    self.name(names[-1], where, f"a field of {tag}")

    def functions(self):
        outside = re.sub(r"\{[^{}]*\}", "{}", self.code.replace('extern "C" {', " " * 12))
        for match in re.finditer(r"(?:^|(?<=[;}]))([^;{}#]*?)\b(fp8_\w+)\s*\(([^()]*)\)\s*;", outside, re.M):
            before, name, parameters = match.groups()
            if "typedef" in before:
                self.fault(match.start(2), f"typedef of the function {name}: want a pointer to one")
                continue
            if "FP8_API" not in before:
                self.fault(match.start(2), f"{name} is not marked FP8_API")
            if re.search(r"\b(inline|static)\b", before):
                self.fault(match.start(2), f"{name} is inline: bindings cannot call it")
            self.parameters(name, parameters, match.start(2))
        for match in re.finditer(r"typedef[^;{}]*?\(\s*\*\s*(\w+)\s*\)\s*\(([^()]*)\)\s*;", outside):
            self.parameters(match.group(1), match.group(2), match.start())
        for match in re.finditer(r"typedef[^;{}()]*\[[^\]]*\]\s*;", outside):
            self.fault(match.start(), "typedef of an array")

    def parameters(self, function, text, where):
        parts = [part.strip() for part in text.split(",")]
        if parts == ["void"]:
            return
        if parts == [""]:
            self.fault(where, f"{function}() without void is no prototype in C")
        if len(parts) > 7 and not function.endswith("_fn"):
            self.fault(where, f"{function} has {len(parts)} parameters: past seven they are a struct")
        for part in parts:
            words = re.findall(r"\w+", part)
            if not words:
                continue
            self.name(words[-1], where, f"a parameter of {function}")
            if "[" in part or "..." in part:
                self.fault(where, f"{function}: array or variadic parameter {part!r}")
            if re.match(r"^(const )?fp8_(?!status\b|stream\b)\w+\s+\w+$", part) and not re.search(r"_fn\s", part):
                self.fault(where, f"{function}: {part!r} goes by value")

    def text_rules(self):
        for number, line in enumerate(self.text.splitlines(), 1):
            if len(line) > 120:
                self.faults.append(f"{self.path.name}:{number}: {len(line)} columns, 120 at most")
            if "//" in re.sub(r'"[^"]*"|https?://', "", line):
                self.faults.append(f"{self.path.name}:{number}: // is not a comment in C90, and our headers use /* */")
        guard = "FP8_" + self.path.name.split(".")[0].removeprefix("fp8_").upper() + "_H"
        if f"#ifndef {guard}\n#define {guard}\n" not in self.text:
            self.faults.append(f"{self.path.name}: its guard is not {guard}")
        if "FP8_API fp8" in self.code and 'extern "C"' not in self.code:
            self.faults.append(f'{self.path.name}: prototypes outside of extern "C"')
        if re.search(r"_(Static_assert|Alignas|Bool)\b|__attribute__", self.code) and self.path.name != "export.h":
            self.faults.append(f"{self.path.name}: an attribute or C11 word that SWIG cannot read")

    def check(self):
        for rule in (self.preprocessor, self.bodies, self.functions, self.text_rules):
            rule()
        return self.faults


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "include")
    headers = sorted([*folder.glob("*/*.h"), *folder.glob("*/*.h.in")])
    faults = [fault for path in headers for fault in Header(path).check()]
    print(*faults, sep="\n")
    print(f"{len(headers)} headers read, {len(faults)} faults")
    if faults or not headers:
        sys.exit(1)


if __name__ == "__main__":
    main()
