//! Traces on their way to a collector of OpenTelemetry: as spans, in OTLP over HTTP.
//!
//! [`Exporter`] is the outlet; a thread of its own turns traces into spans and posts them. What cannot be sent is
//! counted, told in the log now and then, and dropped: no request ever waits for a collector.
#![forbid(unsafe_code)]

mod exporter;
mod messages;
mod post;
mod spans;

pub use exporter::{CollectorOptions, Exporter};
