//! When to run which part of the queue: a pure function of a snapshot.
//!
//! A batch is made of requests that may share one, the first of them in their order, and never exceeds the maximum. As
//! in Triton: a preferred size that is reachable is taken at once; without one the oldest request waits at most the
//! configured delay for company.

use std::time::{Duration, Instant};

use crate::ModelSpec;

#[derive(Clone, Debug)]
pub struct BatchPolicy {
    pub max_rows: usize,
    /// Whether several requests may share a batch at all.
    pub joins: bool,
    /// Ascending or not; empty without dynamic batching.
    pub preferred_rows: Vec<usize>,
    pub max_delay: Duration,
}

/// One queued request, as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub rows: usize,
    pub since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the first `requests` of these as one batch.
    Run {
        requests: usize,
    },
    /// Nothing to gain yet; look again at this time, or when another request arrives.
    Wait {
        until: Instant,
    },
    Idle,
}

impl ModelSpec {
    pub fn batch_policy(&self) -> BatchPolicy {
        let max_rows = self.max_batch_size.max(1);
        match &self.batching {
            Some(batching) => BatchPolicy {
                max_rows,
                joins: self.max_batch_size > 1,
                preferred_rows: batching.preferred_batch_sizes.clone(),
                max_delay: Duration::from_micros(batching.max_queue_delay_us),
            },
            None => {
                BatchPolicy { max_rows, joins: false, preferred_rows: Vec::new(), max_delay: Duration::ZERO }
            }
        }
    }
}

impl BatchPolicy {
    /// Fewer rows wait for company, until the delay is over.
    pub(crate) fn least_rows(&self) -> usize {
        if !self.joins || self.max_delay.is_zero() {
            return 0;
        }
        self.preferred_rows.iter().copied().chain([self.max_rows]).min().unwrap_or_default()
    }

    fn largest_preferred(&self) -> usize {
        self.preferred_rows.iter().copied().max().unwrap_or(self.max_rows)
    }
}

/// About requests that may share a batch, in their order. `is_closed`: none will join them.
pub fn decide(
    policy: &BatchPolicy,
    group: impl IntoIterator<Item = Waiting>,
    is_closed: bool,
    now: Instant,
) -> Decision {
    let mut group = group.into_iter();
    let Some(first) = group.next() else {
        return Decision::Idle;
    };
    if !policy.joins {
        return Decision::Run { requests: 1 };
    }
    let prefix = measure(policy, first, group);
    let age = now.saturating_duration_since(prefix.oldest);
    let delay_is_over = age >= policy.max_delay;
    if let Some(requests) = prefix.preferred
        && (policy.max_delay.is_zero() || !delay_is_over)
    {
        return Decision::Run { requests };
    }
    if delay_is_over || prefix.cannot_grow || is_closed {
        Decision::Run { requests: prefix.requests }
    } else {
        Decision::Wait { until: prefix.oldest + policy.max_delay }
    }
}

struct Prefix {
    requests: usize,
    /// Requests of the longest part of the prefix whose rows are a preferred size.
    preferred: Option<usize>,
    cannot_grow: bool,
    /// Since when its oldest request waits, which need not be the first one.
    oldest: Instant,
}

fn measure(policy: &BatchPolicy, first: Waiting, others: impl Iterator<Item = Waiting>) -> Prefix {
    let largest_preferred = policy.largest_preferred();
    let is_preferred = |rows| policy.preferred_rows.contains(&rows);
    let mut rows = first.rows;
    let mut prefix = Prefix {
        requests: 1,
        preferred: is_preferred(rows).then_some(1),
        cannot_grow: rows >= largest_preferred,
        oldest: first.since,
    };
    if rows >= policy.max_rows {
        return prefix;
    }
    for next in others {
        if rows + next.rows > policy.max_rows {
            prefix.cannot_grow = true;
            break;
        }
        // Beyond the largest preferred size nothing better can come: stop there, as Triton does.
        if rows + next.rows > largest_preferred && prefix.preferred.is_none() {
            prefix.preferred = Some(prefix.requests);
        }
        rows += next.rows;
        prefix.requests += 1;
        prefix.oldest = prefix.oldest.min(next.since);
        if is_preferred(rows) {
            prefix.preferred = Some(prefix.requests);
        }
        if rows >= policy.max_rows {
            break;
        }
    }
    prefix.cannot_grow |= rows >= largest_preferred;
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Case {
        name: &'static str,
        preferred: &'static [usize],
        delay_ms: u32,
        /// Rows.
        group: &'static [usize],
        is_closed: bool,
        age_ms: u32,
        expected: Result<usize, u32>,
    }

    /// `Ok(n)`: run n requests; `Err(ms)`: wait until the oldest is so old; maximum 8 rows.
    #[rustfmt::skip]
    const TABLE: &[Case] = &[
        Case { name: "takes all that is there without a delay", preferred: &[8], delay_ms: 0, group: &[1; 3], is_closed: false, age_ms: 0, expected: Ok(3) },
        Case { name: "stops at the maximum", preferred: &[8], delay_ms: 0, group: &[3; 3], is_closed: false, age_ms: 0, expected: Ok(2) },
        Case { name: "takes the largest reachable preferred size", preferred: &[2, 4], delay_ms: 0, group: &[1; 5], is_closed: false, age_ms: 0, expected: Ok(4) },
        Case { name: "a delay waits for a preferred size", preferred: &[4], delay_ms: 5, group: &[1; 3], is_closed: false, age_ms: 2, expected: Err(5) },
        Case { name: "a preferred size ends the wait", preferred: &[4], delay_ms: 5, group: &[1; 4], is_closed: false, age_ms: 2, expected: Ok(4) },
        Case { name: "the end of the delay takes all, preferred or not", preferred: &[2], delay_ms: 5, group: &[1; 3], is_closed: false, age_ms: 5, expected: Ok(3) },
        Case { name: "before its end a preferred size goes", preferred: &[2], delay_ms: 5, group: &[1; 3], is_closed: false, age_ms: 4, expected: Ok(2) },
        Case { name: "a batch that nobody joins does not wait", preferred: &[8], delay_ms: 5, group: &[1, 1], is_closed: true, age_ms: 0, expected: Ok(2) },
        Case { name: "a full batch does not wait", preferred: &[4], delay_ms: 5, group: &[8], is_closed: false, age_ms: 0, expected: Ok(1) },
        Case { name: "a batch that the next would overfill does not wait", preferred: &[8], delay_ms: 5, group: &[5, 4], is_closed: false, age_ms: 0, expected: Ok(1) },
        Case { name: "what passes every preferred size goes without the last", preferred: &[4], delay_ms: 5, group: &[3, 3], is_closed: false, age_ms: 0, expected: Ok(1) },
        Case { name: "one row alone waits too", preferred: &[8], delay_ms: 5, group: &[1], is_closed: false, age_ms: 0, expected: Err(5) },
    ];

    #[test]
    fn decides_as_the_table_says() {
        for case in TABLE {
            let start = Instant::now();
            let policy = BatchPolicy {
                max_rows: 8,
                joins: true,
                preferred_rows: case.preferred.to_vec(),
                max_delay: MS * case.delay_ms,
            };
            let group = case.group.iter().map(|&rows| Waiting { rows, since: start });
            let expected = match case.expected {
                Ok(requests) => Decision::Run { requests },
                Err(ms) => Decision::Wait { until: start + MS * ms },
            };
            let decision = decide(&policy, group, case.is_closed, start + MS * case.age_ms);
            assert_eq!(decision, expected, "{}", case.name);
        }
    }

    #[test]
    fn an_empty_queue_is_idle_and_a_model_without_batching_runs_one() {
        let policy = BatchPolicy { max_rows: 8, joins: false, preferred_rows: vec![], max_delay: MS };
        let now = Instant::now();
        let waiting = Waiting { rows: 1, since: now };
        assert_eq!(decide(&policy, [], false, now), Decision::Idle);
        assert_eq!(decide(&policy, [waiting; 4], false, now), Decision::Run { requests: 1 });
    }

    #[test]
    fn the_oldest_request_ends_the_wait_wherever_it_stands() {
        let policy = BatchPolicy { max_rows: 8, joins: true, preferred_rows: vec![8], max_delay: 5 * MS };
        let start = Instant::now();
        let group = [3, 1, 2].map(|ms| Waiting { rows: 1, since: start + ms * MS });
        let decide = |ms| decide(&policy, group, false, start + ms * MS);
        assert_eq!(decide(5), Decision::Wait { until: start + 6 * MS });
        assert_eq!(decide(6), Decision::Run { requests: 3 });
    }
}
