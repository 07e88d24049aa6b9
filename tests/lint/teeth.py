#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault at a time and expects the lints to see it: a lint that passes everything is worth nothing.

usage: teeth.py [REPOSITORY]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import files  # noqa: E402
import headers  # noqa: E402
import includes  # noqa: E402
import versions  # noqa: E402

FRAME = """#ifndef FP8_PLANT_H
#define FP8_PLANT_H
#ifdef __cplusplus
extern "C" {
#endif
%s
#ifdef __cplusplus
}
#endif
#endif
"""
CLEAN = "FP8_API fp8_status fp8_plant(const fp8_tensor *t, uint64_t *bytes);"
HEADER_PLANTS = [
    "fp8_status fp8_plant(void);",
    "FP8_API fp8_status fp8_plant();",
    "FP8_API fp8_status fp8_plant(fp8_tensor t);",
    "FP8_API fp8_status fp8_plant(int32_t type);",
    "FP8_API fp8_status fp8_plant(int64_t shape[4]);",
    "FP8_API fp8_status fp8_plant(int a, int b, int c, int d, int e, int f, int g, int h);",
    "typedef struct fp8_plant { size_t struct_size; union { int a; float b; } u; } fp8_plant;",
    "typedef struct fp8_plant { size_t struct_size; int32_t a : 3; } fp8_plant;",
    "typedef struct fp8_plant { int32_t a, b; } fp8_plant;",
    "typedef struct fp8_plant { size_t struct_size; int32_t end; } fp8_plant;",
    "typedef struct fp8_plant { size_t struct_size; void (*call)(void *user); } fp8_plant;",
    "typedef struct { size_t struct_size; } fp8_plant;",
    "typedef enum { FP8_A = 1 } fp8_plant;",
    "enum fp8_plant { FP8_A, FP8_B };",
    "typedef void fp8_plant_fn(int a);",
    "typedef int64_t fp8_plant[4];",
    "#define FP8_PLANT (FP8_A + 1)",
    "#include <stdio.h>",
    "static inline int fp8_plant(void);",
    "/* " + "long " * 30 + "*/",
]
FILE_PLANTS = {
    "src/plant.cpp": ["// SPDX-License-Identifier: Apache-2.0\n// TO" + "DO: later\n", "int no_licence;\n",
                      "// SPDX-License-Identifier: Apache-2.0\n" + "\n" * 600,
                      "// SPDX-License-Identifier: Apache-2.0\n// see /ro" + "ot/plan.txt\n",
                      "// SPDX-License-Identifier: Apache-2.0\n// see htt" + "ps://example.com/x\n"],
    "src/CMakeLists.txt": ["add_library(plant plant.cpp)\n"],
    "src/plant.map": ["{ local: *; };\n"],
    "cmake/plant.cmake": ["set(plant ON)\n"],
    "pkgconfig/plant.pc.in": ["Name: plant\n"],
}
INCLUDE_PLANTS = [
    ("kernels/numerics/plant.h", '#include "core/context.h"'), ("kernels/cpu/plant.cpp", '#include "ops/backend.h"'),
    ("src/core/plant.cpp", '#include "api/guard.h"'), ("src/api/plant.cpp", '#include "ops/backend.h"'),
    ("src/backend/cpu/plant.cpp", '#include "core/context.h"'), ("tests/capi/plant.c", '#include "core/error.h"'),
    ("examples/c/plant.c", '#include "../../src/core/error.h"'), ("src/comm/plant.cpp", '#include "core/context.h"'),
]


def header_faults(folder, text):
    path = folder / "plant.h"
    path.write_text(FRAME % text)
    return headers.Header(path).check()


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    missed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if header_faults(folder, CLEAN):
            missed.append(f"a clean header is blamed: {header_faults(folder, CLEAN)}")
        missed += [f"headers.py misses: {plant}" for plant in HEADER_PLANTS if not header_faults(folder, plant)]

        copy = folder / "copy"
        for room in ("include", "src", "kernels"):
            for source in (root / room).rglob("*.h"):
                target = copy / source.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
        for path, line in INCLUDE_PLANTS:
            plant = copy / path
            plant.parent.mkdir(parents=True, exist_ok=True)
            plant.write_text(line + "\n")
            if not any(path in fault for fault in includes.check(copy)[0]):
                missed.append(f"includes.py misses: {path} with {line}")
            plant.unlink()

        for path, texts in FILE_PLANTS.items():
            for text in texts:
                repository = folder / "repository"
                plant = repository / path
                plant.parent.mkdir(parents=True, exist_ok=True)
                plant.write_text(text)
                subprocess.run(["git", "init", "-q", str(repository)], check=True)
                subprocess.run(["git", "-C", str(repository), "add", "-A"], check=True)
                if not any(fault.startswith(path) for fault in files.check(repository)[0]):
                    missed.append(f"files.py misses: {text[:90]!r}")

        places = {place for group in versions.GROUPS.values() for place in group}
        for path, _ in places:
            target = copy / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((root / path).read_bytes())
        for path, pattern in sorted(places):
            text = (copy / path).read_text(encoding="utf-8")
            at = re.search(pattern, text, re.M).start(1)
            (copy / path).write_text(text[:at] + "9" + text[at:], encoding="utf-8")
            if not versions.check(copy)[0]:
                missed.append(f"versions.py misses: {path}, {pattern}")
            (copy / path).write_text(text, encoding="utf-8")
    print(*missed, sep="\n")
    planted = len(HEADER_PLANTS) + len(INCLUDE_PLANTS) + sum(map(len, FILE_PLANTS.values())) + len(places)
    print(f"{planted} faults planted, {len(missed)} missed")
    if missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
