//! The load of the server beside an answer, for balancers that speak ORCA (Open Request Cost Aggregation).

use hyper::header::{HeaderName, HeaderValue};
use kushi_dataplane::DataPlane;
use kushi_dataplane::metrics;

use crate::answer::Answer;

const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// Any other format is answered with no report, as in Triton.
pub(crate) fn tell(answer: &mut Answer, format: Option<&HeaderValue>, plane: &DataPlane) {
    let Some(format) = format else { return };
    let report = match format.as_bytes() {
        b"text" => {
            format!("TEXT {}", listed(plane, |name, value| format!("named_metrics.{name}={value}"), ", "))
        }
        b"json" => {
            format!(
                "JSON {{\"named_metrics\":{{{}}}}}",
                listed(plane, |name, value| format!("\"{name}\":{value}"), ",")
            )
        }
        _ => return,
    };
    if let Ok(report) = HeaderValue::try_from(report) {
        answer.headers_mut().insert(REPORT, report);
    }
}

fn listed(plane: &DataPlane, entry: fn(&str, usize) -> String, separator: &str) -> String {
    metrics::load(plane).map(|(name, value)| entry(name, value)).join(separator)
}
