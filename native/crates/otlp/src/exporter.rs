//! Takes traces that have ended, and sends them as spans: so many together, or after a while.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::{Error, os_text};
use kushi_trace::{Finished, Outlet, Queue};
use prost::Message;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::messages::{
    ExportTraceServiceRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span,
};
use crate::post::{Collector, PostFailure};
use crate::spans;

/// As Triton calls itself.
const SCOPE: &str = "triton-server";
/// Between attempts to send the same spans.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// Where spans go, and how.
#[derive(Clone)]
pub struct CollectorOptions {
    pub url: String,
    /// Of each request to it; they may be secret.
    pub headers: Vec<(String, String)>,
    /// How long it may take to answer.
    pub patience: Duration,
    /// What all spans say of this server.
    pub resource: Vec<(String, String)>,
    /// Spans that may wait; more are dropped.
    pub max_queue_size: usize,
    pub schedule_delay: Duration,
    pub max_export_batch_size: usize,
}

pub struct Exporter {
    options: CollectorOptions,
    queue: Arc<Queue<Finished>>,
    started: OnceLock<bool>,
}

impl Exporter {
    /// Fails where the URL is none, or a header.
    pub fn new(options: CollectorOptions) -> Result<Self, Error> {
        Collector::new(&options.url, &options.headers)?;
        let queue = Arc::new(Queue::new(options.max_queue_size));
        Ok(Self { options, queue, started: OnceLock::new() })
    }

    fn start(&self) -> bool {
        let (options, queue) = (self.options.clone(), self.queue.clone());
        let send = move || match Sender::new(options) {
            Ok(sender) => sender.run(&queue),
            Err(error) => {
                log::error!("traces are not sent: {error}");
                queue.done();
            }
        };
        let spawned = thread::Builder::new().name("kushi-otlp".into()).spawn(send);
        if let Err(error) = &spawned {
            log::error!("traces are not sent, no thread for them can be started: {}", os_text(error));
        }
        spawned.is_ok()
    }
}

impl Outlet for Exporter {
    fn put(&self, trace: Finished) {
        if *self.started.get_or_init(|| self.start()) {
            let spans = spans::count(&trace);
            self.queue.put(trace, spans);
        }
    }

    fn retire(&self, _setting: u64) {}

    fn close(&self, until: Instant) {
        if *self.started.get_or_init(|| false) && !self.queue.close(until) {
            log::warn!("not all spans were sent before the server ended");
        }
    }
}

struct Sender {
    options: CollectorOptions,
    collector: Collector,
    runtime: LocalRuntime,
    lost: Lost,
}

/// What has not arrived, told in the log when it has doubled.
#[derive(Default)]
struct Lost {
    unsent: u64,
    failures: u64,
    dropped: u64,
}

impl Sender {
    fn new(options: CollectorOptions) -> Result<Self, Error> {
        let collector = Collector::new(&options.url, &options.headers)?;
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(|error| Error::invalid(os_text(&error)))?;
        Ok(Self { options, collector, runtime, lost: Lost::default() })
    }

    fn run(mut self, queue: &Queue<Finished>) {
        loop {
            let taken = queue.take(self.options.max_export_batch_size, self.options.schedule_delay);
            self.note_dropped(taken.dropped);
            let mut spans = taken.all.iter().flat_map(spans::of).peekable();
            while spans.peek().is_some() {
                let batch = spans.by_ref().take(self.options.max_export_batch_size).collect();
                self.send(batch, queue);
            }
            if taken.closed.is_some() {
                break;
            }
        }
        queue.done();
    }

    fn send(&mut self, spans: Vec<Span>, queue: &Queue<Finished>) {
        let count = spans.len() as u64;
        let body = self.message(spans);
        let mut pauses = PAUSES.iter();
        loop {
            let left = queue.closed().map(|until| until.saturating_duration_since(Instant::now()));
            let patience = left.map_or(self.options.patience, |left| left.min(self.options.patience));
            let Err(failure) = self.collector.post(&self.runtime, body.clone().into(), patience) else {
                return;
            };
            // A server that ends tries what is left once.
            let pause = pauses.next().filter(|_| failure.is_passing && queue.closed().is_none());
            match pause {
                Some(pause) => queue.sleep(*pause),
                None => return self.note_unsent(count, &failure),
            }
        }
    }

    fn message(&self, spans: Vec<Span>) -> Vec<u8> {
        let attributes =
            self.options.resource.iter().map(|(key, value)| KeyValue::text(key, value)).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(Scope { name: SCOPE.into() }), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(Resource { attributes }), scope_spans }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    fn note_unsent(&mut self, spans: u64, failure: &PostFailure) {
        self.lost.unsent += spans;
        self.lost.failures += 1;
        if self.lost.failures.is_power_of_two() {
            let (unsent, url) = (self.lost.unsent, &self.options.url);
            log::warn!("{unsent} spans could not be sent to {url}: {}", failure.text);
        }
    }

    fn note_dropped(&mut self, dropped: u64) {
        if dropped > 2 * self.lost.dropped {
            self.lost.dropped = dropped;
            log::warn!("{dropped} spans were dropped: they came faster than the collector takes them");
        }
    }
}
