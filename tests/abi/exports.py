#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a library exports, what its map lists and what its headers declare are the same names. A module has no header, and
its map no version.

usage: exports.py LIBRARY MAP INCLUDE_FOLDER [--complete] | exports.py MODULE MAP --module
--complete: a declared function that the map lacks is a fault too.
"""
import pathlib
import re
import subprocess
import sys

MODULE = "--module" in sys.argv
NODE = "" if MODULE else "FP8_0"


def exported(library):
    """name -> version node"""
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols = {}
    for line in lines.splitlines():
        kind, name = line.split()[-2:]
        base, _, node = name.partition("@")
        if kind != "A":  # the node itself
            symbols[base] = node.lstrip("@")
    return symbols


def mapped(path):
    text = re.sub(r"/\*.*?\*/|#[^\n]*", "", pathlib.Path(path).read_text(encoding="utf-8"), flags=re.S)
    match = re.match(r"\s*(\w*)\s*\{\s*global:(.*?)local:\s*\*;\s*\};\s*$", text, re.S)
    if not match:
        sys.exit(f"{path}: want one node with global names and 'local: *;'")
    if match.group(1) != NODE:
        sys.exit(f"{path}: the node is {match.group(1) or 'none'}, not {NODE or 'none'}")
    names = [name.strip() for name in match.group(2).split(";") if name.strip()]
    for name in names:
        if not re.match(r"^\w+$", name):
            sys.exit(f"{path}: {name!r} is not one plain name")
    if len(set(names)) != len(names):
        sys.exit(f"{path}: a name is listed twice")
    return set(names)


def declared(folder):
    names = set()
    for header in pathlib.Path(folder).glob("*.h"):
        code = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        names |= set(re.findall(r"FP8_API[^;(]*?\b(fp8_\w+)\s*\(", code))
    return names


def main():
    library, map_file = sys.argv[1:3]
    complete = "--complete" in sys.argv[4:]
    symbols, listed, headers = exported(library), mapped(map_file), set() if MODULE else declared(sys.argv[3])
    faults = [f"{name} is exported and not in the map" for name in sorted(set(symbols) - listed)]
    faults += [f"{name} is in the map and not exported" for name in sorted(listed - set(symbols))]
    if not MODULE:
        faults += [f"{name} is in the map and in no header" for name in sorted(listed - headers)]
    missing = [f"{name} is declared and not in the map" for name in sorted(headers - listed)]
    if complete:
        faults += missing
    faults += [f"{name} has the version {node or 'none'}, not {NODE or 'none'}" for name, node in sorted(symbols.items()) if node != NODE]
    print(*faults, *([] if complete else missing), sep="\n")
    print(f"{len(symbols)} exported, {len(listed)} in the map, {len(headers)} declared, {len(faults)} faults")
    if faults or not symbols:
        sys.exit(1)


if __name__ == "__main__":
    main()
