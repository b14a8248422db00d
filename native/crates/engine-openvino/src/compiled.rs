//! A network that was compiled for a device.

use std::ffi::CString;
use std::ptr::null_mut;

use kushi_core::TensorInfo;
use serde::Deserialize;

use crate::OpenVinoModel;
use crate::api::{self, Api, Property};
use crate::library::{take_text, text};
use crate::request::Request;
use crate::status::OpenVinoFailure;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompileOptions {
    /// OpenVINO's name for it.
    pub device: String,
    /// Under OpenVINO's names.
    pub properties: Vec<(String, String)>,
    /// How many runs there may be at the same time.
    pub requests: usize,
    /// Whether a run computes on the calling thread alone. That is so with the property `NUM_STREAMS` of 0, and the
    /// network takes one run at a time then.
    pub runs_on_caller: bool,
    /// Where the first dimension is the maximum batch size, whatever a batch has.
    pub fixed_rows: Option<FixedRows>,
}

/// What becomes of batches that have fewer rows than a network takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FixedRows {
    Refuse,
    /// They get rows of zeros, which answer nobody.
    Pad,
}

/// A network on a device, with as many infer requests as there are instances: they share the weights.
pub struct CompiledModel {
    requests: Vec<Request>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
    runs_on_caller: bool,
    fixed_rows: Option<FixedRows>,
    narrows_integers: bool,
    ends_runs: bool,
    compiled: Compiled,
}

impl CompiledModel {
    pub(crate) fn new(model: &OpenVinoModel, options: &CompileOptions) -> Result<Self, OpenVinoFailure> {
        let core = model.core();
        let device = text(&options.device)?;
        let pairs = options.properties.iter().map(|(key, value)| Ok((text(key)?, text(value)?)));
        let pairs: Vec<(CString, CString)> = pairs.collect::<Result<_, OpenVinoFailure>>()?;
        let properties: Vec<Property> = pairs
            .iter()
            .map(|(key, value)| Property { key: key.as_ptr(), value: value.as_ptr().cast() })
            .collect();
        let mut pointer = null_mut();
        // SAFETY: core and network live; there are so many properties, and all texts end with a zero and are copied.
        core.api.check(unsafe {
            (core.api.ov_core_compile_model_props)(
                core.as_ptr(),
                model.as_ptr(),
                device.as_ptr(),
                properties.len(),
                properties.as_ptr(),
                &raw mut pointer,
            )
        })?;
        let compiled = Compiled { api: core.api, pointer };
        let requests = (0..options.requests).map(|_| compiled.request()).collect::<Result<_, _>>()?;
        Ok(Self {
            requests,
            inputs: model.inputs().to_vec(),
            outputs: model.outputs().to_vec(),
            runs_on_caller: options.runs_on_caller,
            fixed_rows: options.fixed_rows,
            narrows_integers: !["GPU", "NPU"].iter().any(|other| options.device.starts_with(other)),
            ends_runs: model.inputs().iter().chain(model.outputs()).all(is_static),
            compiled,
        })
    }

    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// What OpenVINO says of it under this name, as `EXECUTION_DEVICES`; `None` where it says nothing.
    pub fn property(&self, name: &str) -> Option<String> {
        self.compiled.property(name).ok()
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.compiled.api
    }

    pub(crate) fn runs_on_caller(&self) -> bool {
        self.runs_on_caller
    }

    pub(crate) fn fixed_rows(&self) -> Option<FixedRows> {
        self.fixed_rows
    }

    /// Whether integers of 64 bits are computed in 32.
    pub(crate) fn narrows_integers(&self) -> bool {
        self.narrows_integers
    }

    /// Whether runs may be ended. Where shapes vary, OpenVINO forgets to infer some of them after a run that was
    /// ended, and the next run gives tensors of the shapes of that one.
    pub(crate) fn ends_runs(&self) -> bool {
        self.ends_runs
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }
}

fn is_static(tensor: &TensorInfo) -> bool {
    tensor.shape.as_ref().is_some_and(|shape| !shape.contains(&-1))
}

struct Compiled {
    api: &'static Api,
    pointer: *mut api::Compiled,
}

// SAFETY: it is not bound to a thread, and nothing writes to it once it is made.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Compiled {
    fn request(&self) -> Result<Request, OpenVinoFailure> {
        let mut pointer = null_mut();
        // SAFETY: it lives, and one pointer is written.
        self.api.check(unsafe {
            (self.api.ov_compiled_model_create_infer_request)(self.pointer, &raw mut pointer)
        })?;
        // SAFETY: the request was made for the caller alone.
        Ok(unsafe { Request::from_raw(self.api, pointer) })
    }

    fn property(&self, name: &str) -> Result<String, OpenVinoFailure> {
        let name = text(name)?;
        let mut value = null_mut();
        // SAFETY: it lives; a text is written that is taken over.
        unsafe {
            self.api.check((self.api.ov_compiled_model_get_property)(
                self.pointer,
                name.as_ptr(),
                &raw mut value,
            ))?;
            Ok(take_text(self.api, value))
        }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: it is owned here and not used again; requests keep what they need of it.
        unsafe { (self.api.ov_compiled_model_free)(self.pointer) }
    }
}
