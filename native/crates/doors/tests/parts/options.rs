//! What a server is started with where nothing else matters, and a log that nobody writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kushi_doors::{Limits, LogChange, LogForm, LogSettings, LogSwitch, ServerOptions};

/// The usual ones.
pub fn options(io_threads: usize) -> ServerOptions {
    ServerOptions {
        io_threads,
        server_name: "site".into(),
        server_version: "7.7".into(),
        extensions: vec![],
        strict_readiness: true,
        limits: Limits::default(),
        header_forward_pattern: None,
        repositories: vec![],
        explicit_control: true,
        restrictions: Vec::new(),
        tls: None,
        allow_client_regions: true,
        log: Arc::new(Log::default()),
        cpu_metrics: false,
        metrics_interval: Duration::ZERO,
        give_way: || {},
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
        String::new()
    }

    fn settings(&self) -> LogSettings {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: LogChange) -> LogSettings {
        let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = settings.changed(change);
        *settings
    }
}
