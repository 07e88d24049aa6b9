#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the programs that the documentation shows, and compares what they print, so that it stays true. With
--in, the page's C is one text without main, page.h of that program, which checks what it does.

usage: snippet.py [--in PROGRAM] PAGE COMPILER LIBRARY_FOLDER INCLUDE_FOLDERS...
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    arguments = sys.argv[1:]
    around = pathlib.Path(arguments[1]).read_text(encoding="utf-8") if arguments[0] == "--in" else None
    page, compiler, libraries, *includes = arguments[2:] if around else arguments
    text = pathlib.Path(page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```c\n(.*?)^```", text, re.M | re.S)
    programs = [around] if around else [block for block in blocks if "int main" in block]
    if not blocks or not programs:
        sys.exit(f"{page} shows no program")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "page.h").write_text("\n".join(blocks))
        for number, program in enumerate(programs):
            source, binary = pathlib.Path(folder, f"{number}.c"), pathlib.Path(folder, str(number))
            source.write_text(program)
            subprocess.run([compiler, "-std=c99", "-Wall", "-Werror", "-pthread", *[f"-I{i}" for i in includes], str(source),
                            "-o", str(binary), f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lfp8", "-lm"], check=True)
            printed = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
            if not around and f"```text\n{printed}```" not in text:
                sys.exit(f"{page} does not show what its program prints:\n{printed}")
    print(f"{len(programs)} programs of {page} ran")


if __name__ == "__main__":
    main()
