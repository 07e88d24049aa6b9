#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of catalogue.py, one at a time, in a copy of the repository, and shows which test kills each.

Takes long: by hand or nightly. The last output is committed as tests/mutants/result.txt.
usage: run.py [--only TEXT] [--jobs N] [--out FILE]
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from catalogue import MUTANTS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# AVX2 and the plain code alone, since all SIMD targets would make each build several times longer: SSSE3, SSE4, AVX3 and
# AVX3_DL of Highway 1.0 are left out, as the bits of its macros
TWO_TARGETS = "-DHWY_DISABLED_TARGETS=6528"
FLAGS = [f"-DCMAKE_CXX_FLAGS={TWO_TARGETS}", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCMAKE_C_FLAGS_RELEASE=-O1", "-DFP8_CUDA=OFF",
         "-DFP8_MPI=OFF", "-DFP8_BINDINGS=OFF", "-DFP8_ONEDNN=OFF", "-DFP8_EXAMPLES=OFF", "-G", "Ninja"]
# Tests in the order in which they are built and run; a fault is done with at the first that fails.
GOLDEN = ["golden.codec", "golden.quantize"]
UNIT = ["unit.properties", "unit.quantize_kernels", "unit.move_kernels", "unit.gemm_kernels"]
CAPI = [f"capi.{name}" for name in ("fpcontrol", "linear_golden", "quantize_golden", "quantize", "convert", "linear", "comm",
                                    "param", "param_cuts", "dispatch")]


class Copy:
    """A copy of the tracked files with a build of its own."""

    def __init__(self, folder, jobs):
        self.source, self.build, self.jobs = folder / "source", folder / "build", jobs
        files = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            source, target = ROOT / name, self.source / name
            if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        subprocess.run(["cmake", "-S", str(self.source), "-B", str(self.build), *FLAGS], check=True, capture_output=True)

    def make(self, tests):
        """Builds the programs of these tests. The compiler's complaint, or None."""
        targets = [f"test_{test.replace('.', '_')}" for test in tests]
        run = subprocess.run(["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", *targets],
                             capture_output=True, text=True)
        return None if run.returncode == 0 else run.stdout[-2000:]

    def test(self, tests):
        """The first test that fails, or None."""
        pattern = "^(" + "|".join(re.escape(test) for test in tests) + ")$"
        run = subprocess.run(["ctest", "--test-dir", str(self.build), "-R", pattern, "--stop-on-failure", "--timeout", "120",
                              "--no-tests=error"], capture_output=True, text=True)
        if run.returncode == 0:
            return None
        failed = re.search(r"Test\s+#\d+: (\S+) \.*\s*(?:\*\*\*|Subprocess)", run.stdout)
        return failed.group(1) if failed else "ctest: " + run.stdout[-300:]

    def judge(self, stages):
        """(complaint of the build or None, the test that failed or None), stage by stage until one fails."""
        for tests in stages:
            complaint = self.make(tests)
            killer = None if complaint else self.test(tests)
            if complaint or killer:
                return complaint, killer
        return None, None


def stages_of(name):
    """Numbers are tried on the tests of numbers first, what lies above them on the C API's."""
    numbers = name.startswith("kernels/") and "gemm" not in name
    return [GOLDEN, UNIT, CAPI] if numbers else [CAPI, GOLDEN, UNIT]


def plant(copy, mutant):
    """Writes the fault; gives the file and what to put back, or a complaint."""
    _, name, text, replacement = mutant
    path = copy.source / name
    before = path.read_text(encoding="utf-8")
    if before.count(text) != 1:
        return None, f"its text occurs {before.count(text)} times in {name}"
    path.write_text(before.replace(text, replacement), encoding="utf-8")
    return (path, before), None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out")
    options = parser.parse_args()
    bad = 0
    out = open(options.out, "w", encoding="utf-8") if options.out else None

    def say(line):
        print(line, flush=True)
        if out:
            print(line, file=out, flush=True)

    copy = Copy(ROOT / "build/mutants", options.jobs)  # kept, so that another run builds little
    complaint, killer = copy.judge([GOLDEN, UNIT, CAPI])
    if complaint or killer:
        sys.exit(f"without any fault planted: {complaint or killer}")
    chosen = [m for m in MUTANTS if options.only in m[0]]
    for mutant in chosen:
        begin = time.monotonic()
        undo, complaint = plant(copy, mutant)
        if not complaint:
            complaint, killer = copy.judge(stages_of(mutant[1]))
            undo[0].write_text(undo[1], encoding="utf-8")
        if complaint:
            result, bad = f"NOT PLANTED: {complaint}", bad + 1
        elif killer is None:
            result, bad = "SURVIVED", bad + 1
        else:
            result = f"killed by {killer}"
        say(f"{mutant[0]:<52} {mutant[1]:<36} {result}   ({time.monotonic() - begin:.0f} s)")
    say(f"{len(chosen)} faults planted one at a time, {len(chosen) - bad} killed, {bad} not")
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
