// SPDX-License-Identifier: Apache-2.0
use crate::error::{check, Result};
use crate::sys::{Destroy, Shared};
use std::ptr::{null_mut, NonNull};

/// An owned handle of the library: destroyed when dropped.
pub(crate) struct Handle<T: Destroy>(NonNull<T>);

impl<T: Destroy> Handle<T> {
    /// What `make` writes on success.
    pub(crate) fn make(make: impl FnOnce(*mut *mut T) -> i32) -> Result<Self> {
        let mut raw = null_mut();
        check(make(&mut raw))?;
        Ok(Self(
            NonNull::new(raw).expect("the library made no handle and reported success"),
        ))
    }
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
    pub(crate) fn from_raw(raw: *mut T) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }
}

impl<T: Destroy> Drop for Handle<T> {
    fn drop(&mut self) {
        // Safety: made by the library, and owned; destroying is free of order and may run on any thread.
        unsafe { T::destroy(self.0.as_ptr()) }
    }
}

// Safety: handles have no thread affinity; concurrent calls are fine for those that say so.
unsafe impl<T: Destroy> Send for Handle<T> {}
unsafe impl<T: Destroy + Shared> Sync for Handle<T> {}
