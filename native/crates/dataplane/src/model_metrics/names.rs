//! What metrics may be called, and how their names are written.

use std::fmt::Write;

use kushi_core::Error;

use super::series::MetricKind;
use crate::metrics::{escape, number};

/// By name, ascending.
pub(super) type Labels = Vec<(String, String)>;

/// Of a name, a description or the value of a label.
const LONGEST: usize = 1024;
const MOST_LABELS: usize = 32;

pub(super) fn check_family(name: &str, description: &str) -> Result<(), Error> {
    if !is_name(name, ":") {
        let text = format!(
            "'{name}' is no name of a metric family: expected letters, digits, '_' and ':', and no digit first"
        );
        return Err(Error::invalid(text));
    }
    check_length(name)?;
    check_length(description)
}

pub(super) fn check_labels(name: &str, labels: &Labels, kind: MetricKind) -> Result<(), Error> {
    if labels.len() > MOST_LABELS {
        let text = format!("a metric of '{name}' has {} labels, at most {MOST_LABELS} are", labels.len());
        return Err(Error::invalid(text));
    }
    for (label, value) in labels {
        let is_taken = kind == MetricKind::Histogram && label == "le";
        if !is_name(label, "") || label.starts_with("__") || is_taken {
            let text = format!(
                "'{label}' is no label of a metric of '{name}': expected letters, digits and '_', no digit and no '__' \
                 first, and no 'le' for a histogram"
            );
            return Err(Error::invalid(text));
        }
        check_length(label)?;
        check_length(value)?;
    }
    Ok(())
}

fn is_name(text: &str, others: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || others.contains(letter);
    text.chars().all(fits) && text.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

fn check_length(text: &str) -> Result<(), Error> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let begin: String = text.chars().take(32).collect();
    let length = text.len();
    Err(Error::invalid(format!("'{begin}…' of a metric has {length} bytes, at most {LONGEST} are possible")))
}

/// The names of what a family writes.
pub(super) fn samples(name: &str, kind: MetricKind) -> Vec<String> {
    let parts: &[&str] = match kind {
        MetricKind::Counter | MetricKind::Gauge => &[""],
        MetricKind::Histogram => &["", "_bucket", "_sum", "_count"],
    };
    parts.iter().map(|part| format!("{name}{part}")).collect()
}

pub(super) fn write_head(out: &mut String, name: &str, description: &str, kind: MetricKind) {
    let help = description.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
}

/// One line. `more` is a label that the server adds.
pub(super) fn write_sample(
    out: &mut String,
    name: &str,
    labels: &Labels,
    more: Option<(&str, &str)>,
    value: f64,
) {
    out.push_str(name);
    let labels = labels.iter().map(|(label, value)| (label.as_str(), value.as_str())).chain(more);
    let mut open = '{';
    for (label, value) in labels {
        let _ = write!(out, "{open}{label}=\"{}\"", escape(value));
        open = ',';
    }
    if open == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {}", number(value));
}
