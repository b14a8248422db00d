//! The headers of an inference request that matter.

use hyper::HeaderMap;
use hyper::header::HeaderValue;

use kushi_dataplane::Parent;
use kushi_net::Coding;

use crate::coding;
use crate::header_names::{JSON_LENGTH, TIMEOUT, TIMINGS};

/// Asks for the load of the server, as "text" or "json".
const LOAD_FORMAT: &str = "endpoint-load-metrics-format";

const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";

/// A trace, as headers say it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carried<'a> {
    parent: Option<&'a HeaderValue>,
    state: Option<&'a HeaderValue>,
}

impl Carried<'_> {
    pub(crate) fn read(self) -> Option<Parent> {
        Parent::read(self.parent?.as_bytes(), self.state.map(HeaderValue::as_bytes))
    }
}

/// The first of each name. Found in one pass: to look each of them up costs several times as much.
#[derive(Default)]
pub(crate) struct InferHeaders<'a> {
    pub timeout: Option<&'a HeaderValue>,
    /// How the body is compressed.
    pub content_encoding: Option<&'a HeaderValue>,
    pub json_length: Option<&'a HeaderValue>,
    /// The report of the server's load that is asked for.
    pub load_format: Option<&'a HeaderValue>,
    pub tells_timings: bool,
    /// The trace that the request comes with.
    pub trace: Carried<'a>,
    /// Of the answer.
    pub accepted_coding: Option<Coding>,
}

impl<'a> InferHeaders<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut found = Self::default();
        let mut timings = None;
        let mut accepts_codings = false;
        for (name, value) in headers {
            let place = match name.as_str() {
                "accept-encoding" => {
                    accepts_codings = true;
                    continue;
                }
                "content-encoding" => &mut found.content_encoding,
                LOAD_FORMAT => &mut found.load_format,
                JSON_LENGTH => &mut found.json_length,
                TIMEOUT => &mut found.timeout,
                TIMINGS => &mut timings,
                TRACE_PARENT => &mut found.trace.parent,
                TRACE_STATE => &mut found.trace.state,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        found.tells_timings = timings.is_some_and(|value| value == "true");
        if accepts_codings {
            found.accepted_coding = coding::accepted(headers);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    #[test]
    fn the_first_of_each_name_counts_and_every_coding_that_is_accepted() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "here"),
            ("accept-encoding", "gzip;q=0.1"),
            ("Accept-Encoding", "deflate"),
            ("content-encoding", "gzip"),
            ("content-encoding", "br"),
            ("endpoint-load-metrics-format", "text"),
            ("endpoint-load-metrics-format", "json"),
            ("inference-header-content-length", "7"),
            ("inference-header-content-length", "8"),
            ("kushi-timeout-us", "5"),
            ("kushi-timeout-us", "6"),
            ("kushi-timings", "true"),
            ("kushi-timings", "false"),
        ] {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_static(value));
        }
        let found = InferHeaders::read(&headers);
        let first = [found.content_encoding, found.load_format, found.json_length, found.timeout];
        assert_eq!(first.map(|value| value.unwrap().to_str().unwrap()), ["gzip", "text", "7", "5"]);
        assert!(found.tells_timings);
        assert_eq!(found.accepted_coding, Some(Coding::Deflate));
        headers.clear();
        let found = InferHeaders::read(&headers);
        assert!(!found.tells_timings);
        assert_eq!((found.timeout, found.accepted_coding), (None, None));
    }
}
