//! One traced request, from the door to its last answer.
//!
//! The door has a [`Trace`], the requests in the core have spans; all write to one recording, which goes to the outlet
//! when the last of them is dropped. Tensors are copied when they pass, as bytes: whoever writes the trace turns them
//! into text. All copies of a server together are bounded.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use kushi_core::{Computed, Context, DataType, Error, Shape, Tensor};

use crate::ids::{new_span_id, new_trace_id};
use crate::outlet::Finished;
use crate::sampling::Sampling;
use crate::spans::DoorSpan;
use crate::{Destination, Parent, TraceLevel};

/// What the tensors of all traces that have not been written may take.
const MOST_TENSOR_BYTES: usize = 64 << 20;
/// A trace records no more requests: a model that asks others without an end is one trace.
const MOST_REQUESTS: usize = 4096;

/// What a door sees of a request; the names are Triton's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    HttpReceiveStart,
    HttpReceiveEnd,
    HttpSendStart,
    HttpSendEnd,
    GrpcWaitReadStart,
    GrpcWaitReadEnd,
    GrpcSendStart,
    GrpcSendEnd,
    ResponseComplete,
}

impl Event {
    pub const fn name(self) -> &'static str {
        match self {
            Self::HttpReceiveStart => "HTTP_RECV_START",
            Self::HttpReceiveEnd => "HTTP_RECV_END",
            Self::HttpSendStart => "HTTP_SEND_START",
            Self::HttpSendEnd => "HTTP_SEND_END",
            Self::GrpcWaitReadStart => "GRPC_WAITREAD_START",
            Self::GrpcWaitReadEnd => "GRPC_WAITREAD_END",
            Self::GrpcSendStart => "GRPC_SEND_START",
            Self::GrpcSendEnd => "GRPC_SEND_END",
            Self::ResponseComplete => "INFER_RESPONSE_COMPLETE",
        }
    }
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub monotonic: Instant,
    pub wall: SystemTime,
}

impl Stamp {
    pub fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }
}

/// A request that has ended.
pub struct RequestRecord {
    pub id: u64,
    /// 0: the client made it.
    pub parent_id: u64,
    pub span_id: u64,
    pub parent_span_id: u64,
    pub model: String,
    pub version: u64,
    /// As the client gave it; often empty.
    pub request_id: String,
    /// Its model is made of others, and computes nothing.
    pub is_ensemble: bool,
    pub began: Instant,
    pub computed: Option<Computed>,
    pub ended: Instant,
    pub error: Option<String>,
    pub tensors: Vec<TensorRecord>,
}

pub struct TensorRecord {
    pub is_input: bool,
    pub name: String,
    pub datatype: DataType,
    pub shape: Shape,
    pub data: Copied,
}

/// The bytes of a tensor, counted while they are held.
pub struct Copied {
    pub bytes: Box<[u8]>,
    place: Arc<SpanPlace>,
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.place.tensor_bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// What the traces of a server share.
#[derive(Default)]
pub(crate) struct SpanPlace {
    ids: AtomicU64,
    tensor_bytes: AtomicUsize,
    left_out: AtomicU64,
}

impl SpanPlace {
    /// The first is 1.
    fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `None` where there is no room.
    fn copy(self: &Arc<Self>, bytes: &[u8]) -> Option<Copied> {
        let held = self.tensor_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        if held.saturating_add(bytes.len()) <= MOST_TENSOR_BYTES {
            return Some(Copied { bytes: bytes.into(), place: self.clone() });
        }
        self.tensor_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        let left_out = self.left_out.fetch_add(1, Ordering::Relaxed) + 1;
        if left_out.is_power_of_two() {
            log::warn!(
                "{left_out} tensors were left out of traces: those that wait to be written hold {} MiB",
                MOST_TENSOR_BYTES >> 20
            );
        }
        None
    }
}

/// A traced request, as its door holds it: until the answer has left.
pub struct Trace(Arc<Recording>);

impl Trace {
    pub(crate) fn new(
        sampling: &Arc<Sampling>,
        place: &Arc<SpanPlace>,
        model: &str,
        parent: Option<Parent>,
        arrived: Instant,
    ) -> Self {
        let stamp = Stamp::now();
        let wall = stamp.wall - stamp.monotonic.saturating_duration_since(arrived);
        let is_collected = matches!(sampling.setting.destination, Destination::Collector(_));
        let trace_id = match &parent {
            Some(parent) => parent.trace_id,
            None if is_collected => new_trace_id(),
            None => 0,
        };
        let level = sampling.setting.level;
        Self(Arc::new(Recording {
            sampling: sampling.clone(),
            place: place.clone(),
            level: TraceLevel { tensors: level.tensors && !is_collected, ..level },
            is_collected,
            id: place.new_id(),
            model: model.into(),
            trace_id,
            span_id: if is_collected { new_span_id() } else { 0 },
            parent,
            began: Stamp { monotonic: arrived, wall },
            body: Mutex::default(),
        }))
    }

    /// That of the request which the door makes.
    pub fn context(&self) -> Context {
        Context::traced(Arc::new(DoorSpan(self.0.clone())))
    }

    pub fn mark(&self, event: Event, at: Instant) {
        if self.0.level.timestamps {
            self.0.write(|body| body.events.push((event, at)));
        }
    }

    /// The answer is this error.
    pub fn fail(&self, error: &Error) {
        self.0.write(|body| {
            body.error.get_or_insert_with(|| error.message.to_string());
        });
    }
}

pub(crate) struct Recording {
    sampling: Arc<Sampling>,
    place: Arc<SpanPlace>,
    pub(crate) level: TraceLevel,
    pub(crate) is_collected: bool,
    pub(crate) id: u64,
    model: String,
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    parent: Option<Parent>,
    began: Stamp,
    body: Mutex<Body>,
}

#[derive(Default)]
struct Body {
    events: Vec<(Event, Instant)>,
    requests: Vec<RequestRecord>,
    error: Option<String>,
}

impl Recording {
    pub(crate) fn new_id(&self) -> u64 {
        self.place.new_id()
    }

    pub(crate) fn new_span_id(&self) -> u64 {
        if self.is_collected { new_span_id() } else { 0 }
    }

    pub(crate) fn state(&self) -> &str {
        self.parent.as_ref().map_or("", |parent| &parent.state)
    }

    pub(crate) fn tensor(&self, is_input: bool, name: &str, tensor: &Tensor) -> Option<TensorRecord> {
        let data = self.place.copy(tensor.data.as_bytes())?;
        let (datatype, shape) = (tensor.datatype, tensor.shape.clone());
        Some(TensorRecord { is_input, name: name.into(), datatype, shape, data })
    }

    pub(crate) fn add(&self, record: RequestRecord) {
        self.write(|body| {
            if body.requests.len() < MOST_REQUESTS {
                body.requests.push(record);
            }
        });
    }

    fn write(&self, change: impl FnOnce(&mut Body)) {
        change(&mut self.body.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let body = std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut requests = body.requests;
        requests.sort_unstable_by_key(|request| request.id);
        let sampling = self.sampling.clone();
        sampling.hand_on(|is_last| {
            sampling.outlet.put(Finished {
                setting: sampling.number,
                log_frequency: sampling.setting.log_frequency,
                level: self.level,
                is_last,
                is_counted: sampling.is_counted(),
                id: self.id,
                model: std::mem::take(&mut self.model),
                trace_id: self.trace_id,
                span_id: self.span_id,
                parent: self.parent.take(),
                began: self.began,
                ended: Instant::now(),
                events: body.events,
                requests,
                error: body.error,
            });
        });
    }
}
