// SPDX-License-Identifier: Apache-2.0
//! An MLP whose hidden layers run in FP8. Tensors live in the context's device memory; the small elementwise work is done on the host.
use crate::data::Random;
use fp8::{Backward, Bf16, Buffer, Context, Dtype, Forward, Linear, QTensor, Recipe, Result};

struct Layer {
    linear: Linear,
    shape: [usize; 2], // out, in
    weight: Vec<f32>,  // the F32 master
    bias: Vec<f32>,
    momentum: Vec<f32>,
    bias_momentum: Vec<f32>,
    quantized: Option<QTensor>,
}

/// What a layer's forward leaves for its backward.
struct Kept {
    saved: QTensor,
    positive: Vec<bool>, // of its output, for the ReLU
}

pub struct Network {
    context: Context,
    layers: Vec<Layer>,
}

impl Network {
    /// Hidden layers follow `recipe`; the last one stays in BF16, as is the habit.
    pub fn new(context: &Context, recipe: &Recipe, widths: &[usize], seed: u64) -> Result<Self> {
        let (mut random, plain) = (Random(seed), "none".parse::<Recipe>()?);
        let mut layers = Vec::new();
        for (i, pair) in widths.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let chosen = if i + 2 == widths.len() { &plain } else { recipe };
            let bound = (6.0 / inputs as f32).sqrt();
            layers.push(Layer {
                linear: Linear::new(context, chosen, inputs, outputs)?,
                shape: [outputs, inputs],
                weight: (0..inputs * outputs)
                    .map(|_| (2.0 * random.uniform() - 1.0) * bound)
                    .collect(),
                bias: vec![0.0; outputs],
                momentum: vec![0.0; inputs * outputs],
                bias_momentum: vec![0.0; outputs],
                quantized: None,
            });
        }
        Ok(Self {
            context: context.clone(),
            layers,
        })
    }

    /// Quantizes every weight: once an optimizer step.
    pub fn quantize(&mut self) -> Result<()> {
        for layer in &mut self.layers {
            let master = Buffer::from_slice(&self.context, &layer.weight)?;
            layer.quantized = Some(
                layer
                    .linear
                    .quantize_weight(&master.tensor(Dtype::F32, &layer.shape)?)?,
            );
        }
        Ok(())
    }

    fn run(&self, x: &[f32], rows: usize) -> Result<(Vec<f32>, Vec<Kept>)> {
        let (mut x, mut kept): (Vec<Bf16>, Vec<Kept>) = (x.iter().map(|&v| v.into()).collect(), Vec::new());
        for (i, layer) in self.layers.iter().enumerate() {
            let [outputs, inputs] = layer.shape;
            let input = Buffer::from_slice(&self.context, &x)?;
            let bias = Buffer::from_slice(&self.context, &layer.bias)?;
            let mut y = Buffer::new(&self.context, rows * outputs * 2)?;
            let mut saved = layer.linear.saved(rows)?;
            layer.linear.forward(Forward {
                x: Some(&input.tensor(Dtype::Bf16, &[rows, inputs])?),
                w: layer.quantized.as_ref(),
                bias: Some(&bias.tensor(Dtype::F32, &[outputs])?),
                y: Some(&mut y.tensor_mut(Dtype::Bf16, &[rows, outputs])?),
                saved_x: Some(&mut saved),
                ..Forward::default()
            })?;
            x = vec![Bf16::default(); rows * outputs];
            y.read(&mut x)?;
            let positive: Vec<bool> = x.iter().map(|&v| f32::from(v) > 0.0).collect();
            if i + 1 < self.layers.len() {
                x.iter_mut()
                    .zip(&positive)
                    .filter(|(_, &p)| !p)
                    .for_each(|(v, _)| *v = Bf16::default());
            }
            kept.push(Kept { saved, positive });
        }
        Ok((x.into_iter().map(f32::from).collect(), kept))
    }

    /// One step of SGD with momentum; the mean loss of the batch.
    pub fn step(&mut self, x: &[f32], labels: &[u8], rate: f32) -> Result<f32> {
        let rows = labels.len();
        let (logits, kept) = self.run(x, rows)?;
        let (loss, mut dy) = cross_entropy(&logits, labels);
        for i in (0..self.layers.len()).rev() {
            let [outputs, inputs] = self.layers[i].shape;
            if i + 1 < self.layers.len() {
                dy.iter_mut()
                    .zip(&kept[i].positive)
                    .filter(|(_, &p)| !p)
                    .for_each(|(v, _)| *v = Bf16::default());
            }
            let gradient = Buffer::from_slice(&self.context, &dy)?;
            let mut dx = Buffer::new(&self.context, rows * inputs * 2)?;
            let mut dw = Buffer::new(&self.context, outputs * inputs * 4)?;
            let mut dbias = Buffer::new(&self.context, outputs * 4)?;
            self.layers[i].linear.backward(Backward {
                dy: Some(&gradient.tensor(Dtype::Bf16, &[rows, outputs])?),
                w: self.layers[i].quantized.as_ref(),
                saved_x: Some(&kept[i].saved),
                dx: Some(&mut dx.tensor_mut(Dtype::Bf16, &[rows, inputs])?),
                dw: Some(&mut dw.tensor_mut(Dtype::F32, &[outputs, inputs])?),
                dbias: Some(&mut dbias.tensor_mut(Dtype::F32, &[outputs])?),
                ..Backward::default()
            })?;
            dy = vec![Bf16::default(); rows * inputs];
            dx.read(&mut dy)?;
            let layer = &mut self.layers[i];
            update(&mut layer.weight, &mut layer.momentum, &dw, rate)?;
            update(&mut layer.bias, &mut layer.bias_momentum, &dbias, rate)?;
        }
        Ok(loss)
    }

    /// The share of right answers and the mean loss.
    pub fn test(&self, images: &[f32], labels: &[u8]) -> Result<(f32, f32)> {
        let (mut right, mut loss, mut batches) = (0, 0.0, 0);
        for (x, y) in images.chunks(784 * 500).zip(labels.chunks(500)) {
            let (logits, _) = self.run(x, y.len())?;
            loss += cross_entropy(&logits, y).0;
            batches += 1;
            for (row, &label) in logits.chunks(10).zip(y) {
                let best = row
                    .iter()
                    .enumerate()
                    .fold(0, |b, (i, v)| if *v > row[b] { i } else { b });
                right += usize::from(best == label as usize);
            }
        }
        Ok((right as f32 / labels.len() as f32, loss / batches as f32))
    }
}

fn update(values: &mut [f32], momentum: &mut [f32], gradient: &Buffer, rate: f32) -> Result<()> {
    let mut g = vec![0f32; values.len()];
    gradient.read(&mut g)?;
    for ((v, m), g) in values.iter_mut().zip(momentum).zip(g) {
        *m = 0.9 * *m + g;
        *v -= rate * *m;
    }
    Ok(())
}

fn cross_entropy(logits: &[f32], labels: &[u8]) -> (f32, Vec<Bf16>) {
    let rows = labels.len() as f32;
    let (mut loss, mut gradient) = (0.0, Vec::with_capacity(logits.len()));
    for (row, &label) in logits.chunks(10).zip(labels) {
        let top = row.iter().fold(f32::MIN, |a, &b| a.max(b));
        let sum: f32 = row.iter().map(|v| (v - top).exp()).sum();
        loss += sum.ln() + top - row[label as usize];
        gradient.extend(row.iter().enumerate().map(|(i, v)| {
            let p = (v - top).exp() / sum;
            Bf16::from((p - if i == label as usize { 1.0 } else { 0.0 }) / rows)
        }));
    }
    (loss / rows, gradient)
}
