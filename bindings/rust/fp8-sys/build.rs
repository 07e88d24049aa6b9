// SPDX-License-Identifier: Apache-2.0
//! Finds libfp8: FP8_LIB_DIR (and FP8_INCLUDE_DIR), else pkg-config, else an error that says what to do.
use std::env;
use std::path::Path;
use std::process::Command;

/// A variable's value; empty is as unset.
pub fn given(value: Option<String>) -> Option<String> {
    value.filter(|v| !v.is_empty())
}

/// The folder, if the linker will find the library there: what it says itself names no variable.
pub fn checked(folder: String, source: &str) -> Result<String, String> {
    let path = Path::new(&folder);
    if !path.is_absolute() {
        return Err(format!(
            "{source} is \"{folder}\": an absolute path is wanted, as each crate is built in a folder of its own"
        ));
    }
    if !path.join("libfp8.so").exists() {
        return Err(format!(
            "{source} is \"{folder}\", where no libfp8.so is: the folder of libfp8.so is wanted (build/release/lib of a build)"
        ));
    }
    Ok(folder)
}

/// pkg-config writes for a shell: a backslash before a space or another special character of a path.
pub fn unescape(text: &str) -> String {
    let (mut path, mut characters) = (String::new(), text.chars());
    while let Some(c) = characters.next() {
        path.push(if c == '\\' { characters.next().unwrap_or(c) } else { c });
    }
    path
}

fn pkg_config(variable: &str) -> Option<String> {
    let tool = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let out = Command::new(tool)
        .arg(format!("--variable={variable}"))
        .arg("libfp8")
        .output()
        .ok()?;
    let text = unescape(String::from_utf8(out.stdout).ok()?.trim());
    (out.status.success() && !text.is_empty()).then_some(text)
}

fn main() {
    for name in ["FP8_LIB_DIR", "FP8_INCLUDE_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rustc-link-lib=dylib=fp8");
    let docs = env::var_os("DOCS_RS").is_some();
    let library = match given(env::var("FP8_LIB_DIR").ok()) {
        Some(folder) => Some((folder, "FP8_LIB_DIR")),
        None => pkg_config("libdir").map(|folder| (folder, "pkg-config's libdir of libfp8")),
    };
    let library = library.map(|(folder, source)| if docs { Ok(folder) } else { checked(folder, source) });
    let include = given(env::var("FP8_INCLUDE_DIR").ok()).or_else(|| pkg_config("includedir"));
    match library.transpose().unwrap_or_else(|why| panic!("{why}")) {
        Some(folder) => {
            println!("cargo:rustc-link-search=native={folder}");
            // dependants see these as DEP_FP8_LIB_DIR and DEP_FP8_INCLUDE
            println!("cargo:lib_dir={folder}");
        }
        None if docs => {}
        None => panic!(
            "libfp8 was not found. Set FP8_LIB_DIR to the folder of libfp8.so, or install libfp8 so that \
             `pkg-config --libs libfp8` works (PKG_CONFIG_PATH)."
        ),
    }
    if let Some(folder) = include {
        println!("cargo:include={folder}");
    }
}
