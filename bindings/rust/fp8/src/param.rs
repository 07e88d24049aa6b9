// SPDX-License-Identifier: Apache-2.0
use crate::comm::Comm;
use crate::context::{Buffer, Context};
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::qtensor::{QTensor, Sides};
use crate::recipe::{Recipe, Role};
use crate::sys::{self, SizedStruct};
use crate::tensor::Tensor;
use std::ptr::null;

/// Sizes of what a list of primary weights exchanges.
pub type ParamLayout = sys::fp8_param_layout;

/// One weight of a [`ParamList`]: its matrix, and where each rank's flat range starts (world + 1 offsets).
#[derive(Clone, Debug)]
pub struct Shape {
    /// Rows of the weight.
    pub rows: usize,
    /// Columns of the weight.
    pub cols: usize,
    /// Ascending offsets into the flattened matrix.
    pub cuts: Vec<i64>,
}

/// FP8 primary weights under ZeRO-1: FP32 masters sharded by flat offsets, FP8 weights gathered.
pub struct ParamList {
    params: Vec<Handle<sys::fp8_param>>,
    shapes: Vec<Shape>,
    rank: usize,
    context: Context,
    recipe: Recipe,
    layout: ParamLayout,
    memory: [Buffer; 3], // amax, shard, workspace
}

/// A step of the protocol: [`ParamList::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamStep {
    /// Masters to this rank's part of the amaxes: now max-reduce [`ParamList::amax`].
    Amax,
    /// Masters and amaxes to this rank's shard: now gather [`ParamList::shard`].
    Cast,
}

impl ParamList {
    /// This rank's view of the weights.
    pub fn new(context: &Context, recipe: &Recipe, shapes: &[Shape], rank: usize) -> Result<Self> {
        let mut params = Vec::new();
        for shape in shapes {
            if shape.cuts.len() < 2 {
                return Err(Error::argument(format!(
                    "cuts {:?}: world + 1 offsets are wanted",
                    shape.cuts
                )));
            }
            let mut config = sys::fp8_param_config::new();
            (config.rows, config.cols) = (shape.rows as i64, shape.cols as i64);
            config.cuts = shape.cuts.as_ptr();
            config.world = shape.cuts.len() as i32 - 1;
            config.rank = rank as i32;
            config.recipe = recipe.as_ptr();
            // Safety: a sized struct; cuts holds world + 1 offsets and is copied.
            params.push(Handle::make(|out| unsafe {
                sys::fp8_param_create(context.as_ptr(), &config, out)
            })?);
        }
        let mut layout = ParamLayout::new();
        let list: Vec<_> = params.iter().map(|p| p.as_ptr() as *const sys::fp8_param).collect();
        // Safety: `list` holds as many live handles.
        check(unsafe { sys::fp8_param_sizes(list.as_ptr(), list.len() as i32, sys::FP8_SIDE_BOTH, &mut layout) })?;
        let bytes = [
            layout.amax_bytes,
            layout.row_bytes + layout.col_bytes,
            layout.workspace_bytes,
        ];
        let memory = [
            Buffer::new(context, bytes[0] as usize)?,
            Buffer::new(context, bytes[1] as usize)?,
            Buffer::new(context, bytes[2] as usize)?,
        ];
        Ok(Self {
            params,
            shapes: shapes.to_vec(),
            rank,
            context: context.clone(),
            recipe: recipe.clone(),
            layout,
            memory,
        })
    }
    /// Sizes of what is exchanged.
    pub fn layout(&self) -> &ParamLayout {
        &self.layout
    }
    /// How many elements of weight `i` this rank owns.
    pub fn owned(&self, i: usize) -> usize {
        (self.shapes[i].cuts[self.rank + 1] - self.shapes[i].cuts[self.rank]) as usize
    }
    /// The amaxes, to be max-reduced as they are.
    pub fn amax(&mut self) -> &mut Buffer {
        &mut self.memory[0]
    }
    /// This rank's slot of what is gathered.
    pub fn shard(&self) -> &Buffer {
        &self.memory[1]
    }
    /// Memory for the full weights.
    pub fn full(&self, sides: Sides) -> Result<Vec<QTensor>> {
        let make = |s: &Shape| QTensor::zeros(&self.context, &self.recipe, Role::Weight, s.rows, s.cols, sides);
        self.shapes.iter().map(make).collect()
    }
    /// Fails unless recipes, shapes and cuts agree on all ranks: once, at setup.
    pub fn check(&self, comm: &mut Comm) -> Result<()> {
        let comm = comm.on(&self.context)?;
        let list: Vec<_> = self
            .params
            .iter()
            .map(|p| p.as_ptr() as *const sys::fp8_param)
            .collect();
        // Safety: `list` holds as many live handles.
        check(unsafe { sys::fp8_param_check(self.context.as_ptr(), comm, list.as_ptr(), list.len() as i32) })
    }
    /// One stateless step, for collectives of one's own.
    pub fn step(&mut self, step: ParamStep, masters: &[Tensor]) -> Result<()> {
        self.call(Some(masters), None, None, Sides::BOTH, |c, args, stream| {
            // Safety: call() keeps what args points to.
            unsafe {
                match step {
                    ParamStep::Amax => sys::fp8_param_amax(c, args, stream),
                    ParamStep::Cast => sys::fp8_param_cast(c, args, stream),
                }
            }
        })
    }
    /// The last stateless step: all ranks' slots, in rank order, to full weights.
    pub fn assemble(&mut self, gathered: &Buffer, full: &mut [QTensor], sides: Sides) -> Result<()> {
        // Safety: call() keeps what args points to.
        self.call(None, Some(full), Some(gathered), sides, |c, args, s| unsafe {
            sys::fp8_param_assemble(c, args, s)
        })
    }
    /// Masters to amaxes and shards: one all-reduce(max).
    pub fn quantize(&mut self, comm: &mut Comm, masters: &[Tensor]) -> Result<()> {
        let comm = comm.on(&self.context)?;
        // Safety: call() keeps what args points to.
        self.call(Some(masters), None, None, Sides::BOTH, |c, args, s| unsafe {
            sys::fp8_param_quantize(c, comm, args, s)
        })
    }
    /// Shards to full weights: one all-gather.
    pub fn gather(&mut self, comm: &mut Comm, full: &mut [QTensor], sides: Sides) -> Result<()> {
        let comm = comm.on(&self.context)?;
        // Safety: call() keeps what args points to.
        self.call(None, Some(full), None, sides, |c, args, s| unsafe {
            sys::fp8_param_gather(c, comm, args, s)
        })
    }
    fn call(
        &mut self,
        masters: Option<&[Tensor]>,
        full: Option<&mut [QTensor]>,
        gathered: Option<&Buffer>,
        sides: Sides,
        run: impl FnOnce(*const sys::fp8_context, *const sys::fp8_param_args, sys::fp8_stream) -> i32,
    ) -> Result<()> {
        let n = self.params.len();
        let given = masters.map_or(n, <[_]>::len).min(full.as_ref().map_or(n, |f| f.len()));
        if given != n || masters.map_or(false, |m| m.len() != n) || full.as_ref().map_or(false, |f| f.len() != n) {
            return Err(Error::argument(format!(
                "a list of {n} params needs {n} masters and {n} full weights"
            )));
        }
        let list: Vec<_> = self
            .params
            .iter()
            .map(|p| p.as_ptr() as *const sys::fp8_param)
            .collect();
        let mut master_list = Vec::new();
        for m in masters.unwrap_or(&[]) {
            master_list.push(Tensor::of(Some(m), &self.context, "masters")?);
        }
        let mut full_list = Vec::new();
        for q in full.into_iter().flatten() {
            full_list.push(QTensor::of_mut(Some(q), &self.context, "full")?);
        }
        // amax() hands its buffer out, so that another may be in its place
        let amax = Buffer::of(Some(&self.memory[0]), &self.context, "amax")?;
        let (shard, workspace) = (self.memory[1].raw(), self.memory[2].raw());
        let gathered = Buffer::of(gathered, &self.context, "gathered")?;
        let mut args = sys::fp8_param_args::new();
        args.params = list.as_ptr();
        args.masters = if master_list.is_empty() {
            null()
        } else {
            master_list.as_ptr()
        };
        args.full = if full_list.is_empty() {
            null()
        } else {
            full_list.as_mut_ptr()
        };
        args.amax = amax.as_ref().map_or(null(), |b| b);
        (args.shard, args.workspace) = (&shard, &workspace);
        args.gathered = gathered.as_ref().map_or(null(), |b| b);
        args.count = n as i32;
        args.sides = sides.0;
        check(run(self.context.as_ptr(), &args, self.context.stream()))
    }
}
