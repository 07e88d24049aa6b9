// SPDX-License-Identifier: Apache-2.0
use crate::element::{Dtype, Element};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::sys::{self, SizedStruct};
use crate::tensor::{describe, Space, Tensor, TensorMut};
use std::fmt;
use std::os::raw::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Which implementation a context uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// CUDA if a device is present, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device.
    Cuda,
}

/// How to make a [`Context`]. Everything has a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContextConfig {
    /// The implementation.
    pub backend: Backend,
    /// The CUDA device.
    pub device: i32,
    /// Worker threads on the CPU; 0 = all.
    pub threads: i32,
    /// Only the reference GEMM.
    pub reference: bool,
}

/// What a context has done so far.
pub type Counters = sys::fp8_counters;

struct Inner {
    handle: Handle<sys::fp8_context>,
    space: Space,
}

/// A device with its allocator and threads. Cheap to clone; children hold a reference of their own.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
    stream: usize,
}

impl Context {
    /// A context as configured.
    pub fn new(config: ContextConfig) -> Result<Self> {
        let mut raw = sys::fp8_context_config::new();
        raw.backend = match config.backend {
            Backend::Auto => sys::FP8_BACKEND_AUTO,
            Backend::Cpu => sys::FP8_BACKEND_CPU,
            Backend::Cuda => sys::FP8_BACKEND_CUDA,
        };
        raw.device = config.device;
        raw.threads = config.threads;
        raw.flags = if config.reference {
            sys::FP8_CONTEXT_REFERENCE
        } else {
            0
        };
        // Safety: the struct lives for the call; the output is checked by make.
        let handle = Handle::make(|out| unsafe { sys::fp8_context_create(&raw, out) })?;
        let query = |what| {
            let mut value = 0i64;
            // Safety: a live handle and a local output.
            check(unsafe { sys::fp8_context_query(handle.as_ptr(), what, &mut value) }).map(|()| value)
        };
        let cuda = query(sys::FP8_QUERY_BACKEND)? == i64::from(sys::FP8_BACKEND_CUDA);
        let space = if cuda {
            Space::Cuda(query(sys::FP8_QUERY_DEVICE)? as i32)
        } else {
            Space::Host
        };
        Ok(Self {
            inner: Arc::new(Inner { handle, space }),
            stream: 0,
        })
    }
    /// The CPU with all its threads.
    pub fn cpu() -> Result<Self> {
        Self::new(ContextConfig {
            backend: Backend::Cpu,
            ..ContextConfig::default()
        })
    }
    /// A CUDA device.
    pub fn cuda(device: i32) -> Result<Self> {
        Self::new(ContextConfig {
            backend: Backend::Cuda,
            device,
            ..ContextConfig::default()
        })
    }
    /// The same context with its work on another stream (a `cudaStream_t`).
    ///
    /// # Safety
    ///
    /// The stream is of this device and outlives the context and what was made with it; order against other streams is the
    /// caller's.
    pub unsafe fn with_stream(&self, stream: *mut c_void) -> Self {
        Self {
            inner: self.inner.clone(),
            stream: stream as usize,
        }
    }
    /// Where its tensors lie.
    pub fn space(&self) -> Space {
        self.inner.space
    }
    /// Waits for all work enqueued so far.
    pub fn sync(&self) -> Result<()> {
        // Safety: a live handle and its stream.
        check(unsafe { sys::fp8_stream_sync(self.as_ptr(), self.stream()) })
    }
    /// What it has done so far.
    pub fn counters(&self) -> Result<Counters> {
        let mut raw = Counters::new();
        // Safety: a live handle and a sized struct.
        check(unsafe { sys::fp8_context_counters(self.as_ptr(), &mut raw) })?;
        Ok(raw)
    }
    /// Which implementations it has and chose, and why others were refused.
    pub fn explain(&self) -> Result<String> {
        // Safety: a live handle; read_text gives room and its size.
        read_text(|text, bytes, needed| unsafe { sys::fp8_context_explain(self.as_ptr(), text, bytes, needed) })
    }
    /// The context as C sees it, for calls of `fp8-sys`. It stays this struct's to destroy.
    pub fn as_raw(&self) -> *mut sys::fp8_context {
        self.as_ptr()
    }
    /// The stream that its calls go to; null is the default stream.
    pub fn raw_stream(&self) -> sys::fp8_stream {
        self.stream()
    }
    pub(crate) fn as_ptr(&self) -> *mut sys::fp8_context {
        self.inner.handle.as_ptr()
    }
    pub(crate) fn stream(&self) -> sys::fp8_stream {
        self.stream as sys::fp8_stream
    }
    /// A CPU context that is taken for one of another space: its memory lies there for the checks only.
    #[cfg(test)]
    pub(crate) fn as_if_in(space: Space) -> Self {
        let handle = Handle::make(|out| {
            let mut raw = sys::fp8_context_config::new();
            raw.backend = sys::FP8_BACKEND_CPU;
            // Safety: the struct lives for the call; the output is checked by make.
            unsafe { sys::fp8_context_create(&raw, out) }
        });
        Self {
            inner: Arc::new(Inner {
                handle: handle.unwrap(),
                space,
            }),
            stream: 0,
        }
    }
    pub(crate) fn reach(&self, space: Space, name: &str) -> Result<()> {
        if space == self.inner.space {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{name} lies in {space:?}, the context works in {:?}",
            self.inner.space
        )))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("space", &self.inner.space).finish()
    }
}

pub(crate) fn read_text(call: impl Fn(*mut c_char, u64, *mut u64) -> i32) -> Result<String> {
    let mut needed = 0u64;
    check(call(null_mut(), 0, &mut needed))?;
    let mut text = vec![0u8; needed as usize];
    check(call(text.as_mut_ptr() as *mut c_char, needed, &mut needed))?;
    text.truncate(text.iter().position(|&b| b == 0).unwrap_or(text.len()));
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Memory of a context's device, 256-byte aligned, zeroed when made.
pub struct Buffer {
    context: Context,
    raw: sys::fp8_buffer,
}

// Safety: it owns its memory.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed memory.
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let mut buffer = Self::unwritten(context, bytes)?;
        buffer.zero()?;
        Ok(buffer)
    }
    /// For outputs that a call writes whole before anybody can read them.
    pub(crate) fn unwritten(context: &Context, bytes: usize) -> Result<Self> {
        let mut raw = sys::fp8_buffer {
            data: null_mut(),
            bytes: 0,
        };
        // Safety: a live handle, a local output.
        check(unsafe { sys::fp8_buffer_alloc(context.as_ptr(), bytes as u64, &mut raw, context.stream()) })?;
        Ok(Self {
            context: context.clone(),
            raw,
        })
    }
    /// A copy of a slice.
    pub fn from_slice<T: Element>(context: &Context, data: &[T]) -> Result<Self> {
        let mut buffer = Self::new(context, std::mem::size_of_val(data))?;
        buffer.write(data)?;
        Ok(buffer)
    }
    /// Its size.
    pub fn bytes(&self) -> usize {
        self.raw.bytes as usize
    }
    /// Copies a slice to its start, and waits.
    pub fn write<T: Element>(&mut self, data: &[T]) -> Result<()> {
        let bytes = std::mem::size_of_val(data);
        self.room(bytes)?;
        // Safety: both sides hold `bytes`.
        check(unsafe {
            sys::fp8_buffer_copy(
                self.context.as_ptr(),
                self.raw.data,
                data.as_ptr() as *const c_void,
                bytes as u64,
                self.context.stream(),
            )
        })?;
        self.context.sync()
    }
    /// Copies its start into a slice, and waits.
    pub fn read<T: Element>(&self, data: &mut [T]) -> Result<()> {
        let bytes = std::mem::size_of_val(data);
        self.room(bytes)?;
        // Safety: both sides hold `bytes`; every bit pattern is an element.
        check(unsafe {
            sys::fp8_buffer_copy(
                self.context.as_ptr(),
                data.as_mut_ptr() as *mut c_void,
                self.raw.data,
                bytes as u64,
                self.context.stream(),
            )
        })?;
        self.context.sync()
    }
    /// Sets every byte to zero.
    pub fn zero(&mut self) -> Result<()> {
        // Safety: its own memory.
        check(unsafe {
            sys::fp8_buffer_zero(
                self.context.as_ptr(),
                self.raw.data,
                self.raw.bytes,
                self.context.stream(),
            )
        })
    }
    /// Views its start.
    pub fn tensor(&self, dtype: Dtype, shape: &[usize]) -> Result<Tensor<'_>> {
        let raw = self.view(dtype, shape)?;
        // Safety: described within its memory, borrowed for the view's life.
        Ok(unsafe { Tensor::from_raw(raw, self.context.space()) })
    }
    /// Views its start for writing.
    pub fn tensor_mut(&mut self, dtype: Dtype, shape: &[usize]) -> Result<TensorMut<'_>> {
        let raw = self.view(dtype, shape)?;
        // Safety: as above, borrowed mutably.
        Ok(unsafe { TensorMut::from_raw(raw, self.context.space()) })
    }
    /// The address and size, for calls of `fp8-sys`.
    pub fn raw(&self) -> sys::fp8_buffer {
        self.raw
    }
    pub(crate) fn of(buffer: Option<&Self>, context: &Context, name: &str) -> Result<Option<sys::fp8_buffer>> {
        match buffer {
            None => Ok(None),
            Some(b) => context.reach(b.context.space(), name).map(|()| Some(b.raw)),
        }
    }
    fn view(&self, dtype: Dtype, shape: &[usize]) -> Result<sys::fp8_tensor> {
        let bytes = shape.iter().product::<usize>() * dtype.size();
        self.room(bytes)?;
        describe(self.raw.data, dtype, shape, bytes)
    }
    fn room(&self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes() {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{bytes} bytes asked of a buffer of {}",
            self.bytes()
        )))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Safety: allocated by this context on this stream.
        unsafe { sys::fp8_buffer_free(self.context.as_ptr(), &mut self.raw, self.context.stream()) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes, {:?})", self.bytes(), self.context.space())
    }
}
