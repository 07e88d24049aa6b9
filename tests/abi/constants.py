#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enumerators keep their values for ever. Compilers leave unused enums out of debug information, so the type baseline
cannot see them; this one reads the headers. Additions are fine.

usage: constants.py check|refresh [REPOSITORY]
"""
import pathlib
import re
import sys


def constants(folder):
    values = {}
    for header in sorted(folder.glob("*.h")):
        code = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        for tag, body in re.findall(r"\benum (\w+)\s*\{([^}]*)\}", code):
            for name, value in re.findall(r"(\w+)\s*=\s*(-?\d+)", body):
                values[f"{tag}.{name}"] = int(value)
    return values


def main():
    mode = sys.argv[1]
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".")
    baseline = root / "tests/abi/constants.txt"
    now = constants(root / "include/fp8")
    if mode == "refresh":
        baseline.write_text("".join(f"{name} {value}\n" for name, value in now.items()), encoding="utf-8")
        return
    before = dict(line.rsplit(" ", 1) for line in baseline.read_text(encoding="utf-8").splitlines())
    faults = [f"{name} was {value} and is {now.get(name, 'gone')}" for name, value in before.items()
              if now.get(name) != int(value)]
    print(*faults, sep="\n")
    print(f"{len(before)} constants in the baseline, {len(now)} now, {len(faults)} changed")
    if faults or not before:
        sys.exit(1)


if __name__ == "__main__":
    main()
