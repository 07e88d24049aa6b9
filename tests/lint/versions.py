#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Versions that several files must state, since no tool of theirs reads another's: each group holds one version.

usage: versions.py [REPOSITORY]
"""
import pathlib
import re
import sys

PROJECT = r'^version = "([0-9.]+)"'
GROUPS = {
    "libfp8": [("CMakeLists.txt", r"^project\(libfp8 VERSION ([0-9.]+)"), ("bindings/python/pyproject.toml", PROJECT),
               ("bindings/julia/FP8/Project.toml", PROJECT), ("bindings/rust/fp8-sys/Cargo.toml", PROJECT),
               ("bindings/rust/fp8/Cargo.toml", PROJECT), ("bindings/rust/fp8/Cargo.toml", r'^fp8-sys = .*version = "([0-9.]+)"'),
               ("CHANGELOG.md", r"^## ([0-9.]+)")],
    "the oldest JAX": [("bindings/python/pyproject.toml", r'^jax = \["jax>=([0-9.]+)"'),
                       ("bindings/python/pyproject.toml", r'^examples = \["jax>=([0-9.]+)"'),
                       ("bindings/python/cmake_backend.py", r'"jax>=([0-9.]+)"'),
                       ("scripts/requirements.txt", r"^jax\[cpu\]>=([0-9.]+)"), ("docs/jax.md", r"^JAX ([0-9.]+) or newer")],
    "the oldest SWIG": [("bindings/python.cmake", r"FP8_SWIG_VERSION VERSION_LESS ([0-9.]+)"),
                        ("bindings/python/cmake_backend.py", r'"swig>=([0-9.]+)'),
                        ("scripts/requirements.txt", r"^swig>=([0-9.]+)"), ("docs/python.md", r"SWIG ≥ ([0-9.]+)")],
}


def check(root):
    """Faults, and how many places were read."""
    faults = []
    for group, places in GROUPS.items():
        said = {}
        for path, pattern in places:
            found = re.search(pattern, (root / path).read_text(encoding="utf-8"), re.M)
            if found:
                said.setdefault(found.group(1), []).append(path)
            else:
                faults.append(f"{path}: the version of {group} is not where {pattern!r} finds it")
        if len(said) > 1:
            faults.append(f"{group}: " + "; ".join(f"{version} in {', '.join(paths)}" for version, paths in said.items()))
    return faults, sum(map(len, GROUPS.values()))


def main():
    faults, seen = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    print(*faults, sep="\n")
    print(f"{seen} versions read, {len(faults)} faults")
    if faults:
        sys.exit(1)


if __name__ == "__main__":
    main()
