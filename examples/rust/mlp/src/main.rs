// SPDX-License-Identifier: Apache-2.0
//! Fashion-MNIST with an MLP in FP8, each recipe paired with BF16: same start, same batches.
//!
//!     cargo run --release -- [--device cpu|cuda] [--steps 600] [--seeds 2] [--recipes tensor,row,block,mx] [--data DIR]
mod data;
mod network;

use data::Random;
use fp8::{Backend, Context, ContextConfig, Recipe};
use network::Network;

const USAGE: &str =
    "usage: mlp [--device cpu|cuda] [--steps 600] [--seeds 2] [--recipes tensor,row,block,mx] [--data DIR]";

struct Options {
    device: String,
    data: String,
    recipes: String,
    steps: usize,
    seeds: u64,
}

fn options() -> Result<Options, String> {
    let mut o = Options {
        device: "cpu".into(),
        data: "/usr/share/datasets/fashion-mnist".into(),
        recipes: "tensor,row,block,mx".into(),
        steps: 600,
        seeds: 2,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            println!("{USAGE}");
            std::process::exit(0);
        }
        let value = words.next().ok_or(format!("{word} wants a value"))?;
        match word.as_str() {
            "--device" => o.device = value,
            "--data" => o.data = value,
            "--recipes" => o.recipes = value,
            "--steps" => o.steps = value.parse().map_err(|e| format!("--steps {value}: {e}"))?,
            "--seeds" => o.seeds = value.parse().map_err(|e| format!("--seeds {value}: {e}"))?,
            _ => return Err(format!("unknown option {word}; {USAGE}")),
        }
    }
    Ok(o)
}

/// Accuracy and loss on the test images after `steps`.
fn train(context: &Context, recipe: &str, o: &Options, sets: &[data::Data; 2], seed: u64) -> fp8::Result<(f32, f32)> {
    const BATCH: usize = 128;
    let mut network = Network::new(context, &recipe.parse::<Recipe>()?, &[784, 256, 256, 10], seed)?;
    let mut random = Random(seed ^ 0x5eed);
    for step in 0..o.steps {
        let (mut x, mut labels) = (Vec::with_capacity(BATCH * 784), Vec::with_capacity(BATCH));
        for _ in 0..BATCH {
            let i = random.next() as usize % sets[0].labels.len();
            x.extend_from_slice(&sets[0].images[i * 784..(i + 1) * 784]);
            labels.push(sets[0].labels[i]);
        }
        network.quantize()?;
        network.step(&x, &labels, 0.02 * (1.0 - step as f32 / o.steps as f32))?;
    }
    network.quantize()?;
    network.test(&sets[1].images, &sets[1].labels)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let o = options()?;
    let backend = if o.device == "cuda" {
        Backend::Cuda
    } else {
        Backend::Cpu
    };
    let context = Context::new(ContextConfig {
        backend,
        ..ContextConfig::default()
    })?;
    let sets = [data::load(&o.data, "train")?, data::load(&o.data, "t10k")?];
    let mut plain = Vec::new();
    for recipe in std::iter::once("none").chain(o.recipes.split(',')) {
        for seed in 0..o.seeds {
            let begin = std::time::Instant::now();
            let (accuracy, loss) = train(&context, recipe, &o, &sets, seed + 1)?;
            if recipe == "none" {
                plain.push(accuracy);
            }
            let gap = accuracy - plain[seed as usize];
            println!(
                "{recipe:8} seed {seed}  accuracy {:.2} %  loss {loss:.4}  gap to BF16 {:+.2} points  {:.1} s on {}",
                100.0 * accuracy,
                100.0 * gap,
                begin.elapsed().as_secs_f32(),
                o.device
            );
            if o.steps >= 100 && (accuracy < 0.7 || gap.abs() > 0.03) {
                return Err(format!("{recipe}: accuracy {accuracy} with a gap of {gap}").into());
            }
        }
    }
    Ok(())
}
