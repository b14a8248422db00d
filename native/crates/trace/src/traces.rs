//! The traces of a server: the settings of all models and of single ones, and whether a request is traced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use kushi_core::Error;
use rustc_hash::FxHashMap;

use crate::recording::SpanPlace;
use crate::sampling::Sampling;
use crate::{Destination, NoOutlet, Outlet, Parent, Trace, TraceChange, TraceLevel, TraceSetting};

#[derive(Clone)]
pub struct TraceOptions {
    /// Of all models, until they are changed.
    pub setting: TraceSetting,
    pub outlet: Arc<dyn Outlet>,
}

impl Default for TraceOptions {
    /// Nothing is traced, and nothing can be.
    fn default() -> Self {
        let destination = Destination::File(String::new());
        let level = TraceLevel::OFF;
        let setting = TraceSetting { level, rate: 1000, count: -1, log_frequency: 0, destination };
        Self { setting, outlet: Arc::new(NoOutlet) }
    }
}

pub struct Traces {
    /// Whether any request can be traced.
    is_on: AtomicBool,
    in_effect: ArcSwap<InEffect>,
    stated: Mutex<Stated>,
    defaults: TraceSetting,
    outlet: Arc<dyn Outlet>,
    place: Arc<SpanPlace>,
    next_setting: AtomicU64,
}

/// What requests look at.
struct InEffect {
    of_all: Arc<Sampling>,
    of_models: FxHashMap<String, Arc<Sampling>>,
}

#[derive(Default)]
struct Stated {
    of_all: Statement,
    of_models: BTreeMap<String, Statement>,
}

/// `None`: as stated for all models, or else the default.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Statement {
    level: Option<TraceLevel>,
    rate: Option<u32>,
    count: Option<i32>,
    log_frequency: Option<u32>,
}

impl Statement {
    /// `left`: what the count has become since it was stated.
    fn changed(self, change: TraceChange, left: i32) -> Self {
        Self {
            level: change.level.of(self.level),
            rate: change.rate.of(self.rate),
            count: change.count.of(self.count.map(|_| left)),
            log_frequency: change.log_frequency.of(self.log_frequency),
        }
    }

    fn is_complete(self) -> bool {
        self.level.is_some() && self.rate.is_some() && self.count.is_some() && self.log_frequency.is_some()
    }

    fn over(self, base: TraceSetting) -> TraceSetting {
        TraceSetting {
            level: self.level.unwrap_or(base.level),
            rate: self.rate.unwrap_or(base.rate),
            count: self.count.unwrap_or(base.count),
            log_frequency: self.log_frequency.unwrap_or(base.log_frequency),
            destination: base.destination,
        }
    }
}

impl Traces {
    pub fn new(options: TraceOptions) -> Self {
        let TraceOptions { setting, outlet } = options;
        let of_all = Arc::new(Sampling::new(0, setting.clone(), outlet.clone()));
        Self {
            is_on: AtomicBool::new(of_all.is_on()),
            in_effect: ArcSwap::from_pointee(InEffect { of_all, of_models: FxHashMap::default() }),
            stated: Mutex::default(),
            defaults: setting,
            outlet,
            place: Arc::default(),
            next_setting: AtomicU64::new(1),
        }
    }

    /// The trace of a request that has come to a door, if it is traced. `parent`: the trace that it came with; it is
    /// asked where it may matter.
    #[inline]
    pub fn begin(
        &self,
        model: &str,
        arrived: Instant,
        parent: impl FnOnce() -> Option<Parent>,
    ) -> Option<Trace> {
        if !self.is_on() {
            return None;
        }
        self.sample(model, arrived, parent)
    }

    /// Whether any request can be traced.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    #[cold]
    fn sample(
        &self,
        model: &str,
        arrived: Instant,
        parent: impl FnOnce() -> Option<Parent>,
    ) -> Option<Trace> {
        let in_effect = self.in_effect.load();
        let sampling = in_effect.of(model);
        let takes_parents = matches!(sampling.setting.destination, Destination::Collector(_));
        let parent = (takes_parents && sampling.is_on()).then(parent).flatten();
        let forced = parent.as_ref().is_some_and(|parent| parent.is_sampled);
        sampling.samples(forced).then(|| Trace::new(sampling, &self.place, model, parent, arrived))
    }

    /// The settings in effect for `model`, or for all where it is empty.
    pub fn setting(&self, model: &str) -> TraceSetting {
        let in_effect = self.in_effect.load();
        let sampling = in_effect.of(model);
        TraceSetting { count: sampling.left(), ..sampling.setting.clone() }
    }

    /// The same after a change of what was stated. A change that cannot be leaves everything as it was.
    pub fn change(&self, model: &str, change: TraceChange) -> Result<TraceSetting, Error> {
        if change == TraceChange::default() {
            return Ok(self.setting(model));
        }
        let mut stated = self.stated();
        let before = self.in_effect.load_full();
        let mut after = InEffect { of_all: before.of_all.clone(), of_models: before.of_models.clone() };
        if model.is_empty() {
            let of_all = stated.of_all.changed(change, before.of_all.left());
            after.of_all = self.sampling(of_all.over(self.defaults.clone()))?;
            let mut of_models = stated.of_models.clone();
            for (name, statement) in of_models.iter_mut().filter(|(_, statement)| !statement.is_complete()) {
                *statement = statement.changed(TraceChange::default(), before.of(name).left());
                let base = after.of_all.setting.clone();
                // Nobody has said anything about it: where nothing is left for it to trace, it traces nothing.
                after.of_models.insert(name.clone(), self.unchecked(statement.over(base)));
            }
            (stated.of_all, stated.of_models) = (of_all, of_models);
        } else {
            let statement = stated.of_models.get(model).copied().unwrap_or_default();
            let statement = statement.changed(change, before.of(model).left());
            if statement == Statement::default() {
                after.of_models.remove(model);
                stated.of_models.remove(model);
            } else {
                let all = &before.of_all;
                let base = TraceSetting { count: all.left(), ..all.setting.clone() };
                after.of_models.insert(model.into(), self.sampling(statement.over(base))?);
                stated.of_models.insert(model.into(), statement);
            }
        }
        let is_on = after.of_all.is_on() || after.of_models.values().any(|sampling| sampling.is_on());
        self.in_effect.store(Arc::new(after));
        self.is_on.store(is_on, Ordering::Relaxed);
        drop(stated);
        Ok(self.setting(model))
    }

    /// Writes what is left, until then at most. Nothing is traced any more.
    pub fn close(&self, until: Instant) {
        self.is_on.store(false, Ordering::Relaxed);
        self.outlet.close(until);
    }

    fn sampling(&self, setting: TraceSetting) -> Result<Arc<Sampling>, Error> {
        setting.check()?;
        Ok(self.unchecked(setting))
    }

    fn unchecked(&self, setting: TraceSetting) -> Arc<Sampling> {
        let number = self.next_setting.fetch_add(1, Ordering::Relaxed);
        Arc::new(Sampling::new(number, setting, self.outlet.clone()))
    }

    fn stated(&self) -> MutexGuard<'_, Stated> {
        self.stated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InEffect {
    fn of(&self, model: &str) -> &Arc<Sampling> {
        self.of_models.get(model).unwrap_or(&self.of_all)
    }
}
