//! A log that nobody writes, for servers that need one to change.

use std::sync::{Mutex, PoisonError};

use kushi_doors::{LogChange, LogForm, LogSettings, LogSwitch};

pub struct Log(Mutex<LogSettings>);

impl Default for Log {
    fn default() -> Self {
        let settings =
            LogSettings { verbose: 0, info: true, warning: true, error: true, form: LogForm::Triton };
        Self(Mutex::new(settings))
    }
}

impl LogSwitch for Log {
    fn file(&self) -> String {
        String::new()
    }

    fn settings(&self) -> LogSettings {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: LogChange) -> LogSettings {
        let mut settings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *settings = settings.changed(change);
        *settings
    }
}
