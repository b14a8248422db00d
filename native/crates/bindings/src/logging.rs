//! Log lines of the native core on standard error, in the form of the Python side's.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};

struct StandardError;

static LOGGER: StandardError = StandardError;

/// The first call installs the logger; every call sets the level.
pub(crate) fn init(verbose: u8) {
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(match verbose {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
}

impl Log for StandardError {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let letter = match record.level() {
            Level::Error => 'E',
            Level::Warn => 'W',
            Level::Info | Level::Debug | Level::Trace => 'I',
        };
        let file = record.file().and_then(|path| path.rsplit('/').next()).unwrap_or("?");
        let line = record.line().unwrap_or(0);
        let process = std::process::id();
        let text = record.args().to_string().replace('\n', "\\n");
        let stamp = stamp(SystemTime::now());
        // A closed standard error must not take the server down.
        let _ = writeln!(std::io::stderr().lock(), "{letter}{stamp} {process} {file}:{line}] {text}");
    }

    fn flush(&self) {}
}

/// `MMDD hh:mm:ss.uuuuuu`, UTC.
fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (month, day) = month_and_day(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{:06}", since.subsec_micros())
}

/// Of a day counted from 1970: the calendar repeats every 400 years of 146 097 days, and years are
/// taken to begin in March, so that the leap day is their last.
fn month_and_day(days: u64) -> (u64, u64) {
    let of_era = (days + 719_468) % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    ((from_march + 2) % 12 + 1, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_calendar() {
        for (days, expected) in [(0, (1, 1)), (58, (2, 28)), (59, (3, 1)), (19_782, (2, 29)), (20_778, (11, 21))] {
            assert_eq!(month_and_day(days), expected);
        }
    }
}
