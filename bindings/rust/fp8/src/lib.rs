// SPDX-License-Identifier: Apache-2.0
//! FP8 training for Rust: a safe layer over libfp8's C API (`fp8-sys`).
//!
//! ```
//! use fp8::{Bf16, Context, Dtype, Forward, Linear, Recipe, Role, Sides, Tensor, TensorMut};
//!
//! let context = Context::cpu()?;
//! let linear = Linear::new(&context, &"block".parse::<Recipe>()?, 256, 128)?;
//! let (w, x) = (vec![0.01f32; 128 * 256], vec![Bf16::from(0.5f32); 32 * 256]);
//! let mut y = vec![Bf16::default(); 32 * 128];
//! let qw = linear.quantize_weight(&Tensor::new(&w, &[128, 256])?)?;
//! linear.forward(Forward {
//!     x: Some(&Tensor::new(&x, &[32, 256])?),
//!     w: Some(&qw),
//!     y: Some(&mut TensorMut::new(&mut y, &[32, 128])?),
//!     ..Forward::default()
//! })?;
//! assert!((f32::from(y[0]) - 1.28).abs() < 0.05);
//! # let _ = (Dtype::F32, Role::Weight, Sides::BOTH);
//! # Ok::<(), fp8::Error>(())
//! ```
//!
//! A training step: forward saves what backward needs. `w` goes with `dx`, and `saved_x` with `dw`: leave both out, or none.
//!
//! ```
//! use fp8::{Backward, Bf16, Context, Forward, Linear, Tensor, TensorMut};
//!
//! # let (w, x, dy) = (vec![0.01f32; 128 * 256], vec![Bf16::from(0.5f32); 32 * 256], vec![Bf16::from(1.0f32); 32 * 128]);
//! # let (mut y, mut dx) = (vec![Bf16::default(); 32 * 128], vec![Bf16::default(); 32 * 256]);
//! # let mut dw = vec![0.0f32; 128 * 256];
//! # let tokens = 32;
//! # let (w, x, dy) = (Tensor::new(&w, &[128, 256])?, Tensor::new(&x, &[32, 256])?, Tensor::new(&dy, &[32, 128])?);
//! # {
//! # let (mut y, mut dx) = (TensorMut::new(&mut y, &[32, 128])?, TensorMut::new(&mut dx, &[32, 256])?);
//! # let mut dw = TensorMut::new(&mut dw, &[128, 256])?;
//! let context = Context::cpu()?;
//! let linear = Linear::new(&context, &"block".parse()?, 256, 128)?;
//! let qw = linear.quantize_weight(&w)?;
//! let mut saved = linear.saved(tokens)?;
//! linear.forward(Forward { x: Some(&x), w: Some(&qw), y: Some(&mut y), saved_x: Some(&mut saved), ..Forward::default() })?;
//! let backward = Backward { dy: Some(&dy), w: Some(&qw), saved_x: Some(&saved), ..Backward::default() };
//! linear.backward(Backward { dx: Some(&mut dx), dw: Some(&mut dw), ..backward })?;
//! # }
//! assert!((dw[0] - 16.0).abs() < 0.5 && (f32::from(dx[0]) - 1.28).abs() < 0.05);
//! # Ok::<(), fp8::Error>(())
//! ```
//!
//! # Memory, threads, streams
//!
//! * Views ([`Tensor`], [`TensorMut`]) borrow slices (CPU contexts), [`Buffer`]s of the context's device, or foreign device
//!   storage by way of [`DeviceStorage`]. A view of the wrong space is refused before the call.
//! * Matrices are row-major. A [`QTensor`] owns its memory, one buffer a side.
//! * [`Context`], [`Recipe`] and [`Linear`] are `Send + Sync`; [`Comm`] is `Send` and takes `&mut self`, as every rank must make
//!   the same calls in the same order.
//! * All work of a context goes to its one stream in order, so buffers may be dropped while work is in flight. Only
//!   [`Context::with_stream`] is `unsafe`: the order against other streams is then the caller's.
//! * Calls without a workspace take it from the context's allocator.
//!
//! The minimum Rust version is 1.63.
#![warn(missing_docs)]

/// The programs of the page, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/rust.md")]
struct Page;

mod comm;
mod context;
mod element;
mod error;
mod handle;
mod linear;
mod param;
mod qtensor;
mod recipe;
#[cfg(test)]
mod space_tests;
mod tensor;

pub use comm::{Comm, NcclId};
pub use context::{Backend, Buffer, Context, ContextConfig, Counters};
pub use element::{Bf16, Dtype, Element, E4M3, E5M2, E8M0, F16};
pub use error::{Error, ErrorCode, Result};
pub use fp8_sys as sys;
pub use linear::{Backward, Forward, Linear};
pub use param::{ParamLayout, ParamList, ParamStep, Shape};
pub use qtensor::{gemm, Gemm, QTensor, Quantize, Sides};
pub use recipe::{Preset, Recipe, RecipeConfig, Role};
pub use tensor::{DeviceStorage, DeviceStorageMut, Space, Tensor, TensorMut};
