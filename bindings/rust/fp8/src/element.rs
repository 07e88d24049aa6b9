// SPDX-License-Identifier: Apache-2.0
use crate::sys;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum Dtype {
    /// IEEE binary32.
    F32 = sys::FP8_DTYPE_F32,
    /// IEEE binary16.
    F16 = sys::FP8_DTYPE_F16,
    /// bfloat16.
    Bf16 = sys::FP8_DTYPE_BF16,
    /// FP8 with 4 exponent bits, no infinity (OCP E4M3, "fn").
    E4M3 = sys::FP8_DTYPE_E4M3,
    /// FP8 with 5 exponent bits (OCP E5M2).
    E5M2 = sys::FP8_DTYPE_E5M2,
    /// A power-of-two scale.
    E8M0 = sys::FP8_DTYPE_E8M0,
    /// Bytes.
    U8 = sys::FP8_DTYPE_U8,
    /// 32-bit integers.
    I32 = sys::FP8_DTYPE_I32,
    /// 64-bit integers.
    I64 = sys::FP8_DTYPE_I64,
    /// 64-bit unsigned integers.
    U64 = sys::FP8_DTYPE_U64,
    /// IEEE binary64.
    F64 = sys::FP8_DTYPE_F64,
}

impl Dtype {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::E4M3 | Self::E5M2 | Self::E8M0 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// A Rust type that is one of the library's dtypes.
///
/// # Safety
///
/// The type has the size of `DTYPE` and every bit pattern is a value of it.
pub unsafe trait Element: Copy + 'static {
    /// Which dtype it is.
    const DTYPE: Dtype;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => {$(
        // Safety: same size, plain bits.
        unsafe impl Element for $t {
            const DTYPE: Dtype = Dtype::$d;
        }
    )*};
}
element!(f32 => F32, f64 => F64, u8 => U8, i32 => I32, i64 => I64, u64 => U64);
element!(F16 => F16, Bf16 => Bf16, E4M3 => E4M3, E5M2 => E5M2, E8M0 => E8M0);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident($t:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(
            /// The bits.
            pub $t,
        );
    )*};
}
bits! {
    /// The bits of an IEEE binary16 value.
    F16(u16);
    /// A bfloat16 value; converts from and to `f32`.
    Bf16(u16);
    /// An FP8 code, OCP E4M3.
    E4M3(u8);
    /// An FP8 code, OCP E5M2.
    E5M2(u8);
    /// A power-of-two scale.
    E8M0(u8);
}

impl From<f32> for Bf16 {
    /// Rounds to nearest even.
    fn from(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self(((bits >> 16) | 0x40) as u16);
        }
        Self(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

impl From<Bf16> for f32 {
    fn from(value: Bf16) -> f32 {
        f32::from_bits((value.0 as u32) << 16)
    }
}

impl From<E4M3> for f32 {
    fn from(value: E4M3) -> f32 {
        let (sign, e, m) = (
            if value.0 & 0x80 != 0 { -1.0 } else { 1.0 },
            (value.0 >> 3) & 15,
            (value.0 & 7) as f32,
        );
        match (e, value.0 & 7) {
            (15, 7) => f32::NAN,
            (0, _) => sign * m * 2f32.powi(-9),
            _ => sign * (1.0 + m / 8.0) * 2f32.powi(e as i32 - 7),
        }
    }
}

impl From<E5M2> for f32 {
    fn from(value: E5M2) -> f32 {
        let (sign, e, m) = (
            if value.0 & 0x80 != 0 { -1.0 } else { 1.0 },
            (value.0 >> 2) & 31,
            (value.0 & 3) as f32,
        );
        match (e, value.0 & 3) {
            (31, 0) => sign * f32::INFINITY,
            (31, _) => f32::NAN,
            (0, _) => sign * m * 2f32.powi(-16),
            _ => sign * (1.0 + m / 4.0) * 2f32.powi(e as i32 - 15),
        }
    }
}
