//! What Triton's statistics count, per model version.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{FailureReason, Timings};

/// A number of events and the time that they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub count: u64,
    pub ns: u64,
}

impl Totals {
    pub fn add(&mut self, count: u64, each: Duration) {
        self.count += count;
        self.ns += count * each.as_nanos() as u64;
    }
}

/// The executions of one batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRow {
    pub compute_input: Totals,
    pub compute_infer: Totals,
    pub compute_output: Totals,
}

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub last_inference: Option<Instant>,
    /// Rows inferred; a request of four rows counts four.
    pub inference_count: u64,
    /// Batches executed.
    pub execution_count: u64,
    pub success: Totals,
    pub fail: Totals,
    pub queue: Totals,
    pub compute_input: Totals,
    pub compute_infer: Totals,
    pub compute_output: Totals,
    pub batches: BTreeMap<usize, BatchRow>,
    failures: [u64; FailureReason::ALL.len()],
}

/// What a batch adds: gathered without a lock, recorded in one go before its answers leave.
#[derive(Default)]
pub(crate) struct Tally {
    pub successes: u64,
    pub rows: u64,
    pub success_ns: u64,
    pub queue_ns: u64,
    pub failures: Vec<(FailureReason, Duration)>,
}

impl Snapshot {
    pub fn failures(&self, reason: FailureReason) -> u64 {
        self.failures[reason as usize]
    }

    pub(crate) fn record_failure(&mut self, reason: FailureReason, after: Duration) {
        self.fail.add(1, after);
        self.failures[reason as usize] += 1;
    }

    /// `execution` is the size of the batch the first time that one of its requests succeeds.
    pub(crate) fn record(
        &mut self,
        tally: &Tally,
        timings: &Timings,
        execution: Option<usize>,
        now: Instant,
    ) {
        for &(reason, after) in &tally.failures {
            self.record_failure(reason, after);
        }
        let n = tally.successes;
        if n > 0 {
            self.last_inference = Some(now);
            self.inference_count += tally.rows;
            self.success.count += n;
            self.success.ns += tally.success_ns;
            self.queue.count += n;
            self.queue.ns += tally.queue_ns;
            self.compute_input.add(n, timings.compute_input);
            self.compute_infer.add(n, timings.compute_infer);
            self.compute_output.add(n, timings.compute_output);
        }
        if let Some(size) = execution {
            self.record_execution(size, timings);
        }
    }

    pub(crate) fn record_execution(&mut self, size: usize, timings: &Timings) {
        self.execution_count += 1;
        let row = self.batches.entry(size).or_default();
        row.compute_input.add(1, timings.compute_input);
        row.compute_infer.add(1, timings.compute_infer);
        row.compute_output.add(1, timings.compute_output);
    }
}
