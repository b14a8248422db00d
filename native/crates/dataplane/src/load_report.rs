//! The load of the server beside an answer, for balancers that speak ORCA (Open Request Cost Aggregation).

use crate::{DataPlane, metrics};

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFormat {
    Text,
    Json,
}

impl LoadFormat {
    /// What a client asks for with [`LoadFormat::ASKED`]. Any other format is answered with no report, as in Triton.
    pub fn parse(asked: &[u8]) -> Option<Self> {
        match asked {
            b"text" => Some(Self::Text),
            b"json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The header with which clients ask.
    pub const ASKED: &str = "endpoint-load-metrics-format";
    /// That of the report.
    pub const REPORT: &str = "endpoint-load-metrics";

    pub fn report(self, plane: &DataPlane) -> String {
        let listed = |entry: fn(&str, usize) -> String, separator| {
            metrics::load(plane).map(|(name, value)| entry(name, value)).join(separator)
        };
        match self {
            Self::Text => {
                format!("TEXT {}", listed(|name, value| format!("named_metrics.{name}={value}"), ", "))
            }
            Self::Json => format!(
                "JSON {{\"named_metrics\":{{{}}}}}",
                listed(|name, value| format!("\"{name}\":{value}"), ",")
            ),
        }
    }
}
