//! ONNX Runtime itself: one library and one environment per process.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kushi_core::{Complaints, Error, ErrorKind, cause_text};
use libloading::Library;
use ort::environment::{Environment, GlobalThreadPoolOptions};
use ort::logging::LogLevel;

/// The oldest ONNX Runtime that is tested, as `(major, minor)`.
pub const MINIMUM_VERSION: (u32, u32) = (1, 31);

/// So many warnings and so many errors in ten seconds: the data of each request may bring one about.
static COMPLAINTS: Complaints = Complaints::new(20);

static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// Threads that all sessions of the process share; 0 leaves a number to ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalThreads {
    pub intra_op: usize,
    pub inter_op: usize,
}

struct Loaded {
    library: PathBuf,
    threads: Option<GlobalThreads>,
    version: String,
    environment: Environment,
}

/// Loads ONNX Runtime from `library`, without telemetry, and answers its version. With `threads` its
/// sessions share them, without each has threads of its own. A second call with the same arguments
/// answers the same; a process cannot hold two libraries, nor have it both ways.
pub fn init(library: &Path, threads: Option<GlobalThreads>) -> Result<String, Error> {
    let fault = |text: String| Error::new(ErrorKind::ConfigInvalid, text);
    let path = library.canonicalize().map_err(|error| {
        fault(format!("onnxruntime library '{}' cannot be opened: {error}", library.display()))
    })?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = &*loaded {
        if loaded.library == path && loaded.threads == threads {
            return Ok(loaded.version.clone());
        }
        if loaded.library == path {
            let (old, new) = (shared(loaded.threads), shared(threads));
            return Err(fault(format!(
                "onnxruntime already runs {old} in this process, it cannot run {new}"
            )));
        }
        let (old, new) = (loaded.library.display(), path.display());
        return Err(fault(format!(
            "onnxruntime is already loaded from '{old}', it cannot be loaded from '{new}'"
        )));
    }
    let version = probe(&path).map_err(fault)?;
    let environment = start(&path, threads)
        .map_err(|text| fault(format!("onnxruntime library '{}' does not start: {text}", path.display())))?;
    *loaded = Some(Loaded { library: path, threads, version: version.clone(), environment });
    Ok(version)
}

/// The environment that sessions belong to.
pub(crate) fn current() -> Result<Environment, Error> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = || Error::new(ErrorKind::Internal, "onnxruntime is not loaded");
    loaded.as_ref().map(|loaded| loaded.environment.clone()).ok_or_else(missing)
}

/// Opens the library and checks what it is, before anything in it is relied on.
fn probe(path: &Path) -> Result<String, String> {
    let shown = path.display();
    // SAFETY: the caller names the library whose initialisers shall run.
    let library = unsafe { Library::new(path) }
        .map_err(|error| format!("onnxruntime library '{shown}' cannot be loaded: {}", cause_text(&error)))?;
    // SAFETY: this is the signature of `OrtGetApiBase` in every release of ONNX Runtime.
    let api_base =
        unsafe { library.get::<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase>(b"OrtGetApiBase") }
            .map_err(|_| format!("'{shown}' is not an onnxruntime library: it has no OrtGetApiBase"))?;
    // SAFETY: `OrtGetApiBase` takes nothing and answers a static table or null, and the table's
    // `GetVersionString` answers a static string.
    let version = unsafe {
        let base = api_base().as_ref().ok_or_else(|| format!("'{shown}' has no onnxruntime API"))?;
        CStr::from_ptr((base.GetVersionString)())
    };
    let version = version.to_string_lossy().into_owned();
    check_version(&version)?;
    // SAFETY: as above; `GetApi` answers null for a version that it does not know.
    let api = unsafe { ((*api_base()).GetApi)(ort::sys::ORT_API_VERSION) };
    if api.is_null() {
        let wanted = ort::sys::ORT_API_VERSION;
        return Err(format!("onnxruntime {version} in '{shown}' does not offer version {wanted} of its API"));
    }
    Ok(version)
}

fn check_version(version: &str) -> Result<(), String> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let found: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if found >= MINIMUM_VERSION {
        return Ok(());
    }
    let (major, minor) = MINIMUM_VERSION;
    Err(format!("onnxruntime {version} found, expected {major}.{minor} or newer: pip install 'kushi[cpu]'"))
}

fn shared(threads: Option<GlobalThreads>) -> String {
    match threads {
        None => "without a global thread pool".to_owned(),
        Some(GlobalThreads { intra_op, inter_op }) => {
            format!("with a global thread pool of {intra_op} intra-op and {inter_op} inter-op threads")
        }
    }
}

fn start(path: &Path, threads: Option<GlobalThreads>) -> Result<Environment, String> {
    let builder = ort::init_from(path).map_err(|error| error.to_string())?;
    let mut builder = builder.with_name("kushi").with_telemetry(false).with_logger(Arc::new(forward));
    if let Some(threads) = threads {
        builder = builder.with_global_thread_pool(pool(threads).map_err(|error| error.to_string())?);
    }
    let environment = builder.build().map_err(|error| error.to_string())?;
    environment.set_log_level(LogLevel::Warning);
    Ok(environment)
}

fn pool(threads: GlobalThreads) -> ort::Result<GlobalThreadPoolOptions> {
    GlobalThreadPoolOptions::default()
        .with_intra_threads(threads.intra_op)?
        .with_inter_threads(threads.inter_op)?
        .with_spin_control(false)
}

fn forward(level: LogLevel, category: &str, _id: &str, _place: &str, message: &str) {
    let level = match level {
        LogLevel::Verbose => log::Level::Trace,
        LogLevel::Info => log::Level::Debug,
        LogLevel::Warning => log::Level::Warn,
        LogLevel::Error | LogLevel::Fatal => log::Level::Error,
    };
    let mut behind = String::new();
    if level <= log::Level::Warn {
        let Some(left_out) = COMPLAINTS.may_say(level.as_str(), Instant::now()) else { return };
        behind = left_out;
    }
    log::log!(target: "onnxruntime", level, "{category}: {message}{behind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_library_that_is_too_old_by_name() {
        assert_eq!(check_version("1.31.1"), Ok(()));
        assert_eq!(check_version("2.0.0"), Ok(()));
        let text = "onnxruntime 1.20.1 found, expected 1.31 or newer: pip install 'kushi[cpu]'";
        assert_eq!(check_version("1.20.1"), Err(text.to_owned()));
        assert!(check_version("nonsense").is_err());
    }
}
