//! What the server and its models say of themselves.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use kushi_core::{ModelSpec, Runner, TensorSpec, Totals};
use kushi_dataplane::ServerMetadata;

use crate::json::write;

pub fn server(server: &ServerMetadata) -> Vec<u8> {
    let ServerMetadata { name, version, extensions } = server;
    let mut out = b"{\"name\":".to_vec();
    write::string(&mut out, name.as_bytes());
    out.extend_from_slice(b",\"version\":");
    write::string(&mut out, version.as_bytes());
    out.extend_from_slice(b",\"extensions\":");
    strings(&mut out, extensions);
    out.push(b'}');
    out
}

pub fn model(spec: &ModelSpec, versions: &[String]) -> Vec<u8> {
    let mut out = b"{\"name\":".to_vec();
    write::string(&mut out, spec.name.as_bytes());
    out.extend_from_slice(b",\"versions\":");
    strings(&mut out, versions);
    out.extend_from_slice(b",\"platform\":");
    write::string(&mut out, spec.platform.as_bytes());
    for (key, tensors) in [(",\"inputs\":[", &spec.inputs), (",\"outputs\":[", &spec.outputs)] {
        out.extend_from_slice(key.as_bytes());
        list(&mut out, tensors, |out, tensor| describe(out, tensor, spec.max_batch_size > 0));
        out.push(b']');
    }
    out.push(b'}');
    out
}

fn describe(out: &mut Vec<u8>, tensor: &TensorSpec, batched: bool) {
    out.extend_from_slice(b"{\"name\":");
    write::string(out, tensor.name.as_bytes());
    out.extend_from_slice(b",\"datatype\":");
    write::string(out, tensor.datatype.name().as_bytes());
    out.extend_from_slice(if batched { b",\"shape\":[-1" } else { b",\"shape\":[" });
    for (i, &dim) in tensor.dims.iter().enumerate() {
        if batched || i > 0 {
            out.push(b',');
        }
        write::integer(out, dim);
    }
    out.extend_from_slice(b"]}");
}

fn strings(out: &mut Vec<u8>, texts: &[String]) {
    out.push(b'[');
    list(out, texts, |out, text| write::string(out, text.as_bytes()));
    out.push(b']');
}

fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Vec<u8>, T)) {
    for (i, each) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        item(out, each);
    }
}

pub fn statistics<'a>(runners: impl IntoIterator<Item = &'a std::sync::Arc<Runner>>) -> Vec<u8> {
    let mut out = b"{\"model_stats\":[".to_vec();
    list(&mut out, runners, |out, runner| model_statistics(out, runner));
    out.extend_from_slice(b"]}");
    out
}

fn model_statistics(out: &mut Vec<u8>, runner: &Runner) {
    let spec = runner.spec();
    let statistics = runner.statistics();
    out.extend_from_slice(b"{\"name\":");
    write::string(out, spec.name.as_bytes());
    out.extend_from_slice(b",\"version\":\"");
    write::integer(out, spec.version);
    out.extend_from_slice(b"\",\"last_inference\":");
    write::integer(out, statistics.last_inference.map_or(0, epoch_ms));
    out.extend_from_slice(b",\"inference_count\":");
    write::integer(out, statistics.inference_count);
    out.extend_from_slice(b",\"execution_count\":");
    write::integer(out, statistics.execution_count);
    out.extend_from_slice(b",\"inference_stats\":{");
    let none = Totals::default();
    let sections = [
        ("success", statistics.success),
        ("fail", statistics.fail),
        ("queue", statistics.queue),
        ("compute_input", statistics.compute_input),
        ("compute_infer", statistics.compute_infer),
        ("compute_output", statistics.compute_output),
        ("cache_hit", none),
        ("cache_miss", none),
    ];
    list(out, sections, |out, (name, totals)| section(out, name, totals));
    out.extend_from_slice(b"},\"response_stats\":{},\"batch_stats\":[");
    list(out, &statistics.batches, |out, (size, row)| {
        out.extend_from_slice(b"{\"batch_size\":");
        write::integer(out, *size);
        for (name, totals) in [
            ("compute_input", row.compute_input),
            ("compute_infer", row.compute_infer),
            ("compute_output", row.compute_output),
        ] {
            out.push(b',');
            section(out, name, totals);
        }
        out.push(b'}');
    });
    out.extend_from_slice(b"],\"memory_usage\":[]}");
}

fn section(out: &mut Vec<u8>, name: &str, totals: Totals) {
    write::string(out, name.as_bytes());
    out.extend_from_slice(b":{\"count\":");
    write::integer(out, totals.count);
    out.extend_from_slice(b",\"ns\":");
    write::integer(out, totals.ns);
    out.push(b'}');
}

fn epoch_ms(then: Instant) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(then.elapsed()).as_millis() as u64
}
