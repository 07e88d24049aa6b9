#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the programs that the documentation shows, so that it stays true.

usage: snippet.py PAGE COMPILER LIBRARY_FOLDER INCLUDE_FOLDERS...
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    page, compiler, libraries, *includes = sys.argv[1:]
    blocks = re.findall(r"^```c\n(.*?)^```", pathlib.Path(page).read_text(encoding="utf-8"), re.M | re.S)
    programs = [block for block in blocks if "int main" in block]
    if not programs:
        sys.exit(f"{page} shows no program")
    with tempfile.TemporaryDirectory() as folder:
        for number, program in enumerate(programs):
            # the page leaves errors out; the test does not
            checked = re.sub(r"^  (fp8_(?!\w*(?:free|destroy))\w+)(\(.*\));", r"  if (\1\2 != FP8_OK) return __LINE__ % 100;",
                             program, flags=re.M)
            source, binary = pathlib.Path(folder, f"{number}.c"), pathlib.Path(folder, str(number))
            source.write_text(checked)
            subprocess.run([compiler, "-std=c99", "-Wall", "-Werror", *[f"-I{i}" for i in includes], str(source), "-o", str(binary),
                            f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lfp8"], check=True)
            subprocess.run([str(binary)], check=True)
    print(f"{len(programs)} programs of {page} ran")


if __name__ == "__main__":
    main()
