// SPDX-License-Identifier: Apache-2.0
use crate::context::Context;
use crate::error::{check, Result};
use crate::handle::Handle;
use crate::sys;
use crate::tensor::TensorMut;
use std::ffi::CString;
use std::os::raw::c_void;

/// A rank of a communicator. Every rank makes the same calls in the same order.
///
/// ```
/// let ranks = fp8::Comm::local(2)?;
/// std::thread::scope(|s| {
///     for mut rank in ranks {
///         s.spawn(move || rank.check("the seed", &7u64.to_le_bytes()).unwrap());
///     }
/// });
/// # Ok::<(), fp8::Error>(())
/// ```
pub struct Comm(Handle<sys::fp8_comm>);

impl Comm {
    /// Ranks of one process, one for each thread: a rank blocks until its peers arrive.
    pub fn local(size: usize) -> Result<Vec<Self>> {
        let mut raw = vec![std::ptr::null_mut(); size];
        // Safety: `size` outputs.
        check(unsafe { sys::fp8_comm_create_local(size as i32, raw.as_mut_ptr()) })?;
        Ok(raw.into_iter().filter_map(Handle::from_raw).map(Self).collect())
    }
    /// This rank and how many there are.
    pub fn rank_and_size(&self) -> Result<(usize, usize)> {
        let (mut rank, mut size, mut caps) = (0i32, 0i32, 0u32);
        // Safety: a live handle and local outputs.
        check(unsafe { sys::fp8_comm_query(self.0.as_ptr(), &mut rank, &mut size, &mut caps) })?;
        Ok((rank as usize, size as usize))
    }
    /// Fails unless every rank gives the same bytes.
    pub fn check(&mut self, what: &str, bytes: &[u8]) -> Result<()> {
        let what = CString::new(what.replace('\0', " ")).expect("no zero byte is left");
        // Safety: a C string and `bytes.len()` bytes.
        check(unsafe {
            sys::fp8_comm_check(
                self.as_ptr(),
                what.as_ptr(),
                bytes.as_ptr() as *const c_void,
                bytes.len() as u64,
            )
        })
    }
    /// The elementwise maximum over the ranks, in place (F32 or U8).
    pub fn all_reduce_max(&mut self, context: &Context, inout: &mut TensorMut) -> Result<()> {
        let inout = TensorMut::of(Some(inout), context, "inout")?;
        // Safety: live handles and a live view.
        check(unsafe { sys::fp8_all_reduce_max(context.as_ptr(), self.as_ptr(), inout, context.stream()) })
    }
    pub(crate) fn as_ptr(&mut self) -> *mut sys::fp8_comm {
        self.0.as_ptr()
    }
}
