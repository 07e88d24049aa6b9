// SPDX-License-Identifier: Apache-2.0
//! The C API of libfp8, one to one. The crate `fp8` is the safe layer on top.
//!
//! The build script takes the library's folder from `FP8_LIB_DIR`, else from pkg-config (`libfp8`).
//! At run time the loader must find `libfp8.so.0`: a system folder, `LD_LIBRARY_PATH`, or an rpath of the binary.
//!
//! ```
//! // Safety: no arguments.
//! let version = unsafe { fp8_sys::fp8_version() };
//! assert_eq!(version / 10000, 0);
//! ```
mod bindings;
pub use bindings::*;
