//! OpenVINO itself: one library per process, and a core for each model that is read.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use kushi_core::{Complaints, Error, ErrorKind};

use crate::api::{self, Api, Devices, Version};
use crate::status::OpenVinoFailure;
use crate::strings;

/// The oldest OpenVINO that is tested, as `(year, release)`.
pub const MINIMUM_VERSION: (u32, u32) = (2026, 4);

/// So many lines of its log in ten seconds: the data of each request may bring one about.
static COMPLAINTS: Complaints = Complaints::new(20);

static LOADING: Mutex<()> = Mutex::new(());
static LOADED: OnceLock<Loaded> = OnceLock::new();

struct Loaded {
    path: PathBuf,
    version: String,
    api: Api,
}

/// Loads OpenVINO from `library`, its shared library for C, and answers its version. A second call with the same
/// library answers the same; a process cannot hold two.
pub fn init(library: &Path) -> Result<String, Error> {
    let fault = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
    let path = library.canonicalize().map_err(|error| {
        fault(format!("openvino library '{}' cannot be opened: {error}", library.display()))
    })?;
    let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = LOADED.get() {
        if loaded.path == path {
            return Ok(loaded.version.clone());
        }
        let (old, new) = (loaded.path.display(), path.display());
        return Err(fault(format!(
            "openvino is already loaded from '{old}', it cannot be loaded from '{new}'"
        )));
    }
    let api = api::open(&path).map_err(fault)?;
    let version = version(&api).map_err(|failure| fault(failure.text().to_owned()))?;
    check_version(&version).map_err(fault)?;
    strings::check_layout(&api).map_err(fault)?;
    // SAFETY: the function lives as long as the process.
    unsafe { (api.ov_util_set_log_callback)(forward) };
    LOADED.get_or_init(|| Loaded { path, version: version.clone(), api });
    Ok(version)
}

/// The names of the devices that models can be compiled for.
pub fn devices() -> Result<Vec<String>, Error> {
    Ok(Core::new().and_then(|core| core.devices())?)
}

pub(crate) fn api() -> Result<&'static Api, OpenVinoFailure> {
    LOADED.get().map(|loaded| &loaded.api).ok_or_else(|| OpenVinoFailure::new("openvino is not loaded"))
}

fn version(api: &Api) -> Result<String, OpenVinoFailure> {
    let mut version = Version { build_number: std::ptr::null(), description: std::ptr::null() };
    // SAFETY: the two texts are written, and freed with the function that is there for it, after they were copied.
    unsafe {
        api.check((api.ov_get_openvino_version)(&raw mut version))?;
        let text = CStr::from_ptr(version.build_number).to_string_lossy();
        let number = text.split('-').next().unwrap_or_default().to_owned();
        (api.ov_version_free)(&raw mut version);
        Ok(number)
    }
}

fn check_version(version: &str) -> Result<(), String> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let found: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found >= MINIMUM_VERSION {
        return Ok(());
    }
    let (year, release) = MINIMUM_VERSION;
    Err(format!(
        "openvino {version} found, expected {year}.{release} or newer: pip install 'kushi[openvino]'"
    ))
}

/// What reads models and compiles them. Each model has one of its own, since extensions belong to it.
pub(crate) struct Core {
    pub(crate) api: &'static Api,
    pointer: *mut api::Core,
}

// SAFETY: a core is not bound to a thread, and OpenVINO documents its functions as safe to call from several.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

impl Core {
    pub(crate) fn new() -> Result<Self, OpenVinoFailure> {
        let api = api()?;
        let mut pointer = null_mut();
        // SAFETY: writes one pointer.
        api.check(unsafe { (api.ov_core_create)(&raw mut pointer) })?;
        Ok(Self { api, pointer })
    }

    pub(crate) fn as_ptr(&self) -> *const api::Core {
        self.pointer
    }

    /// Opens a library with operators.
    pub(crate) fn add_extension(&self, library: &Path) -> Result<(), OpenVinoFailure> {
        let path = path_text(library)?;
        // SAFETY: the core lives, and the text ends with a zero.
        self.api.check(unsafe { (self.api.ov_core_add_extension)(self.pointer, path.as_ptr()) })
    }

    fn devices(&self) -> Result<Vec<String>, OpenVinoFailure> {
        let api = self.api;
        let mut found = Devices { devices: null_mut(), size: 0 };
        // SAFETY: writes an array of so many texts, which are copied before it is freed.
        unsafe {
            api.check((api.ov_core_get_available_devices)(self.pointer, &raw mut found))?;
            let texts = (0..found.size).map(|index| CStr::from_ptr(*found.devices.add(index)));
            let names = texts.map(|text| text.to_string_lossy().into_owned()).collect();
            (api.ov_available_devices_free)(&raw mut found);
            Ok(names)
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: the core is owned here and not used again; what it made keeps what it needs of it.
        unsafe { (self.api.ov_core_free)(self.pointer) }
    }
}

pub(crate) fn path_text(path: &Path) -> Result<CString, OpenVinoFailure> {
    text(&path.to_string_lossy())
}

pub(crate) fn text(value: &str) -> Result<CString, OpenVinoFailure> {
    CString::new(value)
        .map_err(|_| OpenVinoFailure::new(format!("'{}' has a zero byte", value.escape_default())))
}

/// Takes a text over that the library has made.
///
/// # Safety
/// It is a C string of the library's, or null, and nobody else frees it.
pub(crate) unsafe fn take_text(api: &Api, text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        (api.ov_free)(text);
        copy
    }
}

unsafe extern "C" fn forward(line: *const c_char) {
    // SAFETY: OpenVINO hands over a C string that lives as long as the call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    let line = line.trim();
    let level = match line {
        _ if line.contains("[ERROR]") || line.contains("[ ERROR ]") => log::Level::Error,
        _ if line.contains("[WARN") || line.contains("[ WARN") => log::Level::Warn,
        _ => log::Level::Debug,
    };
    let Some(left_out) = COMPLAINTS.may_say(level.as_str(), Instant::now()) else { return };
    log::log!(target: "openvino", level, "{line}{left_out}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_library_that_is_too_old_by_name() {
        assert_eq!(check_version("2026.4.1"), Ok(()));
        assert_eq!(check_version("2027.0.0"), Ok(()));
        let text = "openvino 2025.4.1 found, expected 2026.4 or newer: pip install 'kushi[openvino]'";
        assert_eq!(check_version("2025.4.1"), Err(text.to_owned()));
        assert!(check_version("nonsense").is_err());
    }
}
