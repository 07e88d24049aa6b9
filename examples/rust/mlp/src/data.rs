// SPDX-License-Identifier: Apache-2.0
//! Fashion-MNIST in its four gzip files (Debian: dataset-fashion-mnist); gzip unpacks them.
use std::path::Path;
use std::process::Command;

pub struct Data {
    pub images: Vec<f32>, // n x 784, mean 0, about unit variance
    pub labels: Vec<u8>,
}

fn unpack(path: &Path, header: usize) -> Result<Vec<u8>, String> {
    let out = Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(|e| format!("gzip: {e}"))?;
    if !out.status.success() || out.stdout.len() < header {
        return Err(format!(
            "{} cannot be read (apt-get install dataset-fashion-mnist, or give --data)",
            path.display()
        ));
    }
    Ok(out.stdout[header..].to_vec())
}

pub fn load(folder: &str, kind: &str) -> Result<Data, String> {
    let at = |name: &str| Path::new(folder).join(format!("{kind}-{name}.gz"));
    let pixels = unpack(&at("images-idx3-ubyte"), 16)?;
    let labels = unpack(&at("labels-idx1-ubyte"), 8)?;
    if pixels.len() != labels.len() * 784 {
        return Err(format!("{} pixels for {} labels", pixels.len(), labels.len()));
    }
    Ok(Data {
        images: pixels.iter().map(|&p| (p as f32 / 255.0 - 0.286) / 0.353).collect(),
        labels,
    })
}

/// Numbers that look random and are the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}
