//! Execution providers: what computes in the place of the CPU.
//!
//! A provider that cannot be had is an error, never a session that computes elsewhere in silence.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

use kushi_core::Error;
use ort::AsPointer;
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;
use ort::sys::{OrtHardwareDeviceType, OrtSessionOptions, OrtStatusPtr};
use serde::Deserialize;

use crate::environment;
use crate::options::{Entry, text};
use crate::plugin;
use crate::status::{OrtFailure, check};

/// The name of OpenVINO's provider in ONNX Runtime.
pub(crate) const OPENVINO: &CStr = c"OpenVINOExecutionProvider";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    Cuda,
    TensorRt,
    OpenVino,
}

impl Accelerator {
    fn name(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::TensorRt => "TensorRT",
            Self::OpenVino => "OpenVINO",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub accelerator: Accelerator,
    /// Under the names that the provider has for them.
    pub options: Vec<Entry>,
}

/// The names of the providers that the loaded library has, "`CPUExecutionProvider`" among them, and of those in
/// libraries of their own that were registered.
pub fn available_providers() -> Result<Vec<String>, Error> {
    let environment = environment::current()?;
    let mut names: *mut *mut c_char = null_mut();
    let mut count: c_int = 0;
    // SAFETY: answers a list of C strings and its length; both are given back after they are copied.
    unsafe {
        check((ort::api().GetAvailableProviders)(&raw mut names, &raw mut count))?;
        let list = (0..count as usize).map(|index| {
            let name = CStr::from_ptr(*names.add(index));
            name.to_string_lossy().into_owned()
        });
        let mut list: Vec<String> = list.collect();
        check((ort::api().ReleaseAvailableProviders)(names, count))?;
        for name in plugin::names(&environment)? {
            if !list.contains(&name) {
                list.push(name);
            }
        }
        Ok(list)
    }
}

pub(crate) fn append(
    builder: &mut SessionBuilder,
    environment: &Environment,
    provider: &Provider,
) -> Result<(), String> {
    let strings = |part: fn(&Entry) -> &String| {
        provider.options.iter().map(|entry| text(part(entry))).collect::<Result<Vec<CString>, String>>()
    };
    let (keys, values) = (strings(|entry| &entry.0)?, strings(|entry| &entry.1)?);
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let (keys, values) = (pointers(&keys), pointers(&values));
    let options = builder.ptr_mut();
    // SAFETY: the session options are owned by the builder, and keys and values are C strings of which
    // there is the same number; they live until this function returns.
    let appended = unsafe {
        match provider.accelerator {
            Accelerator::Cuda => append_cuda(options, &keys, &values),
            Accelerator::TensorRt => append_tensorrt(options, &keys, &values),
            Accelerator::OpenVino => append_openvino(options, environment, &keys, &values),
        }
    };
    appended.map_err(|failure| {
        let name = provider.accelerator.name();
        format!("the {name} execution provider cannot be used: {}", failure.text())
    })
}

/// # Safety
/// The options are alive, and keys and values are C strings of which there is the same number.
unsafe fn append_cuda(
    session: *mut OrtSessionOptions,
    keys: &[*const c_char],
    values: &[*const c_char],
) -> Result<(), OrtFailure> {
    let api = ort::api();
    let mut options = null_mut();
    // SAFETY: the caller's contract, and the provider's options are released after their last use.
    unsafe {
        check((api.CreateCUDAProviderOptions)(&raw mut options))?;
        let done = then(
            (api.UpdateCUDAProviderOptions)(options, keys.as_ptr(), values.as_ptr(), keys.len()),
            || (api.SessionOptionsAppendExecutionProvider_CUDA_V2)(session, options),
        );
        (api.ReleaseCUDAProviderOptions)(options);
        done
    }
}

/// # Safety
/// That of [`append_cuda`].
unsafe fn append_tensorrt(
    session: *mut OrtSessionOptions,
    keys: &[*const c_char],
    values: &[*const c_char],
) -> Result<(), OrtFailure> {
    let api = ort::api();
    let mut options = null_mut();
    // SAFETY: the caller's contract, and the provider's options are released after their last use.
    unsafe {
        check((api.CreateTensorRTProviderOptions)(&raw mut options))?;
        let done = then(
            (api.UpdateTensorRTProviderOptions)(options, keys.as_ptr(), values.as_ptr(), keys.len()),
            || (api.SessionOptionsAppendExecutionProvider_TensorRT_V2)(session, options),
        );
        (api.ReleaseTensorRTProviderOptions)(options);
        done
    }
}

/// # Safety
/// That of [`append_cuda`].
unsafe fn append_openvino(
    session: *mut OrtSessionOptions,
    environment: &Environment,
    keys: &[*const c_char],
    values: &[*const c_char],
) -> Result<(), OrtFailure> {
    let cpu = OrtHardwareDeviceType::OrtHardwareDeviceType_CPU;
    let devices = plugin::devices(environment, OPENVINO, cpu)?;
    // SAFETY: the caller's contract, and the devices are those of the environment. Of no device there is an error.
    unsafe { plugin::append(session, environment, &devices, keys, values) }
}

fn then(first: OrtStatusPtr, second: impl FnOnce() -> OrtStatusPtr) -> Result<(), OrtFailure> {
    check(first).and_then(|()| check(second()))
}
