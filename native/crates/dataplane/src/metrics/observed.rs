//! What observers have heard, model by model.

use std::sync::Mutex;

use super::Row;
use super::names::{CLASSES, CONFIDENCES, FIRST_RESPONSES, SUMMARIES};
use super::text::{escape, family, histogram, number, sample};
use crate::observed::{Observed, Predictions, lock};

pub(super) fn write(out: &mut String, rows: &[Row], quantiles: &[f64]) {
    let observed: Vec<(&Row, &Observed)> =
        rows.iter().filter_map(|row| Some((row, Observed::of_runner(&row.runner)?))).collect();
    summaries(out, &observed, quantiles);
    first_responses(out, &observed);
    predictions(out, &observed);
}

fn summaries(out: &mut String, observed: &[(&Row, &Observed)], quantiles: &[f64]) {
    let measured: Vec<_> = observed
        .iter()
        .filter_map(|(row, observed)| {
            Some((row, lock(observed.latencies.as_ref()?).summaries(quantiles, row.runner.now())))
        })
        .collect();
    if measured.is_empty() {
        return;
    }
    for (part, (name, help)) in SUMMARIES.into_iter().enumerate() {
        family(out, name, help, "summary");
        for (row, parts) in &measured {
            let summary = &parts[part];
            sample(out, &format!("{name}_count"), &row.labels, summary.count as f64);
            sample(out, &format!("{name}_sum"), &row.labels, summary.sum_us as f64);
            for (&quantile, &value) in quantiles.iter().zip(&summary.quantiles) {
                let labels = format!("{},quantile=\"{}\"", row.labels, number(quantile));
                sample(out, name, &labels, value.map_or(f64::NAN, |us| us as f64));
            }
        }
    }
}

fn first_responses(out: &mut String, observed: &[(&Row, &Observed)]) {
    let mut told =
        observed.iter().filter_map(|(row, one)| Some((row, one.first_responses.as_ref()?))).peekable();
    if told.peek().is_none() {
        return;
    }
    let (name, help) = FIRST_RESPONSES;
    family(out, name, help, "histogram");
    for (row, values) in told {
        histogram(out, name, &row.labels, &lock(values));
    }
}

fn predictions(out: &mut String, observed: &[(&Row, &Observed)]) {
    let mut told: Vec<(String, &Mutex<Predictions>)> = Vec::new();
    for (row, observed) in observed {
        for (output, predictions) in &observed.predictions {
            let output = escape(&row.runner.spec().outputs[*output].name);
            told.push((format!("{},output=\"{output}\"", row.labels), predictions));
        }
    }
    if told.is_empty() {
        return;
    }
    let (name, help) = CLASSES;
    family(out, name, help, "counter");
    for (labels, predictions) in &told {
        for (class, count) in lock(predictions).classes() {
            sample(out, name, &format!("{labels},class=\"{}\"", escape(class)), count as f64);
        }
    }
    let (name, help) = CONFIDENCES;
    family(out, name, help, "histogram");
    for (labels, predictions) in &told {
        histogram(out, name, labels, lock(predictions).confidences());
    }
}
