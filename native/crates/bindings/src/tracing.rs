//! The options of traces, as Python gives them.

use std::sync::Arc;
use std::time::Duration;

use kushi_core::Error;
use kushi_server::{
    CollectorOptions, Destination, Exporter, TraceFile, TraceLevel, TraceOptions, TraceSetting,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tracing {
    timestamps: bool,
    tensors: bool,
    rate: u32,
    count: i32,
    log_frequency: u32,
    /// Empty: none.
    file: String,
    /// Takes the traces in the place of a file.
    collector: Option<Collector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Collector {
    url: String,
    /// Their values are nobody's to see.
    headers: Vec<(String, String)>,
    timeout_ms: u64,
    resource: Vec<(String, String)>,
    max_queue_size: usize,
    schedule_delay_ms: u64,
    max_export_batch_size: usize,
}

impl Tracing {
    pub(crate) fn options(self) -> Result<TraceOptions, Error> {
        let destination = match &self.collector {
            Some(collector) => Destination::Collector(collector.settings()),
            None => Destination::File(self.file.clone()),
        };
        let level = TraceLevel { timestamps: self.timestamps, tensors: self.tensors };
        let Self { rate, count, log_frequency, .. } = self;
        let setting = TraceSetting { level, rate, count, log_frequency, destination };
        Ok(match self.collector {
            Some(collector) => {
                TraceOptions { setting, outlet: Arc::new(Exporter::new(collector.options())?) }
            }
            None => TraceOptions { setting, outlet: Arc::new(TraceFile::new(&self.file)) },
        })
    }
}

impl Collector {
    /// As clients are told them, by Triton's names.
    fn settings(&self) -> Vec<(String, String)> {
        let resource: Vec<String> =
            self.resource.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let all = [
            ("url", self.url.clone()),
            ("resource", resource.join(",")),
            ("bsp_max_queue_size", self.max_queue_size.to_string()),
            ("bsp_schedule_delay", self.schedule_delay_ms.to_string()),
            ("bsp_max_export_batch_size", self.max_export_batch_size.to_string()),
        ];
        all.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn options(self) -> CollectorOptions {
        CollectorOptions {
            url: self.url,
            headers: self.headers,
            patience: Duration::from_millis(self.timeout_ms),
            resource: self.resource,
            max_queue_size: self.max_queue_size,
            schedule_delay: Duration::from_millis(self.schedule_delay_ms),
            max_export_batch_size: self.max_export_batch_size,
        }
    }
}
