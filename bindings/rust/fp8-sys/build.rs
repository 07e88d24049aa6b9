// SPDX-License-Identifier: Apache-2.0
//! Finds libfp8: FP8_LIB_DIR (and FP8_INCLUDE_DIR), else pkg-config, else an error that says what to do.
use std::env;
use std::process::Command;

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
    let library = env::var("FP8_LIB_DIR").ok().or_else(|| pkg_config("libdir"));
    let include = env::var("FP8_INCLUDE_DIR").ok().or_else(|| pkg_config("includedir"));
    match library {
        Some(folder) => {
            println!("cargo:rustc-link-search=native={folder}");
            // dependants see these as DEP_FP8_LIB_DIR and DEP_FP8_INCLUDE
            println!("cargo:lib_dir={folder}");
        }
        None if env::var_os("DOCS_RS").is_some() => {}
        None => panic!(
            "libfp8 was not found. Set FP8_LIB_DIR to the folder of libfp8.so, or install libfp8 so that \
             `pkg-config --libs libfp8` works (PKG_CONFIG_PATH)."
        ),
    }
    if let Some(folder) = include {
        println!("cargo:include={folder}");
    }
}
