// SPDX-License-Identifier: Apache-2.0
//! The tests and examples of this crate find libfp8.so.0 where it was linked. (A link argument is not passed on to dependants.)
fn main() {
    if let Ok(folder) = std::env::var("DEP_FP8_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
