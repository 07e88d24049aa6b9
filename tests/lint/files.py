#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that every file of ours keeps: its length, its licence line, no words that don't belong, no foreign addresses.

usage: files.py [REPOSITORY]
"""
import pathlib
import re
import subprocess
import sys

LONGEST = 500  # lines; the aim is 80 to 250
SOURCES = {".h", ".in", ".c", ".cpp", ".cu", ".cuh", ".py", ".sh", ".jl", ".rs", ".i", ".swg", ".map", ".cmake"}
BUILD_FILES = {"CMakeLists.txt", "Makefile"}
# made by a program or a third party's text; still free of the words below
GENERATED = ["bindings/gen/layout.c", "bindings/rust/fp8-sys/src/bindings.rs", "bindings/rust/fp8-sys/tests/layout.rs",
             "bindings/julia/FP8/src/LibFP8.jl", "bindings/python/fp8/capi.pyi", "Cargo.lock", "LICENSE", "tests/golden/",
             "tests/abi/baseline", ".csv", ".xml", ".svg"]
NO_LICENCE_LINE = {"Doxyfile.in"}
# Addresses that a text may name; others are the reader's own business.
ADDRESSES = ("https://www.apache.org/licenses/", "http://www.apache.org/licenses/", "https://arxiv.org/abs/")
WORDS = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "unfinished work: finish it or open an issue"),
    (re.compile(r"\b(not implemented yet|placeholder|dummy implementation)\b", re.I),
     "what is not built is FP8_ERR_UNSUPPORTED with its reason"),
    (re.compile(r"(?<![\w.$}/*])/(root|home|Users|work|opt/wheels)/\w"), "a path of somebody's machine"),
    (re.compile(r"https?://(?!localhost)[^\s)>\"']+"), "an address"),
    (re.compile(r"[\t]"), "a tab"),
    (re.compile(r"[ \t]+$"), "space at the end of the line"),
]
TABS_ALLOWED = {"Makefile"}


def tracked(root):
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
    return [pathlib.PurePosixPath(name) for name in listing.decode().split("\0") if name]


def generated(path):
    return any(path.as_posix().startswith(mark) or path.as_posix().endswith(mark) for mark in GENERATED)


def words_of(path, lines):
    for number, line in enumerate(lines, 1):
        for pattern, why in WORDS:
            for match in pattern.finditer(line):
                if why == "an address" and match.group(0).startswith(ADDRESSES):
                    continue
                if why == "a tab" and path.name in TABS_ALLOWED:
                    continue
                yield f"{path}:{number}: {match.group(0).strip()!r}: {why}"


def check(root):
    faults = []
    files = [p for p in tracked(root) if (root / p).is_file()]
    for path in files:
        if path.as_posix().startswith("tests/golden/") and path.suffix != ".py" and path.suffix != ".cpp":
            continue
        try:
            lines = (root / path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture or an array
        if path.as_posix() != "tests/lint/files.py" and path.name != "LICENSE":
            faults += words_of(path, lines)
        if generated(path):
            continue
        if len(lines) > LONGEST:
            faults.append(f"{path}: {len(lines)} lines, {LONGEST} at most")
        if (path.suffix in SOURCES or path.name in BUILD_FILES) and path.name not in NO_LICENCE_LINE:
            if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
                faults.append(f"{path}: no SPDX line in its first three")
    return faults, len(files)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    faults, seen = check(root)
    print(*faults, sep="\n")
    print(f"{seen} files read, {len(faults)} faults")
    if faults or seen == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
