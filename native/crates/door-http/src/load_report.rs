//! The load of the server beside an answer.

use hyper::header::{HeaderName, HeaderValue};
use kushi_dataplane::{DataPlane, LoadFormat};

use crate::answer::HttpAnswer;

const REPORT: HeaderName = HeaderName::from_static(LoadFormat::REPORT);

pub(crate) fn tell(answer: &mut HttpAnswer, format: Option<&HeaderValue>, plane: &DataPlane) {
    let format = format.and_then(|format| LoadFormat::parse(format.as_bytes()));
    if let Some(report) = format.and_then(|format| HeaderValue::try_from(format.report(plane)).ok()) {
        answer.headers_mut().insert(REPORT, report);
    }
}
