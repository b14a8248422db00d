//! Quantiles of latencies over the last minute, and what there has been in all.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use kushi_core::Timings;

/// Whole microseconds with an error of one in a hundred.
const DIGITS: u8 = 2;
/// The quantiles are those of this many slices of time, the newest of which is being filled.
const SLICES: usize = 5;
const SLICE: Duration = Duration::from_secs(12);

/// What is measured of a request: all of it, its time in the queue, and the three parts of its computation.
pub(crate) const PARTS: usize = 5;

pub(crate) struct Latencies {
    parts: [Part; PARTS],
    at: usize,
    /// When the newest slice began.
    since: Option<Instant>,
}

struct Part {
    slices: [Histogram<u32>; SLICES],
    count: u64,
    sum_us: u64,
}

/// Of one part.
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
    /// In the order in which they were asked for; `None`: there was no request in the last minute.
    pub(crate) quantiles: Vec<Option<u64>>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Part::default()), at: 0, since: None }
    }
}

impl Default for Part {
    fn default() -> Self {
        Self { slices: std::array::from_fn(|_| empty()), count: 0, sum_us: 0 }
    }
}

fn empty() -> Histogram<u32> {
    Histogram::new(DIGITS).expect("two digits are possible")
}

impl Latencies {
    pub(super) fn record(&mut self, total: Duration, timings: &Timings, now: Instant) {
        self.turn(now);
        let Timings { queue, compute_input, compute_infer, compute_output } = *timings;
        let measured = [total, queue, compute_input, compute_infer, compute_output];
        for (part, measured) in self.parts.iter_mut().zip(measured) {
            let us = measured.as_micros() as u64;
            part.count += 1;
            part.sum_us += us;
            // It grows to any value; a slice that counts no further is full of values.
            let _ = part.slices[self.at].record(us);
        }
    }

    pub(crate) fn summaries(&mut self, quantiles: &[f64], now: Instant) -> [Summary; PARTS] {
        self.turn(now);
        std::array::from_fn(|part| self.parts[part].summary(quantiles))
    }

    /// Empties the slices whose time is over.
    fn turn(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let over = now.saturating_duration_since(since).as_nanos() / SLICE.as_nanos();
        if over == 0 {
            return;
        }
        for _ in 0..over.min(SLICES as u128) {
            self.at = (self.at + 1) % SLICES;
            self.parts.iter_mut().for_each(|part| part.slices[self.at].reset());
        }
        self.since = Some(since + SLICE * u32::try_from(over).unwrap_or(u32::MAX));
    }
}

impl Part {
    fn summary(&self, quantiles: &[f64]) -> Summary {
        let mut minute = empty();
        for slice in &self.slices {
            // It grows as well.
            let _ = minute.add(slice);
        }
        let value = |&quantile| (!minute.is_empty()).then(|| minute.value_at_quantile(quantile));
        Summary { count: self.count, sum_us: self.sum_us, quantiles: quantiles.iter().map(value).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Timings {
        Timings { queue: Duration::from_micros(us), ..Timings::default() }
    }

    #[test]
    fn quantiles_are_those_of_the_last_minute_and_sums_those_of_all_time() {
        let mut latencies = Latencies::default();
        let begin = Instant::now();
        for value in 1..=1000 {
            latencies.record(Duration::from_micros(2 * value), &us(value), begin);
        }
        let [total, queue, input, ..] = latencies.summaries(&[0.5, 0.99], begin);
        assert_eq!((total.count, total.sum_us), (1000, 1_001_000));
        for (found, expected) in total.quantiles.iter().chain(&queue.quantiles).zip([1000, 1980, 500, 990]) {
            let found = found.expect("a value");
            assert!(found.abs_diff(expected) * 50 <= expected, "{found} is not about {expected}");
        }
        assert_eq!((input.sum_us, input.quantiles), (0, vec![Some(0), Some(0)]));

        let later = begin + Duration::from_secs(30);
        latencies.record(Duration::from_micros(7), &us(7), later);
        let [total, ..] = latencies.summaries(&[0.0, 1.0], later);
        assert_eq!(total.quantiles.first(), Some(&Some(2)));

        let [total, ..] = latencies.summaries(&[1.0], begin + Duration::from_secs(65));
        assert_eq!((total.count, total.quantiles), (1001, vec![Some(7)]));
        let [total, ..] = latencies.summaries(&[1.0], begin + Duration::from_hours(1));
        assert_eq!((total.count, total.sum_us, total.quantiles), (1001, 1_001_007, vec![None]));
    }

    #[test]
    fn a_very_long_time_is_a_value_as_well() {
        let mut latencies = Latencies::default();
        let now = Instant::now();
        latencies.record(Duration::from_hours(48), &us(1), now);
        let [total, ..] = latencies.summaries(&[0.5], now);
        let found = total.quantiles[0].expect("a value");
        assert!(found.abs_diff(48 * 3_600_000_000) < 48 * 36_000_000, "{found}");
    }
}
