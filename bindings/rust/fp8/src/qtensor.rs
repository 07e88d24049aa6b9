// SPDX-License-Identifier: Apache-2.0
use crate::context::{Buffer, Context};
use crate::error::{check, Error, Result};
use crate::recipe::{Recipe, Role};
use crate::sys::{self, SizedStruct};
use crate::tensor::{Tensor, TensorMut};
use std::fmt;
use std::ptr::{null, null_mut};

/// Which copies of a quantized matrix: along its columns (`ROW`), along its rows (`COL`), or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides(pub(crate) u32);

impl Sides {
    /// Contracted over the columns: activations and weights forward, gradients for dx.
    pub const ROW: Self = Self(sys::FP8_SIDE_ROW);
    /// Contracted over the rows: weights for dx, activations and gradients for dw.
    pub const COL: Self = Self(sys::FP8_SIDE_COL);
    /// Both.
    pub const BOTH: Self = Self(sys::FP8_SIDE_BOTH);
    pub(crate) fn each(self) -> impl Iterator<Item = u32> {
        [sys::FP8_SIDE_ROW, sys::FP8_SIDE_COL]
            .into_iter()
            .filter(move |s| self.0 & s != 0)
    }
}

/// A quantized matrix that owns its memory, one buffer a side. Unquantized sides (BF16) are copies.
pub struct QTensor {
    pub(crate) raw: sys::fp8_qtensor,
    context: Context,
    row: Option<Buffer>,
    col: Option<Buffer>,
}

// Safety: it owns its memory; its pointers point there.
unsafe impl Send for QTensor {}
unsafe impl Sync for QTensor {}

/// What [`QTensor::quantize`] takes beyond the matrix and its role.
#[derive(Default)]
pub struct Quantize<'a, 'b> {
    /// Amax of the row side (or of the whole): written, or read with `amax_given`.
    pub amax: Option<&'a mut TensorMut<'b>>,
    /// Amax of the column side, where it differs.
    pub amax_col: Option<&'a mut TensorMut<'b>>,
    /// U64 counters, added to: count, nan, inf, nonzero, underflow, saturated, 0, 0.
    pub stats: Option<&'a mut TensorMut<'b>>,
    /// F32 column sums of x.
    pub dbias: Option<&'a mut TensorMut<'b>>,
    /// `amax` and `amax_col` are inputs (already reduced over a group, say).
    pub amax_given: bool,
}

impl QTensor {
    /// Memory for a matrix of this role, all zero.
    pub fn zeros(
        context: &Context,
        recipe: &Recipe,
        role: Role,
        rows: usize,
        cols: usize,
        sides: Sides,
    ) -> Result<Self> {
        let mut raw = sys::fp8_qtensor::new();
        let (r, wanted) = (recipe.as_ptr(), sides.0 | sys::FP8_SIDE_COPY);
        // Safety: live handles and a sized struct.
        check(unsafe {
            sys::fp8_recipe_describe(
                r,
                context.as_ptr(),
                role as i32,
                rows as i64,
                cols as i64,
                wanted,
                &mut raw,
            )
        })?;
        Self::place(context, raw, sides, true)
    }
    /// Gives each described side a buffer.
    pub(crate) fn place(context: &Context, raw: sys::fp8_qtensor, sides: Sides, zeroed: bool) -> Result<Self> {
        let mut q = Self {
            raw,
            context: context.clone(),
            row: None,
            col: None,
        };
        for side in sides.each() {
            let mut bytes = 0u64;
            // Safety: a described qtensor.
            check(unsafe { sys::fp8_qtensor_bytes(&q.raw, side, &mut bytes) })?;
            let bytes = bytes as usize;
            let memory = if zeroed {
                Buffer::new(context, bytes)?
            } else {
                Buffer::unwritten(context, bytes)?
            };
            // Safety: the buffer is as large as asked, and lives as long as the qtensor's side.
            check(unsafe { sys::fp8_qtensor_place(&mut q.raw, side, &memory.raw()) })?;
            *(if side == sys::FP8_SIDE_ROW {
                &mut q.row
            } else {
                &mut q.col
            }) = Some(memory);
        }
        Ok(q)
    }
    /// Quantizes a matrix (leading dimensions are rows).
    pub fn quantize(
        context: &Context,
        recipe: &Recipe,
        role: Role,
        x: &Tensor,
        sides: Sides,
        options: Quantize,
    ) -> Result<Self> {
        let cols = *x
            .shape()
            .last()
            .ok_or_else(|| Error::argument("x has no dimension".into()))?;
        let rows: i64 = x.shape()[..x.shape().len() - 1].iter().product();
        let mut raw = sys::fp8_qtensor::new();
        let wanted = sides.0 | sys::FP8_SIDE_COPY;
        // Safety: live handles and a sized struct.
        check(unsafe {
            sys::fp8_recipe_describe(
                recipe.as_ptr(),
                context.as_ptr(),
                role as i32,
                rows,
                cols,
                wanted,
                &mut raw,
            )
        })?;
        let mut q = Self::place(context, raw, sides, false)?;
        let mut args = sys::fp8_quantize_args::new();
        args.x = Tensor::of(Some(x), context, "x")?;
        args.q = &mut q.raw;
        args.amax = TensorMut::of(options.amax, context, "amax")?;
        args.amax_col = TensorMut::of(options.amax_col, context, "amax_col")?;
        args.stats = TensorMut::of(options.stats, context, "stats")?;
        args.dbias = TensorMut::of(options.dbias, context, "dbias")?;
        args.flags = if options.amax_given { sys::FP8_AMAX_GIVEN } else { 0 };
        args.role = role as i32;
        // Safety: every pointer is null or points to a live struct whose memory the views borrow.
        check(unsafe { sys::fp8_quantize(context.as_ptr(), recipe.as_ptr(), &args, context.stream()) })?;
        Ok(q)
    }
    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.raw.rows as usize
    }
    /// Columns of the matrix.
    pub fn cols(&self) -> usize {
        self.raw.cols as usize
    }
    /// The sides that it holds.
    pub fn sides(&self) -> Sides {
        Sides(self.row.as_ref().map_or(0, |_| sys::FP8_SIDE_ROW) | self.col.as_ref().map_or(0, |_| sys::FP8_SIDE_COL))
    }
    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.row.iter().chain(&self.col).map(Buffer::bytes).sum()
    }
    /// Gives the memory of one side back.
    pub fn drop_side(&mut self, side: Sides) {
        let none = sys::fp8_qtensor::new();
        if side.0 & sys::FP8_SIDE_ROW != 0 {
            self.row = None;
            self.raw.row_kind = 0;
            (self.raw.row, self.raw.row_scale) = (none.row, none.row_scale);
        }
        if side.0 & sys::FP8_SIDE_COL != 0 {
            self.col = None;
            self.raw.col_kind = 0;
            (self.raw.col, self.raw.col_scale) = (none.col, none.col_scale);
        }
    }
    /// The codes of a side: `[rows, cols]`, or `[cols, rows]` of the column side.
    pub fn codes(&self, side: Sides) -> Result<Tensor<'_>> {
        self.part(side, |raw| (raw.row, raw.col))
    }
    /// The scales of a side, with the library's strides.
    pub fn scales(&self, side: Sides) -> Result<Tensor<'_>> {
        self.part(side, |raw| (raw.row_scale, raw.col_scale))
    }
    fn part(
        &self,
        side: Sides,
        pick: impl Fn(&sys::fp8_qtensor) -> (sys::fp8_tensor, sys::fp8_tensor),
    ) -> Result<Tensor<'_>> {
        self.has(side)?;
        let (row, col) = pick(&self.raw);
        // Safety: the part lies in memory that self owns.
        Ok(unsafe { Tensor::from_raw(if side == Sides::ROW { row } else { col }, self.context.space()) })
    }
    fn has(&self, side: Sides) -> Result<()> {
        let held = if side == Sides::ROW {
            self.row.is_some()
        } else {
            side == Sides::COL && self.col.is_some()
        };
        if held {
            return Ok(());
        }
        Err(Error::argument(format!(
            "side {side:?}: one side that the qtensor holds is wanted, it holds {:?}",
            self.sides()
        )))
    }
    /// The values of a side, as `[rows, cols]`.
    pub fn dequantize(&self, side: Sides, x: &mut TensorMut) -> Result<()> {
        self.has(side)?;
        let x = TensorMut::of(Some(x), &self.context, "x")?;
        // Safety: live structs.
        check(unsafe { sys::fp8_dequantize(self.context.as_ptr(), &self.raw, side.0, x, self.context.stream()) })
    }
    /// The matrix as C sees it, for calls of `fp8-sys`.
    pub fn raw(&self) -> &sys::fp8_qtensor {
        &self.raw
    }
    pub(crate) fn of(q: Option<&Self>, context: &Context, name: &str) -> Result<*const sys::fp8_qtensor> {
        match q {
            None => Ok(null()),
            Some(q) => context.reach(q.context.space(), name).map(|()| &q.raw as *const _),
        }
    }
    pub(crate) fn of_mut(q: Option<&mut Self>, context: &Context, name: &str) -> Result<*mut sys::fp8_qtensor> {
        match q {
            None => Ok(null_mut()),
            Some(q) => context.reach(q.context.space(), name).map(|()| &mut q.raw as *mut _),
        }
    }
}

impl fmt::Debug for QTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QTensor({} x {}, {:?}, {} bytes)",
            self.rows(),
            self.cols(),
            self.sides(),
            self.bytes()
        )
    }
}

/// What [`gemm`] takes: d = a . b^T (+ bias).
#[derive(Default)]
pub struct Gemm<'a, 'b> {
    /// The left matrix and its side.
    pub a: Option<(&'a QTensor, Sides)>,
    /// The right matrix and its side.
    pub b: Option<(&'a QTensor, Sides)>,
    /// One value a column of d.
    pub bias: Option<&'a Tensor<'b>>,
    /// The product.
    pub d: Option<&'a mut TensorMut<'b>>,
    /// d += instead of d =.
    pub accumulate: bool,
    /// Fast accumulation where the device has it.
    pub fast: bool,
}

/// A matrix product of two quantized (or two BF16) matrices.
pub fn gemm(context: &Context, call: Gemm) -> Result<()> {
    let (a, b) = match (call.a, call.b) {
        (Some(a), Some(b)) => (a, b),
        _ => return Err(Error::argument("gemm: a and b are needed".into())),
    };
    a.0.has(a.1)?;
    b.0.has(b.1)?;
    let mut args = sys::fp8_gemm_args::new();
    args.a = QTensor::of(Some(a.0), context, "a")?;
    args.b = QTensor::of(Some(b.0), context, "b")?;
    (args.a_side, args.b_side) = (a.1 .0, b.1 .0);
    args.bias = Tensor::of(call.bias, context, "bias")?;
    args.d = TensorMut::of(call.d, context, "d")?;
    args.flags = if call.accumulate { sys::FP8_GEMM_ACCUMULATE } else { 0 };
    args.flags |= if call.fast { sys::FP8_GEMM_FAST_ACCUMULATION } else { 0 };
    // Safety: every pointer is null or points to a live struct whose memory is borrowed.
    check(unsafe { sys::fp8_gemm(context.as_ptr(), &args, context.stream()) })
}
