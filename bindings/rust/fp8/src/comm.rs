// SPDX-License-Identifier: Apache-2.0
use crate::context::{Buffer, Context};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::qtensor::{QTensor, Sides};
use crate::sys;
use crate::tensor::{Space, TensorMut};
use std::ffi::CString;
use std::os::raw::c_void;
use std::ptr::null;
use std::time::Duration;

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
pub struct Comm {
    handle: Handle<sys::fp8_comm>,
    space: Option<Space>, // of the GPU that it belongs to
}

/// What [`Comm::nccl`] takes: made on one rank by [`Comm::nccl_id`], handed to the others as bytes.
pub type NcclId = [u8; 128];

impl Comm {
    /// Ranks of one process, one for each thread: a rank blocks until its peers arrive.
    pub fn local(size: usize) -> Result<Vec<Self>> {
        let mut raw = vec![std::ptr::null_mut(); size];
        // Safety: `size` outputs.
        check(unsafe { sys::fp8_comm_create_local(size as i32, raw.as_mut_ptr()) })?;
        let adopt = |handle| Self { handle, space: None };
        Ok(raw.into_iter().filter_map(Handle::from_raw).map(adopt).collect())
    }
    /// A new id for [`Comm::nccl`].
    pub fn nccl_id() -> Result<NcclId> {
        let mut id = [0u8; 128];
        // Safety: 128 bytes.
        check(unsafe { sys::fp8_comm_nccl_id(id.as_mut_ptr()) })?;
        Ok(id)
    }
    /// This rank's end of an NCCL communicator on the GPU of a CUDA context. Waits for all ranks; dropping it aborts it, so
    /// [`Comm::wait`] first.
    ///
    /// ```no_run
    /// # use fp8::{Comm, Context};
    /// # let (rank, size, share) = (0, 2, |id: fp8::NcclId| id);
    /// let context = Context::cuda(rank as i32)?;
    /// let id = if rank == 0 { Comm::nccl_id()? } else { [0; 128] };
    /// let id = share(id); // rank 0's, by whatever started the processes
    /// let mut comm = Comm::nccl(&context, &id, rank, size)?;
    /// # Ok::<(), fp8::Error>(())
    /// ```
    pub fn nccl(context: &Context, id: &NcclId, rank: usize, size: usize) -> Result<Self> {
        // out of i32's range it is -1, which the library refuses
        let [rank, size] = [rank, size].map(|n| i32::try_from(n).unwrap_or(-1));
        // Safety: a live handle and 128 bytes.
        let handle = Handle::make(|out| unsafe {
            sys::fp8_comm_create_nccl_rank(context.as_ptr(), id.as_ptr(), rank, size, out)
        })?;
        let space = Some(context.space());
        Ok(Self { handle, space })
    }
    /// Takes over a communicator of `fp8-sys`: of a borrowed `ncclComm_t`, of callbacks, of `fp8_comm_create_mpi`.
    ///
    /// # Safety
    ///
    /// `raw` was made by the library and is destroyed by nobody else; what it borrows outlives this.
    pub unsafe fn from_raw(raw: *mut sys::fp8_comm) -> Result<Self> {
        let handle =
            Handle::from_raw(raw).ok_or_else(|| Error::argument("from_raw: the communicator is null".into()))?;
        Ok(Self { handle, space: None })
    }
    /// This rank and how many there are.
    pub fn rank_and_size(&self) -> Result<(usize, usize)> {
        let (mut rank, mut size, mut caps) = (0i32, 0i32, 0u32);
        // Safety: a live handle and local outputs.
        check(unsafe { sys::fp8_comm_query(self.handle.as_ptr(), &mut rank, &mut size, &mut caps) })?;
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
    /// Waits for the context's stream. After a fault, or the time, an NCCL communicator of libfp8's own is aborted.
    pub fn wait(&mut self, context: &Context, timeout: Option<Duration>) -> Result<()> {
        let millis = timeout.map_or(-1, |t| i64::try_from(t.as_millis()).unwrap_or(i64::MAX));
        let comm = self.on(context)?;
        // Safety: live handles.
        check(unsafe { sys::fp8_comm_wait(comm, context.stream(), millis) })
    }
    /// Fails if a fault was found since.
    pub fn status(&self) -> Result<()> {
        // Safety: a live handle.
        check(unsafe { sys::fp8_comm_status(self.handle.as_ptr()) })
    }
    /// Joins one side of every rank's part along rows, in rank order: `full` has size times the rows, on every rank the same.
    /// Scratch is the context's allocator's without a workspace.
    pub fn all_gather(
        &mut self,
        context: &Context,
        part: &QTensor,
        side: Sides,
        full: &mut QTensor,
        workspace: Option<&mut Buffer>,
    ) -> Result<()> {
        let comm = self.on(context)?;
        let part = QTensor::of(Some(part), context, "part")?;
        let full = QTensor::of_mut(Some(full), context, "full")?;
        let workspace = Buffer::of(workspace.as_deref(), context, "workspace")?;
        let workspace = workspace.as_ref().map_or(null(), |b| b as *const _);
        // Safety: live handles, live structs, and memory that is borrowed.
        check(unsafe { sys::fp8_all_gather(context.as_ptr(), comm, part, side.0, full, workspace, context.stream()) })
    }
    /// The elementwise maximum over the ranks, in place (F32 or U8).
    pub fn all_reduce_max(&mut self, context: &Context, inout: &mut TensorMut) -> Result<()> {
        let inout = TensorMut::of(Some(inout), context, "inout")?;
        let comm = self.on(context)?;
        // Safety: live handles and a live view.
        check(unsafe { sys::fp8_all_reduce_max(context.as_ptr(), comm, inout, context.stream()) })
    }
    /// The communicator as C sees it, for calls of `fp8-sys`. It stays this struct's to destroy.
    pub fn as_raw(&mut self) -> *mut sys::fp8_comm {
        self.as_ptr()
    }
    /// For a call of this context: ranks on a GPU serve contexts of that GPU.
    pub(crate) fn on(&mut self, context: &Context) -> Result<*mut sys::fp8_comm> {
        if let Some(space) = self.space {
            context.reach(space, "the communicator")?;
        }
        Ok(self.as_ptr())
    }
    pub(crate) fn as_ptr(&mut self) -> *mut sys::fp8_comm {
        self.handle.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_of_a_gpu_refuses_other_contexts() {
        let context = Context::cpu().unwrap();
        let mut comm = Comm {
            space: Some(Space::Cuda(3)),
            ..Comm::local(1).unwrap().pop().unwrap()
        };
        let error = comm.wait(&context, None).unwrap_err();
        let wanted = "the communicator lies in Cuda(3), the context works in Host";
        assert_eq!(error.message(), wanted);
    }
}
