//! What can be chosen about a session, and how ONNX Runtime is told.

use std::ffi::CString;
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut};

use ort::AsPointer;
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::sys::OrtRunOptions;
use serde::Deserialize;

use crate::assignment::RECORD;
use crate::operators;
use crate::provider::{self, Accelerator, Provider};
use crate::status::{OrtFailure, check};

/// Whether idle threads burn their cores: no, unless a model asks for it.
const SPINNING: [&str; 2] = ["session.intra_op.allow_spinning", "session.inter_op.allow_spinning"];

/// A key and its value, as ONNX Runtime takes both.
pub type Entry = (String, String);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionOptions {
    /// Threads inside an operator, the calling one included; 0 leaves it to ONNX Runtime. Where all
    /// sessions share their threads, how many those are.
    pub intra_op_threads: usize,
    /// Threads across operators, where `parallel` is set; 0 leaves it to ONNX Runtime.
    pub inter_op_threads: usize,
    /// Independent operators run side by side.
    pub parallel: bool,
    /// How far the graph is optimised, in ONNX Runtime's numbers: 0 not at all, 1 basic, 2 extended, 99 all.
    pub graph_level: i32,
    /// Memory of the CPU that a run gives back is kept for the next.
    pub memory_arena: bool,
    /// One block of memory for each combination of input shapes that was ever seen, which is without
    /// bound where shapes are the clients' choice.
    pub memory_pattern: bool,
    /// The session configuration of ONNX Runtime, which checks keys and values.
    pub session_entries: Vec<Entry>,
    /// The configuration of every run.
    pub run_entries: Vec<Entry>,
    /// In the order in which they are asked for each operator; what none of them takes runs on the CPU.
    pub providers: Vec<Provider>,
    /// Libraries with operators of the model's own.
    pub operator_libraries: Vec<PathBuf>,
    /// Where the names of the files begin that the profile of a session is written to, at its end.
    pub profile: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            intra_op_threads: 1,
            inter_op_threads: 1,
            parallel: false,
            graph_level: 99,
            memory_arena: true,
            memory_pattern: false,
            session_entries: Vec::new(),
            run_entries: Vec::new(),
            providers: Vec::new(),
            operator_libraries: Vec::new(),
            profile: None,
        }
    }
}

impl SessionOptions {
    /// Whether a run computes on the calling thread alone.
    pub(crate) fn runs_on_caller(&self) -> bool {
        self.intra_op_threads == 1 && !self.parallel && self.providers.is_empty()
    }

    pub(crate) fn on_openvino(&self) -> bool {
        self.providers.iter().any(|provider| provider.accelerator == Accelerator::OpenVino)
    }

    pub(crate) fn builder(&self, environment: &Environment) -> Result<SessionBuilder, String> {
        let level = graph_level(self.graph_level)?;
        let mut builder = self.plain(level, environment).map_err(|error| error.message().to_owned())?;
        let quiet = SPINNING.map(|key| (key.to_owned(), "0".to_owned()));
        let quiet = quiet.iter().filter(|(key, _)| !self.session_entries.iter().any(|(said, _)| said == key));
        let record = self.on_openvino().then(|| (RECORD.0.to_owned(), RECORD.1.to_owned()));
        for entry in self.session_entries.iter().chain(quiet).chain(&record) {
            add_session_entry(&mut builder, entry)?;
        }
        for library in &self.operator_libraries {
            let fault = |reason: &str| {
                format!("custom operators of '{}' cannot be used: {reason}", library.display())
            };
            operators::check_unchanged(library).map_err(|reason| fault(&reason))?;
            builder = builder.with_operator_library(library).map_err(|error| fault(error.message()))?;
        }
        for provider in &self.providers {
            provider::append(&mut builder, environment, provider)?;
        }
        Ok(builder)
    }

    fn plain(&self, level: GraphOptimizationLevel, environment: &Environment) -> ort::Result<SessionBuilder> {
        let mut builder = Session::builder(environment)?
            .with_log_level(LogLevel::Warning)?
            .with_optimization_level(level)?
            .with_intra_threads(self.intra_op_threads)?
            .with_inter_threads(self.inter_op_threads)?
            .with_parallel_execution(self.parallel)?
            .with_memory_pattern(self.memory_pattern)?;
        if let Some(prefix) = &self.profile {
            builder = builder.with_profiling(prefix)?;
        }
        if !self.memory_arena {
            disable_arena(&mut builder).map_err(|failure| ort::Error::new(failure.text()))?;
        }
        Ok(builder)
    }
}

fn add_session_entry(builder: &mut SessionBuilder, (key, value): &Entry) -> Result<(), String> {
    let (c_key, c_value) = (text(key)?, text(value)?);
    let options = builder.ptr_mut();
    // SAFETY: the options are owned by the builder, and both texts are C strings that are copied.
    check(unsafe { (ort::api().AddSessionConfigEntry)(options, c_key.as_ptr(), c_value.as_ptr()) })
        .map_err(|failure| format!("session configuration '{key}': {}", failure.text()))
}

fn disable_arena(builder: &mut SessionBuilder) -> Result<(), OrtFailure> {
    // SAFETY: the options are owned by the builder.
    check(unsafe { (ort::api().DisableCpuMemArena)(builder.ptr_mut()) })
}

/// The options of runs, which nobody changes any more, but for the word to end.
pub(crate) struct RunOptions(NonNull<OrtRunOptions>);

// SAFETY: the options are plain values without a bond to a thread.
unsafe impl Send for RunOptions {}
// SAFETY: nothing writes to them once they are made, but for the one flag that ONNX Runtime lets
// another thread set while runs look at it: a run takes them as constant.
unsafe impl Sync for RunOptions {}

impl RunOptions {
    pub(crate) fn of(entries: &[Entry]) -> Result<Self, String> {
        let options = Self::new().map_err(|failure| failure.text().to_owned())?;
        entries.iter().try_for_each(|entry| options.add(entry))?;
        Ok(options)
    }

    fn new() -> Result<Self, OrtFailure> {
        let mut options = null_mut();
        // SAFETY: writes one pointer.
        check(unsafe { (ort::api().CreateRunOptions)(&raw mut options) })?;
        Ok(Self(NonNull::new(options).expect("options are not null where the status is good")))
    }

    fn add(&self, (key, value): &Entry) -> Result<(), String> {
        let (c_key, c_value) = (text(key)?, text(value)?);
        // SAFETY: the options are owned here and not yet in use, and both texts are C strings that are copied.
        check(unsafe { (ort::api().AddRunConfigEntry)(self.0.as_ptr(), c_key.as_ptr(), c_value.as_ptr()) })
            .map_err(|failure| format!("run configuration '{key}': {}", failure.text()))
    }

    pub(crate) fn as_ptr(&self) -> *const OrtRunOptions {
        self.0.as_ptr()
    }

    /// Ends the runs under these options, each before its next operator, with an error.
    pub(crate) fn end_runs(&self) -> Result<(), OrtFailure> {
        // SAFETY: the options are alive, and this flag may be set while they are in use.
        check(unsafe { (ort::api().RunOptionsSetTerminate)(self.0.as_ptr()) })
    }

    /// Lets runs that begin from now on go to their ends.
    pub(crate) fn allow_runs(&self) -> Result<(), OrtFailure> {
        // SAFETY: as above.
        check(unsafe { (ort::api().RunOptionsUnsetTerminate)(self.0.as_ptr()) })
    }
}

impl Drop for RunOptions {
    fn drop(&mut self) {
        // SAFETY: the options are owned here and not used again.
        unsafe { (ort::api().ReleaseRunOptions)(self.0.as_ptr()) }
    }
}

pub(crate) fn text(value: &str) -> Result<CString, String> {
    CString::new(value).map_err(|_| format!("'{}' has a zero byte", value.escape_default()))
}

fn graph_level(level: i32) -> Result<GraphOptimizationLevel, String> {
    match level {
        0 => Ok(GraphOptimizationLevel::Disable),
        1 => Ok(GraphOptimizationLevel::Level1),
        2 => Ok(GraphOptimizationLevel::Level2),
        99 => Ok(GraphOptimizationLevel::All),
        _ => Err(format!("graph optimisation level {level} is not known, expected 0, 1, 2 or 99")),
    }
}
