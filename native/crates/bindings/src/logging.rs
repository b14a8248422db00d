//! Log lines of the native core on standard error, in the form of the Python side's.

use std::io::Write;
use std::sync::{PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::Deserialize;

/// Which lines are written, and how.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogOptions {
    verbose: u8,
    info: bool,
    warning: bool,
    error: bool,
    form: Form,
}

#[derive(Clone, Copy, Deserialize)]
enum Form {
    #[serde(rename = "default")]
    Triton,
    #[serde(rename = "ISO8601")]
    Iso,
}

struct StandardError(RwLock<LogOptions>);

static LOGGER: StandardError = StandardError(RwLock::new(LogOptions {
    verbose: 0,
    info: true,
    warning: true,
    error: true,
    form: Form::Triton,
}));

/// The first call installs the logger; the last one's options hold for the process.
pub(crate) fn init(options: LogOptions) {
    let _ = log::set_logger(&LOGGER);
    *LOGGER.0.write().unwrap_or_else(PoisonError::into_inner) = options;
    log::set_max_level(match options.verbose {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
}

impl StandardError {
    fn options(&self) -> LogOptions {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let options = self.options();
        match metadata.level() {
            Level::Error => options.error,
            Level::Warn => options.warning,
            Level::Info => options.info,
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
        let text = record.args().to_string().replace('\n', "\\n");
        let (form, now) = (self.options().form, SystemTime::now());
        let start = match form {
            Form::Triton => format!("{letter}{}", stamp(now)),
            Form::Iso => format!("{} {letter}", iso_stamp(now)),
        };
        // In one piece: Python writes there too. A closed standard error must not take the server down.
        let whole = format!("{start} {process} {file}:{line}] {text}\n");
        let _ = std::io::stderr().lock().write_all(whole.as_bytes());
    }

    fn flush(&self) {}
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
