//! Log lines of the native core on standard error, in the form of the Python side's.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kushi_core::shortened;
use kushi_engine_python::exit::detached;
use kushi_server::{LogChange, LogForm, LogSettings, LogSwitch};
use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::documents::parse;
use crate::errors::raise;
use crate::standard_error;

/// Which lines are written, where, and how.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogOptions {
    verbose: u32,
    info: bool,
    warning: bool,
    error: bool,
    form: Form,
    /// What standard error is, where it is a file.
    file: String,
}

#[derive(Deserialize)]
enum Form {
    #[serde(rename = "default")]
    Triton,
    #[serde(rename = "ISO8601")]
    Iso,
}

struct StandardError(RwLock<LogState>);

struct LogState {
    settings: LogSettings,
    file: String,
}

static LOGGER: StandardError = StandardError(RwLock::new(LogState {
    settings: LogSettings { verbose: 0, info: true, warning: true, error: true, form: LogForm::Triton },
    file: String::new(),
}));

/// The first call installs the logger; the last one's options hold for the process.
pub(crate) fn init(options: LogOptions) {
    let LogOptions { verbose, info, warning, error, form, file } = options;
    let form = match form {
        Form::Triton => LogForm::Triton,
        Form::Iso => LogForm::Iso,
    };
    let _ = log::set_logger(&LOGGER);
    let mut state = LOGGER.write();
    state.file = file;
    state.set(LogSettings { verbose, info, warning, error, form });
}

/// What `Core` takes as its options' log.
#[pyfunction]
pub(crate) fn set_log(py: Python<'_>, options_json: &str) -> PyResult<()> {
    init(parse("the options of the log", options_json).map_err(|error| raise(py, &error, None))?);
    Ok(())
}

/// Writes a line, or some, among those of the native core. Nobody waits for a reader of standard error.
#[pyfunction]
pub(crate) fn write_log(text: &str) {
    standard_error::write_line(text.as_bytes());
}

/// Waits until all lines are written, but no longer than so many seconds.
#[pyfunction]
pub(crate) fn flush_log(py: Python<'_>, seconds: f64) {
    detached(py, || standard_error::flush(Duration::try_from_secs_f64(seconds).unwrap_or_default()));
}

/// The settings in effect: verbose, info, warning, error, and the name of the form.
#[pyfunction]
pub(crate) fn log_settings() -> (u32, bool, bool, bool, &'static str) {
    let LogSettings { verbose, info, warning, error, form } = LOGGER.settings();
    (verbose, info, warning, error, form.name())
}

/// The log of this process, for the doors.
struct Process;

pub(crate) fn switch() -> Arc<dyn LogSwitch> {
    Arc::new(Process)
}

impl LogSwitch for Process {
    fn file(&self) -> String {
        LOGGER.0.read().unwrap_or_else(PoisonError::into_inner).file.clone()
    }

    fn change(&self, change: LogChange) -> LogSettings {
        let mut state = LOGGER.write();
        let settings = state.settings.changed(change);
        state.set(settings);
        settings
    }
}

impl LogState {
    fn set(&mut self, settings: LogSettings) {
        self.settings = settings;
        log::set_max_level(match settings.verbose {
            0 => LevelFilter::Info,
            1 => LevelFilter::Debug,
            _ => LevelFilter::Trace,
        });
    }
}

impl StandardError {
    fn settings(&self) -> LogSettings {
        self.0.read().unwrap_or_else(PoisonError::into_inner).settings
    }

    fn write(&self) -> RwLockWriteGuard<'_, LogState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let settings = self.settings();
        match metadata.level() {
            Level::Error => settings.error,
            Level::Warn => settings.warning,
            Level::Info => settings.info,
            Level::Debug | Level::Trace => true,
        }
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let letter = match record.level() {
            Level::Error => 'E',
            Level::Warn => 'W',
            Level::Info | Level::Debug | Level::Trace => 'I',
        };
        let file = record.file().and_then(|path| path.rsplit('/').next()).unwrap_or("?");
        let line = record.line().unwrap_or(0);
        let process = std::process::id();
        let text = one_line(&shortened(record.args().to_string().into()));
        let (form, now) = (self.settings().form, SystemTime::now());
        let start = match form {
            LogForm::Triton => format!("{letter}{}", stamp(now)),
            LogForm::Iso => format!("{} {letter}", iso_stamp(now)),
        };
        standard_error::write_line(format!("{start} {process} {file}:{line}] {text}\n").as_bytes());
    }

    fn flush(&self) {}
}

/// Clients choose some of the text: none of it begins a line or speaks to a terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// `MMDD hh:mm:ss.uuuuuu`, UTC.
fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (_, month, day) = date(seconds / 86_400);
    format!("{month:02}{day:02} {}.{:06}", time_of_day(seconds), since.subsec_micros())
}

/// `YYYY-MM-DDThh:mm:ssZ`
fn iso_stamp(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = date(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}T{}Z", time_of_day(seconds))
}

fn time_of_day(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Of a day counted from 1970: the calendar repeats every 400 years of 146 097 days, and years are
/// taken to begin in March, so that the leap day is their last.
fn date(days: u64) -> (u64, u64, u64) {
    let (era, of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_calendar() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (19_782, (2024, 2, 29)),
            (20_778, (2026, 11, 21)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
