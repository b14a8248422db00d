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

/// How a line of the log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// `I1121 04:05:06.123456`
    Triton,
    /// `2026-11-21T04:05:06Z I`
    Iso,
}

/// Changes hold from the next line on.
pub trait LogSwitch: Send + Sync {
    /// Where lines go; empty for standard error.
    fn file(&self) -> String;
    fn settings(&self) -> LogSettings;
    fn change(&self, settings: LogSettings);
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
