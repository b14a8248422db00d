//! Prometheus text with Triton's names, and a few of our own.

mod gpus;
mod names;
mod observed;
mod text;
mod writing;

use std::fmt::Write;
use std::sync::Arc;

use kushi_core::{FailureReason, Occupancy, Runner, Snapshot, TextCounts};

use crate::histogram::Histogram;
use crate::plane::InFlight;
use crate::{DataPlane, DoorKind, MachineMeter, MetricsOptions, Traffic};

pub(crate) use names::is_of_server;
use names::{
    BATCH_SIZES, COUNTS, DOORS, FAILURES, GAUGES, INFLIGHT_BYTES, LATENCIES, MACHINE, SHED, TEXTS, TOTALS,
};
pub(crate) use text::{escape, number};
use text::{family, histogram, sample};

struct Row {
    runner: Arc<Runner>,
    statistics: Snapshot,
    occupancy: Occupancy,
    /// Its labels without the version.
    model: String,
    labels: String,
}

pub fn render(plane: &DataPlane) -> String {
    let rows: Vec<Row> = plane
        .registry
        .runners()
        .into_iter()
        .map(|runner| {
            let spec = runner.spec();
            let mut model = String::new();
            for (tag, value) in &spec.metrics.tags {
                let _ = write!(model, "{tag}=\"{}\",", escape(value));
            }
            let _ = write!(model, "model=\"{}\"", escape(&spec.name));
            let labels = format!("{model},version=\"{}\"", spec.version);
            Row { statistics: runner.statistics(), occupancy: runner.occupancy(), model, labels, runner }
        })
        .collect();
    let mut out = String::new();
    if !rows.is_empty() {
        models(&mut out, &rows, &plane.metrics);
    }
    total(&mut out, &rows, plane.in_flight());
    doors(&mut out, &plane.traffic);
    if let Some(meter) = &plane.gpus {
        gpus::write(&mut out, &meter.read());
    }
    if let Some(meter) = &plane.machine {
        machine(&mut out, meter);
    }
    plane.model_metrics.write(&mut out);
    out
}

fn models(out: &mut String, rows: &[Row], options: &MetricsOptions) {
    let latencies = if options.counters { &LATENCIES[..] } else { &[] };
    for (position, &(name, help, read)) in COUNTS.iter().chain(latencies).enumerate() {
        family(out, name, help, "counter");
        for row in rows {
            sample(out, name, &row.labels, read(&row.statistics) as f64);
        }
        if position == 0 {
            failures(out, rows);
        }
    }
    observed::write(out, rows, options.quantiles.as_deref().unwrap_or_default());
    for (name, help, read) in GAUGES {
        family(out, name, help, "gauge");
        for row in rows {
            sample(out, name, &row.labels, read(row));
        }
    }
    batch_sizes(out, rows);
    texts(out, rows);
    writing::write(out, rows);
}

/// Of models that take them.
fn texts(out: &mut String, rows: &[Row]) {
    let counts = |row: &Row| Some((row.labels.clone(), row.runner.texts()?.counts()?));
    let counts: Vec<(String, TextCounts)> = rows.iter().filter_map(counts).collect();
    if counts.is_empty() {
        return;
    }
    for (name, help, read) in TEXTS {
        family(out, name, help, "counter");
        for (labels, counts) in &counts {
            sample(out, name, labels, read(counts) as f64);
        }
    }
}

fn batch_sizes(out: &mut String, rows: &[Row]) {
    let (name, help) = BATCH_SIZES;
    family(out, name, help, "histogram");
    for row in rows {
        // Up to the first power of two that is enough.
        let most = row.runner.spec().max_batch_size.max(1).next_power_of_two();
        let bounds: Vec<f64> = (0..=most.ilog2()).map(|power| f64::from(power).exp2()).collect();
        let mut sizes = Histogram::new(bounds);
        for (&size, counts) in &row.statistics.batches {
            sizes.observe_many(size as f64, counts.compute_infer.count);
        }
        histogram(out, name, &row.labels, &sizes);
    }
}

/// One number for the whole server, also where it has no model: what gateways and autoscalers read.
fn total(out: &mut String, rows: &[Row], in_flight: InFlight) {
    for (name, help, part) in TOTALS {
        family(out, name, help, "gauge");
        sample(out, name, "", rows.iter().map(|row| part(&row.occupancy)).sum::<usize>() as f64);
    }
    let name = INFLIGHT_BYTES;
    family(out, name, "Bytes that large requests and answers in flight hold", "gauge");
    sample(out, name, "", in_flight.bytes as f64);
    let (name, help) = SHED;
    family(out, name, help, "counter");
    sample(out, name, "", in_flight.refused as f64);
}

fn doors(out: &mut String, traffic: &Traffic) {
    for (name, help, read) in DOORS {
        family(out, name, help, "gauge");
        for door in DoorKind::ALL {
            sample(out, name, &format!("door=\"{}\"", door.name()), read(traffic, door) as f64);
        }
    }
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
            let (model, reason_label, version) = (&row.model, reason.label(), row.runner.spec().version);
            let labels = format!("{model},reason=\"{reason_label}\",version=\"{version}\"");
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
