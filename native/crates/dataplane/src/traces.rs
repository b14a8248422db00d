//! The settings of traces, of all models and of single ones.
//!
//! There are no traces yet: what can be set is kept and told, and the level stays `OFF`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use kushi_core::Error;

/// What was set; a model that is not here has the settings of all.
#[derive(Default)]
pub struct TraceSettings(Mutex<Stated>);

#[derive(Default)]
struct Stated {
    of_all: TraceSetting,
    of_models: BTreeMap<String, TraceSetting>,
}

/// `None`: as stated for all models, or else the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSetting {
    pub rate: Option<u32>,
    pub count: Option<i32>,
    pub log_frequency: Option<u32>,
}

impl TraceSetting {
    fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            count: self.count.or(other.count),
            log_frequency: self.log_frequency.or(other.log_frequency),
        }
    }
}

impl TraceSettings {
    /// The settings in effect for `model`, or for all where it is empty, after a change of what was stated for it.
    pub fn change(
        &self,
        model: &str,
        change: impl FnOnce(TraceSetting) -> Result<TraceSetting, Error>,
    ) -> Result<TraceSetting, Error> {
        let mut stated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Stated { of_all, of_models } = &mut *stated;
        if model.is_empty() {
            *of_all = change(*of_all)?;
            return Ok(*of_all);
        }
        let setting = change(of_models.get(model).copied().unwrap_or_default())?;
        if setting == TraceSetting::default() {
            of_models.remove(model);
        } else {
            of_models.insert(model.into(), setting);
        }
        Ok(setting.or(*of_all))
    }
}
