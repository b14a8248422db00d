//! What models tell that write texts, by our names and by those of vLLM that gateways read.

use kushi_core::{Times, Writing};

use super::Row;
use super::names::{OF_VLLM, WRITING_COUNTS, WRITING_GAUGES, WRITING_TIMES};
use super::text::{family, histogram, sample};
use crate::histogram::Histogram;

/// One of them.
pub(super) struct Writer<'a> {
    pub row: &'a Row,
    pub writing: Writing,
}

pub(super) fn write(out: &mut String, rows: &[Row]) {
    let writer = |row| Some(Writer { row, writing: writing(row)? });
    let writers: Vec<Writer<'_>> = rows.iter().filter_map(writer).collect();
    if writers.is_empty() {
        return;
    }
    for (name, help, read) in WRITING_COUNTS {
        family(out, name, help, "counter");
        for writer in &writers {
            sample(out, name, &writer.row.labels, read(&writer.writing) as f64);
        }
    }
    for (name, help, read) in WRITING_TIMES {
        family(out, name, help, "histogram");
        for writer in &writers {
            histogram(out, name, &writer.row.labels, &spread(read(&writer.writing)));
        }
    }
    for (name, help, read) in WRITING_GAUGES {
        family(out, name, help, "gauge");
        for writer in &writers {
            sample(out, name, &writer.row.labels, read(writer));
        }
    }
    // without labels: whoever asks a server of vLLM for them has one model there
    for (name, help, total) in OF_VLLM {
        family(out, name, help, "gauge");
        sample(out, name, "", total(&writers));
    }
}

fn writing(row: &Row) -> Option<Writing> {
    row.runner.texts()?.writing()
}

fn spread(times: &Times) -> Histogram {
    Histogram::counted(times.bounds, &times.counts, times.seconds)
}
