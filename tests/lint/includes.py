#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house's includes table, and its check. Nothing else decides who may include what.

usage: includes.py [REPOSITORY]
"""
import fnmatch
import pathlib
import re
import sys

# Room -> rooms and single headers that its files may include, beside their own room and the system's headers.
PODS = [f"src/ops/{name}.h" for name in ("view", "quantize", "gemm", "move", "param", "route")]
HELPERS = [f"src/core/{name}.h" for name in ("error", "fpcontrol", "log", "module", "parallel", "symbols")]
# what kernels/cpu shows to the backends that run on the CPU: launchers, and the SIMD target with its tables, which
# explain() names
CPU_LAUNCHERS = ["kernels/cpu/launch_*.h", "kernels/cpu/simd.h", "kernels/cpu/tile.h"]
TABLE = {
    "include": [],
    "kernels/numerics": [],
    "kernels/cpu": ["kernels/numerics", "include", *PODS],
    "kernels/cuda": ["kernels/numerics", "include", *PODS],
    "src/ops": ["include"],
    "src/core": ["include", "src/ops"],
    "src/api": ["include", "src/core"],
    "src/backend/cpu": ["include", "src/ops", "kernels/numerics", *CPU_LAUNCHERS, *HELPERS],
    "src/backend/onednn": ["include", "src/ops", "kernels/numerics", "kernels/cpu/gemm_common.h", *CPU_LAUNCHERS, *HELPERS],
    "src/backend/cuda": ["include", "src/ops", "kernels/numerics", "kernels/cuda/launch_*.h", *HELPERS],
    "src/comm": ["include", "src/backend/cuda/current.h", "src/core/comm.h", "src/ops/comm.h", "kernels/cuda/launch_exchange.h",
                 *HELPERS],
    "tests/capi": ["include"],
    "tests/unit": ["include", "src", "kernels"],
    "tests/golden": ["include", "src", "kernels"],
    # the peers, for oneDNN 2.x and 3.x and for NCCL without its header; what starts a rank a GPU
    "tests/bench": ["include", "src/backend/onednn/dnnl_api.h", "src/comm/nccl_api.h", "tests/capi/ranks.h"],
    "tests/mpi": ["include"],
    "tests/package": ["include"],
    "examples": ["include"],
    "bindings": ["include"],
}
# Where a quoted or <fp8/...> include may be found.
SEARCH = ["", "src", "kernels", "include", "include/fp8", "tests"]
SOURCES = {".h", ".c", ".cpp", ".cu", ".cuh", ".i"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(fp8/[^>]+)>)')


def room_of(path):
    """The most special room that a path lies in, None outside of all."""
    rooms = [room for room in TABLE if path == room or path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def resolve(root, source, name):
    """The repository's file that an include means, as a path, None for one that is made by the build or is the system's."""
    for folder in [source.parent.relative_to(root).as_posix(), *SEARCH]:
        candidate = root / folder / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root).as_posix()
    return None


def allowed(room, target):
    for entry in TABLE[room]:
        if fnmatch.fnmatch(target, entry) or target.startswith(entry + "/"):
            return True
    return target.startswith(room + "/")


def check(root):
    faults = []
    seen = 0
    for source in sorted(p for room in TABLE for p in (root / room).rglob("*") if p.suffix in SOURCES):
        path = source.relative_to(root).as_posix()
        room = room_of(path)
        if room is None or "/target/" in path or "/build/" in path:
            continue
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            seen += 1
            target = resolve(root, source, match.group(1) or match.group(2))
            if target is not None and not allowed(room, target):
                faults.append(f"{path}:{number}: {room} may not include {target}")
    return sorted(set(faults)), seen


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    faults, seen = check(root)
    print(*faults, sep="\n")
    print(f"{seen} includes read, {len(faults)} against the table")
    if faults or seen == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
