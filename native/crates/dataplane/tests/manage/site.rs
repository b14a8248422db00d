//! A data plane with puppets for models, directories for repositories, and a log that nobody writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kushi_core::{ErrorKind, ModelSpec};
use kushi_dataplane::{
    Asker, DataPlane, DataPlaneOptions, InFlight, LogChange, LogForm, LogSettings, LogSwitch, MetricsOptions,
    Phase, ServerMetadata, TraceOptions, Verb, VerbAnswer,
};
use kushi_testkit::{Scene, echo_spec};

pub const INFLIGHT_BYTES: usize = 4242;

pub struct Site {
    pub plane: Arc<DataPlane>,
}

impl Site {
    /// Of a server that serves.
    pub fn new() -> Self {
        Self::with(&options())
    }

    pub fn with(options: &DataPlaneOptions) -> Self {
        let plane =
            Arc::new(DataPlane::new(options, Box::new(|| InFlight { bytes: INFLIGHT_BYTES, refused: 0 })));
        plane.advance(Phase::Serving);
        Self { plane }
    }

    /// What is answered before anybody would have to wait.
    pub fn ask(&self, verb: Verb) -> Result<VerbAnswer, (ErrorKind, String)> {
        let answer = self.plane.perform_blocking(Asker::Client, verb);
        answer.map_err(|error| (error.kind, error.message.into_owned()))
    }

    #[track_caller]
    pub fn refuses(&self, verb: Verb, kind: ErrorKind, text: &str) {
        let asked = format!("{verb:?}");
        match self.ask(verb) {
            Ok(answer) => panic!("{asked} is answered: {answer:?}"),
            Err(refusal) => assert_eq!(refusal, (kind, text.to_owned()), "{asked}"),
        }
    }

    /// Loads these versions of a model.
    pub fn serve<'a>(&self, model: &str, versions: impl IntoIterator<Item = &'a Scene>) {
        let runners = versions.into_iter().map(|scene| scene.runner.clone()).collect();
        self.plane.publish(model, runners, &[], None).unwrap_or_else(|error| panic!("{error}"));
    }
}

pub fn options() -> DataPlaneOptions {
    DataPlaneOptions {
        metadata: ServerMetadata {
            name: "site".into(),
            version: "7.7".into(),
            extensions: vec!["statistics".into()],
        },
        strict_readiness: true,
        repositories: vec![],
        explicit_control: true,
        allow_client_regions: true,
        log: Arc::new(Log::default()),
        traces: TraceOptions::default(),
        machine_metrics: None,
        gpu_metrics: None,
        metrics: MetricsOptions::default(),
    }
}

pub fn version(number: u64) -> Scene {
    Scene::new(ModelSpec { version: number, ..echo_spec() })
}

/// An empty directory, removed with what is in it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kushi-manage-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{error}"));
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn with_folders(self, names: &[&str]) -> Self {
        for name in names {
            fs::create_dir(self.0.join(name)).unwrap_or_else(|error| panic!("{error}"));
        }
        self
    }

    pub fn with_file(self, name: &str) -> Self {
        fs::write(self.0.join(name), "").unwrap_or_else(|error| panic!("{error}"));
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test may have removed it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Log(Mutex<LogSettings>);

impl Default for Log {
    fn default() -> Self {
        let settings =
            LogSettings { verbose: 0, info: true, warning: true, error: true, form: LogForm::Triton };
        Self(Mutex::new(settings))
    }
}

impl LogSwitch for Log {
    fn file(&self) -> String {
        "/log".into()
    }

    fn change(&self, change: LogChange) -> LogSettings {
        let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = settings.changed(change);
        *settings
    }
}
