// SPDX-License-Identifier: Apache-2.0
use crate::context::Context;
use crate::element::{Dtype, Element};
use crate::error::{check, Error, Result};
use crate::sys;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::null_mut;

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Ordinary memory: what CPU contexts read.
    Host,
    /// Memory of this CUDA device.
    Cuda(i32),
}

/// Foreign device memory (a tensor of candle, a slice of cudarc ...) that a [`Tensor`] can view.
///
/// # Safety
///
/// While borrowed, `[pointer, pointer + bytes)` is allocated memory of `space`, and work on the context's stream may read it:
/// it was written in that stream's order, and is not freed or rewritten before that stream has passed the call.
pub unsafe trait DeviceStorage {
    /// The first byte.
    fn pointer(&self) -> *const c_void;
    /// How many.
    fn bytes(&self) -> usize;
    /// Which memory it is.
    fn space(&self) -> Space;
}

/// Foreign device memory that may be written.
///
/// # Safety
///
/// As [`DeviceStorage`], for writing.
pub unsafe trait DeviceStorageMut: DeviceStorage {
    /// The first byte.
    fn pointer_mut(&mut self) -> *mut c_void;
}

/// A view of memory that is read, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub(crate) raw: sys::fp8_tensor,
    pub(crate) space: Space,
    life: PhantomData<&'a [u8]>,
}

/// A view of memory that is written, row-major.
#[derive(Debug)]
pub struct TensorMut<'a> {
    pub(crate) raw: sys::fp8_tensor,
    pub(crate) space: Space,
    life: PhantomData<&'a mut [u8]>,
}

// Safety: views are plain borrows of memory.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}
unsafe impl Send for TensorMut<'_> {}

pub(crate) fn describe(data: *mut c_void, dtype: Dtype, shape: &[usize], bytes: usize) -> Result<sys::fp8_tensor> {
    if shape.len() > 4 {
        return Err(Error::argument(format!(
            "a tensor of {} dimensions; at most 4 are supported",
            shape.len()
        )));
    }
    let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let needed = elements.and_then(|n| n.checked_mul(dtype.size()));
    if needed != Some(bytes) {
        return Err(Error::argument(format!(
            "shape {shape:?} of {dtype:?} does not fill the {bytes} bytes given"
        )));
    }
    if data as usize % dtype.size() != 0 {
        return Err(Error::argument(format!(
            "memory at {data:p} is not aligned for {dtype:?}"
        )));
    }
    let mut raw = sys::fp8_tensor {
        data,
        dtype: dtype as i32,
        ndim: shape.len() as i32,
        shape: [0; 4],
        stride: [0; 4],
    };
    for (i, &d) in shape.iter().enumerate() {
        raw.shape[i] = d as i64;
    }
    // Safety: a plain struct.
    check(unsafe { sys::fp8_tensor_compact(&mut raw) })?;
    Ok(raw)
}

impl<'a> Tensor<'a> {
    /// Views a slice, for CPU contexts.
    pub fn new<T: Element>(data: &'a [T], shape: &[usize]) -> Result<Self> {
        let raw = describe(
            data.as_ptr() as *mut c_void,
            T::DTYPE,
            shape,
            std::mem::size_of_val(data),
        )?;
        Ok(Self {
            raw,
            space: Space::Host,
            life: PhantomData,
        })
    }
    /// Views the start of foreign storage.
    pub fn from_storage(storage: &'a impl DeviceStorage, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let bytes = shape.iter().product::<usize>() * dtype.size();
        if bytes > storage.bytes() {
            return Err(Error::argument(format!(
                "shape {shape:?} of {dtype:?} needs {bytes} bytes, the storage has {}",
                storage.bytes()
            )));
        }
        Ok(Self {
            raw: describe(storage.pointer() as *mut c_void, dtype, shape, bytes)?,
            space: storage.space(),
            life: PhantomData,
        })
    }
    /// A view from its parts.
    ///
    /// # Safety
    ///
    /// `raw` describes memory of `space` that is valid for reading for `'a`.
    pub unsafe fn from_raw(raw: sys::fp8_tensor, space: Space) -> Self {
        Self {
            raw,
            space,
            life: PhantomData,
        }
    }
    /// The extents.
    pub fn shape(&self) -> &[i64] {
        &self.raw.shape[..self.raw.ndim as usize]
    }
    pub(crate) fn of(view: Option<&Self>, context: &Context, name: &str) -> Result<*const sys::fp8_tensor> {
        match view {
            None => Ok(std::ptr::null()),
            Some(v) => context.reach(v.space, name).map(|()| &v.raw as *const _),
        }
    }
}

impl<'a> TensorMut<'a> {
    /// Views a slice, for CPU contexts.
    pub fn new<T: Element>(data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        let bytes = std::mem::size_of_val(data);
        let raw = describe(data.as_mut_ptr() as *mut c_void, T::DTYPE, shape, bytes)?;
        Ok(Self {
            raw,
            space: Space::Host,
            life: PhantomData,
        })
    }
    /// Views the start of foreign storage.
    pub fn from_storage(storage: &'a mut impl DeviceStorageMut, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let bytes = shape.iter().product::<usize>() * dtype.size();
        if bytes > storage.bytes() {
            return Err(Error::argument(format!(
                "shape {shape:?} of {dtype:?} needs {bytes} bytes, the storage has {}",
                storage.bytes()
            )));
        }
        let space = storage.space();
        Ok(Self {
            raw: describe(storage.pointer_mut(), dtype, shape, bytes)?,
            space,
            life: PhantomData,
        })
    }
    /// A view from its parts.
    ///
    /// # Safety
    ///
    /// `raw` describes memory of `space` that is valid for writing, and borrowed by nobody else, for `'a`.
    pub unsafe fn from_raw(raw: sys::fp8_tensor, space: Space) -> Self {
        Self {
            raw,
            space,
            life: PhantomData,
        }
    }
    /// The extents.
    pub fn shape(&self) -> &[i64] {
        &self.raw.shape[..self.raw.ndim as usize]
    }
    pub(crate) fn of(view: Option<&mut Self>, context: &Context, name: &str) -> Result<*mut sys::fp8_tensor> {
        match view {
            None => Ok(null_mut()),
            Some(v) => context.reach(v.space, name).map(|()| &mut v.raw as *mut _),
        }
    }
}
