//! Every name of a metric of the server, and nowhere else.

use kushi_core::{Occupancy, Snapshot, TextCounts, Times, Writing};
use kushi_gpu::Reading;

use super::Row;
use super::writing::Writer;
use crate::observed::PARTS;
use crate::{DoorKind, Traffic};

pub(super) type Read = fn(&Snapshot) -> u64;

/// name, help, value
pub(super) const COUNTS: [(&str, &str, Read); 3] = [
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
];

/// name, help, value
pub(super) const LATENCIES: [(&str, &str, Read); 5] = [
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

/// name, help
pub(super) const SUMMARIES: [(&str, &str); PARTS] = [
    (
        "nv_inference_request_summary_us",
        "Summary of inference request duration in microseconds (includes cached requests)",
    ),
    (
        "nv_inference_queue_summary_us",
        "Summary of inference queuing duration in microseconds (includes cached requests)",
    ),
    (
        "nv_inference_compute_input_summary_us",
        "Summary of compute input duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_compute_infer_summary_us",
        "Summary of compute inference duration in microseconds (does not include cached requests)",
    ),
    (
        "nv_inference_compute_output_summary_us",
        "Summary of inference compute output duration in microseconds (does not include cached requests)",
    ),
];

pub(super) type Part = fn(&Occupancy) -> usize;

/// name, help, value
pub(super) const TOTALS: [(&str, &str, Part); 2] = [
    ("kushi_queue_requests", "Requests that wait, of all models", |o| o.waiting),
    ("kushi_running_requests", "Requests that are being executed, of all models", |o| o.running),
];

/// name, help
pub(super) const FIRST_RESPONSES: (&str, &str) =
    ("nv_inference_first_response_histogram_ms", "Duration from request to first response in milliseconds");
pub(super) const CLASSES: (&str, &str) =
    ("kushi_prediction_classes_total", "Classes that monitored outputs have said, one for each row");
pub(super) const CONFIDENCES: (&str, &str) =
    ("kushi_prediction_confidence", "Probabilities of the classes that monitored outputs have said");
pub(super) const BATCH_SIZES: (&str, &str) = ("kushi_batch_size", "Rows that were executed together");
pub(super) const SHED: (&str, &str) = (
    "kushi_shed_requests_total",
    "Requests refused because those in flight hold all the memory that they may, of all models",
);

pub(super) type Gauge = fn(&Row) -> f64;

/// name, help, value
pub(super) const GAUGES: [(&str, &str, Gauge); 3] = [
    (
        "nv_inference_pending_request_count",
        "Instantaneous number of pending requests awaiting execution per-model.",
        |row| row.occupancy.waiting as f64,
    ),
    ("nv_model_load_duration_secs", "Model load time in seconds", |row| row.runner.spec().load_seconds),
    ("kushi_queue_age_seconds", "For how long the request waits that has waited the longest", |row| {
        row.runner.queue_age().as_secs_f64()
    }),
];

pub(super) type TextCount = fn(&TextCounts) -> u64;

/// name, help, value
pub(super) const TEXTS: [(&str, &str, TextCount); 2] = [
    ("kushi_text_tokens_total", "Tokens of texts that the model has run", |counts| counts.tokens),
    (
        "kushi_text_padding_tokens_total",
        "What stood behind the ends of shorter texts, to be as long as the longest of their batch",
        |counts| counts.padding,
    ),
];

pub(super) type WritingCount = fn(&Writing) -> u64;

/// name, help, value
pub(super) const WRITING_COUNTS: [(&str, &str, WritingCount); 2] = [
    ("kushi_prompt_tokens_total", "Tokens of prompts, of requests that have begun", |writing| {
        writing.prompt_tokens
    }),
    ("kushi_generated_tokens_total", "Tokens that the model has written", |writing| writing.generated_tokens),
];

pub(super) type WritingTimes = fn(&Writing) -> &Times;

/// name, help, value
pub(super) const WRITING_TIMES: [(&str, &str, WritingTimes); 2] = [
    (
        "kushi_time_to_first_token_seconds",
        "From the arrival of a request to the first token of each of its texts",
        |writing| &writing.to_first_token,
    ),
    ("kushi_time_between_tokens_seconds", "From a token to the next one of the same text", |writing| {
        &writing.between_tokens
    }),
];

pub(super) type WritingGauge = fn(&Writer<'_>) -> f64;

/// name, help, value
pub(super) const WRITING_GAUGES: [(&str, &str, WritingGauge); 3] = [
    ("kushi_generation_waiting_requests", "Requests that wait in the queue of the model", |writer| {
        writer.row.occupancy.waiting as f64
    }),
    ("kushi_generation_running_texts", "Texts that are being written", |writer| writer.writing.texts as f64),
    (
        "kushi_kv_cache_promised_ratio",
        "What these texts may need of all that can be kept of tokens; more than 1: some of them wait for room",
        |writer| writer.writing.promised,
    ),
];

pub(super) type OfWriters = fn(&[Writer<'_>]) -> f64;

/// name, help, value of all models together
pub(super) const OF_VLLM: [(&str, &str, OfWriters); 3] = [
    ("vllm:num_requests_waiting", "Requests that wait in queues of models that write", |writers| {
        writers.iter().map(|writer| writer.row.occupancy.waiting as f64).sum()
    }),
    ("vllm:num_requests_running", "Texts that are being written", |writers| {
        writers.iter().map(|writer| writer.writing.texts as f64).sum()
    }),
    (
        "vllm:kv_cache_usage_perc",
        "What these may need of all that can be kept of tokens, 1 at most",
        |writers| writers.iter().map(|writer| writer.writing.promised.min(1.0)).fold(0.0, f64::max),
    ),
];

pub(super) type Count = fn(&Traffic, DoorKind) -> usize;

/// name, help, value
pub(super) const DOORS: [(&str, &str, Count); 2] = [
    ("kushi_open_connections", "Open connections, by door", Traffic::connections),
    ("kushi_open_streams", "Open streams with any number of answers, by door", Traffic::streams),
];

pub(super) const FAILURES: &str = "nv_inference_request_failure";
pub(super) const INFLIGHT_BYTES: &str = "kushi_inflight_bytes";

/// name, help
pub(super) const MACHINE: [(&str, &str); 3] = [
    ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]"),
    ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes"),
    ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes"),
];

pub(super) type OfGpu = fn(&Reading) -> Option<f64>;

/// name, help, type, value
pub(super) const GPUS: [(&str, &str, &str, OfGpu); 6] = [
    ("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", |gpu| gpu.utilization),
    ("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "gauge", |gpu| {
        gpu.memory_total_bytes.map(|bytes| bytes as f64)
    }),
    ("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "gauge", |gpu| {
        gpu.memory_used_bytes.map(|bytes| bytes as f64)
    }),
    ("nv_gpu_power_usage", "GPU power usage in watts", "gauge", |gpu| gpu.power_usage_watts),
    ("nv_gpu_power_limit", "GPU power management limit in watts", "gauge", |gpu| gpu.power_limit_watts),
    (
        "nv_energy_consumption",
        "GPU energy consumption in joules since the Triton Server started",
        "counter",
        |gpu| gpu.energy_joules,
    ),
];

/// Whether a model may not give this name to a metric of its own.
pub(crate) fn is_of_server(name: &str) -> bool {
    let counters = COUNTS.iter().chain(&LATENCIES).map(|(name, ..)| *name);
    let gauges = GAUGES.iter().map(|(name, ..)| *name).chain(DOORS.iter().map(|(name, ..)| *name));
    let totals = TOTALS.iter().map(|(name, ..)| *name);
    let of_gpus = GPUS.iter().map(|(name, ..)| *name);
    let others = [FAILURES, INFLIGHT_BYTES];
    let told = [CLASSES, SHED].into_iter().chain(MACHINE).map(|(name, _)| name);
    let times = WRITING_TIMES.map(|(name, help, _)| (name, help));
    let spread = SUMMARIES.iter().chain(&[FIRST_RESPONSES, CONFIDENCES, BATCH_SIZES]).chain(&times);
    let is_of = |(own, _): &(&str, &str)| {
        name.strip_prefix(own).is_some_and(|rest| ["", "_bucket", "_count", "_sum"].contains(&rest))
    };
    let texts = TEXTS.iter().map(|(name, ..)| *name).chain(WRITING_COUNTS.iter().map(|(name, ..)| *name));
    let writing = WRITING_GAUGES.iter().map(|(name, ..)| *name).chain(OF_VLLM.iter().map(|(name, ..)| *name));
    counters
        .chain(texts)
        .chain(writing)
        .chain(gauges)
        .chain(totals)
        .chain(of_gpus)
        .chain(others)
        .chain(told)
        .any(|own| own == name)
        || spread.into_iter().any(is_of)
}
