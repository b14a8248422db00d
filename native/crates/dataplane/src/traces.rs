//! The settings of traces, of all models and of single ones.
//!
//! There are no traces yet: what can be set is kept and told, and the level stays `OFF`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What was set; a model that is not here has the settings of all.
#[derive(Default)]
pub(crate) struct TraceSettings(Mutex<Stated>);

#[derive(Default)]
struct Stated {
    of_all: Statement,
    of_models: BTreeMap<String, Statement>,
}

/// `None`: as stated for all models, or else the default.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Statement {
    rate: Option<u32>,
    count: Option<i32>,
    log_frequency: Option<u32>,
}

/// The settings in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSetting {
    pub rate: u32,
    /// -1: no end.
    pub count: i32,
    pub log_frequency: u32,
}

/// What is to be different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceChange {
    pub rate: Change<u32>,
    pub count: Change<i32>,
    pub log_frequency: Change<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    #[default]
    Keep,
    /// Takes back what was stated.
    Reset,
    To(T),
}

impl<T> Change<T> {
    fn of(self, stated: Option<T>) -> Option<T> {
        match self {
            Self::Keep => stated,
            Self::Reset => None,
            Self::To(value) => Some(value),
        }
    }
}

impl Statement {
    fn changed(self, change: TraceChange) -> Self {
        Self {
            rate: change.rate.of(self.rate),
            count: change.count.of(self.count),
            log_frequency: change.log_frequency.of(self.log_frequency),
        }
    }

    fn in_effect(self, of_all: Self) -> TraceSetting {
        TraceSetting {
            rate: self.rate.or(of_all.rate).unwrap_or(1000),
            count: self.count.or(of_all.count).unwrap_or(-1),
            log_frequency: self.log_frequency.or(of_all.log_frequency).unwrap_or(0),
        }
    }
}

impl TraceSettings {
    /// The settings in effect for `model`, or for all where it is empty, after a change of what was stated for it.
    pub(crate) fn change(&self, model: &str, change: TraceChange) -> TraceSetting {
        let mut stated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Stated { of_all, of_models } = &mut *stated;
        if model.is_empty() {
            *of_all = of_all.changed(change);
            return of_all.in_effect(Statement::default());
        }
        let statement = of_models.get(model).copied().unwrap_or_default().changed(change);
        if statement == Statement::default() {
            of_models.remove(model);
        } else {
            of_models.insert(model.into(), statement);
        }
        statement.in_effect(*of_all)
    }
}
