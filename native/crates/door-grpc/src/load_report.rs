//! The load of the server in the trailers of an answer: as text as over HTTP, or as the message that balancers of gRPC
//! read.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use http::{HeaderMap, HeaderValue};
use kushi_dataplane::{DataPlane, LoadFormat, metrics};
use prost::Message;

use crate::messages::OrcaLoadReport;

const BINARY: &str = "endpoint-load-metrics-bin";

#[derive(Clone, Copy)]
pub(crate) enum AskedReport {
    Written(LoadFormat),
    Binary,
}

impl AskedReport {
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        match headers.get(LoadFormat::ASKED)?.as_bytes() {
            b"bin" => Some(Self::Binary),
            format => LoadFormat::parse(format).map(Self::Written),
        }
    }

    pub(crate) fn tell(self, trailers: &mut HeaderMap, plane: &DataPlane) {
        let (name, report) = match self {
            Self::Written(format) => (LoadFormat::REPORT, format.report(plane)),
            Self::Binary => {
                let named = |(name, value): (&str, usize)| (name.to_owned(), value as f64);
                let report =
                    OrcaLoadReport { named_metrics: metrics::load(plane).into_iter().map(named).collect() };
                (BINARY, BASE64_STANDARD_NO_PAD.encode(report.encode_to_vec()))
            }
        };
        if let Ok(report) = HeaderValue::try_from(report) {
            trailers.insert(name, report);
        }
    }
}
