// SPDX-License-Identifier: Apache-2.0
use crate::sys;
use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// An argument breaks a rule; the message names it.
    Argument,
    /// Not built, not implemented, or not possible on this device; the message says why.
    Unsupported,
    /// Memory ran out.
    NoMemory,
    /// An allocation was needed under NO_ALLOC.
    NoAlloc,
    /// Called in the wrong state.
    State,
    /// The device or its libraries failed.
    Backend,
    /// A communicator failed.
    Comm,
    /// Input or output failed.
    Io,
    /// A fault of the library.
    Internal,
    /// A code of a newer library.
    Other(i32),
}

impl From<i32> for ErrorCode {
    fn from(status: i32) -> Self {
        match status {
            sys::FP8_ERR_ARGUMENT => Self::Argument,
            sys::FP8_ERR_UNSUPPORTED => Self::Unsupported,
            sys::FP8_ERR_NO_MEMORY => Self::NoMemory,
            sys::FP8_ERR_NO_ALLOC => Self::NoAlloc,
            sys::FP8_ERR_STATE => Self::State,
            sys::FP8_ERR_BACKEND => Self::Backend,
            sys::FP8_ERR_COMM => Self::Comm,
            sys::FP8_ERR_IO => Self::Io,
            sys::FP8_ERR_INTERNAL => Self::Internal,
            other => Self::Other(other),
        }
    }
}

/// A failed call, with the library's message.
#[derive(Clone, Debug)]
pub struct Error {
    code: ErrorCode,
    native: i64,
    message: String,
}

/// `std::result::Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of failure.
    pub fn code(&self) -> ErrorCode {
        self.code
    }
    /// The code of the failing library (errno, CUDA, NCCL ...), or 0.
    pub fn native_code(&self) -> i64 {
        self.native
    }
    /// The library's message: function, tensor, dimension, value and rule.
    pub fn message(&self) -> &str {
        &self.message
    }
    pub(crate) fn argument(message: String) -> Self {
        Self {
            code: ErrorCode::Argument,
            native: 0,
            message,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// # Safety
///
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// Ok, or the calling thread's last error.
pub(crate) fn check(status: i32) -> Result<()> {
    if status == sys::FP8_OK {
        return Ok(());
    }
    let mut raw = <sys::fp8_error as sys::SizedStruct>::new();
    // Safety: the struct says its size; its texts live until this thread's next failing call and are copied at once.
    let message = unsafe {
        sys::fp8_last_error(&mut raw);
        let message = text(raw.message);
        if message.is_empty() {
            text(sys::fp8_status_name(status))
        } else {
            message
        }
    };
    Err(Error {
        code: status.into(),
        native: raw.native_code,
        message,
    })
}
