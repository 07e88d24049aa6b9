# SPDX-License-Identifier: Apache-2.0
"""C: what the generator believes about sizes, offsets and constants, asserted against the real headers."""


def emit(model, banner):
    out = [f"/* {line} */" for line in banner]
    out += ["#include <fp8/fp8.h>", "", "#define SAME(name, condition) typedef char name[(condition) ? 1 : -1]", ""]
    for s in model.structs:
        out.append(f"SAME(size_of_{s.name}, sizeof(struct {s.name}) == {s.size});")
        for f in s.fields:
            out.append(f"SAME(offset_of_{s.name}_{f.name}, offsetof(struct {s.name}, {f.name}) == {f.offset});")
    out.append("")
    for c in model.constants + [i for e in model.enums for i in e.items]:
        if not c.name.startswith("FP8_VERSION"):
            out.append(f"SAME(value_of_{c.name}, {c.name} == {c.value});")
    out += ["", "int main(void) {", "  return 0;", "}", ""]
    return "\n".join(out)
