//! What is logged, as clients read and change it: the seam between the doors and whoever writes the log.

/// Of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub verbose: u32,
    pub info: bool,
    pub warning: bool,
    pub error: bool,
    pub form: LogForm,
}

/// What is to be different; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogChange {
    pub verbose: Option<u32>,
    pub info: Option<bool>,
    pub warning: Option<bool>,
    pub error: Option<bool>,
    pub form: Option<LogForm>,
}

/// How a line of the log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// `I1121 04:05:06.123456`
    Triton,
    /// `2026-11-21T04:05:06Z I`
    Iso,
}

/// Changes hold from the next line on. Of two at once neither undoes the other.
pub trait LogSwitch: Send + Sync {
    /// Where lines go; empty for standard error.
    fn file(&self) -> String;
    /// The settings in effect afterwards; a change of nothing asks for them.
    fn change(&self, change: LogChange) -> LogSettings;
}

impl LogSettings {
    #[must_use]
    pub fn changed(self, change: LogChange) -> Self {
        Self {
            verbose: change.verbose.unwrap_or(self.verbose),
            info: change.info.unwrap_or(self.info),
            warning: change.warning.unwrap_or(self.warning),
            error: change.error.unwrap_or(self.error),
            form: change.form.unwrap_or(self.form),
        }
    }
}

impl LogForm {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Triton => "default",
            Self::Iso => "ISO8601",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Triton, Self::Iso].into_iter().find(|form| form.name() == name)
    }
}
