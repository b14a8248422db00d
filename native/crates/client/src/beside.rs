//! What goes with an inference beside its tensors, over HTTP and gRPC alike.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use kushi_core::{DataType, Error, ErrorKind, Timings};

use crate::address::Address;
use crate::{Answer, Carried, InferCall, WantedOutput};

/// Asks our own server where the time went, and carries its answer.
const TIMINGS: HeaderName = HeaderName::from_static("kushi-timings");

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// A server that does not know classes answers such an output as it is.
pub(crate) fn check_classes(address: &Address, call: &InferCall, answer: &Answer) -> Result<(), Error> {
    for WantedOutput { name, .. } in call.outputs.iter().filter(|output| output.classes > 0) {
        let mut as_it_is = answer.outputs.iter().filter(|(_, tensor)| tensor.datatype != DataType::Bytes);
        if as_it_is.any(|(answered, _)| answered == name) {
            let text = format!(
                "cannot ask {address} for the classes of output '{name}': the server has no extension 'classification'"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    }
    Ok(())
}

/// What the caller has set for all its calls stays.
pub(crate) fn carry(headers: &mut HeaderMap, trace: &Carried) {
    if headers.contains_key(TRACE_PARENT) {
        return;
    }
    for (name, text) in [(TRACE_PARENT, &trace.parent), (TRACE_STATE, &trace.state)] {
        if let Ok(value) = HeaderValue::from_str(text)
            && !text.is_empty()
        {
            headers.insert(name, value);
        }
    }
}

pub(crate) fn ask_timings(headers: &mut HeaderMap) {
    headers.insert(TIMINGS, HeaderValue::from_static("true"));
}

/// `None` where the server tells none.
pub(crate) fn timings(headers: &HeaderMap) -> Option<Timings> {
    headers.get(TIMINGS).and_then(parsed)
}

/// `QUEUE,INPUT,INFER,OUTPUT` in nanoseconds.
fn parsed(header: &HeaderValue) -> Option<Timings> {
    let mut parts =
        header.to_str().ok()?.split(',').map(|part| part.trim().parse().map(Duration::from_nanos));
    let mut next = || parts.next()?.ok();
    Some(Timings { queue: next()?, compute_input: next()?, compute_infer: next()?, compute_output: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_timings_and_ignores_what_is_none() {
        let read = |text: &'static str| parsed(&HeaderValue::from_static(text)).map(|t| t.compute_output);
        assert_eq!(read("1,2,3,4000"), Some(Duration::from_micros(4)));
        for text in ["", "1,2,3", "a,b,c,d", "-1,2,3,4"] {
            assert_eq!(read(text), None);
        }
    }
}
