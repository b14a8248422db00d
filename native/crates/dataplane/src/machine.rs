//! Processor and memory use of the machine, from /proc.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Measures from one reading to the next; a reading serves everybody who asks within `interval`.
pub struct MachineMeter {
    interval: Duration,
    last: Mutex<Option<(Instant, Times, Reading)>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The busy share of all processors since the reading before, or since the machine started.
    pub utilization: f64,
    pub memory_total_bytes: u64,
    pub memory_used_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    busy: u64,
    total: u64,
}

impl MachineMeter {
    pub fn new(interval: Duration) -> Self {
        Self { interval, last: Mutex::new(None) }
    }

    pub fn read(&self) -> Option<Reading> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match &*last {
            Some((when, _, reading)) if when.elapsed() < self.interval => return Some(*reading),
            Some((_, times, _)) => *times,
            None => Times::default(),
        };
        let now = times(&fs::read_to_string("/proc/stat").ok()?)?;
        let (memory_total_bytes, memory_used_bytes) = memory(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let total = now.total.saturating_sub(before.total);
        let busy = now.busy.saturating_sub(before.busy);
        let utilization = if total == 0 { 0.0 } else { busy as f64 / total as f64 };
        let reading = Reading { utilization, memory_total_bytes, memory_used_bytes };
        *last = Some((Instant::now(), now, reading));
        Some(reading)
    }
}

fn times(stat: &str) -> Option<Times> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    let total = fields.iter().sum();
    let idle = fields.get(3)? + fields.get(4)?;
    Some(Times { busy: total - idle, total })
}

fn memory(info: &str) -> Option<(u64, u64)> {
    let bytes = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
    };
    let total = bytes("MemTotal:")?;
    Some((total, total.saturating_sub(bytes("MemAvailable:")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_io_wait_are_not_busy() {
        let times = times("cpu  10 1 9 70 10 0 0 0 5 5\ncpu0 1 1 1 1 1 1 1 1\n");
        assert_eq!(times, Some(Times { busy: 20, total: 100 }));
    }

    #[test]
    fn used_memory_is_what_is_not_available() {
        let info = "MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable:   40 kB\n";
        assert_eq!(memory(info), Some((102_400, 61_440)));
    }

    #[test]
    fn this_machine_can_be_read() {
        let reading = MachineMeter::new(Duration::ZERO).read();
        assert!(reading.is_some_and(|reading| (0.0..=1.0).contains(&reading.utilization)));
    }
}
