//! What the metrics and the statistics tell of one version of a model beside its sums, where that is asked for.

mod latencies;
mod predictions;
mod responses;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kushi_core::{Answered, ModelSpec, Observer, Runner};

use crate::histogram::Histogram;

pub(crate) use latencies::{Latencies, PARTS};
pub(crate) use predictions::Predictions;
pub use responses::ResponseRow;
use responses::Responses;

/// Milliseconds to the first response, where a model has no bounds of its own.
const FIRST_RESPONSE_BUCKETS: [f64; 4] = [100.0, 500.0, 2000.0, 5000.0];

/// Which metrics there are.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Sums of latencies.
    pub counters: bool,
    /// Histograms of the time to the first response of decoupled models.
    pub histograms: bool,
    /// Of latencies; `None`: no summaries.
    pub quantiles: Option<Vec<f64>>,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self { counters: true, histograms: false, quantiles: None }
    }
}

pub(crate) struct Observed {
    pub(crate) latencies: Option<Mutex<Latencies>>,
    /// In milliseconds.
    pub(crate) first_responses: Option<Mutex<Histogram>>,
    pub(crate) responses: Option<Mutex<Responses>>,
    pub(crate) predictions: Vec<(usize, Mutex<Predictions>)>,
}

impl Observed {
    /// `None`: nothing is asked for.
    pub(crate) fn of(spec: &ModelSpec, options: &MetricsOptions) -> Option<Arc<Self>> {
        let buckets = || match &spec.metrics.first_response_buckets {
            Some(own) => own.clone(),
            None => FIRST_RESPONSE_BUCKETS.into(),
        };
        let predictions = spec.metrics.monitored.iter().map(|&output| (output, Mutex::default()));
        let observed = Self {
            latencies: options.quantiles.is_some().then(Mutex::default),
            first_responses: (options.histograms && spec.decoupled)
                .then(|| Mutex::new(Histogram::new(buckets()))),
            responses: spec.decoupled.then(Mutex::default),
            predictions: predictions.collect(),
        };
        let is_asked_for =
            observed.latencies.is_some() || observed.responses.is_some() || !observed.predictions.is_empty();
        is_asked_for.then(|| Arc::new(observed))
    }

    pub(crate) fn of_runner(runner: &Runner) -> Option<&Self> {
        (runner.observer()? as &dyn Any).downcast_ref()
    }

    /// By their numbers.
    pub(crate) fn response_rows(&self) -> Vec<ResponseRow> {
        self.responses.as_ref().map(|responses| lock(responses).rows().to_vec()).unwrap_or_default()
    }
}

impl Observer for Observed {
    fn hear(&self, spec: &ModelSpec, answer: &Answered<'_>) {
        if let (Some(latencies), Some(Ok(timings))) = (&self.latencies, answer.end) {
            lock(latencies).record(answer.total, timings, answer.now);
        }
        if let Some(first_responses) = &self.first_responses
            && answer.before == 0
            && answer.response.is_some()
        {
            // Whole milliseconds, as in Triton.
            lock(first_responses).observe(answer.total.as_millis() as f64);
        }
        if let Some(responses) = &self.responses {
            lock(responses).record(answer);
        }
        let Some(response) = answer.response else { return };
        for (output, predictions) in &self.predictions {
            let found = response.outputs.iter().find(|(index, _)| usize::from(*index) == *output);
            if let Some((_, tensor)) = found {
                lock(predictions).count(tensor, response.labels_of(spec, *output));
            }
        }
    }

    fn forget(&self) {
        self.latencies.iter().for_each(|one| *lock(one) = Latencies::default());
        self.first_responses.iter().for_each(|one| lock(one).forget());
        self.responses.iter().for_each(|one| *lock(one) = Responses::default());
        self.predictions.iter().for_each(|(_, one)| *lock(one) = Predictions::default());
    }
}

/// What is counted stays of use after a panic.
pub(crate) fn lock<T>(counted: &Mutex<T>) -> MutexGuard<'_, T> {
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}
