//! How much a model has read and written, and how fast.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kushi_core::{Times, Writing};

/// As vLLM has them.
const TO_FIRST_TOKEN: [f64; 18] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0];
const BETWEEN_TOKENS: [f64; 16] =
    [0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0];

/// Written by the thread of the answers, read by whoever asks.
pub(crate) struct Counts {
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    to_first_token: Spread,
    between_tokens: Spread,
    texts: AtomicU64,
    /// Tokens.
    promised: AtomicU64,
    kept: usize,
}

impl Counts {
    pub(crate) fn new(kept: usize) -> Self {
        Self {
            prompt_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            to_first_token: Spread::new(&TO_FIRST_TOKEN),
            between_tokens: Spread::new(&BETWEEN_TOKENS),
            texts: AtomicU64::new(0),
            promised: AtomicU64::new(0),
            kept,
        }
    }

    pub(crate) fn read_prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Relaxed);
    }

    pub(crate) fn so_far(&self) -> Writing {
        Writing {
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            generated_tokens: self.generated_tokens.load(Relaxed),
            to_first_token: self.to_first_token.so_far(),
            between_tokens: self.between_tokens.so_far(),
            texts: self.texts.load(Relaxed),
            promised: self.promised.load(Relaxed) as f64 / self.kept.max(1) as f64,
        }
    }
}

/// A text that is being written, until it is dropped.
pub(crate) struct CountedText {
    counts: Arc<Counts>,
    /// Tokens that it may need.
    promised: u64,
    /// When its request came, and then its last token.
    since: Instant,
    has_begun: bool,
}

impl CountedText {
    pub(crate) fn begin(counts: &Arc<Counts>, promised: usize, arrived: Instant) -> Self {
        let promised = promised as u64;
        counts.texts.fetch_add(1, Relaxed);
        counts.promised.fetch_add(promised, Relaxed);
        Self { counts: counts.clone(), promised, since: arrived, has_begun: false }
    }

    /// So many tokens have come together.
    pub(crate) fn add(&mut self, tokens: usize, now: Instant) {
        if tokens == 0 {
            return;
        }
        let counts = &self.counts;
        counts.generated_tokens.fetch_add(tokens as u64, Relaxed);
        let took = now.saturating_duration_since(std::mem::replace(&mut self.since, now));
        if self.has_begun {
            counts.between_tokens.add(took / tokens as u32, tokens as u64);
        } else {
            self.has_begun = true;
            counts.to_first_token.add(took, 1);
        }
    }
}

impl Drop for CountedText {
    fn drop(&mut self) {
        self.counts.texts.fetch_sub(1, Relaxed);
        self.counts.promised.fetch_sub(self.promised, Relaxed);
    }
}

struct Spread {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    nanoseconds: AtomicU64,
}

impl Spread {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, nanoseconds: AtomicU64::new(0) }
    }

    fn add(&self, took: Duration, times: u64) {
        let place = self.bounds.partition_point(|&bound| bound < took.as_secs_f64());
        self.counts[place].fetch_add(times, Relaxed);
        self.nanoseconds.fetch_add(took.as_nanos() as u64 * times, Relaxed);
    }

    fn so_far(&self) -> Times {
        Times {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Relaxed)).collect(),
            seconds: self.nanoseconds.load(Relaxed) as f64 / 1e9,
        }
    }
}
