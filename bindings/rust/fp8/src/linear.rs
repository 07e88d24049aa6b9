// SPDX-License-Identifier: Apache-2.0
use crate::context::{Buffer, Context};
use crate::element::Dtype;
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::qtensor::{QTensor, Quantize, Sides};
use crate::recipe::{Recipe, Role};
use crate::sys::{self, SizedStruct};
use crate::tensor::{Tensor, TensorMut};
use std::ptr::null;

/// A linear layer: configuration and plans. Weights and activations are the caller's.
pub struct Linear {
    handle: Handle<sys::fp8_linear>,
    context: Context,
    recipe: Recipe,
    shape: [i64; 2],
}

/// What [`Linear::forward`] takes: y = x . w^T (+ bias).
#[derive(Default)]
pub struct Forward<'a, 'b> {
    /// The input, `[rows, in]`; or `qx`.
    pub x: Option<&'a Tensor<'b>>,
    /// The input, already quantized.
    pub qx: Option<&'a QTensor>,
    /// The weight, by [`Linear::quantize_weight`].
    pub w: Option<&'a QTensor>,
    /// One value an output feature.
    pub bias: Option<&'a Tensor<'b>>,
    /// The output, `[rows, out]`.
    pub y: Option<&'a mut TensorMut<'b>>,
    /// Takes what backward needs of x, by [`Linear::saved`].
    pub saved_x: Option<&'a mut QTensor>,
    /// One F32, recipe "tensor" only: amax of x.
    pub amax_x: Option<&'a mut TensorMut<'b>>,
    /// U64 counters of x, added to.
    pub stats_x: Option<&'a mut TensorMut<'b>>,
    /// `amax_x` is an input.
    pub amax_given: bool,
    /// Scratch, by [`Linear::workspace`]; without it the context's allocator serves.
    pub workspace: Option<&'a mut Buffer>,
}

/// What [`Linear::backward`] takes. Each of dx, dw, dbias may be left out.
#[derive(Default)]
pub struct Backward<'a, 'b> {
    /// The gradient of y; or `qdy`.
    pub dy: Option<&'a Tensor<'b>>,
    /// The gradient of y, already quantized.
    pub qdy: Option<&'a QTensor>,
    /// The weight, for dx.
    pub w: Option<&'a QTensor>,
    /// What forward saved, for dw; or `x`.
    pub saved_x: Option<&'a QTensor>,
    /// The input itself, for dw.
    pub x: Option<&'a Tensor<'b>>,
    /// The gradient of x.
    pub dx: Option<&'a mut TensorMut<'b>>,
    /// The gradient of w.
    pub dw: Option<&'a mut TensorMut<'b>>,
    /// The gradient of bias, F32.
    pub dbias: Option<&'a mut TensorMut<'b>>,
    /// U64 counters of dy, added to.
    pub stats_dy: Option<&'a mut TensorMut<'b>>,
    /// dw += instead of dw =.
    pub accumulate_dw: bool,
    /// dx += instead of dx =.
    pub accumulate_dx: bool,
    /// dbias += instead of dbias =.
    pub accumulate_dbias: bool,
    /// Scratch, by [`Linear::workspace`]; without it the context's allocator serves.
    pub workspace: Option<&'a mut Buffer>,
}

impl Linear {
    /// BF16 in and out.
    pub fn new(context: &Context, recipe: &Recipe, in_features: usize, out_features: usize) -> Result<Self> {
        Self::with_dtypes(context, recipe, in_features, out_features, Dtype::Bf16, Dtype::Bf16)
    }
    /// With the dtypes of x and dx, and of y and dy.
    pub fn with_dtypes(
        context: &Context,
        recipe: &Recipe,
        in_features: usize,
        out_features: usize,
        input: Dtype,
        output: Dtype,
    ) -> Result<Self> {
        let mut config = sys::fp8_linear_config::new();
        config.in_features = in_features as i64;
        config.out_features = out_features as i64;
        config.recipe = recipe.as_ptr();
        config.input_dtype = input as i32;
        config.output_dtype = output as i32;
        // Safety: a sized struct and live handles.
        let handle = Handle::make(|out| unsafe { sys::fp8_linear_create(context.as_ptr(), &config, out) })?;
        Ok(Self {
            handle,
            context: context.clone(),
            recipe: recipe.clone(),
            shape: [config.out_features, config.in_features],
        })
    }
    /// Quantizes the weight, `[out, in]`: once an optimizer step.
    pub fn quantize_weight(&self, w: &Tensor) -> Result<QTensor> {
        if w.shape() != self.shape {
            let ([outputs, inputs], shape) = (self.shape, w.shape());
            return Err(Error::argument(format!(
                "quantize_weight: w is {shape:?}, this linear wants [out_features {outputs}, in_features {inputs}]"
            )));
        }
        QTensor::quantize(
            &self.context,
            &self.recipe,
            Role::Weight,
            w,
            Sides::BOTH,
            Quantize::default(),
        )
    }
    /// Memory for what forward saves of an input of these rows.
    pub fn saved(&self, rows: usize) -> Result<QTensor> {
        let mut raw = sys::fp8_qtensor::new();
        let wanted = sys::FP8_SIDE_COL | sys::FP8_SIDE_COPY;
        // Safety: a live handle and a sized struct.
        check(unsafe {
            sys::fp8_linear_describe(
                self.handle.as_ptr(),
                sys::FP8_ROLE_ACTIVATION,
                rows as i64,
                wanted,
                &mut raw,
            )
        })?;
        QTensor::place(&self.context, raw, Sides::COL, true)
    }
    /// Scratch that is enough for every call of up to these rows.
    pub fn workspace(&self, rows: usize) -> Result<Buffer> {
        let mut bytes = 0u64;
        // Safety: a live handle and a local output.
        check(unsafe { sys::fp8_linear_workspace(self.handle.as_ptr(), rows as i64, 0, &mut bytes) })?;
        Buffer::new(&self.context, bytes as usize)
    }
    /// y = x . w^T (+ bias).
    pub fn forward(&self, call: Forward) -> Result<()> {
        let c = &self.context;
        let mut args = sys::fp8_linear_forward_args::new();
        args.x = Tensor::of(call.x, c, "x")?;
        args.qx = QTensor::of(call.qx, c, "qx")?;
        args.w = QTensor::of(call.w, c, "w")?;
        args.bias = Tensor::of(call.bias, c, "bias")?;
        args.y = TensorMut::of(call.y, c, "y")?;
        args.saved_x = QTensor::of_mut(call.saved_x, c, "saved_x")?;
        args.amax_x = TensorMut::of(call.amax_x, c, "amax_x")?;
        args.stats_x = TensorMut::of(call.stats_x, c, "stats_x")?;
        args.flags = if call.amax_given { sys::FP8_LINEAR_AMAX_GIVEN } else { 0 };
        let workspace = Buffer::of(call.workspace.as_deref(), c, "workspace")?;
        args.workspace = workspace.as_ref().map_or(null(), |b| b);
        // Safety: every pointer is null or points to a live struct whose memory is borrowed.
        check(unsafe { sys::fp8_linear_forward(self.handle.as_ptr(), &args, c.stream()) })
    }
    /// dx = dy . w, dw = dy^T . x, dbias = the column sums of dy.
    pub fn backward(&self, call: Backward) -> Result<()> {
        let c = &self.context;
        let mut args = sys::fp8_linear_backward_args::new();
        args.dy = Tensor::of(call.dy, c, "dy")?;
        args.qdy = QTensor::of(call.qdy, c, "qdy")?;
        args.w = QTensor::of(call.w, c, "w")?;
        args.saved_x = QTensor::of(call.saved_x, c, "saved_x")?;
        args.x = Tensor::of(call.x, c, "x")?;
        args.dx = TensorMut::of(call.dx, c, "dx")?;
        args.dw = TensorMut::of(call.dw, c, "dw")?;
        args.dbias = TensorMut::of(call.dbias, c, "dbias")?;
        args.stats_dy = TensorMut::of(call.stats_dy, c, "stats_dy")?;
        for (on, bit) in [
            (call.accumulate_dw, sys::FP8_LINEAR_ACCUMULATE_DW),
            (call.accumulate_dx, sys::FP8_LINEAR_ACCUMULATE_DX),
            (call.accumulate_dbias, sys::FP8_LINEAR_ACCUMULATE_DBIAS),
        ] {
            args.flags |= if on { bit } else { 0 };
        }
        let workspace = Buffer::of(call.workspace.as_deref(), c, "workspace")?;
        args.workspace = workspace.as_ref().map_or(null(), |b| b);
        // Safety: every pointer is null or points to a live struct whose memory is borrowed.
        check(unsafe { sys::fp8_linear_backward(self.handle.as_ptr(), &args, c.stream()) })
    }
}
