//! What one instance of a model holds of the metrics, by numbers that its process knows them by.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kushi_core::Error;

use super::names::Labels;
use super::series::Series;
use super::{Change, MetricKind, ModelMetrics};

/// Dropping it releases all of it.
pub struct MetricHolder {
    metrics: Arc<ModelMetrics>,
    model: Arc<str>,
    held: Mutex<HeldMetric>,
}

#[derive(Default)]
struct HeldMetric {
    last_number: u64,
    families: HashMap<String, CountedMetric>,
    series: BTreeMap<LabelledName, CountedMetric>,
    numbers: HashMap<u64, Numbered>,
    /// What processes have left behind that ended: their counters go on.
    kept: BTreeMap<LabelledName, HeldSeries>,
}

/// The name of the family, and the labels.
type LabelledName = (String, Labels);

/// One that is held several times has one number.
struct CountedMetric {
    number: u64,
    times: usize,
}

enum Numbered {
    Family(HeldFamily),
    Series(HeldSeries),
}

struct HeldFamily {
    metrics: Arc<ModelMetrics>,
    model: Arc<str>,
    name: String,
}

struct HeldSeries {
    metrics: Arc<ModelMetrics>,
    model: Arc<str>,
    place: LabelledName,
    series: Arc<Series>,
}

impl HeldMetric {
    /// Answers its number. One that is held already comes back, to be dropped behind the lock.
    fn take(&mut self, one: Numbered) -> (u64, Option<Numbered>) {
        let number = self.last_number + 1;
        let new = || CountedMetric { number, times: 0 };
        let counted = match &one {
            Numbered::Family(family) => self.families.entry(family.name.clone()).or_insert_with(new),
            Numbered::Series(one) => self.series.entry(one.place.clone()).or_insert_with(new),
        };
        counted.times += 1;
        if counted.number != number {
            return (counted.number, Some(one));
        }
        self.last_number = number;
        self.numbers.insert(number, one);
        (number, None)
    }
}

impl Drop for HeldFamily {
    fn drop(&mut self) {
        self.metrics.release_family(&self.model, &self.name);
    }
}

impl Drop for HeldSeries {
    fn drop(&mut self) {
        self.metrics.release_series(&self.model, &self.place.0, &self.place.1);
    }
}

impl MetricHolder {
    pub(super) fn new(metrics: Arc<ModelMetrics>, model: Arc<str>) -> Self {
        Self { metrics, model, held: Mutex::default() }
    }

    /// Makes a family, or finds the one of that name. Answers its number.
    pub fn family(&self, name: &str, description: &str, kind: MetricKind) -> Result<u64, Error> {
        self.metrics.hold_family(&self.model, name, description, kind)?;
        let family =
            HeldFamily { metrics: self.metrics.clone(), model: self.model.clone(), name: name.into() };
        let (number, surplus) = self.held().take(Numbered::Family(family));
        drop(surplus);
        Ok(number)
    }

    /// Makes a series, or finds the one with those labels. Answers its number.
    pub fn metric(&self, family: u64, mut labels: Labels, buckets: Option<&[f64]>) -> Result<u64, Error> {
        labels.sort();
        let name = match self.held().numbers.get(&family) {
            Some(Numbered::Family(family)) => family.name.clone(),
            _ => return Err(Error::invalid("there is no such metric family")),
        };
        let series = self.metrics.hold_series(&self.model, &name, &labels, buckets)?;
        let place = (name, labels);
        let (metrics, model) = (self.metrics.clone(), self.model.clone());
        let one = HeldSeries { metrics, model, place, series };
        let (number, surplus) = self.held().take(Numbered::Series(one));
        drop(surplus);
        Ok(number)
    }

    /// False where there is no such metric, or where it does not take that.
    pub fn change(&self, metric: u64, change: Change) -> bool {
        self.series(metric).is_some_and(|series| series.change(change))
    }

    /// `None` where there is no such metric, or where it stands at nothing.
    pub fn value(&self, metric: u64) -> Option<f64> {
        self.series(metric)?.number()
    }

    /// Of as many as were made.
    pub fn release(&self, number: u64) {
        let mut held = self.held();
        let HeldMetric { families, series, numbers, .. } = &mut *held;
        let counted = match numbers.get(&number) {
            Some(Numbered::Family(family)) => families.get_mut(&family.name),
            Some(Numbered::Series(one)) => series.get_mut(&one.place),
            None => None,
        };
        let Some(counted) = counted else { return };
        counted.times -= 1;
        if counted.times > 0 {
            return;
        }
        let released = numbers.remove(&number);
        match &released {
            Some(Numbered::Family(family)) => drop(families.remove(&family.name)),
            Some(Numbered::Series(one)) => drop(series.remove(&one.place)),
            None => {}
        }
        drop(held);
        drop(released);
    }

    /// The process has gone, and all its numbers with it. What it has counted is kept for the next one.
    pub fn process_ended(&self) {
        let mut held = self.held();
        let last_number = held.last_number;
        let HeldMetric { numbers, mut kept, .. } = std::mem::take(&mut *held);
        let mut released = Vec::new();
        for numbered in numbers.into_values() {
            match numbered {
                Numbered::Series(one) if one.series.kind.is_cumulative() => {
                    released.extend(kept.insert(one.place.clone(), one).map(Numbered::Series));
                }
                other => released.push(other),
            }
        }
        // Numbers are not given twice: what comes late of this process is about nothing.
        (held.kept, held.last_number) = (kept, last_number);
        drop(held);
        drop(released);
    }

    fn series(&self, number: u64) -> Option<Arc<Series>> {
        match self.held().numbers.get(&number) {
            Some(Numbered::Series(one)) => Some(one.series.clone()),
            _ => None,
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldMetric> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
