//! Providers in libraries of their own, which ONNX Runtime opens when it is told where they lie.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::slice;
use std::sync::{Mutex, PoisonError};

use kushi_core::{Error, ErrorKind};
use ort::AsPointer;
use ort::environment::Environment;
use ort::sys::{OrtEpDevice, OrtHardwareDeviceType, OrtSessionOptions};

use crate::environment;
use crate::options::text;
use crate::status::{OrtFailure, check};

static REGISTERED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Opens a library of providers, once in a process: it stays until the process ends. A session computes
/// with them only where its options name them.
pub fn register_provider_library(path: &Path) -> Result<(), Error> {
    let environment = environment::current()?;
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.iter().any(|known| known == path) {
        return Ok(());
    }
    register(&environment, path).map_err(|reason| {
        let text = format!("the providers of '{}' cannot be used: {reason}", path.display());
        Error::new(ErrorKind::ConfigInvalid, text)
    })?;
    registered.push(path.to_owned());
    Ok(())
}

fn register(environment: &Environment, path: &Path) -> Result<(), String> {
    // Under this name ONNX Runtime would give it back, which nobody asks for.
    let name = text(&path.to_string_lossy())?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its path has a zero byte")?;
    let environment = environment.ptr().cast_mut();
    // SAFETY: the environment guards what it changes, and both texts are C strings that are copied.
    check(unsafe { (ort::api().RegisterExecutionProviderLibrary)(environment, name.as_ptr(), path.as_ptr()) })
        .map_err(|failure| failure.text().to_owned())
}

/// The names of the providers that have a device here, those of ONNX Runtime itself among them.
pub(crate) fn names(environment: &Environment) -> Result<Vec<String>, OrtFailure> {
    // SAFETY: the devices are those of the environment, which is alive.
    let name = |device| unsafe { provider(device) }.to_string_lossy().into_owned();
    Ok(all(environment)?.into_iter().map(name).collect())
}

/// The devices of kind `kind` that the provider `name` computes on.
pub(crate) fn devices(
    environment: &Environment,
    name: &CStr,
    kind: OrtHardwareDeviceType,
) -> Result<Vec<*const OrtEpDevice>, OrtFailure> {
    let api = ort::api();
    // SAFETY: the devices are those of the environment, which is alive.
    let ours = |device: &*const OrtEpDevice| unsafe {
        provider(*device) == name && (api.HardwareDevice_Type)((api.EpDevice_Device)(*device)) == kind
    };
    Ok(all(environment)?.into_iter().filter(ours).collect())
}

/// They live as long as the environment: no library of providers is given back.
fn all(environment: &Environment) -> Result<Vec<*const OrtEpDevice>, OrtFailure> {
    let (mut devices, mut count) = (null(), 0);
    // SAFETY: answers a list and its length, which are copied: it moves when a library is registered.
    unsafe {
        check((ort::api().GetEpDevices)(environment.ptr(), &raw mut devices, &raw mut count))?;
        Ok(if count == 0 { Vec::new() } else { slice::from_raw_parts(devices, count).to_vec() })
    }
}

/// # Safety
/// The device is one of an environment that is alive.
unsafe fn provider<'a>(device: *const OrtEpDevice) -> &'a CStr {
    // SAFETY: the caller's contract; the name is a C string of the device.
    unsafe { CStr::from_ptr((ort::api().EpDevice_EpName)(device)) }
}

/// # Safety
/// The options are alive, the devices are those of the environment, and keys and values are C strings of which there is the same number.
pub(crate) unsafe fn append(
    session: *mut OrtSessionOptions,
    environment: &Environment,
    devices: &[*const OrtEpDevice],
    keys: &[*const c_char],
    values: &[*const c_char],
) -> Result<(), OrtFailure> {
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
