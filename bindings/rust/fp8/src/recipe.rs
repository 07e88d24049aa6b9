// SPDX-License-Identifier: Apache-2.0
use crate::context::read_text;
use crate::error::{check, Error, Result};
use crate::handle::Handle;
use crate::sys::{self, SizedStruct};
use std::ffi::CString;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A known recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Preset {
    /// BF16 through the same calls.
    None = sys::FP8_PRESET_NONE,
    /// One scale a tensor.
    Tensor = sys::FP8_PRESET_TENSOR,
    /// One scale a row, along the contraction.
    Row = sys::FP8_PRESET_ROW,
    /// 1 x 128 activations, 128 x 128 weights.
    Block = sys::FP8_PRESET_BLOCK,
    /// MXFP8: 1 x 32 with E8M0 scales.
    Mx = sys::FP8_PRESET_MX,
    /// MXFP8 with 32 x 32 weights.
    MxW2d = sys::FP8_PRESET_MX_W2D,
}

/// What a matrix is in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Role {
    /// An input.
    Activation = sys::FP8_ROLE_ACTIVATION,
    /// A weight.
    Weight = sys::FP8_ROLE_WEIGHT,
    /// A gradient of an output.
    Gradient = sys::FP8_ROLE_GRADIENT,
}

/// Every field of a recipe; made by [`RecipeConfig::preset`], 0 = the preset's choice.
pub type RecipeConfig = sys::fp8_recipe_config;

/// Format, granularity and coverage: immutable, cheap to clone. Parses from and prints as text.
///
/// ```
/// let recipe: fp8::Recipe = "mxfp8".parse()?;
/// assert_eq!(recipe.config()?.preset, fp8::Preset::Mx as i32);
/// assert_eq!(recipe.to_string().parse::<fp8::Recipe>()?.to_string(), recipe.to_string());
/// # Ok::<(), fp8::Error>(())
/// ```
#[derive(Clone)]
pub struct Recipe(Arc<Handle<sys::fp8_recipe>>);

impl Recipe {
    /// A known recipe.
    pub fn preset(preset: Preset) -> Result<Self> {
        let mut config = RecipeConfig::new();
        // Safety: a sized struct.
        check(unsafe { sys::fp8_recipe_config_preset(preset as i32, &mut config) })?;
        Self::new(&config)
    }
    /// A recipe of one's own.
    pub fn new(config: &RecipeConfig) -> Result<Self> {
        // Safety: a sized struct that lives for the call.
        Handle::make(|out| unsafe { sys::fp8_recipe_create(config, out) }).map(|h| Self(Arc::new(h)))
    }
    /// Every field, resolved.
    pub fn config(&self) -> Result<RecipeConfig> {
        let mut config = RecipeConfig::new();
        // Safety: a live handle and a sized struct.
        check(unsafe { sys::fp8_recipe_query(self.as_ptr(), &mut config) })?;
        Ok(config)
    }
    /// The recipe as C sees it, for calls of `fp8-sys`. It stays this struct's to destroy.
    pub fn as_raw(&self) -> *const sys::fp8_recipe {
        self.as_ptr()
    }
    pub(crate) fn as_ptr(&self) -> *const sys::fp8_recipe {
        self.0.as_ptr()
    }
}

impl FromStr for Recipe {
    type Err = Error;
    /// The canonical text, or a name as "block" or "mxfp8".
    fn from_str(text: &str) -> Result<Self> {
        let text = CString::new(text).map_err(|_| Error::argument("a recipe's text holds a zero byte".into()))?;
        // Safety: a C string that lives for the call.
        Handle::make(|out| unsafe { sys::fp8_recipe_from_string(text.as_ptr(), out) }).map(|h| Self(Arc::new(h)))
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Safety: a live handle; read_text gives room and its size.
        let text =
            read_text(|text, bytes, needed| unsafe { sys::fp8_recipe_to_string(self.as_ptr(), text, bytes, needed) });
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({self})")
    }
}
