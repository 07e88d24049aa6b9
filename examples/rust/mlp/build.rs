// SPDX-License-Identifier: Apache-2.0
//! The program finds libfp8.so.0 where it was linked.
fn main() {
    if let Ok(folder) = std::env::var("DEP_FP8_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
