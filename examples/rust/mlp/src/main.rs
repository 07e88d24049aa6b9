// SPDX-License-Identifier: Apache-2.0
//! Fashion-MNIST with an MLP in FP8, each recipe paired with BF16: same start, same batches.
//!
//!     cargo run --release -- [--device cpu|cuda] [--steps 600] [--seeds 2] [--recipes tensor,row,block,mx] [--data DIR]
mod data;
mod network;

use data::Random;
use fp8::{Backend, Context, ContextConfig, Recipe};
use network::Network;

const USAGE: &str = "mlp [--device cpu|cuda] [--steps 600] [--seeds 2] [--recipes tensor,row,block,mx] [--data DIR]";

struct Options {
    device: String,
    backend: Backend,
    data: String,
    recipes: Vec<(String, Recipe)>,
    steps: usize,
    seeds: u64,
}

/// BF16 first, then the recipes of a list; a wrong name ends here.
fn recipes(list: &str) -> Result<Vec<(String, Recipe)>, String> {
    let parse = |name: &str| match name.parse() {
        Ok(recipe) => Ok((name.to_string(), recipe)),
        Err(e) => Err(format!("--recipes {list}: {e}")),
    };
    std::iter::once("none").chain(list.split(',')).map(parse).collect()
}

fn count<T: std::str::FromStr + Default + PartialEq>(word: &str, value: &str) -> Result<T, String> {
    match value.parse() {
        Ok(n) if n != T::default() => Ok(n),
        _ => Err(format!("{word} {value}: a whole number from 1 is needed")),
    }
}

fn options() -> Result<Options, String> {
    let mut o = Options {
        device: "cpu".into(),
        backend: Backend::Cpu,
        data: "/usr/share/datasets/fashion-mnist".into(),
        recipes: recipes("tensor,row,block,mx")?,
        steps: 600,
        seeds: 2,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            println!("usage: {USAGE}");
            std::process::exit(0);
        }
        if !["--device", "--data", "--recipes", "--steps", "--seeds"].contains(&word.as_str()) {
            return Err(format!("{word}: there is no such option; {USAGE}"));
        }
        let value = words.next().ok_or(format!("{word}: a value is needed"))?;
        match word.as_str() {
            "--device" => o.device = value,
            "--data" => o.data = value,
            "--recipes" => o.recipes = recipes(&value)?,
            "--steps" => o.steps = count(&word, &value)?,
            _ => o.seeds = count(&word, &value)?,
        }
    }
    o.backend = match o.device.as_str() {
        "cpu" => Backend::Cpu,
        "cuda" => Backend::Cuda,
        other => return Err(format!("--device {other}: cpu or cuda is needed")),
    };
    Ok(o)
}

/// Accuracy and loss on the test images after `steps`.
fn train(
    context: &Context,
    recipe: &Recipe,
    o: &Options,
    sets: &[data::Data; 2],
    seed: u64,
) -> fp8::Result<(f32, f32)> {
    const BATCH: usize = 128;
    let mut network = Network::new(context, recipe, &[784, 256, 256, 10], seed)?;
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

fn run(o: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new(ContextConfig {
        backend: o.backend,
        ..ContextConfig::default()
    })?;
    let sets = [data::load(&o.data, "train")?, data::load(&o.data, "t10k")?];
    let mut plain = Vec::new();
    for (name, recipe) in &o.recipes {
        for seed in 0..o.seeds {
            let begin = std::time::Instant::now();
            let (accuracy, loss) = train(&context, recipe, o, &sets, seed + 1)?;
            if plain.len() <= seed as usize {
                plain.push(accuracy); // BF16 comes first
            }
            let gap = accuracy - plain[seed as usize];
            println!(
                "{name:8} seed {seed}  accuracy {:.2} %  loss {loss:.4}  gap to BF16 {:+.2} points  {:.1} s on {}",
                100.0 * accuracy,
                100.0 * gap,
                begin.elapsed().as_secs_f32(),
                o.device
            );
            if o.steps >= 100 && (accuracy < 0.7 || gap.abs() > 0.03) {
                return Err(format!("{name}: accuracy {accuracy} with a gap of {gap}").into());
            }
        }
    }
    Ok(())
}

fn main() {
    let o = options().unwrap_or_else(|e| {
        eprintln!("mlp: {e}");
        std::process::exit(2)
    });
    if let Err(e) = run(&o) {
        eprintln!("mlp: {e}");
        std::process::exit(1)
    }
}
