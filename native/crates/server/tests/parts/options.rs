//! What a server is started with where nothing else matters, and a log that nobody writes.

use std::sync::{Arc, Mutex, PoisonError};

use kushi_server::{
    DataPlaneOptions, GrpcOptions, HttpLimits, HttpOptions, Limits, LogChange, LogForm, LogSettings,
    LogSwitch, MetricsOptions, ServerMetadata, ServerOptions, TraceOptions,
};

/// The usual ones.
pub fn options(io_threads: usize) -> ServerOptions {
    let metadata = ServerMetadata { name: "site".into(), version: "7.7".into(), extensions: vec![] };
    ServerOptions {
        io_threads,
        plane: DataPlaneOptions {
            metadata,
            strict_readiness: true,
            repositories: vec![],
            explicit_control: true,
            allow_client_regions: true,
            log: Arc::new(Log::default()),
            traces: TraceOptions::default(),
            machine_metrics: None,
            gpu_metrics: None,
            metrics: MetricsOptions::default(),
        },
        limits: Limits::default(),
        grpc: GrpcOptions::default(),
        http: HttpOptions {
            limits: HttpLimits::default(),
            header_forward_pattern: None,
            restrictions: Vec::new(),
            tls: None,
            playground: false,
        },
        give_way: || {},
        give_memory_back: || {},
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

    fn change(&self, change: LogChange) -> LogSettings {
        let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = settings.changed(change);
        *settings
    }
}
