//! The settings of traces as values, and changes of them.

use kushi_core::Error;

/// What is recorded of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceLevel {
    pub timestamps: bool,
    pub tensors: bool,
}

impl TraceLevel {
    pub const OFF: Self = Self { timestamps: false, tensors: false };

    pub fn is_off(self) -> bool {
        self == Self::OFF
    }

    /// As Triton calls them.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.timestamps, "TIMESTAMPS"), (self.tensors, "TENSORS"), (self.is_off(), "OFF")];
        all.into_iter().filter_map(|(is_on, name)| is_on.then_some(name)).collect()
    }
}

/// Where traces go; a server has one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The file; empty: none.
    File(String),
    /// What was chosen about the collector, by Triton's names.
    Collector(Vec<(String, String)>),
}

impl Destination {
    pub fn mode(&self) -> &'static str {
        match self {
            Self::File(_) => "triton",
            Self::Collector(_) => "opentelemetry",
        }
    }
}

/// The settings in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSetting {
    pub level: TraceLevel,
    /// One of so many requests; 0: only those that come with a trace.
    pub rate: u32,
    /// How many traces are left to be made; -1: no end.
    pub count: i32,
    pub log_frequency: u32,
    pub destination: Destination,
}

impl TraceSetting {
    /// Fails where traces are wanted and cannot be.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.level.is_off() {
            return Ok(());
        }
        let reason = match &self.destination {
            _ if self.rate == 0 => "sample rate must be non-zero",
            Destination::File(file) if file.is_empty() => "trace file name is not given",
            _ if self.count == 0 => "",
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("Attempting to set invalid trace setting :{reason}")))
    }

    /// Each by its name, with its values.
    pub fn named(&self) -> Vec<(String, Vec<String>)> {
        let text = |name: &str, value: String| (name.to_owned(), vec![value]);
        let mut all = vec![
            ("trace_level".into(), self.level.names().into_iter().map(str::to_owned).collect()),
            text("trace_rate", self.rate.to_string()),
            text("trace_count", self.count.to_string()),
        ];
        let mode = self.destination.mode();
        match &self.destination {
            Destination::File(file) => {
                all.push(text("log_frequency", self.log_frequency.to_string()));
                all.push(text("trace_file", file.clone()));
                all.push(text("trace_mode", mode.into()));
            }
            Destination::Collector(chosen) => {
                all.push(text("trace_mode", mode.into()));
                all.extend(chosen.iter().map(|(name, value)| text(name, value.clone())));
            }
        }
        all
    }
}

/// What is to be different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceChange {
    pub level: Change<TraceLevel>,
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
    pub(crate) fn of(self, stated: Option<T>) -> Option<T> {
        match self {
            Self::Keep => stated,
            Self::Reset => None,
            Self::To(value) => Some(value),
        }
    }
}
