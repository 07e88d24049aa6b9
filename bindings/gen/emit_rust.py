# SPDX-License-Identifier: Apache-2.0
"""Rust: the crate fp8-sys. Plain C types; a trait says how a handle dies, marker traits what its threads may do."""
import re

NAMES = {
    "void": "c_void", "char": "c_char", "size_t": "usize", "float": "f32", "double": "f64", "int": "c_int",
    "unsigned int": "c_uint", **{f"{u}int{n}_t": f"{'u' if u else 'i'}{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
}
KEYWORDS = {"type", "in", "fn", "ref", "where", "self", "move", "match", "mod", "impl", "use", "loop", "box", "priv"}

HEAD = """#![allow(non_camel_case_types)]
#![allow(clippy::doc_lazy_continuation)]
use std::os::raw::{c_char, c_void};

/// How a handle of the library is given back.
pub trait Destroy {
    /// Destroys `handle`, which may be null.
    ///
    /// # Safety
    ///
    /// `handle` is null or was made by this library and is not used afterwards.
    unsafe fn destroy(handle: *mut Self);
}

/// A handle that several threads may use at the same time.
pub trait Shared {}

/// A struct that starts with its own size.
///
/// # Safety
///
/// The type is plain old data whose first field is `struct_size: usize`; all zeroes are a value of it.
pub unsafe trait SizedStruct: Sized {
    /// All zeroes, and the size: every field at its default.
    fn new() -> Self {
        // Safety: zeroes are valid for plain old data, and the first field is the size.
        unsafe {
            let mut value: Self = std::mem::zeroed();
            *(&mut value as *mut Self as *mut usize) = std::mem::size_of::<Self>();
            value
        }
    }
}
"""


def safe(name):
    return f"r#{name}" if name in KEYWORDS else name


def rust_type(t):
    if t[0] == "ptr":
        if t[2][0] == "func":
            return f"Option<unsafe extern \"C\" fn({', '.join(rust_type(a) for a in t[2][2])}){result(t[2][1])}>"
        return f"*{'const' if t[1] else 'mut'} {rust_type(t[2])}"
    if t[0] == "array":
        return f"[{rust_type(t[2])}; {t[1]}]"
    return NAMES.get(t[1], t[1])


def result(t):
    return "" if t == ("name", "void") else f" -> {rust_type(t)}"


def docs(text, indent, fallback):
    text = re.sub(r"@param(\[[a-z,]+\])?\s+(\w+)", r"* `\2`:", text or fallback)
    text = re.sub(r"@(return|returns)\b", "Returns", re.sub(r"@\w+\s?", "", text) if "@return" not in text else text)
    out = []
    for line in text.splitlines():
        line = re.sub(r"([\[\]<>])", r"\\\1", line.strip())
        out.append(f"{indent}///{' ' + line if line else ''}")
    return out


def emit(model, banner):
    out = [f"// {line}" for line in banner] + [HEAD]
    for a in model.aliases:
        out += docs(a.doc, "", f"C's `{a.name}`.") + [f"pub type {a.name} = {rust_type(a.type)};"]
    for c in model.constants:
        kind = "f64" if isinstance(c.value, float) else "u32"
        out += docs(c.doc, "", f"C's `{c.name}`.") + [f"pub const {c.name}: {kind} = {c.value};"]
    for e in model.enums:
        kind = "u32" if e.unsigned else "i32"
        out += docs(e.doc, "", f"C's `enum {e.name}`, which travels as an integer.") + [f"pub type {e.name} = {kind};"]
        for i in e.items:
            out += docs(i.doc, "", f"Of `{e.name}`.") + [f"pub const {i.name}: {kind} = {i.value};"]
    for h in model.handles:
        out += docs(h.doc, "", f"An opaque handle, given back by `{h.destroy}`.")
        out += ["#[repr(C)]", f"pub struct {h.name} {{", "    _opaque: [u8; 0],",
                "    _pinned: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,", "}"]
        out += [f"impl Destroy for {h.name} {{", "    unsafe fn destroy(handle: *mut Self) {", f"        {h.destroy}(handle)",
                "    }", "}"]
        if h.shared:
            out.append(f"impl Shared for {h.name} {{}}")
    for s in model.structs:
        out += docs(s.doc, "", f"C's `struct {s.name}`.") + ["#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {s.name} {{"]
        for f in s.fields:
            out += docs(f.doc, "    ", f"C's `{f.name}`.") + [f"    pub {safe(f.name)}: {rust_type(f.type)},"]
        out.append("}")
        out.append(f"const _: () = assert!(std::mem::size_of::<{s.name}>() == {s.size});" if s else "")
        if s.sized:
            out.append(f"unsafe impl SizedStruct for {s.name} {{}}")
    out.append("extern \"C\" {")
    for f in model.functions:
        out += docs(f.doc, "    ", f"C's `{f.name}`.")
        parameters = ", ".join(f"{safe(p.name)}: {rust_type(p.type)}" for p in f.parameters)
        out.append(f"    pub fn {f.name}({parameters}){result(f.result)};")
    out.append("}")
    return "\n".join(out) + "\n"


def emit_layout(model, banner):
    """a test: offsets as C has them, without offset_of! (Rust 1.77)"""
    out = [f"// {line}" for line in banner]
    out += ["#![cfg(target_pointer_width = \"64\")]", "use fp8_sys::*;", "",
            "macro_rules! offset {", "    ($t:ty, $f:ident) => {{", "        let value = std::mem::MaybeUninit::<$t>::uninit();",
            "        let base = value.as_ptr();", "        // Safety: an address inside the value, never read.",
            "        (unsafe { std::ptr::addr_of!((*base).$f) }) as usize - base as usize", "    }};", "}", "",
            "#[test]", "fn offsets_agree_with_c() {"]
    for s in model.structs:
        for f in s.fields:
            out.append(f"    assert_eq!(offset!({s.name}, {safe(f.name)}), {f.offset}, \"{s.name}.{f.name}\");")
    out.append("}")
    return "\n".join(out) + "\n"
