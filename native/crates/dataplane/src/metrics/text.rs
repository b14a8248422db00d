//! How a family of metrics and its samples are written.

use std::fmt::Write;

use crate::histogram::Histogram;

pub(super) fn family(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

pub(super) fn sample(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {}", number(value))
    } else {
        writeln!(out, "{name}{{{labels}}} {}", number(value))
    };
}

/// The samples of one histogram, which has labels.
pub(super) fn histogram(out: &mut String, name: &str, labels: &str, values: &Histogram) {
    sample(out, &format!("{name}_count"), labels, values.count() as f64);
    sample(out, &format!("{name}_sum"), labels, values.sum());
    let name = format!("{name}_bucket");
    for (bound, count) in values.up_to() {
        sample(out, &name, &format!("{labels},le=\"{}\"", number(bound)), count as f64);
    }
}

/// As Prometheus reads it.
pub(crate) fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    value.to_string()
}

pub(crate) fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
