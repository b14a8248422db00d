//! Prometheus text with Triton's names, and a few of our own; every name of a metric stands here and nowhere else.

use std::fmt::Write;
use std::sync::Arc;

use kushi_core::{FailureReason, Occupancy, Runner, Snapshot};

use crate::{DataPlane, MachineMeter};

type Read = fn(&Snapshot) -> u64;

/// name, help, value
const COUNTERS: [(&str, &str, Read); 8] = [
    ("nv_inference_request_success", "Number of successful inference requests, all batch sizes", |s| {
        s.success.count
    }),
    ("nv_inference_count", "Number of inferences performed (does not include cached requests)", |s| {
        s.inference_count
    }),
    (
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        |s| s.execution_count,
    ),
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        |s| s.success.ns / 1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        |s| s.queue.ns / 1000,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        |s| s.compute_input.ns / 1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        |s| s.compute_infer.ns / 1000,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
        |s| s.compute_output.ns / 1000,
    ),
];

type Part = fn(&Occupancy) -> usize;

/// name, help, value
const TOTALS: [(&str, &str, Part); 2] = [
    ("kushi_queue_requests", "Requests that wait, of all models", |o| o.waiting),
    ("kushi_running_requests", "Requests that are being executed, of all models", |o| o.running),
];

const FAILURES: &str = "nv_inference_request_failure";
const PENDING: &str = "nv_inference_pending_request_count";
const LOAD_SECONDS: &str = "nv_model_load_duration_secs";
const INFLIGHT_BYTES: &str = "kushi_inflight_bytes";

/// name, help
const MACHINE: [(&str, &str); 3] = [
    ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]"),
    ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes"),
    ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes"),
];

/// Whether a model may not give this name to a metric of its own.
pub(crate) fn is_of_server(name: &str) -> bool {
    let counters = COUNTERS.iter().map(|(name, ..)| *name);
    let totals = TOTALS.iter().map(|(name, ..)| *name);
    let machine = MACHINE.iter().map(|(name, _)| *name);
    let others = [FAILURES, PENDING, LOAD_SECONDS, INFLIGHT_BYTES];
    counters.chain(totals).chain(machine).chain(others).any(|own| own == name)
}

struct Row {
    runner: Arc<Runner>,
    statistics: Snapshot,
    occupancy: Occupancy,
    labels: String,
}

pub fn render(plane: &DataPlane) -> String {
    let rows: Vec<Row> = plane
        .registry
        .runners()
        .into_iter()
        .map(|runner| {
            let spec = runner.spec();
            let labels = format!("model=\"{}\",version=\"{}\"", escape(&spec.name), spec.version);
            Row { statistics: runner.statistics(), occupancy: runner.occupancy(), labels, runner }
        })
        .collect();
    let mut out = String::new();
    if !rows.is_empty() {
        models(&mut out, &rows);
    }
    total(&mut out, &rows, plane.inflight_bytes());
    if let Some(meter) = &plane.machine {
        machine(&mut out, meter);
    }
    plane.model_metrics.write(&mut out);
    out
}

fn models(out: &mut String, rows: &[Row]) {
    for (position, (name, help, read)) in COUNTERS.into_iter().enumerate() {
        family(out, name, help, "counter");
        for row in rows {
            sample(out, name, &row.labels, read(&row.statistics) as f64);
        }
        if position == 0 {
            failures(out, rows);
        }
    }
    let name = PENDING;
    family(out, name, "Instantaneous number of pending requests awaiting execution per-model.", "gauge");
    for row in rows {
        sample(out, name, &row.labels, row.occupancy.waiting as f64);
    }
    let name = LOAD_SECONDS;
    family(out, name, "Model load time in seconds", "gauge");
    for row in rows {
        sample(out, name, &row.labels, row.runner.spec().load_seconds);
    }
}

/// One number for the whole server, also where it has no model: what gateways and autoscalers read.
fn total(out: &mut String, rows: &[Row], inflight_bytes: usize) {
    for (name, help, part) in TOTALS {
        family(out, name, help, "gauge");
        sample(out, name, "", rows.iter().map(|row| part(&row.occupancy)).sum::<usize>() as f64);
    }
    let name = INFLIGHT_BYTES;
    family(out, name, "Bytes that large requests and answers in flight hold", "gauge");
    sample(out, name, "", inflight_bytes as f64);
}

/// The first of those numbers, by their names.
pub fn load(plane: &DataPlane) -> [(&'static str, usize); TOTALS.len()] {
    let occupancies: Vec<Occupancy> =
        plane.registry.runners().iter().map(|runner| runner.occupancy()).collect();
    TOTALS.map(|(name, _, part)| (name, occupancies.iter().map(part).sum()))
}

fn failures(out: &mut String, rows: &[Row]) {
    let name = FAILURES;
    family(out, name, "Number of failed inference requests, all batch sizes", "counter");
    for row in rows {
        for reason in FailureReason::ALL {
            let spec = row.runner.spec();
            let (model, reason_label) = (escape(&spec.name), reason.label());
            let labels = format!("model=\"{model}\",reason=\"{reason_label}\",version=\"{}\"", spec.version);
            sample(out, name, &labels, row.statistics.failures(reason) as f64);
        }
    }
}

fn machine(out: &mut String, meter: &MachineMeter) {
    let Some(reading) = meter.read() else { return };
    let values = [reading.utilization, reading.memory_total_bytes as f64, reading.memory_used_bytes as f64];
    for ((name, help), value) in MACHINE.into_iter().zip(values) {
        family(out, name, help, "gauge");
        sample(out, name, "", value);
    }
}

fn family(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample(out: &mut String, name: &str, labels: &str, value: f64) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
}

pub(crate) fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
