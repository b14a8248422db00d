//! Moments of the monotonic clock as the time of day, which clients are told.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time of day runs a little faster or slower than the monotonic clock; what is more was set by somebody.
const DRIFT: Duration = Duration::from_millis(100);

/// Milliseconds since 1970. A moment has the same ones whenever it is asked for, unless the time of day was set.
pub fn epoch_ms(then: Instant) -> u64 {
    /// Both clocks at one moment.
    static READING: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);

    let now = Instant::now();
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
    let (moment, time) = match *reading {
        Some((moment, time)) if (time + (now - moment)).abs_diff(today) <= DRIFT => (moment, time),
        _ => *reading.insert((now, today)),
    };
    let at = match then.checked_duration_since(moment) {
        Some(since) => time + since,
        None => time.saturating_sub(moment - then),
    };
    at.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_keeps_its_time_of_day() {
        let moments: Vec<_> = (0..50_u64).map(|n| Instant::now() + Duration::from_micros(n * 333)).collect();
        let told: Vec<_> = moments.iter().map(|&moment| epoch_ms(moment)).collect();
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        assert!(told.iter().all(|time| time.abs_diff(today) < 60_000));
        for _ in 0..200 {
            std::thread::sleep(Duration::from_micros(50));
            assert!(moments.iter().map(|&moment| epoch_ms(moment)).eq(told.iter().copied()));
        }
    }
}
