//! Providers in libraries of their own, which ONNX Runtime opens when it is told where they lie.

use std::ffi::c_char;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kushi_core::{Error, ErrorKind};
use ort::AsPointer;
use ort::environment::Environment;
use ort::memory::DeviceType;
use ort::sys::{OrtEpDevice, OrtSessionOptions};

use crate::environment;
use crate::status::{Failure, check};

static REGISTERED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Opens a library of providers, once in a process: it stays until the process ends.
pub fn register_provider_library(path: &Path) -> Result<(), Error> {
    let environment = environment::current()?;
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.iter().any(|known| known == path) {
        return Ok(());
    }
    let shown = path.display();
    // Under this name ONNX Runtime would give it back, which nobody asks for.
    environment.register_ep_library(shown.to_string(), path).map_err(|error| {
        let text = format!("the providers of '{shown}' cannot be used: {}", error.message());
        Error::new(ErrorKind::ConfigInvalid, text)
    })?;
    registered.push(path.to_owned());
    Ok(())
}

/// The names of the providers that have a device here, those of ONNX Runtime itself among them.
pub(crate) fn names(environment: &Environment) -> impl Iterator<Item = String> {
    environment.devices().filter_map(|device| device.ep().ok().map(str::to_owned))
}

/// The devices of kind `ty` that the provider `name` computes on.
pub(crate) fn devices(environment: &Environment, name: &str, ty: DeviceType) -> Vec<*const OrtEpDevice> {
    let devices = environment.devices();
    let ours = devices
        .filter(|device| device.ep().is_ok_and(|ep| ep == name) && device.hardware_device().ty() == ty);
    ours.map(|device| device.ptr()).collect()
}

/// # Safety
/// The options are alive, the devices are those of the environment, and keys and values are C strings of which there is the same number.
pub(crate) unsafe fn append(
    session: *mut OrtSessionOptions,
    environment: &Environment,
    devices: &[*const OrtEpDevice],
    keys: &[*const c_char],
    values: &[*const c_char],
) -> Result<(), Failure> {
    // SAFETY: the caller's contract; the environment changes nothing unguarded.
    check(unsafe {
        (ort::api().SessionOptionsAppendExecutionProvider_V2)(
            session,
            environment.ptr().cast_mut(),
            devices.as_ptr(),
            devices.len(),
            keys.as_ptr(),
            values.as_ptr(),
            keys.len(),
        )
    })
}
