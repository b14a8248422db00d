//! The metrics that models make, beside those of the server: one family for all that give it the same name, one series
//! for all that give it the same labels.
//!
//! Whoever makes one holds it, and it goes with the last that does. A value has a lock of its own: changing one waits
//! for nobody who makes or reads others.

mod holder;
mod names;
mod series;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kushi_core::Error;

pub use holder::MetricHolder;
pub use series::{Change, MetricKind};

use names::Labels;
use series::Series;

/// Of one model: so many families, and so many series in all of them.
const MOST: usize = 1000;

#[derive(Default)]
pub struct ModelMetrics {
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    families: BTreeMap<String, Family>,
    models: HashMap<Arc<str>, Count>,
}

struct Family {
    kind: MetricKind,
    description: String,
    holders: Holders,
    series: BTreeMap<Labels, HeldMetrics>,
}

struct HeldMetrics {
    series: Arc<Series>,
    holders: Holders,
}

/// How often each model holds it.
type Holders = HashMap<Arc<str>, usize>;

/// What a model holds, each thing counted once.
#[derive(Default)]
struct Count {
    families: usize,
    series: usize,
}

impl ModelMetrics {
    /// For one instance of a model.
    pub fn holder(self: &Arc<Self>, model: &str) -> MetricHolder {
        MetricHolder::new(self.clone(), model.into())
    }

    /// Prometheus text.
    pub(crate) fn write(&self, out: &mut String) {
        for (name, family) in &self.made().families {
            if family.series.is_empty() {
                continue;
            }
            names::write_head(out, name, &family.description, family.kind);
            for (labels, held) in &family.series {
                held.series.write(out, name, labels);
            }
        }
    }

    fn hold_family(
        &self,
        model: &Arc<str>,
        name: &str,
        description: &str,
        kind: MetricKind,
    ) -> Result<(), Error> {
        names::check_family(name, description)?;
        let mut made = self.made();
        match made.families.get_mut(name) {
            Some(family) => family.check_same(model, name, description, kind)?,
            None => made.check_free(name, kind)?,
        }
        let Made { families, models } = &mut *made;
        let counted = &mut models.entry(model.clone()).or_default().families;
        let is_new = families.get(name).is_none_or(|family| !family.holders.contains_key(model));
        if is_new && *counted >= MOST {
            return Err(too_many(model, "metric families"));
        }
        *counted += usize::from(is_new);
        let family = families.entry(name.into()).or_insert_with(|| Family {
            kind,
            description: description.into(),
            holders: Holders::new(),
            series: BTreeMap::new(),
        });
        *family.holders.entry(model.clone()).or_default() += 1;
        Ok(())
    }

    /// Whoever calls this holds the family.
    fn hold_series(
        &self,
        model: &Arc<str>,
        name: &str,
        labels: &Labels,
        buckets: Option<&[f64]>,
    ) -> Result<Arc<Series>, Error> {
        let mut made = self.made();
        let Made { families, models } = &mut *made;
        let Some(family) = families.get_mut(name) else {
            return Err(Error::invalid(format!("there is no metric family '{name}'")));
        };
        names::check_labels(name, labels, family.kind)?;
        let known = family.series.get(labels);
        let counted = &mut models.entry(model.clone()).or_default().series;
        let is_new = known.is_none_or(|held| !held.holders.contains_key(model));
        if is_new && *counted >= MOST {
            return Err(too_many(model, "metrics"));
        }
        let series = match known {
            Some(held) => held.series.clone(),
            None => Arc::new(Series::new(name, family.kind, buckets)?),
        };
        series.check_buckets(name, buckets)?;
        *counted += usize::from(is_new);
        let held = family
            .series
            .entry(labels.clone())
            .or_insert_with(|| HeldMetrics { series, holders: Holders::new() });
        *held.holders.entry(model.clone()).or_default() += 1;
        Ok(held.series.clone())
    }

    fn release_family(&self, model: &Arc<str>, name: &str) {
        let mut made = self.made();
        let Made { families, models } = &mut *made;
        let Some(family) = families.get_mut(name) else { return };
        if has_gone(&mut family.holders, model)
            && let Some(count) = models.get_mut(model)
        {
            count.families -= 1;
        }
        made.tidy(model, name);
    }

    fn release_series(&self, model: &Arc<str>, name: &str, labels: &Labels) {
        let mut made = self.made();
        let Made { families, models } = &mut *made;
        let Some(family) = families.get_mut(name) else { return };
        let Some(held) = family.series.get_mut(labels) else { return };
        if has_gone(&mut held.holders, model)
            && let Some(count) = models.get_mut(model)
        {
            count.series -= 1;
        }
        if held.holders.is_empty() {
            family.series.remove(labels);
        }
        made.tidy(model, name);
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    /// No other family has samples of the same names.
    fn check_free(&self, name: &str, kind: MetricKind) -> Result<(), Error> {
        let own = names::samples(name, kind);
        let taken = |other: &str, kind| names::samples(other, kind).iter().any(|sample| own.contains(sample));
        match self.families.iter().find(|(other, family)| taken(other, family.kind)) {
            Some((other, _)) => Err(Error::invalid(format!(
                "metric family '{name}' would have samples of the same name as '{other}'"
            ))),
            None if own.iter().any(|sample| crate::metrics::is_of_server(sample)) => {
                Err(Error::invalid(format!("metric family '{name}' has the name of a metric of the server")))
            }
            None => Ok(()),
        }
    }

    /// What nobody holds goes.
    fn tidy(&mut self, model: &Arc<str>, name: &str) {
        if self.families.get(name).is_some_and(|family| family.holders.is_empty() && family.series.is_empty())
        {
            self.families.remove(name);
        }
        if self.models.get(model).is_some_and(|count| count.families == 0 && count.series == 0) {
            self.models.remove(model);
        }
    }
}

impl Family {
    /// A model may describe anew what is its own: so does its next version. What others have described stays as it is.
    fn check_same(
        &mut self,
        model: &Arc<str>,
        name: &str,
        description: &str,
        kind: MetricKind,
    ) -> Result<(), Error> {
        if self.kind != kind {
            let known = self.kind.name();
            let text = format!("metric family '{name}' is a {known} and cannot be a {} as well", kind.name());
            return Err(Error::invalid(text));
        }
        if self.description != description {
            let others = self.series.values().map(|held| &held.holders).chain([&self.holders]);
            if others.flat_map(HashMap::keys).all(|holder| holder == model) {
                self.description = description.into();
            }
        }
        Ok(())
    }
}

/// Whether the model does not hold it any more.
fn has_gone(holders: &mut Holders, model: &Arc<str>) -> bool {
    let Some(count) = holders.get_mut(model) else { return false };
    *count -= 1;
    let has_gone = *count == 0;
    if has_gone {
        holders.remove(model);
    }
    has_gone
}

fn too_many(model: &str, what: &str) -> Error {
    Error::invalid(format!("model '{model}' has {MOST} {what}, which is the most"))
}

#[cfg(test)]
mod tests;
